//! What a pass does about generations. Pure: the time enters as an argument.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use uuid::Uuid;

use super::status::Reason;
use crate::api::materialize::v1alpha1::MaterializeSpec;
use crate::api::materialize::{DEFAULT_ROLLOUT_REQUEST_TIMEOUT, RolloutStrategy};

/// What the decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The `UpToDate` condition, if there is one yet.
    pub condition: Option<&'a Condition>,
    /// `metadata.generation` of the object.
    pub observed_generation: i64,
    /// Whether the wanted objects differ from those of the active generation.
    pub has_changes: bool,
    /// Whether `requestRollout` differs from the last completed one.
    pub is_requested: bool,
    /// Whether the status has the rollout hash of the spec as that of the last finished rollout.
    pub is_recorded: bool,
}

/// What to do about generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The point of no return was passed: finish the promotion, whatever else changed.
    Promote,
    /// Bring up the next generation.
    RollOut,
    /// Differences exist that nobody asked to roll out.
    AwaitApproval {
        /// What was begun must be removed first: the user has cancelled.
        teardown: bool,
        /// The status must say so.
        report: bool,
    },
    /// The active generation is what is wanted.
    Settle {
        /// What was begun must be removed first: the user has gone back.
        teardown: bool,
        /// The status must say so.
        report: bool,
    },
}

impl Decision {
    /// Decides by the table of *promoting*, *changes* and *requested*.
    pub fn of(situation: Situation<'_>) -> Self {
        let Situation {
            condition,
            observed_generation,
            has_changes,
            is_requested,
            is_recorded,
        } = situation;
        if condition.is_some_and(|condition| Reason::Promoting.is_of(condition)) {
            return Self::Promote;
        }
        let teardown = condition.is_some_and(has_begun);
        let is_current = condition
            .is_some_and(|condition| condition.observed_generation == Some(observed_generation));
        // So it is after an upgrade of the operator that renders something otherwise.
        let claims_no_changes = condition.is_some_and(|condition| Reason::Applied.is_of(condition));
        match (has_changes, is_requested) {
            (true, true) => Self::RollOut,
            (true, false) => Self::AwaitApproval {
                teardown,
                report: teardown || !is_current || claims_no_changes,
            },
            (false, _) => Self::Settle {
                teardown,
                report: teardown || !is_current || is_requested || !is_recorded,
            },
        }
    }
}

/// Whether objects of the next generation may exist.
fn has_begun(condition: &Condition) -> bool {
    condition.status == "Unknown" || Reason::FailedDeploy.is_of(condition)
}

/// What to do with a rollout that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// It took too long: take it back.
    Cancel {
        /// How long it was allowed to take.
        timeout: Duration,
    },
    /// The upgrade window does not allow it.
    Refuse,
    /// Apply it.
    Apply {
        /// When it will be cancelled; `None` if never.
        deadline: Option<Timestamp>,
    },
}

impl Plan {
    /// Plans a rollout. A rollout in progress times out before anything else is looked at; one
    /// whose apply keeps failing times out too, because its clock goes on.
    pub fn of(
        spec: &MaterializeSpec,
        situation: Situation<'_>,
        is_forced: bool,
        is_in_window: bool,
        now: Timestamp,
    ) -> Self {
        let timeout = timeout(&spec.rollout_request_timeout);
        let condition = situation.condition;
        let started = condition
            .and_then(|condition| started(condition, situation.observed_generation))
            .unwrap_or(now);
        let deadline = started.checked_add(timeout).ok().filter(|_| !is_forced);
        let is_over = deadline.is_some_and(|deadline| now >= deadline);
        let has_failed = condition.is_some_and(|condition| Reason::FailedDeploy.is_of(condition));
        match (is_over, is_in_window) {
            (true, _) if !has_failed => Self::Cancel { timeout },
            (_, false) => Self::Refuse,
            (true, true) => Self::Cancel { timeout },
            (false, true) => Self::Apply { deadline },
        }
    }
}

/// When the rollout that a condition speaks of began; `None` if it speaks of no rollout in
/// progress. An edit of the spec starts a failed rollout afresh.
pub fn started(condition: &Condition, observed_generation: i64) -> Option<Timestamp> {
    let goes_on = match condition.status.as_str() {
        "Unknown" => !Reason::Promoting.is_of(condition),
        _ => {
            Reason::FailedDeploy.is_of(condition)
                && condition.observed_generation == Some(observed_generation)
        }
    };
    goes_on.then_some(condition.last_transition_time.0)
}

/// The time a rollout may take; 24 h if the text is not a duration.
pub fn timeout(text: &str) -> Duration {
    humantime::parse_duration(text)
        .or_else(|_| humantime::parse_duration(DEFAULT_ROLLOUT_REQUEST_TIMEOUT))
        .unwrap_or(Duration::from_secs(24 * 60 * 60))
}

/// Whether a rollout is promoted without waiting for it to catch up. `rollout_hash` is the v1
/// rollout hash of the object.
pub fn is_forced(spec: &MaterializeSpec, rollout_hash: &str) -> bool {
    let named = spec.force_promote.as_str();
    let names_request = Uuid::parse_str(named)
        .is_ok_and(|request| !request.is_nil() && request == spec.request_rollout);
    let names_hash = !named.is_empty() && named == rollout_hash;
    names_request
        || names_hash
        || spec.rollout_strategy == RolloutStrategy::ImmediatelyPromoteCausingDowntime
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use rstest::rstest;

    use super::*;

    const GENERATION: i64 = 7;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn condition(status: &str, reason: Reason, observed_generation: i64) -> Condition {
        Condition {
            type_: "UpToDate".to_owned(),
            status: status.to_owned(),
            reason: reason.as_str().to_owned(),
            message: String::new(),
            observed_generation: Some(observed_generation),
            last_transition_time: Time(at(1000)),
        }
    }

    fn situation(
        condition: Option<&Condition>,
        has_changes: bool,
        is_requested: bool,
    ) -> Situation<'_> {
        Situation {
            condition,
            observed_generation: GENERATION,
            has_changes,
            is_requested,
            is_recorded: true,
        }
    }

    #[rstest]
    fn nothing_but_promotion_happens_while_promoting(
        #[values(true, false)] changes: bool,
        #[values(true, false)] requested: bool,
        #[values(GENERATION, GENERATION - 1)] observed: i64,
    ) {
        let promoting = condition("Unknown", Reason::Promoting, observed);
        assert_eq!(
            Decision::of(situation(Some(&promoting), changes, requested)),
            Decision::Promote
        );
    }

    #[rstest]
    #[case::first(None)]
    #[case::settled(Some(condition("True", Reason::Applied, GENERATION)))]
    #[case::applying(Some(condition("Unknown", Reason::Applying, GENERATION)))]
    #[case::failed(Some(condition("False", Reason::FailedDeploy, GENERATION)))]
    #[case::approved(Some(condition("False", Reason::WaitingForApproval, GENERATION - 1)))]
    fn requested_changes_roll_out(#[case] condition: Option<Condition>) {
        assert_eq!(
            Decision::of(situation(condition.as_ref(), true, true)),
            Decision::RollOut
        );
    }

    #[rstest]
    #[case::no_condition(None, false, true)]
    #[case::told(
        Some(condition("False", Reason::WaitingForApproval, GENERATION)),
        false,
        false
    )]
    #[case::spec_changed(Some(condition("True", Reason::Applied, GENERATION - 1)), false, true)]
    #[case::operator_changed(Some(condition("True", Reason::Applied, GENERATION)), false, true)]
    #[case::cancelled(Some(condition("Unknown", Reason::Applying, GENERATION)), true, true)]
    #[case::cancelled_when_ready(Some(condition("Unknown", Reason::ReadyToPromote, GENERATION - 1)), true, true)]
    #[case::cancelled_after_failure(Some(condition("False", Reason::FailedDeploy, GENERATION - 1)), true, true)]
    #[case::timed_out(
        Some(condition("False", Reason::RolloutTimeout, GENERATION)),
        false,
        false
    )]
    fn unrequested_changes_await_approval(
        #[case] condition: Option<Condition>,
        #[case] teardown: bool,
        #[case] report: bool,
    ) {
        let decision = Decision::of(situation(condition.as_ref(), true, false));
        assert_eq!(decision, Decision::AwaitApproval { teardown, report });
    }

    #[rstest]
    #[case::no_condition(None, false, false, true)]
    #[case::told(
        Some(condition("True", Reason::Applied, GENERATION)),
        false,
        false,
        false
    )]
    #[case::requested_anyway(
        Some(condition("True", Reason::Applied, GENERATION)),
        true,
        false,
        true
    )]
    #[case::spec_changed(Some(condition("True", Reason::Applied, GENERATION - 1)), false, false, true)]
    #[case::gone_back(Some(condition("Unknown", Reason::Applying, GENERATION - 1)), true, true, true)]
    fn no_changes_settle(
        #[case] condition: Option<Condition>,
        #[case] requested: bool,
        #[case] teardown: bool,
        #[case] report: bool,
    ) {
        let decision = Decision::of(situation(condition.as_ref(), false, requested));
        assert_eq!(decision, Decision::Settle { teardown, report });
    }

    /// So it is after an upgrade from an operator that did not record it.
    #[test]
    fn a_rollout_hash_that_is_not_recorded_is_reported_once_nothing_else_is_to_do() {
        let applied = condition("True", Reason::Applied, GENERATION);
        let situation = |has_changes| Situation {
            is_recorded: false,
            ..situation(Some(&applied), has_changes, has_changes)
        };
        let settle = Decision::Settle {
            teardown: false,
            report: true,
        };
        assert_eq!(Decision::of(situation(false)), settle);
        assert_eq!(Decision::of(situation(true)), Decision::RollOut);
    }

    fn plan(condition: Option<&Condition>, is_forced: bool, is_in_window: bool, now: i64) -> Plan {
        let spec = MaterializeSpec {
            rollout_request_timeout: "1m".to_owned(),
            ..MaterializeSpec::default()
        };
        Plan::of(
            &spec,
            situation(condition, true, true),
            is_forced,
            is_in_window,
            at(now),
        )
    }

    const CANCEL: Plan = Plan::Cancel {
        timeout: Duration::from_secs(60),
    };

    fn apply(deadline: i64) -> Plan {
        Plan::Apply {
            deadline: Some(at(deadline)),
        }
    }

    #[test]
    fn a_rollout_in_progress_times_out_whatever_the_window_says() {
        for reason in [Reason::Applying, Reason::ReadyToPromote] {
            let begun = condition("Unknown", reason, GENERATION - 1);
            assert_eq!(plan(Some(&begun), false, true, 1059), apply(1060));
            assert_eq!(plan(Some(&begun), false, true, 1060), CANCEL);
            assert_eq!(plan(Some(&begun), false, false, 1060), CANCEL);
            assert_eq!(plan(Some(&begun), false, false, 1059), Plan::Refuse);
        }
    }

    #[test]
    fn a_rollout_that_keeps_failing_times_out_but_a_refused_one_does_not() {
        let failed = condition("False", Reason::FailedDeploy, GENERATION);
        assert_eq!(plan(Some(&failed), false, true, 1059), apply(1060));
        assert_eq!(plan(Some(&failed), false, true, 1060), CANCEL);
        assert_eq!(plan(Some(&failed), false, false, 1060), Plan::Refuse);
        let edited_since = condition("False", Reason::FailedDeploy, GENERATION - 1);
        assert_eq!(plan(Some(&edited_since), false, true, 5000), apply(5060));
    }

    #[test]
    fn forced_rollouts_and_settled_environments_do_not_time_out() {
        let begun = condition("Unknown", Reason::Applying, GENERATION);
        assert_eq!(
            plan(Some(&begun), true, true, 9999),
            Plan::Apply { deadline: None }
        );
        let settled = condition("True", Reason::Applied, GENERATION);
        assert_eq!(plan(Some(&settled), false, true, 9999), apply(10_059));
        assert_eq!(plan(None, false, true, 9999), apply(10_059));
    }

    #[rstest]
    #[case("24h", 86_400)]
    #[case("1h 30m", 5_400)]
    #[case("1s", 1)]
    #[case("", 86_400)]
    #[case("soon", 86_400)]
    fn timeouts_read_like_durations(#[case] text: &str, #[case] seconds: u64) {
        assert_eq!(timeout(text), Duration::from_secs(seconds));
    }

    const REQUEST: &str = "a0000000-0000-4000-8000-00000000000a";

    #[rstest]
    #[case::not("", RolloutStrategy::ManuallyPromote, false)]
    #[case::nil(
        "00000000-0000-0000-0000-000000000000",
        RolloutStrategy::ManuallyPromote,
        false
    )]
    #[case::other(
        "b0000000-0000-4000-8000-00000000000a",
        RolloutStrategy::ManuallyPromote,
        false
    )]
    #[case::request(REQUEST, RolloutStrategy::ManuallyPromote, true)]
    #[case::upper_case(
        "A0000000-0000-4000-8000-00000000000A",
        RolloutStrategy::WaitUntilReady,
        true
    )]
    #[case::hash("cafe", RolloutStrategy::ManuallyPromote, true)]
    #[case::strategy("", RolloutStrategy::ImmediatelyPromoteCausingDowntime, true)]
    fn promotion_is_forced_by_name(
        #[case] force_promote: &str,
        #[case] rollout_strategy: RolloutStrategy,
        #[case] forced: bool,
    ) {
        let spec = MaterializeSpec {
            force_promote: force_promote.to_owned(),
            request_rollout: REQUEST.parse().unwrap(),
            rollout_strategy,
            ..MaterializeSpec::default()
        };
        assert_eq!(is_forced(&spec, "cafe"), forced);
        assert_eq!(
            is_forced(
                &MaterializeSpec {
                    rollout_strategy,
                    ..MaterializeSpec::default()
                },
                ""
            ),
            rollout_strategy == RolloutStrategy::ImmediatelyPromoteCausingDowntime
        );
    }
}
