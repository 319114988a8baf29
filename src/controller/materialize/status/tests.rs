use rstest::rstest;

use super::*;
use crate::api::materialize::v1alpha1::MaterializeSpec;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn materialize(generation: i64) -> Materialize {
    let mut materialize = Materialize::new(
        "env",
        MaterializeSpec {
            environmentd_image_ref: "materialize/environmentd:v26.40.0".to_owned(),
            request_rollout: Uuid::from_u128(2),
            ..MaterializeSpec::default()
        },
    );
    materialize.metadata.generation = Some(generation);
    materialize
}

fn before() -> MaterializeStatus {
    MaterializeStatus {
        resource_id: "abc".to_owned(),
        active_generation: 1,
        last_completed_rollout_request: Uuid::from_u128(1),
        last_completed_rollout_environmentd_image_ref: Some("old".to_owned()),
        resources_hash: "one".to_owned(),
        last_completed_rollout_hash: Some("of the old".to_owned()),
        conditions: Vec::new(),
    }
}

fn all_transitions() -> Vec<Transition> {
    let generation = Generation(2);
    let hash = || "two".to_owned();
    vec![
        Transition::Applying(generation),
        Transition::ReadyToPromote {
            generation,
            hash: hash(),
        },
        Transition::Promoting {
            generation,
            hash: hash(),
        },
        Transition::Promoted(Promoted {
            generation,
            request: Uuid::from_u128(2),
            image: "new".to_owned(),
            rollout_hash: Some("of the new".to_owned()),
        }),
        Transition::UpToDate {
            hash: hash(),
            rollout_hash: "of the spec".to_owned(),
        },
        Transition::WaitingForApproval(generation),
        Transition::FailedDeploy("cannot apply Service a/b: forbidden".to_owned()),
        Transition::TimedOut {
            generation,
            timeout: Duration::from_secs(5400),
        },
    ]
}

#[test]
fn every_transition_writes_its_status() {
    let written: Vec<_> = all_transitions()
        .iter()
        .map(|transition| transition.apply(&materialize(3), &before(), at(1000)))
        .collect();
    insta::assert_yaml_snapshot!(written);
}

#[test]
fn events_of_a_rollout_name_the_generation_and_are_normal() {
    for transition in all_transitions() {
        let status = transition.apply(&materialize(3), &before(), at(1000));
        let event = event(&status.conditions[0]);
        let is_failure = matches!(
            transition,
            Transition::FailedDeploy(_) | Transition::TimedOut { .. }
        );
        assert_eq!(
            event.type_ == EventType::Warning,
            is_failure,
            "{transition:?}"
        );
        assert!(
            is_failure || event.note.unwrap().contains("generation"),
            "{transition:?}"
        );
    }
}

/// The transition time of `second`, one minute after `first` at the same generation or later.
fn clock(first: &Transition, second: &Transition, edited: bool) -> i64 {
    let begun = first.apply(&materialize(3), &before(), at(1000));
    let status = second.apply(&materialize(if edited { 4 } else { 3 }), &begun, at(1060));
    status.conditions[0].last_transition_time.0.as_second()
}

#[rstest]
#[case::ready(Transition::ReadyToPromote { generation: Generation(2), hash: String::new() }, false, 1000)]
#[case::again(Transition::Applying(Generation(2)), false, 1000)]
#[case::edited(Transition::Applying(Generation(2)), true, 1060)]
#[case::failed(Transition::FailedDeploy(String::new()), false, 1000)]
#[case::promoting(Transition::Promoting { generation: Generation(2), hash: String::new() }, false, 1060)]
fn the_clock_of_a_rollout_goes_on(
    #[case] second: Transition,
    #[case] edited: bool,
    #[case] seconds: i64,
) {
    assert_eq!(
        clock(&Transition::Applying(Generation(2)), &second, edited),
        seconds
    );
}

#[test]
fn failing_again_and_again_does_not_stop_the_clock() {
    let failed = Transition::FailedDeploy(String::new());
    assert_eq!(
        clock(&failed, &Transition::Applying(Generation(2)), false),
        1000
    );
    assert_eq!(
        clock(&failed, &Transition::Applying(Generation(2)), true),
        1060
    );
    let settled = Transition::UpToDate {
        hash: String::new(),
        rollout_hash: String::new(),
    };
    assert_eq!(
        clock(&settled, &Transition::Applying(Generation(2)), false),
        1060
    );
}

#[test]
fn a_status_that_only_differs_in_time_is_not_written() {
    let transition = Transition::UpToDate {
        hash: "one".to_owned(),
        rollout_hash: String::new(),
    };
    let first = transition.apply(&materialize(3), &before(), at(1000));
    let second = transition.apply(&materialize(3), &before(), at(2000));
    assert_ne!(first, second);
    assert!(!differs(Some(&first), &second));
    assert!(differs(
        Some(&first),
        &transition.apply(&materialize(4), &before(), at(1000))
    ));
    assert!(differs(None, &first));
}

#[test]
fn the_first_status_takes_up_a_known_generation() {
    let mut known = materialize(1);
    assert_eq!(initial(&known).unwrap().active_generation, 0);
    let set = |materialize: &mut Materialize, text: &str| {
        let key = LAST_KNOWN_ACTIVE_GENERATION_ANNOTATION.to_owned();
        materialize.annotations_mut().insert(key, text.to_owned());
    };
    set(&mut known, "41");
    assert_eq!(initial(&known).unwrap().active_generation, 41);
    set(&mut known, "many");
    assert!(
        initial(&known)
            .unwrap_err()
            .to_string()
            .contains("\"many\"")
    );
}

#[test]
fn resource_ids_are_ten_lower_case_letters_and_digits() {
    let ids: std::collections::HashSet<_> = (0..50).map(|_| new_resource_id()).collect();
    assert_eq!(ids.len(), 50);
    let is_legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    assert!(
        ids.iter()
            .all(|id| id.len() == 10 && id.bytes().all(is_legal)),
        "{ids:?}"
    );
}
