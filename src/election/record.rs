//! What a Lease says, for every Lease that the API server accepts.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;

use super::process::Process;
use super::timings::LONGEST_LEASE_DURATION;

/// What the election needs to know of a Lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Who holds the Lease; `None` if it is free (an empty `holderIdentity` counts as none).
    pub holder: Option<String>,
    /// How long the holder asks others to wait, at most [`LONGEST_LEASE_DURATION`].
    pub duration: Duration,
    /// `leaseTransitions`, never negative; `None` if nobody has ever held the Lease.
    pub transitions: Option<i32>,
    /// `renewTime`: only ever compared for equality, because it was written by another's clock.
    pub renew_time: Option<Timestamp>,
    /// The process that signed the Lease as it is; `None` if something wrote it that does not sign.
    pub process: Option<Process>,
    /// `metadata.resourceVersion`: what a write is compared with.
    pub version: String,
}

impl Record {
    /// Reads any Lease. A duration that is absent or not positive counts as `default_duration`.
    pub fn read(lease: &Lease, default_duration: Duration) -> Self {
        let spec = lease.spec.as_ref();
        let duration = spec
            .and_then(|spec| spec.lease_duration_seconds)
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0)
            .map_or(default_duration, Duration::from_secs)
            .min(LONGEST_LEASE_DURATION);
        Self {
            holder: spec
                .and_then(|spec| spec.holder_identity.clone())
                .filter(|holder| !holder.is_empty()),
            duration,
            transitions: spec
                .and_then(|spec| spec.lease_transitions)
                .map(|transitions| transitions.max(0)),
            renew_time: spec
                .and_then(|spec| spec.renew_time.as_ref())
                .map(|time| time.0),
            process: Process::of(lease),
            version: lease.metadata.resource_version.clone().unwrap_or_default(),
        }
    }

    /// Whether `identity` holds the Lease. Compared exactly, never by prefix.
    pub fn is_held_by(&self, identity: &str) -> bool {
        self.holder.as_deref() == Some(identity)
    }

    /// `leaseTransitions` after a change of holder: 0 for the first holder ever, then one more
    /// each time.
    pub fn next_transitions(&self) -> i32 {
        self.transitions.map_or_else(
            || i32::from(self.holder.is_some()),
            |transitions| transitions.saturating_add(1),
        )
    }

    /// Whether `other` was written by the same renewal, so that the holder has shown no life
    /// between the two.
    pub fn is_same_renewal(&self, other: &Self) -> bool {
        self.holder == other.holder
            && self.renew_time == other.renew_time
            && self.version == other.version
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const DEFAULT: Duration = Duration::from_secs(15);

    fn read(spec: Value) -> Record {
        let lease = json!({"metadata": {"name": "l", "resourceVersion": "7"}, "spec": spec});
        Record::read(&serde_json::from_value(lease).unwrap(), DEFAULT)
    }

    #[rstest]
    #[case::no_spec(Value::Null, None)]
    #[case::empty_spec(json!({}), None)]
    #[case::null_holder(json!({"holderIdentity": null}), None)]
    #[case::empty_holder(json!({"holderIdentity": ""}), None)]
    #[case::blank_holder(json!({"holderIdentity": " "}), Some(" "))]
    #[case::holder(json!({"holderIdentity": "a-1"}), Some("a-1"))]
    fn reads_the_holder(#[case] spec: Value, #[case] holder: Option<&str>) {
        assert_eq!(read(spec).holder.as_deref(), holder);
    }

    #[rstest]
    #[case::absent(json!({}), 15)]
    #[case::zero(json!({"leaseDurationSeconds": 0}), 15)]
    #[case::negative(json!({"leaseDurationSeconds": -1}), 15)]
    #[case::smallest(json!({"leaseDurationSeconds": i32::MIN}), 15)]
    #[case::own(json!({"leaseDurationSeconds": 1}), 1)]
    #[case::longer_than_ours(json!({"leaseDurationSeconds": 30}), 30)]
    #[case::ceiling(json!({"leaseDurationSeconds": 301}), 300)]
    #[case::huge(json!({"leaseDurationSeconds": i32::MAX}), 300)]
    fn clamps_the_duration(#[case] spec: Value, #[case] seconds: u64) {
        assert_eq!(read(spec).duration, Duration::from_secs(seconds));
    }

    #[rstest]
    #[case::never_held(json!({}), 0)]
    #[case::held_without_count(json!({"holderIdentity": "a"}), 1)]
    #[case::released(json!({"holderIdentity": "", "leaseTransitions": 4}), 5)]
    #[case::foreign(json!({"holderIdentity": "a", "leaseTransitions": 0}), 1)]
    #[case::past_16_bits(json!({"leaseTransitions": 65_535}), 65_536)]
    #[case::negative(json!({"leaseTransitions": -3}), 1)]
    #[case::largest(json!({"leaseTransitions": i32::MAX}), i32::MAX)]
    fn counts_transitions(#[case] spec: Value, #[case] next: i32) {
        assert_eq!(read(spec).next_transitions(), next);
    }

    #[test]
    fn identity_is_compared_whole() {
        let record = read(json!({"holderIdentity": "a-10"}));
        assert!(record.is_held_by("a-10"));
        assert!(!record.is_held_by("a-1"));
        assert!(!read(json!({"holderIdentity": ""})).is_held_by(""));
    }

    proptest! {
        #[test]
        fn any_lease_reads(
            holder in proptest::option::of(".*"),
            duration in proptest::option::of(any::<i32>()),
            transitions in proptest::option::of(any::<i32>()),
            seconds in proptest::option::of(-377_705_023_201_i64..=253_402_207_200),
            version in proptest::option::of("[0-9]*"),
        ) {
            let lease = json!({
                "metadata": {"resourceVersion": version},
                "spec": {
                    "holderIdentity": holder,
                    "leaseDurationSeconds": duration,
                    "leaseTransitions": transitions,
                },
            });
            let mut lease: Lease = serde_json::from_value(lease).unwrap();
            lease.spec.as_mut().unwrap().renew_time =
                seconds.map(|s| Timestamp::from_second(s).unwrap().into());
            let record = Record::read(&lease, DEFAULT);
            prop_assert!(record.duration >= Duration::from_secs(1));
            prop_assert!(record.duration <= LONGEST_LEASE_DURATION);
            prop_assert!(record.next_transitions() >= 0);
            prop_assert!(record.holder.as_deref() != Some(""));
            prop_assert!(record.is_same_renewal(&record));
        }
    }
}
