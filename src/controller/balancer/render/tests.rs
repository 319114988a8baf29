use insta::assert_yaml_snapshot;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::controller::rendering::fixtures::{FULL, inputs, metadata, options, resource_id};

fn balancer(spec: Value) -> Balancer {
    let mut balancer = Balancer::new("b", serde_json::from_value(spec).unwrap());
    balancer.metadata = metadata("b");
    balancer
}

fn minimal() -> Balancer {
    balancer(json!({
        "balancerdImageRef": "materialize/balancerd:v26.40.0",
        "staticRouting": { "environmentdNamespace": "other", "environmentdServiceName": "svc" },
    }))
}

fn full() -> Balancer {
    balancer(json!({
        "balancerdImageRef": "registry:5000/mz/balancerd:v26.44.0",
        "resourceRequirements": { "requests": { "cpu": "1" } },
        "replicas": 5,
        "externalCertificateSpec": { "dnsNames": ["own.example.com"] },
        "podAnnotations": { "note": "pod" },
        "podLabels": { "team": "data", "app": "no" },
        "staticRouting": { "environmentdNamespace": "other", "environmentdServiceName": "svc" },
        "configmapName": "settings",
    }))
}

#[rstest]
#[case::minimal("minimal", &[], minimal())]
#[case::full("full", FULL, full())]
fn objects(#[case] name: &str, #[case] flags: &[&str], #[case] balancer: Balancer) {
    let options = options(flags);
    let (inputs, id) = (inputs(&options), resource_id());
    let rendered = deployment(inputs, &balancer, &id).unwrap();
    assert_yaml_snapshot!(format!("deployment_{name}"), rendered);
    let rendered = service(inputs, &balancer, &id).unwrap();
    assert_yaml_snapshot!(format!("service_{name}"), rendered);
    let rendered = certificate(inputs, &balancer, &id).unwrap();
    assert_yaml_snapshot!(format!("certificate_{name}"), rendered);
}

#[test]
fn the_selector_does_not_follow_the_users_labels() {
    let options = options(&[]);
    let selector = |balancer: &Balancer| {
        let rendered = deployment(inputs(&options), balancer, &resource_id()).unwrap();
        rendered.spec.unwrap().selector
    };
    assert_eq!(selector(&minimal()), selector(&full()));
}

#[rstest]
#[case::none(json!(null), json!(null), "set spec.staticRouting")]
#[case::frontegg(json!(null), json!({}), "not implemented")]
#[case::both(
    json!({ "environmentdNamespace": "a", "environmentdServiceName": "b" }),
    json!({}),
    "remove spec.fronteggRouting"
)]
fn routing_must_be_one(#[case] fixed: Value, #[case] frontegg: Value, #[case] way_out: &str) {
    let balancer = balancer(json!({
        "balancerdImageRef": "i", "staticRouting": fixed, "fronteggRouting": frontegg,
    }));
    let options = options(&[]);
    let error = deployment(inputs(&options), &balancer, &resource_id()).unwrap_err();
    assert!(error.to_string().contains(way_out), "{error}");
}
