use rstest::rstest;
use semver::Version;

use super::super::gates::*;
use super::*;

/// Everything whose presence depends on the image, as text.
fn rendered(options: &[&str], tag: &str, kind: &str) -> Vec<String> {
    let mut materialize = full();
    materialize.spec.environmentd_image_ref = format!("materialize/environmentd:{tag}");
    materialize.spec.authenticator_kind = serde_json::from_value(json!(kind)).unwrap();
    let objects = render(
        &crate::controller::rendering::fixtures::options(options),
        &materialize,
    );
    let pod = objects.stateful_set.spec.unwrap().template.spec.unwrap();
    let container = &pod.containers[0];
    let variables = container
        .env
        .iter()
        .flatten()
        .map(|env| format!("env {}", env.name));
    let volumes = pod
        .volumes
        .iter()
        .flatten()
        .map(|volume| format!("volume {}", volume.name));
    let mounts = container.volume_mounts.iter().flatten();
    let mounts = mounts.map(|mount| format!("mount {}", mount.mount_path));
    let arguments = container.args.iter().flatten().cloned();
    arguments
        .chain(variables)
        .chain(volumes)
        .chain(mounts)
        .collect()
}

fn has(found: &[String], start: &str) -> bool {
    found.iter().any(|text| text.starts_with(start))
}

/// Absent in the version before the gate, present from it on.
#[rstest]
#[case("v0.139.9", "v0.140.0-dev.0", "volume license-key")]
#[case("v0.139.9", "v0.140.0-dev.0", "mount /license_key")]
#[case("v0.139.9", "v0.140.0-dev.0", "env MZ_LICENSE_KEY")]
#[case(
    "v0.144.0-dev.0",
    "v0.144.0",
    "--orchestrator-kubernetes-service-affinity="
)]
#[case(
    "v0.144.0-dev.0",
    "v0.144.0",
    "--orchestrator-kubernetes-service-tolerations="
)]
#[case("v0.147.0-dev", "v0.147.0-dev.0", "--listeners-config-path=")]
#[case("v0.147.0-dev", "v0.147.0-dev.0", "volume listeners-configmap")]
#[case("v0.147.0-dev", "v0.147.0-dev.0", "mount /listeners")]
#[case(
    "v0.147.0-dev",
    "v0.147.0-dev.0",
    "--system-parameter-default=enable_password_auth=true"
)]
#[case(
    "v0.147.0-dev",
    "v0.147.0-dev.0",
    "env MZ_EXTERNAL_LOGIN_PASSWORD_MZ_SYSTEM"
)]
#[case(
    "v0.154.0-dev.0",
    "v0.154.0",
    "--orchestrator-kubernetes-service-annotation="
)]
#[case("v26.0.9", "v26.1.0-dev.0", "--config-sync-file-path=")]
#[case("v26.0.9", "v26.1.0-dev.0", "volume system-params")]
#[case(
    "v26.41.9",
    "v26.42.0-dev.0",
    "--orchestrator-kubernetes-priority-class-name=middle"
)]
fn from_a_version_on(#[case] before: &str, #[case] from: &str, #[case] what: &str) {
    assert!(!has(&rendered(FULL, before, "Password"), what));
    assert!(has(&rendered(FULL, from, "Password"), what));
    assert!(has(&rendered(FULL, "unstable", "Password"), what));
}

#[rstest]
#[case("--sql-listen-addr=0.0.0.0:6875")]
#[case("--http-listen-addr=0.0.0.0:6876")]
#[case("--internal-sql-listen-addr=0.0.0.0:6877")]
#[case("--internal-http-listen-addr=0.0.0.0:6878")]
fn listen_arguments_until_0_147(#[case] argument: &str) {
    assert!(has(&rendered(FULL, "v0.146.9", "None"), argument));
    assert!(!has(&rendered(FULL, "v0.147.0-dev.0", "None"), argument));
}

#[rstest]
#[case("v0.142.9", false, false)]
#[case("v0.143.0", true, false)]
#[case("v0.152.9", true, false)]
#[case("v0.153.0", false, true)]
#[case("unstable", false, true)]
fn disabled_license_key_checks(#[case] tag: &str, #[case] argument: bool, #[case] volume: bool) {
    let found = rendered(&["--disable-license-key-checks"], tag, "None");
    assert_eq!(has(&found, "--disable-license-key-checks"), argument);
    assert_eq!(has(&found, "volume license-key"), volume);
    assert!(!has(
        &rendered(&[], tag, "None"),
        "--disable-license-key-checks"
    ));
}

#[rstest]
#[case("None", false)]
#[case("Frontegg", false)]
#[case("Password", true)]
#[case("Sasl", true)]
#[case("Oidc", true)]
fn password_logins(#[case] kind: &str, #[case] expected: bool) {
    let found = rendered(&[], "v26.40.0", kind);
    assert_eq!(
        has(&found, "env MZ_EXTERNAL_LOGIN_PASSWORD_MZ_SYSTEM"),
        expected
    );
    assert_eq!(
        has(&found, "--system-parameter-default=enable_password_auth"),
        expected
    );
}

#[rstest]
#[case("v0.146.9", 6878, "http", false)]
#[case("v26.40.0", 6876, "https", true)]
fn the_leader_of_a_password_environment(
    #[case] tag: &str,
    #[case] port: u16,
    #[case] scheme: &str,
    #[case] login: bool,
) {
    let mut materialize = full();
    materialize.spec.environmentd_image_ref = format!("materialize/environmentd:{tag}");
    let objects = render(&options(FULL), &materialize);
    let leader = objects.leader();
    assert_eq!((leader.port, leader.scheme.as_str()), (port, scheme));
    assert_eq!(leader.login_secret_name.is_some(), login);
}

#[rstest]
#[case("v26.31.9", false)]
#[case("v26.32.0-dev.0", false)]
#[case("v26.32.0", true)]
fn the_schema_of_the_listeners(#[case] tag: &str, #[case] roles_per_route: bool) {
    let mut materialize = minimal();
    materialize.spec.environmentd_image_ref = format!("materialize/environmentd:{tag}");
    let objects = render(&options(&[]), &materialize);
    let text = &objects.listeners().data.as_ref().unwrap()["listeners.json"];
    let listeners: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(listeners["version"] == "26.32.0", roles_per_route);
    assert_eq!(
        listeners["http"]["external"]["routes"]["base"].is_object(),
        roles_per_route
    );
}

#[test]
fn every_gate_is_a_version() {
    for gate in [
        LICENSE_KEY,
        DISABLE_LICENSE_KEY_CHECKS,
        CLUSTERD_SCHEDULING,
        LISTENERS,
        LICENSE_KEY_ALWAYS,
        CLUSTERD_ANNOTATIONS,
        LICENSE_KEY_MANDATORY,
        SYSTEM_PARAMETERS,
        ROUTE_ROLES,
        PRIORITY_CLASS,
    ] {
        Version::parse(gate.0).unwrap();
    }
}
