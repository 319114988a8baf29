//! Any Lease that the API server accepts has an outcome: it is read, waited for no longer than the
//! longest lease duration, and then written and held.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::calls::{Signer, claimed};
use super::decide::{Action, Answer, Call, Claim, EndReason, Event, Me, State, decide};
use super::{LONGEST_LEASE_DURATION, Moment, PROCESS_ANNOTATION, Process, Record, Timings};

const ME: &str = "me";
const OTHER: &str = "other";

/// A lease duration, and the poll that may come right before its end.
const LONGEST_WAIT: Duration = LONGEST_LEASE_DURATION.saturating_add(Duration::from_secs(3));

fn process(nonce: &str, pod_uid: Option<&str>) -> Process {
    serde_json::from_value(json!({"nonce": nonce, "pod": "p", "podUid": pod_uid})).unwrap()
}

fn me(identity: &str) -> Me {
    Me {
        identity: identity.to_owned(),
        process: process(identity, Some(identity)),
    }
}

fn any_number() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
        prop::sample::select(vec![i32::MIN, -1, 0, 1, 15, 300, 301, i32::MAX])
            .prop_map(Value::from),
    ]
}

/// From the first to the last year that RFC 3339 can write.
fn any_time() -> impl Strategy<Value = Value> {
    let time = (-62_135_596_800..=253_402_207_199_i64, 0..1_000_000_i32).prop_map(|(s, micros)| {
        let time = Timestamp::new(s, 0).unwrap();
        let time = time + k8s_openapi::jiff::SignedDuration::from_micros(micros.into());
        Value::from(format!("{time:.6}"))
    });
    prop_oneof![Just(Value::Null), time]
}

fn any_text() -> impl Strategy<Value = Value> {
    let names = prop::sample::select(vec!["", " ", ME, OTHER, "me ", "null"]);
    prop_oneof![
        1 => Just(Value::Null),
        1 => ".*".prop_map(Value::from),
        4 => names.prop_map(Value::from),
    ]
}

fn any_spec() -> impl Strategy<Value = Value> {
    let spec = (
        any_text(),
        any_number(),
        any_number(),
        any_time(),
        any_time(),
        any_text(),
    );
    let spec = spec.prop_map(
        |(holder, duration, transitions, acquired, renewed, strategy)| {
            json!({
                "holderIdentity": holder,
                "leaseDurationSeconds": duration,
                "leaseTransitions": transitions,
                "acquireTime": acquired,
                "renewTime": renewed,
                "strategy": strategy,
                "preferredHolder": strategy,
            })
        },
    );
    prop_oneof![1 => Just(Value::Null), 1 => Just(json!({})), 8 => spec]
}

/// Who has signed, if it is a signature at all.
#[derive(Clone, Debug)]
enum Signature {
    By(Process),
    Text(String),
    None,
}

fn any_signature() -> impl Strategy<Value = Signature> {
    let broken = vec![
        "",
        "{",
        "null",
        "{}",
        "[]",
        "{\"holder\":\"me\",\"nonce\":\"me\"}",
    ];
    let processes = vec![
        me(ME).process,
        process("before", Some(ME)),
        process("rival", Some("elsewhere")),
        process("unknown", None),
    ];
    prop_oneof![
        Just(Signature::None),
        ".*".prop_map(Signature::Text),
        prop::sample::select(broken).prop_map(|text| Signature::Text(text.to_owned())),
        prop::sample::select(processes).prop_map(Signature::By),
    ]
}

/// A Lease, and whether what was signed was changed later.
fn any_lease() -> impl Strategy<Value = Lease> {
    (any_spec(), any_signature(), any_text(), any::<bool>()).prop_map(
        |(spec, signature, later, changed)| {
            let metadata = json!({"name": "l", "resourceVersion": "1", "annotations": null});
            let lease = json!({"metadata": metadata, "spec": spec});
            let mut lease: Lease = serde_json::from_value(lease).unwrap();
            match signature {
                Signature::By(process) => process.sign(&mut lease),
                Signature::Text(text) => {
                    let annotations = lease.metadata.annotations.get_or_insert_default();
                    annotations.insert(PROCESS_ANNOTATION.to_owned(), text);
                }
                Signature::None => {}
            }
            if let Some(spec) = lease.spec.as_mut().filter(|_| changed) {
                spec.holder_identity = later.as_str().map(str::to_owned);
            }
            lease
        },
    )
}

fn read(lease: &Lease) -> Record {
    Record::read(lease, Timings::default().lease_duration)
}

/// What the API server makes of a write.
fn stored(lease: &Lease, claim: &Claim, by: &Me) -> Lease {
    let signer = Signer {
        process: by.process.clone(),
        lease_duration: Timings::default().lease_duration,
    };
    let mut lease = claimed(lease.clone(), claim, &signer);
    lease.metadata.resource_version = Some("2".to_owned());
    serde_json::from_str(&serde_json::to_string(&lease).unwrap()).unwrap()
}

/// Lets `candidate` wait for a Lease that nobody touches; returns when it claims it, and how.
fn wait_for(lease: &Lease, candidate: &Me) -> (State, Duration, Claim) {
    let mut state = State::new(candidate.clone(), Timings::default(), Moment::default());
    let (mut now, mut event) = (Moment::default(), Event::Wake);
    loop {
        let (next, actions) = decide(state, event, now);
        state = next;
        let call = actions.into_iter().find_map(|action| match action {
            Action::Call { call, .. } => Some(call),
            _ => None,
        });
        event = match call {
            Some(Call::Get) => Event::Answer(Answer::Read(Some(read(lease)))),
            Some(Call::Replace { version, claim }) if version == "1" || version == "2" => {
                return (state, now.since_epoch(), claim);
            }
            Some(call) => panic!("{call:?}"),
            None => {
                let wake = state.wake().unwrap();
                now = now.max(wake.at.plus(wake.spread));
                let waited = now.since_epoch();
                assert!(waited <= LONGEST_WAIT, "waits for {waited:?}");
                Event::Wake
            }
        };
    }
}

proptest! {
    #[test]
    fn any_lease_is_held_in_the_end(lease in any_lease()) {
        let (before, candidate) = (read(&lease), me(ME));
        let (state, waited, claim) = wait_for(&lease, &candidate);
        let free = before.holder.is_none();
        prop_assert!(!free || waited.is_zero(), "a free one is not waited for");

        let held = stored(&lease, &claim, &candidate);
        let record = read(&held);
        prop_assert!(record.is_held_by(ME));
        prop_assert_eq!(record.duration, Timings::default().lease_duration);
        prop_assert!(record.transitions >= before.transitions.max(Some(0)));
        prop_assert_eq!(record.process.as_ref(), Some(&candidate.process));
        let now = Moment::new(waited);
        let (state, actions) = decide(state, Event::Answer(Answer::Written(record)), now);
        prop_assert!(matches!(actions.last(), Some(Action::Begin(_))), "{actions:?}");

        let (_, waited, _) = wait_for(&held, &me(OTHER));
        prop_assert_eq!(waited, Timings::default().lease_duration, "others respect it");

        let (state, _) = decide(state, Event::Stop(EndReason::Stopped), now);
        let (_, actions) = decide(state, Event::TermEnded, now);
        let [Action::Call { call: Call::Replace { claim, .. }, .. }] = actions.as_slice() else {
            panic!("{actions:?}");
        };
        let freed = stored(&held, claim, &candidate);
        let (_, waited, claim) = wait_for(&freed, &me(OTHER));
        prop_assert_eq!(waited, Duration::ZERO, "others take what was given back at once");
        let foreign = stored(&freed, &claim, &me(OTHER));
        prop_assert!(read(&foreign).is_held_by(OTHER));
    }
}
