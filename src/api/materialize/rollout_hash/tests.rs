use rstest::rstest;
use serde_json::{Value, json};

use super::{MEMBERS, RolloutHash, hashed_form};
use crate::api::materialize::v1::MaterializeSpec;

fn minimal() -> Value {
    json!({
        "environmentdImageRef": "materialize/environmentd:v26.0.0",
        "backendSecretName": "mz-backend",
    })
}

fn with(members: Value) -> Value {
    let mut spec = minimal();
    spec.as_object_mut()
        .unwrap()
        .extend(members.as_object().unwrap().clone());
    spec
}

fn form(spec: &Value) -> String {
    hashed_form(spec.as_object().unwrap()).to_string()
}

fn hash(spec: &Value) -> RolloutHash {
    RolloutHash::of_members(spec.as_object().unwrap(), None)
}

#[rstest]
#[case::minimal(
    minimal(),
    None,
    908,
    "4261d32e27318d466939ee0bd618bbfe8673e5e08fff19f87a81ac2857bb0167",
    "e5ff5b38-9511-5a66-93c0-aa32c67335c6"
)]
#[case::annotation(
    minimal(),
    Some("a4b56cbb-a13e-4f95-8a9d-425c9ba28576"),
    908,
    "844e2bc6a30da1a08736429508fcfcc26a72a093295f7e7c237bdc81009b0b12",
    "d9540980-2085-5567-a73a-bed2e033e3fe"
)]
#[case::environment_id_and_labels(
    with(json!({"environmentId": "12345678-1234-1234-1234-123456789012", "podLabels": {"team": "data"}})),
    None,
    919,
    "3ba93e0b4aac21298850f49d5a332425e86a8cc57ce356de602fe63ce9269981",
    "da620d05-f153-5742-9b7c-a9d8d60e33f8"
)]
fn published_vectors(
    #[case] spec: Value,
    #[case] annotation: Option<&str>,
    #[case] length: usize,
    #[case] expected: &str,
    #[case] request_id: &str,
) {
    assert_eq!(form(&spec).len(), length);
    let typed: MaterializeSpec = serde_json::from_value(spec.clone()).unwrap();
    for hash in [
        RolloutHash::of_members(spec.as_object().unwrap(), annotation),
        RolloutHash::of(&typed, annotation),
    ] {
        assert_eq!(hash.as_str(), expected);
        assert_eq!(hash.request_id().to_string(), request_id);
    }
}

#[test]
fn form_of_a_full_spec() {
    let spec = with(json!({
        "environmentdExtraArgs": ["--log-filter=info"],
        "environmentdExtraEnv": [
            {"valueFrom": {"secretKeyRef": {"name": "demo-extra", "key": "token"}}, "name": "TOKEN"},
            {"value": "1", "name": "A"},
        ],
        "environmentdResourceRequirements": {"requests": {"memory": "8Gi", "cpu": 2}, "limits": {"memory": "8Gi"}},
        "environmentdScratchVolumeStorageRequirement": 1,
        "podLabels": {"b": "2", "a": "1"},
        "forceRollout": "7D1D3A46-2A5A-4B53-8A55-3E6D0A7F7C42",
        "authenticatorKind": "Password",
        "enableRbac": true,
        "internalCertificateSpec": {
            "issuerRef": {"name": "corp-ca", "kind": "ClusterIssuer", "group": "cert-manager.io"},
            "secretTemplate": {"labels": {"team": "data"}},
            "dnsNames": ["demo"],
        },
    }));
    insta::assert_snapshot!(form(&spec));
}

#[rstest]
#[case::unhashed_resources("balancerdResourceRequirements", json!({"limits": {"cpu": "1"}}))]
#[case::unhashed_replicas("consoleReplicas", json!(3))]
#[case::unhashed_promotion("forcePromote", json!("x"))]
#[case::unhashed_certificate("balancerdExternalCertificateSpec", json!({"duration": "1h"}))]
#[case::newer("balancerdConfigmapName", json!("config"))]
#[case::unknown("unknown", json!({"a": 1}))]
fn members_outside_the_hash(#[case] member: &str, #[case] value: Value) {
    assert_eq!(hash(&with(json!({member: value}))), hash(&minimal()));
}

#[rstest]
#[case::strategy("rolloutStrategy", json!("ManuallyPromote"))]
#[case::timeout("rolloutRequestTimeout", json!("6h"))]
#[case::empty_list("environmentdExtraArgs", json!([]))]
#[case::empty_map("podLabels", json!({}))]
#[case::not_of_its_type("enableRbac", json!("yes"))]
#[case::neither("podLabels", json!({"a": 1}))]
fn members_inside_the_hash(#[case] member: &str, #[case] value: Value) {
    assert_ne!(hash(&with(json!({member: value}))), hash(&minimal()));
}

#[test]
fn null_counts_as_absent() {
    for (member, _) in MEMBERS {
        let mut absent = minimal();
        absent.as_object_mut().unwrap().shift_remove(member);
        assert_eq!(
            hash(&with(json!({member: null}))),
            hash(&absent),
            "{member}"
        );
    }
    assert_eq!(
        hash(&with(
            json!({"internalCertificateSpec": {"duration": "1h", "issuerRef": null}})
        )),
        hash(&with(
            json!({"internalCertificateSpec": {"duration": "1h"}})
        ))
    );
    assert_eq!(
        hash(&with(json!({"podLabels": {"a": 1, "b": null}}))),
        hash(&with(json!({"podLabels": {"a": 1}})))
    );
}

#[test]
fn later_certificate_members_count_only_when_set() {
    let certificate = |members: Value| hash(&with(json!({"internalCertificateSpec": members})));
    let empty = form(&with(json!({"internalCertificateSpec": {}})));
    assert!(
        empty.ends_with(
            r#":{"dnsNames":null,"duration":null,"renewBefore":null,"issuerRef":null,"secretTemplate":null}}"#
        ),
        "{empty}"
    );
    assert_ne!(
        certificate(json!({"privateKeyAlgorithm": "RSA"})),
        certificate(json!({}))
    );
}

#[test]
fn order_of_maps_and_spelling_of_uuids_do_not_count() {
    assert_eq!(
        hash(&with(json!({"podLabels": {"a": "1", "b": "2"}}))),
        hash(&with(json!({"podLabels": {"b": "2", "a": "1"}})))
    );
    assert_eq!(
        hash(&with(
            json!({"environmentId": "0c7a2f0e-27c6-4f0a-8a39-0a3e0c2a5d10"})
        )),
        hash(&with(
            json!({"environmentId": "0C7A2F0E27C64F0A8A390A3E0C2A5D10"})
        ))
    );
}
