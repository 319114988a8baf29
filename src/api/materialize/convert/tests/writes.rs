//! What a write at v1 does to a stored object: the decisions on each item of `crds.md` §6.2.

use rstest::rstest;
use serde_json::{Value, json};

use super::{HASH, NIL, OTHER, V1, V1alpha1, complete_spec, convert, extend, object, status};
use crate::api::materialize::convert::Version;

/// `requestRollout` of the stored objects here, as a user of v1alpha1 set it.
const STORED: &str = OTHER;
/// `requestRollout` of the rollout before.
const EARLIER: &str = "1c9e7a52-0000-4000-8000-000000000001";
/// Rollout hash of what ran before.
const EARLIER_HASH: &str = "0d";

fn stored(spec: Value, members: Value) -> Value {
    let mut whole = complete_spec();
    extend(&mut whole, json!({"requestRollout": STORED}));
    extend(&mut whole, spec);
    object(V1alpha1, json!({"spec": whole, "status": status(members)}))
}

/// Settled on [`STORED`], by an operator that did not record rollout hashes.
fn settled() -> Value {
    stored(
        json!({}),
        json!({"lastCompletedRolloutRequest": STORED, "resourcesHash": "resources"}),
    )
}

/// Settled, and then rolling on after an edit at v1.
fn rolling() -> Value {
    write(&settled(), |v1| {
        v1["spec"]["environmentdImageRef"] = json!("next")
    })
}

fn read(stored: &Value, version: Version) -> Value {
    convert(stored.clone(), version).unwrap()
}

/// The object that is stored after a write at v1.
fn write(stored: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut v1 = read(stored, V1);
    change(&mut v1);
    convert(v1, V1alpha1).unwrap()
}

fn set(stored: &Value, part: &str, members: Value) -> Value {
    let mut stored = stored.clone();
    extend(&mut stored[part], members);
    stored
}

fn request(stored: &Value) -> &str {
    stored["spec"]["requestRollout"].as_str().unwrap()
}

fn completed(stored: &Value) -> &str {
    stored["status"]["lastCompletedRolloutRequest"]
        .as_str()
        .unwrap()
}

/// Items 1, 2 and 7: a write that changes nothing loses nothing, whatever is under way.
#[rstest]
#[case::settled(settled())]
#[case::rolling(rolling())]
#[case::first_rollout(stored(json!({}), json!({"lastCompletedRolloutRequest": NIL, "resourcesHash": ""})))]
#[case::ready_to_promote(stored(
    json!({"forcePromote": STORED}),
    json!({
        "lastCompletedRolloutRequest": EARLIER,
        "lastCompletedRolloutHash": EARLIER_HASH,
        "resourcesHash": "next",
        "conditions": [{"type": "UpToDate", "reason": "ReadyToPromote"}],
    })
))]
#[case::promoting(stored(
    json!({}),
    json!({
        "lastCompletedRolloutRequest": EARLIER,
        "resourcesHash": "next",
        "conditions": [{"type": "UpToDate", "reason": "Promoting"}],
    })
))]
#[case::deprecated_members(set(
    &settled(), "spec",
    json!({"environmentdIamRoleArn": "arn", "inPlaceRollout": false, "forcePromote": ""})
))]
fn an_unchanged_write_changes_nothing(#[case] stored: Value) {
    assert_eq!(write(&stored, |_| ()), stored);
}

/// Item 1: no generation is made of a change that concerns no generation.
#[test]
fn a_change_outside_the_hash_is_all_that_is_written() {
    let written = write(&settled(), |v1| v1["spec"]["balancerdReplicas"] = json!(3));
    assert_eq!(
        written,
        set(&settled(), "spec", json!({"balancerdReplicas": 3}))
    );
}

/// Items 1 and 10: a rollout is requested, and the resources hash is there to find that it would
/// change nothing.
#[test]
fn a_change_of_the_strategy_is_a_request_that_may_need_no_generation() {
    let written = write(&settled(), |v1| {
        v1["spec"]["rolloutStrategy"] = json!("ManuallyPromote")
    });
    assert_ne!(request(&written), STORED);
    assert_eq!(completed(&written), STORED);
    assert_eq!(written["status"]["resourcesHash"], "resources");
}

/// Item 3: the object asks for the new spec, and nothing says that it were completed. What the
/// promotion completes, the controller reads off the generation itself.
#[test]
fn a_change_while_promoting_is_not_lost() {
    let promoting = set(
        &rolling(),
        "status",
        json!({"conditions": [{"type": "UpToDate", "reason": "Promoting"}]}),
    );
    let written = write(&promoting, |v1| {
        v1["spec"]["environmentdImageRef"] = json!("third")
    });
    assert_ne!(request(&written), request(&promoting));
    assert_eq!(written["status"], promoting["status"]);
}

/// Item 4.
#[test]
fn going_back_to_what_runs_cancels() {
    let rolling = rolling();
    assert_ne!(request(&rolling), STORED);
    assert_eq!(completed(&rolling), STORED);
    assert_eq!(rolling["status"]["lastCompletedRolloutHash"], HASH);
    let written = write(&rolling, |v1| v1["spec"] = complete_spec());
    assert_eq!(request(&written), STORED);
    assert_eq!(written["status"], rolling["status"]);
}

/// Item 4, for what was settled before anything recorded a completed request.
#[test]
fn going_back_to_what_runs_needs_no_recorded_request() {
    let unrecorded = set(
        &rolling(),
        "status",
        json!({"lastCompletedRolloutRequest": NIL}),
    );
    let written = write(&unrecorded, |v1| v1["spec"] = complete_spec());
    assert_eq!(request(&written), super::REQUEST);
    assert_eq!(completed(&written), super::REQUEST);
}

/// Item 5: the request counts as completed, so that nothing is tried again; the hash does not.
#[test]
fn a_rollout_that_timed_out_is_not_shown_as_completed() {
    let rolling = rolling();
    let timed_out = set(
        &rolling,
        "status",
        json!({"lastCompletedRolloutRequest": request(&rolling)}),
    );
    let v1 = read(&timed_out, V1);
    assert_eq!(v1["status"]["lastCompletedRolloutHash"], HASH);
    assert_ne!(v1["status"]["requestedRolloutHash"], HASH);

    let resynced = write(&timed_out, |_| ());
    assert_eq!(request(&resynced), completed(&resynced));
    let elsewhere = write(&timed_out, |v1| v1["spec"]["enableRbac"] = json!(true));
    assert_ne!(request(&elsewhere), completed(&elsewhere));
    let again = write(&elsewhere, |v1| {
        v1["spec"] = read(&rolling, V1)["spec"].clone()
    });
    assert_eq!(request(&again), request(&rolling));
    assert_ne!(
        request(&again),
        completed(&again),
        "the spec was never live"
    );
}

/// Changes at v1alpha1 that nobody has requested stay unrequested, whoever resyncs at v1.
#[test]
fn a_write_approves_nothing() {
    let recorded = set(
        &settled(),
        "status",
        json!({"lastCompletedRolloutHash": HASH}),
    );
    let waiting = set(&recorded, "spec", json!({"environmentdImageRef": "next"}));
    let v1 = read(&waiting, V1);
    assert_eq!(v1["status"]["lastCompletedRolloutHash"], HASH);
    assert_ne!(v1["status"]["requestedRolloutHash"], HASH);
    assert_eq!(write(&waiting, |_| ()), waiting);
}

/// Item 7: a promotion is forced by the request or the hash of the rollout it was meant for, and of
/// no other.
#[test]
fn a_forced_promotion_is_kept_and_names_its_own_rollout() {
    let forced = set(&settled(), "spec", json!({"forcePromote": STORED}));
    let written = write(&forced, |v1| {
        v1["spec"]["environmentdImageRef"] = json!("next")
    });
    assert_eq!(written["spec"]["forcePromote"], STORED);
    assert_ne!(request(&written), STORED);
}

/// Item 11: a role that stood beside its annotation had no effect; v1 has no place for it once the
/// spec is edited.
#[rstest]
#[case::beside_another(json!({"eks.amazonaws.com/role-arn": "kept"}), "kept")]
#[case::alone(json!(null), "arn")]
fn the_role_in_effect_is_kept(#[case] annotations: Value, #[case] role: &str) {
    let spec = json!({"environmentdIamRoleArn": "arn", "serviceAccountAnnotations": annotations});
    let written = write(&set(&settled(), "spec", spec), |v1| {
        v1["spec"]["enableRbac"] = json!(true)
    });
    assert_eq!(written["spec"].get("environmentdIamRoleArn"), None);
    assert_eq!(
        written["spec"]["serviceAccountAnnotations"],
        json!({"eks.amazonaws.com/role-arn": role})
    );
}

/// A remainder that does not belong to the status, or holds what must not be stored, counts as none:
/// the object is what Materialize's own operator would make of it.
#[rstest]
#[case::absent(json!(null))]
#[case::of_another_status(json!({"rolloutHash": "another", "spec": {"requestRollout": STORED}, "status": {"lastCompletedRolloutRequest": STORED, "resourcesHash": ""}}))]
#[case::without_resources(json!({"rolloutHash": HASH, "spec": {"requestRollout": STORED}, "status": {"lastCompletedRolloutRequest": STORED}}))]
#[case::request_that_is_none(json!({"rolloutHash": HASH, "spec": {"requestRollout": 5}, "status": {"lastCompletedRolloutRequest": STORED, "resourcesHash": "", "lastCompletedRolloutHash": HASH}}))]
#[case::promotion(json!({"rolloutHash": HASH, "spec": {"requestRollout": STORED, "forcePromote": STORED}, "status": {"lastCompletedRolloutRequest": STORED, "resourcesHash": ""}}))]
#[case::foreign_member(json!({"rolloutHash": HASH, "spec": {"requestRollout": STORED, "backendSecretName": "mine"}, "status": {"lastCompletedRolloutRequest": STORED, "resourcesHash": ""}}))]
fn a_misfit_counts_as_none(#[case] remainder: Value) {
    let written = write(&settled(), |v1| v1["status"]["v1alpha1"] = remainder);
    let mut expected = status(json!({"lastCompletedRolloutHash": HASH}));
    extend(
        &mut expected,
        json!({"lastCompletedRolloutRequest": super::REQUEST, "resourcesHash": ""}),
    );
    assert_eq!(request(&written), super::REQUEST);
    assert_eq!(written["status"], expected);
}
