use insta::assert_yaml_snapshot;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::controller::rendering::fixtures::{FULL, inputs, metadata, options, resource_id};

fn console(spec: Value) -> Console {
    let mut console = Console::new("c", serde_json::from_value(spec).unwrap());
    console.metadata = metadata("c");
    console
}

fn minimal() -> Console {
    console(json!({
        "consoleImageRef": "materialize/console:v26.9.0",
        "balancerd": { "serviceName": "svc", "namespace": "ns", "scheme": "http" },
    }))
}

fn full() -> Console {
    console(json!({
        "consoleImageRef": "registry:5000/mz/console:v26.13.0",
        "resourceRequirements": { "requests": { "cpu": "1" } },
        "replicas": 5,
        "externalCertificateSpec": { "dnsNames": ["own.example.com"] },
        "podAnnotations": { "note": "pod" },
        "podLabels": { "team": "data", "app": "no" },
        "balancerd": {
            "serviceName": "svc", "namespace": "ns", "scheme": "https",
            "dnsNames": ["balancerd.example.com"],
        },
        "authenticatorKind": "Oidc",
    }))
}

#[rstest]
#[case::minimal("minimal", &[], minimal())]
#[case::full("full", FULL, full())]
fn objects(#[case] name: &str, #[case] flags: &[&str], #[case] console: Console) {
    let options = options(flags);
    let (inputs, id) = (inputs(&options), resource_id());
    let rendered = config_map(&console, &id).unwrap();
    assert_yaml_snapshot!(format!("config_map_{name}"), rendered);
    let rendered = deployment(inputs, &console, &id).unwrap();
    assert_yaml_snapshot!(format!("deployment_{name}"), rendered);
    let rendered = service(inputs, &console, &id).unwrap();
    assert_yaml_snapshot!(format!("service_{name}"), rendered);
    let rendered = network_policies(inputs, &console, &id).unwrap();
    assert_yaml_snapshot!(format!("network_policies_{name}"), rendered);
    let rendered = certificate(inputs, &console, &id).unwrap();
    assert_yaml_snapshot!(format!("certificate_{name}"), rendered);
}

#[rstest]
#[case("m/console:v26.9.0", "v26.9.0")]
#[case("registry:5000/m/console:v1@sha256:ab", "v1")]
#[case("registry:5000/m/console", "registry:5000/m/console")]
fn the_version_is_the_tag(#[case] image: &str, #[case] version: &str) {
    let mut console = minimal();
    console.spec.console_image_ref = image.to_owned();
    let data = config_map(&console, &resource_id()).unwrap().data.unwrap();
    let config: Value = serde_json::from_str(&data["app-config.json"]).unwrap();
    assert_eq!(config["version"], version);
}
