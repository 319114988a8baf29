//! The round-trip properties of `crds.md` §2.7, over generated objects.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::ROLE_ARN_ANNOTATION;
use super::{
    COMMON, NIL, V1, V1alpha1, Version, complete_spec, convert, other, status, take_remainder,
};

/// Any JSON of little depth.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!("")),
        Just(json!(NIL)),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..4)
                .prop_map(|members| members.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

/// Some of the named members, with any values.
fn members(names: Vec<&'static str>) -> impl Strategy<Value = Map<String, Value>> {
    let count = names.len();
    prop::sample::subsequence(names, 0..=count).prop_flat_map(|names| {
        names
            .into_iter()
            .map(|name| any_json().prop_map(move |value| (name.to_owned(), value)))
            .collect::<Vec<_>>()
            .prop_map(|members| members.into_iter().collect())
    })
}

fn spec_members() -> impl Strategy<Value = Map<String, Value>> {
    let versioned = ["requestRollout", "inPlaceRollout", "environmentdIamRoleArn"];
    let others = ["forcePromote", "unknown"];
    members([COMMON.as_slice(), &versioned, &others].concat())
}

fn status_members() -> impl Strategy<Value = Map<String, Value>> {
    members(vec![
        "resourceId",
        "activeGeneration",
        "conditions",
        "lastCompletedRolloutRequest",
        "lastCompletedRolloutEnvironmentdImageRef",
        "resourcesHash",
        "lastCompletedRolloutHash",
        "requestedRolloutHash",
        "v1alpha1",
        "unknown",
    ])
}

fn versions() -> impl Strategy<Value = Version> {
    prop_oneof![Just(V1), Just(V1alpha1)]
}

prop_compose! {
    /// Any part of an object, of any version.
    fn any_part()(
        version in versions(),
        spec in prop::option::of(spec_members()),
        status in prop::option::of(status_members()),
        metadata in any_json(),
        unknown in prop::option::of(any_json()),
    ) -> (Version, Value) {
        let mut object = json!({"apiVersion": version.api_version(), "kind": "Materialize", "metadata": metadata});
        for (name, part) in [("spec", spec.map(Value::from)), ("status", status.map(Value::from)), ("unknown", unknown)] {
            if let Some(part) = part {
                object[name] = part;
            }
        }
        (version, object)
    }
}

fn text(pattern: &'static str) -> impl Strategy<Value = Option<String>> {
    prop::option::of(pattern)
}

prop_compose! {
    /// A complete object as the API server validates it: settled, rolling or before its first rollout.
    fn complete(version: Version)(
        labels in prop::option::of(prop::collection::btree_map("[a-z]{1,3}", "[a-z]{0,3}", 0..3)),
        replicas in prop::option::of(0..5i32),
        promote in prop::option::of(prop_oneof!["[a-f0-9]{0,4}", Just(NIL.to_owned())]),
        arn in text("[a-z]{0,3}"),
        annotations in prop::option::of(prop::collection::btree_map(prop_oneof!["[a-z]{1,3}", Just(ROLE_ARN_ANNOTATION.to_owned())], "[a-z]{0,3}", 0..3)),
        in_place in prop::option::of(any::<bool>()),
        request in prop_oneof![Just(NIL.to_owned()), "[a-f]{8}-0000-4000-8000-[0-9]{12}"],
        settled: bool,
        promoting: bool,
        hash in text("[a-f0-9]{64}"),
        resources in "[a-f0-9]{0,4}",
    ) -> Value {
        let mut spec = complete_spec();
        let reason = if promoting { "Promoting" } else { "Applied" };
        let mut status = status(json!({"conditions": [{"type": "UpToDate", "reason": reason}]}));
        let common = [
            ("podLabels", json!(labels)),
            ("balancerdReplicas", json!(replicas)),
            ("serviceAccountAnnotations", json!(annotations)),
        ];
        let stored = [
            ("environmentdIamRoleArn", json!(arn)),
            ("inPlaceRollout", json!(in_place)),
            ("forcePromote", json!(promote)),
        ];
        // v1 leaves out what names no rollout.
        let promoted = promote.filter(|text| !text.is_empty() && text != NIL);
        let served = [("forcePromote", json!(promoted))];
        let versioned = if version == V1alpha1 { stored.as_slice() } else { served.as_slice() };
        for (name, value) in common.iter().chain(versioned) {
            if !value.is_null() {
                spec[*name] = value.clone();
            }
        }
        if let Some(hash) = hash {
            status["lastCompletedRolloutHash"] = hash.into();
        }
        if version == V1alpha1 {
            status["lastCompletedRolloutRequest"] = if settled { json!(request) } else { json!("11111111-0000-4000-8000-000000000000") };
            status["resourcesHash"] = resources.into();
            spec["requestRollout"] = request.into();
        }
        json!({"apiVersion": version.api_version(), "kind": "Materialize", "metadata": {"name": "demo"}, "spec": spec, "status": status})
    }
}

fn across(object: &Value) -> Value {
    let from: Version = object["apiVersion"].as_str().unwrap().parse().unwrap();
    convert(object.clone(), other(from)).unwrap()
}

fn there_and_back(object: &Value) -> Value {
    across(&across(object))
}

/// A stored object after its spec was edited at v1.
fn edit(stored: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut object = across(stored);
    change(&mut object["spec"]);
    across(&object)
}

/// Whether a v1alpha1 object has no rollout outstanding.
fn is_settled(object: &Value) -> bool {
    let request = &object["spec"]["requestRollout"];
    *request != json!(NIL) && *request == object["status"]["lastCompletedRolloutRequest"]
}

/// An object as an operator left it that recorded no rollout hash.
fn before_hashes(mut object: Value) -> Value {
    let status = object["status"].as_object_mut().unwrap();
    status.remove("lastCompletedRolloutHash");
    object
}

/// The same without a rollout outstanding.
fn settled_before_hashes(object: Value) -> Value {
    let mut object = before_hashes(object);
    if object["spec"]["requestRollout"] == json!(NIL) {
        object["spec"]["requestRollout"] = json!("22222222-0000-4000-8000-000000000000");
    }
    object["status"]["lastCompletedRolloutRequest"] = object["spec"]["requestRollout"].clone();
    object
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn total_and_deterministic((_, object) in any_part()) {
        prop_assert_eq!(across(&object), across(&object));
    }

    #[test]
    fn frame_and_unknown_members_stay((version, object) in any_part()) {
        let converted = across(&object);
        prop_assert_eq!(&converted["apiVersion"], other(version).api_version());
        for name in ["kind", "metadata", "unknown"] {
            prop_assert_eq!(object.get(name), converted.get(name));
        }
        for part in ["spec", "status"] {
            prop_assert_eq!(object.get(part).is_some(), converted.get(part).is_some());
            prop_assert_eq!(object[part].get("unknown"), converted[part].get("unknown"));
        }
    }

    #[test]
    fn parts_gain_no_members((version, object) in any_part()) {
        prop_assume!(!["environmentdImageRef", "backendSecretName"].iter().all(|name| object["spec"][name].is_string()));
        let converted = across(&object);
        for part in ["spec", "status"] {
            for (name, value) in converted[part].as_object().into_iter().flatten() {
                if name == "serviceAccountAnnotations" && version == V1alpha1 {
                    continue;
                }
                prop_assert_eq!(object[part].get(name), Some(value));
            }
        }
    }

    #[test]
    fn the_second_round_trip_changes_nothing((_, object) in any_part()) {
        let once = there_and_back(&object);
        prop_assert_eq!(there_and_back(&once), once);
    }

    #[test]
    fn v1_survives_storage(object in complete(V1)) {
        let back = there_and_back(&object);
        prop_assert_eq!(&object["spec"], &back["spec"]);
        let mut status = back["status"].clone();
        status.as_object_mut().unwrap().retain(|name, _| name != "requestedRolloutHash" && name != "v1alpha1");
        prop_assert_eq!(&object["status"], &status);
    }

    #[test]
    fn storage_survives_v1(object in complete(V1alpha1)) {
        prop_assert_eq!(there_and_back(&object), object);
    }

    /// What came back is as it was, but for the hash that was not recorded yet and for what v1
    /// says in another way.
    #[test]
    fn an_edit_can_be_taken_back(object in complete(V1alpha1)) {
        let object = settled_before_hashes(object);
        let edited = edit(&object, |spec| spec["environmentdImageRef"] = json!("edited"));
        prop_assert_ne!(&edited["spec"]["requestRollout"], &object["spec"]["requestRollout"]);
        prop_assert!(!is_settled(&edited));
        let back = edit(&edited, |spec| spec["environmentdImageRef"] = object["spec"]["environmentdImageRef"].clone());
        prop_assert!(is_settled(&back));
        prop_assert_eq!(&back["spec"]["requestRollout"], &object["spec"]["requestRollout"]);
        prop_assert_eq!(&back["status"]["resourcesHash"], &object["status"]["resourcesHash"]);
        prop_assert_eq!(&across(&back)["spec"], &across(&object)["spec"]);
    }

    #[test]
    fn without_a_remainder_settled_stays_settled_and_rolling_stays_rolling(object in complete(V1alpha1)) {
        let object = before_hashes(object);
        let mut v1 = across(&object);
        take_remainder(&mut v1);
        prop_assert_eq!(is_settled(&object), is_settled(&across(&v1)));
    }

    #[test]
    fn a_remainder_of_anything_is_no_danger(object in complete(V1), remainder in any_json()) {
        let expected = across(&object);
        let mut object = object;
        object["status"]["v1alpha1"] = remainder;
        prop_assert_eq!(across(&object), expected);
    }

    #[test]
    fn an_unchanged_write_keeps_the_request(object in complete(V1)) {
        let stored = across(&object);
        prop_assert_eq!(&there_and_back(&stored)["spec"], &stored["spec"]);
    }
}
