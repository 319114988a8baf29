//! The field table of `crds.md` §2.2, member by member, and what holds for parts and frames.

mod properties;
mod writes;

use rstest::rstest;
use serde_json::{Map, Value, json};

use super::Version::{V1, V1alpha1};
use super::{ConvertError, Version, convert};

const HASH: &str = "4261d32e27318d466939ee0bd618bbfe8673e5e08fff19f87a81ac2857bb0167";
const REQUEST: &str = "e5ff5b38-9511-5a66-93c0-aa32c67335c6";
const OTHER: &str = "5b0f3c2e-6f0a-4d0e-9a55-0f1f6a0d9a11";
const NIL: &str = "00000000-0000-0000-0000-000000000000";

/// Spec members that are the same in both versions.
const COMMON: [&str; 26] = [
    "environmentdImageRef",
    "environmentdExtraArgs",
    "environmentdExtraEnv",
    "environmentdConnectionRoleArn",
    "environmentdResourceRequirements",
    "environmentdScratchVolumeStorageRequirement",
    "balancerdResourceRequirements",
    "consoleResourceRequirements",
    "balancerdReplicas",
    "consoleReplicas",
    "serviceAccountName",
    "serviceAccountAnnotations",
    "serviceAccountLabels",
    "podAnnotations",
    "podLabels",
    "forceRollout",
    "rolloutStrategy",
    "rolloutRequestTimeout",
    "backendSecretName",
    "authenticatorKind",
    "enableRbac",
    "environmentId",
    "systemParameterConfigmapName",
    "balancerdExternalCertificateSpec",
    "consoleExternalCertificateSpec",
    "internalCertificateSpec",
];

fn object(version: Version, parts: Value) -> Value {
    let mut object = json!({
        "apiVersion": version.api_version(),
        "kind": "Materialize",
        "metadata": {"name": "demo", "namespace": "mz-demo"},
    });
    extend(&mut object, parts);
    object
}

fn extend(value: &mut Value, members: Value) {
    let members: Map<String, Value> = serde_json::from_value(members).unwrap();
    value.as_object_mut().unwrap().extend(members);
}

fn other(version: Version) -> Version {
    match version {
        V1 => V1alpha1,
        V1alpha1 => V1,
    }
}

/// Converts to the other version the parts of an object of this one.
fn across(from: Version, parts: Value) -> Value {
    convert(object(from, parts), other(from)).unwrap()
}

fn complete_spec() -> Value {
    json!({"environmentdImageRef": "materialize/environmentd:v26.0.0", "backendSecretName": "mz-backend"})
}

fn status(members: Value) -> Value {
    let mut status = json!({"resourceId": "abcdefghij", "activeGeneration": 2, "conditions": []});
    extend(&mut status, members);
    status
}

fn take_remainder(v1: &mut Value) -> Option<Value> {
    v1["status"]
        .as_object_mut()
        .unwrap()
        .shift_remove("v1alpha1")
}

#[test]
fn common_members_are_copied_raw() {
    for from in [V1, V1alpha1] {
        for name in COMMON {
            for value in [
                json!(null),
                json!(""),
                json!(5),
                json!({"a": null, "b": [1]}),
            ] {
                let parts = json!({"spec": {name: value}});
                assert_eq!(
                    across(from, parts.clone()),
                    object(other(from), parts),
                    "{name} from {from}"
                );
            }
        }
        let absent = json!({"spec": {}});
        assert_eq!(across(from, absent.clone()), object(other(from), absent));
    }
}

#[rstest]
#[case::request_absent(json!({}), json!({}))]
#[case::request_null(json!({"requestRollout": null}), json!({}))]
#[case::request(json!({"requestRollout": OTHER}), json!({}))]
#[case::in_place_null(json!({"inPlaceRollout": null}), json!({}))]
#[case::in_place(json!({"inPlaceRollout": true}), json!({}))]
#[case::promote_null(json!({"forcePromote": null}), json!({"forcePromote": null}))]
#[case::promote_empty(json!({"forcePromote": ""}), json!({}))]
#[case::promote_nil(json!({"forcePromote": NIL}), json!({}))]
#[case::promote(json!({"forcePromote": OTHER}), json!({"forcePromote": OTHER}))]
#[case::promote_odd(json!({"forcePromote": 7}), json!({"forcePromote": 7}))]
#[case::arn_null(json!({"environmentdIamRoleArn": null}), json!({}))]
#[case::arn_null_beside_null(
    json!({"environmentdIamRoleArn": null, "serviceAccountAnnotations": null}),
    json!({"serviceAccountAnnotations": null})
)]
#[case::arn_without_annotations(
    json!({"environmentdIamRoleArn": "arn"}),
    json!({"serviceAccountAnnotations": {"eks.amazonaws.com/role-arn": "arn"}})
)]
#[case::arn_beside_null(
    json!({"environmentdIamRoleArn": "arn", "serviceAccountAnnotations": null}),
    json!({"serviceAccountAnnotations": {"eks.amazonaws.com/role-arn": "arn"}})
)]
#[case::arn_beside_others(
    json!({"environmentdIamRoleArn": "arn", "serviceAccountAnnotations": {"a": "1"}}),
    json!({"serviceAccountAnnotations": {"a": "1", "eks.amazonaws.com/role-arn": "arn"}})
)]
#[case::arn_beside_itself(
    json!({"environmentdIamRoleArn": "arn", "serviceAccountAnnotations": {"eks.amazonaws.com/role-arn": "kept"}}),
    json!({"serviceAccountAnnotations": {"eks.amazonaws.com/role-arn": "kept"}})
)]
#[case::arn_beside_no_object(
    json!({"environmentdIamRoleArn": "arn", "serviceAccountAnnotations": 5}),
    json!({"serviceAccountAnnotations": 5})
)]
fn spec_members_to_v1(#[case] spec: Value, #[case] expected: Value) {
    assert_eq!(
        across(V1alpha1, json!({"spec": spec})),
        object(V1, json!({"spec": expected}))
    );
}

#[rstest]
#[case(json!({}))]
#[case(json!({"forcePromote": null}))]
#[case(json!({"forcePromote": ""}))]
#[case(json!({"forcePromote": HASH}))]
fn spec_members_to_v1alpha1(#[case] spec: Value) {
    assert_eq!(
        across(V1, json!({"spec": spec})),
        object(V1alpha1, json!({"spec": spec}))
    );
}

#[rstest]
#[case::resource_id(json!({"resourceId": "a"}), json!({"resourceId": "a"}))]
#[case::generation_null(json!({"activeGeneration": null}), json!({"activeGeneration": null}))]
#[case::image(
    json!({"lastCompletedRolloutEnvironmentdImageRef": "i"}),
    json!({"lastCompletedRolloutEnvironmentdImageRef": "i"})
)]
#[case::conditions(json!({"conditions": [{"reason": "Promoting"}]}), json!({"conditions": [{"reason": "Promoting"}]}))]
#[case::completed_hash(json!({"lastCompletedRolloutHash": "h"}), json!({"lastCompletedRolloutHash": "h"}))]
#[case::completed_hash_null(json!({"lastCompletedRolloutHash": null}), json!({"lastCompletedRolloutHash": null}))]
#[case::completed_request(json!({"lastCompletedRolloutRequest": OTHER}), json!({}))]
#[case::completed_request_null(json!({"lastCompletedRolloutRequest": null}), json!({}))]
fn status_members_to_v1(#[case] status: Value, #[case] expected: Value) {
    assert_eq!(
        across(V1alpha1, json!({"status": status})),
        object(V1, json!({"status": expected}))
    );
}

#[rstest]
#[case::completed_hash(json!({"lastCompletedRolloutHash": "h"}), json!({"lastCompletedRolloutHash": "h"}))]
#[case::completed_hash_null(json!({"lastCompletedRolloutHash": null}), json!({"lastCompletedRolloutHash": null}))]
#[case::requested_hash(json!({"requestedRolloutHash": "h"}), json!({}))]
#[case::requested_hash_null(json!({"requestedRolloutHash": null}), json!({}))]
#[case::remainder(json!({"v1alpha1": {"rolloutHash": HASH}}), json!({}))]
#[case::remainder_null(json!({"v1alpha1": null}), json!({}))]
fn status_members_to_v1alpha1(#[case] status: Value, #[case] expected: Value) {
    assert_eq!(
        across(V1, json!({"status": status})),
        object(V1alpha1, json!({"status": expected}))
    );
}

#[rstest]
#[case::settled(json!({}), REQUEST, json!({"requestedRolloutHash": HASH, "lastCompletedRolloutHash": HASH}))]
#[case::settled_in_capitals(json!({}), "E5FF5B38-9511-5A66-93C0-AA32C67335C6", json!({"requestedRolloutHash": HASH, "lastCompletedRolloutHash": HASH}))]
#[case::rolling(json!({}), OTHER, json!({"requestedRolloutHash": HASH}))]
#[case::first(json!({}), NIL, json!({"requestedRolloutHash": HASH}))]
#[case::not_a_uuid(json!({}), "?", json!({"requestedRolloutHash": HASH}))]
#[case::stored(
    json!({"lastCompletedRolloutHash": "h"}), OTHER,
    json!({"requestedRolloutHash": HASH, "lastCompletedRolloutHash": "h"})
)]
#[case::stored_null(json!({"lastCompletedRolloutHash": null}), OTHER, json!({"requestedRolloutHash": HASH}))]
#[case::promoting(
    json!({"conditions": [{"reason": "Promoting"}]}), OTHER,
    json!({"conditions": [{"reason": "Promoting"}]})
)]
fn derived_status_of_v1(#[case] members: Value, #[case] completed: &str, #[case] expected: Value) {
    let mut stored = status(members);
    extend(
        &mut stored,
        json!({"lastCompletedRolloutRequest": completed, "resourcesHash": "r"}),
    );
    let mut spec = complete_spec();
    extend(&mut spec, json!({"requestRollout": REQUEST}));
    let mut converted = across(V1alpha1, json!({"spec": spec, "status": stored}));
    assert!(take_remainder(&mut converted).is_some());
    assert_eq!(converted["status"], status(expected));
    assert_eq!(converted["spec"], complete_spec());
}

#[test]
fn two_nil_requests_are_not_a_settled_rollout() {
    let stored = status(json!({"lastCompletedRolloutRequest": NIL, "resourcesHash": ""}));
    let mut converted = across(V1alpha1, json!({"spec": complete_spec(), "status": stored}));
    take_remainder(&mut converted);
    assert_eq!(
        converted["status"],
        status(json!({"requestedRolloutHash": HASH}))
    );
}

#[test]
fn the_status_of_v1_carries_what_v1_has_no_place_for() {
    let mut spec = complete_spec();
    let left_of_spec = json!({
        "requestRollout": OTHER,
        "inPlaceRollout": true,
        "forcePromote": "",
        "environmentdIamRoleArn": "arn",
        "serviceAccountAnnotations": {"a": "1"},
    });
    extend(&mut spec, left_of_spec.clone());
    let left_of_status = json!({
        "lastCompletedRolloutRequest": OTHER,
        "resourcesHash": "r",
        "lastCompletedRolloutHash": "h",
    });
    let parts = json!({"spec": spec, "status": status(left_of_status.clone())});
    let mut converted = across(V1alpha1, parts);
    assert_eq!(
        take_remainder(&mut converted),
        Some(json!({
            "rolloutHash": converted["status"]["requestedRolloutHash"],
            "spec": left_of_spec,
            "status": left_of_status,
        }))
    );
}

#[test]
fn only_complete_objects_carry_a_remainder() {
    let complete = status(json!({"lastCompletedRolloutRequest": OTHER, "resourcesHash": "r"}));
    let no_hash = status(json!({"lastCompletedRolloutRequest": OTHER}));
    for (spec, status) in [
        (json!({"backendSecretName": "s"}), complete),
        (complete_spec(), no_hash),
    ] {
        let mut converted = across(V1alpha1, json!({"spec": spec, "status": status}));
        assert_eq!(take_remainder(&mut converted), None);
    }
}

#[rstest]
#[case::without(json!({}), NIL)]
#[case::null(json!({"lastCompletedRolloutHash": null}), NIL)]
#[case::settled(json!({"lastCompletedRolloutHash": HASH}), REQUEST)]
fn derived_members_of_v1alpha1(#[case] members: Value, #[case] completed: &str) {
    let converted = across(
        V1,
        json!({"spec": complete_spec(), "status": status(members.clone())}),
    );
    let mut expected = status(members);
    extend(
        &mut expected,
        json!({"lastCompletedRolloutRequest": completed, "resourcesHash": ""}),
    );
    assert_eq!(converted["status"], expected);
    assert_eq!(converted["spec"]["requestRollout"], REQUEST);
}

#[test]
fn the_annotation_counts() {
    let annotated = json!({
        "metadata": {"annotations": {"materialize.cloud/force-rollout": "a4b56cbb-a13e-4f95-8a9d-425c9ba28576"}},
        "spec": complete_spec(),
    });
    assert_eq!(
        across(V1, annotated)["spec"]["requestRollout"],
        "d9540980-2085-5567-a73a-bed2e033e3fe"
    );
}

#[test]
fn nulls_and_a_broken_status_do_not_cost_the_request() {
    let mut spec = complete_spec();
    extend(&mut spec, json!({"forcePromote": null, "enableRbac": null}));
    let converted = across(
        V1,
        json!({"spec": spec, "status": {"conditions": "broken"}}),
    );
    assert_eq!(converted["spec"]["requestRollout"], REQUEST);
    assert_eq!(converted["status"], json!({"conditions": "broken"}));
}

#[rstest]
#[case(json!({"status": {"resourceId": "a"}}))]
#[case(json!({"status": status(json!({}))}))]
#[case(json!({"spec": {"backendSecretName": "s"}, "status": status(json!({}))}))]
#[case(json!({"spec": {"environmentdImageRef": null, "backendSecretName": "s"}}))]
#[case(json!({"metadata": {"labels": null, "annotations": {"a": "1"}}}))]
#[case(json!({"spec": {}, "status": {}}))]
fn parts_gain_nothing(#[case] parts: Value) {
    for from in [V1, V1alpha1] {
        assert_eq!(
            across(from, parts.clone()),
            object(other(from), parts.clone())
        );
    }
}

#[test]
fn a_part_with_both_required_members_gains_only_the_request() {
    let mut spec = complete_spec();
    assert_eq!(
        across(V1alpha1, json!({"spec": spec.clone()})),
        object(V1, json!({"spec": spec.clone()}))
    );
    let converted = across(V1, json!({"spec": spec.clone()}));
    extend(&mut spec, json!({"requestRollout": REQUEST}));
    assert_eq!(converted, object(V1alpha1, json!({"spec": spec})));
}

#[test]
fn null_parts_are_left_out() {
    assert_eq!(
        across(V1, json!({"spec": null, "status": null})),
        object(V1alpha1, json!({}))
    );
}

#[rstest]
#[case(json!([]), ConvertError::NotAnObject)]
#[case(json!({"kind": "Materialize"}), ConvertError::NoVersion)]
#[case(json!({"apiVersion": 1, "kind": "Materialize"}), ConvertError::NoVersion)]
#[case(
    json!({"apiVersion": "materialize.cloud/v1alpha2", "kind": "Materialize"}),
    ConvertError::UnknownVersion("materialize.cloud/v1alpha2".to_owned())
)]
#[case(json!({"apiVersion": "materialize.cloud/v1alpha1", "kind": "Balancer"}), ConvertError::Kind)]
#[case(object(V1alpha1, json!({"spec": 5})), ConvertError::PartNotAnObject("spec"))]
#[case(object(V1alpha1, json!({"status": []})), ConvertError::PartNotAnObject("status"))]
fn frames_that_cannot_be_converted(#[case] object: Value, #[case] expected: ConvertError) {
    assert_eq!(convert(object, V1), Err(expected));
}

#[test]
fn the_wanted_version_is_returned_as_it_is() {
    let odd = json!({"apiVersion": "materialize.cloud/v1", "spec": 5, "requestRollout": null});
    assert_eq!(convert(odd.clone(), V1), Ok(odd));
}
