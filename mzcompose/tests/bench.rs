//! The benchmark as a command.

use std::process::Command;

use serde_json::Value;

#[test]
fn a_handover_is_measured_and_told_to_programs() {
    let output = Command::new(env!("CARGO_BIN_EXE_mzcompose"))
        .args([
            "bench", "handover", "--only", "floor", "--rounds", "2", "--json",
        ])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let floor = &report["candidates"][0];
    assert_eq!(
        (&floor["name"], &floor["rounds"]),
        (&"floor".into(), &2.into())
    );
    let [p50, max] = ["p50_ms", "max_ms"].map(|name| floor[name].as_f64().unwrap());
    assert!(0.0 < p50 && p50 <= max, "{floor}");
    let released = floor["release_visible"]["max_ms"].as_f64().unwrap();
    assert!(0.0 < released, "{floor}");
    assert!(
        report["kubernetes"].as_str().unwrap().starts_with("v1."),
        "{report}"
    );
}
