use proptest::prelude::*;
use rstest::rstest;

use super::*;

const ME: &str = "me";

fn at(seconds: f64) -> Moment {
    Moment::new(Duration::from_secs_f64(seconds))
}

fn record(holder: Option<&str>, transitions: Option<i32>, version: u32) -> Record {
    Record {
        holder: holder.map(str::to_owned),
        duration: Duration::from_secs(15),
        transitions,
        renew_time: None,
        process: None,
        version: version.to_string(),
    }
}

pub(super) fn process(nonce: &str, pod_uid: Option<&str>) -> Process {
    let value =
        serde_json::json!({"nonce": nonce, "pod": format!("pod-of-{nonce}"), "podUid": pod_uid});
    serde_json::from_value(value).unwrap()
}

fn me() -> Me {
    Me {
        identity: ME.into(),
        process: process("mine", Some("uid")),
    }
}

/// The Lease in our name, as this process writes it.
fn own(version: u32) -> Record {
    by(Some(me().process), version)
}

/// The Lease in our name, signed by this process.
fn by(process: Option<Process>, version: u32) -> Record {
    Record {
        process,
        ..record(Some(ME), Some(3), version)
    }
}

fn foreign(version: u32) -> Record {
    record(Some("other"), Some(3), version)
}

fn claim(transitions: i32, keep_acquire_time: bool) -> Claim {
    Claim {
        holder: Some(ME.into()),
        transitions,
        keep_acquire_time,
    }
}

fn replace(version: u32, claim: Claim) -> Call {
    Call::Replace {
        version: version.to_string(),
        claim,
    }
}

fn renewal(version: u32) -> Call {
    replace(version, claim(3, true))
}

fn release(version: u32) -> Call {
    replace(
        version,
        Claim {
            holder: None,
            transitions: 3,
            keep_acquire_time: false,
        },
    )
}

/// One replica, stepped by hand.
struct Replica(State);

impl Replica {
    fn new() -> Self {
        Self(State::new(me(), Timings::default(), at(0.0)))
    }

    /// A replica that sent its first read.
    fn reading() -> Self {
        let mut replica = Self::new();
        assert_eq!(replica.calls(0.0, Event::Wake), [Call::Get]);
        replica
    }

    /// A replica that leads since 0 s, by a write of version 2, sent at 0 s.
    fn leading() -> Self {
        let mut replica = Self::reading();
        let free = record(None, Some(2), 1);
        let calls = replica.calls(0.0, Event::Answer(Answer::Read(Some(free))));
        assert_eq!(calls, [replace(1, claim(3, false))]);
        let actions = replica.step(0.1, Event::Answer(Answer::Written(own(2))));
        assert!(matches!(actions.last(), Some(Action::Begin(_))));
        replica
    }

    fn step(&mut self, seconds: f64, event: Event) -> Vec<Action> {
        let (state, actions) = decide(self.0.clone(), event, at(seconds));
        self.0 = state;
        actions
    }

    /// The calls that a step asks for, whatever else it does.
    fn calls(&mut self, seconds: f64, event: Event) -> Vec<Call> {
        let call = |action| match action {
            Action::Call { call, .. } => Some(call),
            _ => None,
        };
        self.step(seconds, event)
            .into_iter()
            .filter_map(call)
            .collect()
    }

    fn answer(&mut self, seconds: f64, answer: Answer) -> Vec<Action> {
        self.step(seconds, Event::Answer(answer))
    }

    fn wake(&self) -> f64 {
        self.0.wake().unwrap().at.since_epoch().as_secs_f64()
    }
}

#[rstest]
#[case::absent(None, &[Call::Create(claim(0, false))])]
#[case::never_held(Some(record(None, None, 1)), &[replace(1, claim(0, false))])]
#[case::released(Some(record(None, Some(3), 1)), &[replace(1, claim(4, false))])]
#[case::own(Some(own(1)), &[renewal(1)])]
#[case::own_without_count(Some(record(Some(ME), None, 1)), &[replace(1, claim(0, true))])]
#[case::foreign_fresh(Some(foreign(1)), &[])]
fn a_candidate_claims_what_it_may(#[case] seen: Option<Record>, #[case] calls: &[Call]) {
    let read = Event::Answer(Answer::Read(seen.clone()));
    assert_eq!(Replica::reading().calls(0.1, read), calls, "by a read");
    let watched = Event::Watched(seen);
    assert_eq!(
        Replica::reading().calls(0.1, watched),
        calls,
        "by the watch"
    );
}

#[test]
fn a_foreign_lease_is_taken_once_unchanged_for_its_own_duration() {
    let mut replica = Replica::reading();
    let short = Record {
        duration: Duration::from_secs(4),
        ..foreign(1)
    };
    replica.answer(1.0, Answer::Read(Some(short.clone())));
    assert_eq!(replica.calls(4.0, Event::Watched(Some(short.clone()))), []);
    assert_eq!(replica.wake(), 5.0);
    assert_eq!(replica.calls(4.99, Event::Watched(Some(short))), []);
    assert_eq!(
        replica.calls(5.0, Event::Wake),
        [replace(1, claim(4, false))]
    );
    let actions = replica.answer(5.1, Answer::Written(record(Some(ME), Some(4), 2)));
    let begun = Begun {
        transitions: 4,
        how: Takeover::Expired {
            holder: "other".into(),
        },
        sent: at(5.0),
        until: at(15.0),
    };
    assert_eq!(actions, [Action::Begin(begun)]);
}

#[rstest]
#[case::renew_time(Record { renew_time: Some(Default::default()), ..foreign(1) })]
#[case::version(foreign(2))]
#[case::holder(record(Some("third"), Some(3), 1))]
fn any_sign_of_life_starts_the_wait_again(#[case] changed: Record) {
    let mut replica = Replica::reading();
    replica.answer(0.0, Answer::Read(Some(foreign(1))));
    replica.step(14.0, Event::Watched(Some(changed)));
    assert_eq!(replica.calls(28.9, Event::Wake), [Call::Get], "a poll only");
    let calls = replica.calls(29.0, Event::Wake);
    assert!(
        matches!(calls.as_slice(), [Call::Replace { .. }]),
        "{calls:?}"
    );
}

#[test]
fn after_a_jump_of_the_clock_a_holders_silence_is_counted_anew() {
    let mut replica = Replica::reading();
    replica.answer(1.0, Answer::Read(Some(foreign(1))));
    replica.0.restart_wait(at(61.0));
    assert_eq!(
        replica.calls(61.0, Event::Wake),
        [Call::Get],
        "it looks at once"
    );
    replica.answer(61.1, Answer::Read(Some(foreign(1))));
    assert_eq!(replica.calls(75.9, Event::Wake), [Call::Get]);
    replica.answer(75.95, Answer::Read(Some(foreign(1))));
    assert_eq!(
        replica.calls(76.0, Event::Wake),
        [replace(1, claim(4, false))]
    );
}

#[rstest]
#[case::free(Some(record(None, Some(3), 1)), 61.0)]
#[case::absent(None, 61.0)]
fn a_jump_of_the_clock_does_not_hold_up_what_is_free(
    #[case] seen: Option<Record>,
    #[case] due: f64,
) {
    let mut replica = Replica::reading();
    replica.answer(0.1, Answer::Failed);
    replica.0.restart_wait(at(60.0));
    replica.step(60.0, Event::Wake);
    assert_eq!(
        replica.calls(due, Event::Answer(Answer::Read(seen))).len(),
        1
    );
}

#[test]
fn the_first_read_is_due_at_once() {
    assert_eq!(Replica::new().0.wake(), Some(Wake::exactly(at(0.0))));
}

#[test]
fn an_event_puts_the_poll_off() {
    let mut replica = Replica::reading();
    replica.answer(0.0, Answer::Read(Some(foreign(1))));
    let poll = Wake {
        at: at(2.0),
        spread: Duration::from_secs(1),
    };
    assert_eq!(replica.0.wake(), Some(poll));
    replica.step(1.5, Event::Watched(Some(foreign(2))));
    assert_eq!(replica.wake(), 3.5);
    assert_eq!(replica.calls(3.4, Event::Wake), []);
    assert_eq!(replica.calls(3.5, Event::Wake), [Call::Get]);
}

#[test]
fn a_lost_race_is_read_again_and_waited_out() {
    let mut replica = Replica::reading();
    replica.answer(0.0, Answer::Read(None));
    assert_eq!(
        replica.calls(0.1, Event::Answer(Answer::Conflict)),
        [Call::Get]
    );
    let read = Event::Answer(Answer::Read(Some(foreign(5))));
    assert_eq!(replica.calls(0.2, read), []);
}

#[test]
fn endless_conflicts_are_paced() {
    let mut replica = Replica::reading();
    let free = || Event::Answer(Answer::Read(Some(record(None, Some(1), 1))));
    for _ in 0..3 {
        assert_eq!(replica.calls(0.0, free()).len(), 1);
        assert_eq!(
            replica.calls(0.0, Event::Answer(Answer::Conflict)),
            [Call::Get]
        );
    }
    assert_eq!(replica.calls(0.0, free()), []);
    assert_eq!(replica.wake(), 2.0);
}

#[test]
fn races_lost_long_ago_do_not_slow_down_the_next() {
    let mut replica = Replica::reading();
    let free = |version| Answer::Read(Some(record(None, Some(1), version)));
    replica.answer(0.0, free(1));
    for race in 1..=5_u32 {
        let (now, version) = (f64::from(race) * 0.1, 2 * race);
        replica.answer(now, Answer::Conflict);
        replica.answer(now, Answer::Read(Some(foreign(version))));
        let calls = replica.calls(
            now,
            Event::Watched(Some(record(None, Some(1), version + 1))),
        );
        assert_eq!(calls.len(), 1, "race {race}");
    }
}

#[test]
fn a_write_that_fails_is_read_again_and_paced() {
    let mut replica = Replica::reading();
    replica.answer(0.0, Answer::Read(Some(record(None, Some(1), 1))));
    assert_eq!(
        replica.calls(0.1, Event::Answer(Answer::Failed)),
        [Call::Get]
    );
    let still_free = Event::Answer(Answer::Read(Some(record(None, Some(1), 1))));
    assert_eq!(replica.calls(0.2, still_free), [], "no hot loop");
    assert_eq!(replica.calls(2.0, Event::Wake).len(), 1);
}

#[test]
fn an_ambiguous_claim_that_happened_is_resumed() {
    let mut replica = Replica::reading();
    replica.answer(0.0, Answer::Read(Some(record(None, Some(2), 1))));
    replica.step(3.0, Event::Answer(Answer::Failed));
    let read = Event::Answer(Answer::Read(Some(own(2))));
    assert_eq!(replica.calls(3.1, read), [renewal(2)]);
}

#[test]
fn nothing_is_written_before_an_ambiguous_write_is_read_again() {
    let mut replica = Replica::reading();
    replica.answer(0.0, Answer::Read(Some(record(None, Some(2), 1))));
    replica.step(3.0, Event::Answer(Answer::Failed));
    replica.step(6.0, Event::Answer(Answer::Failed));
    let watched = Event::Watched(Some(record(None, Some(2), 1)));
    assert_eq!(replica.calls(6.1, watched), []);
    assert_eq!(replica.calls(8.1, Event::Wake), [Call::Get]);
}

#[test]
fn the_watch_does_not_put_off_the_read_that_settles_a_doubt() {
    let mut replica = Replica::reading();
    replica.answer(0.0, Answer::Read(Some(record(None, Some(2), 1))));
    replica.answer(3.0, Answer::Failed);
    replica.answer(6.0, Answer::Failed);
    replica.step(7.5, Event::Watched(Some(foreign(2))));
    assert_eq!(replica.wake(), 8.0);
    assert_eq!(replica.calls(8.0, Event::Wake), [Call::Get]);
    replica.answer(8.1, Answer::Read(Some(foreign(2))));
    let free = Event::Watched(Some(record(None, Some(3), 3)));
    assert_eq!(
        replica.calls(9.0, free),
        [replace(3, claim(4, false))],
        "at once"
    );
}

#[test]
fn the_echo_of_our_own_claim_does_not_disturb_it() {
    let mut replica = Replica::reading();
    replica.answer(0.0, Answer::Read(Some(record(None, Some(2), 1))));
    assert_eq!(replica.calls(0.1, Event::Watched(Some(own(2)))), []);
    let actions = replica.answer(0.2, Answer::Written(own(2)));
    assert!(
        matches!(actions.as_slice(), [Action::Begin(_)]),
        "{actions:?}"
    );
}

#[test]
fn a_claim_answered_after_its_deadline_starts_no_term() {
    let mut replica = Replica::reading();
    replica.answer(0.0, Answer::Read(Some(record(None, Some(2), 1))));
    let calls = replica.calls(10.0, Event::Answer(Answer::Written(own(2))));
    assert_eq!(calls, [renewal(2)], "it has to be confirmed first");
}

#[test]
fn a_term_tells_why_it_began_and_how_long_nobody_led() {
    let mut replica = Replica::reading();
    replica.answer(0.0, Answer::Read(Some(foreign(1))));
    replica.step(5.0, Event::Watched(Some(record(None, Some(3), 2))));
    let actions = replica.answer(5.25, Answer::Written(record(Some(ME), Some(4), 3)));
    let begun = Begun {
        transitions: 4,
        how: Takeover::Free {
            previous: Some("other".into()),
        },
        sent: at(5.0),
        until: at(15.0),
    };
    let vacant = Action::Vacant(Duration::from_millis(250));
    assert_eq!(actions, [vacant, Action::Begin(begun)]);
}

#[test]
fn a_holder_renews_every_retry_period_from_send_to_send() {
    let mut replica = Replica::leading();
    assert_eq!(replica.wake(), 2.0);
    assert_eq!(replica.calls(2.0, Event::Wake), [renewal(2)]);
    let actions = replica.answer(2.5, Answer::Written(own(3)));
    let extend = Action::Extend {
        until: at(12.0),
        took: Duration::from_millis(500),
    };
    assert_eq!(actions, [extend], "counted from the sending");
    assert_eq!(replica.wake(), 4.0);
}

#[test]
fn the_term_ends_at_the_deadline_although_an_answer_comes() {
    let mut replica = Replica::leading();
    replica.step(9.0, Event::Wake);
    let actions = replica.answer(10.0, Answer::Written(own(3)));
    assert_eq!(actions, [Action::End(EndReason::Deadline)]);
    assert_eq!(replica.calls(10.1, Event::TermEnded), [Call::Get]);
    let read = Event::Answer(Answer::Read(Some(own(3))));
    assert_eq!(replica.calls(10.2, read), [renewal(3)], "back at once");
}

#[test]
fn an_outage_is_retried_several_times_before_the_deadline() {
    let mut replica = Replica::leading();
    let (mut now, mut sent) = (0.0, Vec::new());
    while now < 10.0 {
        now = replica.wake().max(now);
        if replica.step(now, Event::Wake) == [Action::End(EndReason::Deadline)] {
            break;
        }
        while replica.0.outstanding.is_some() {
            sent.push(now);
            replica.answer(now, Answer::Failed);
        }
    }
    assert_eq!(now, 10.0);
    assert!(sent.len() >= 6 && sent.len() <= 12, "{sent:?}");
}

#[test]
fn no_wake_up_of_a_leader_is_spread_past_its_deadline() {
    for twentieths in 0..=20 {
        let mut replica = Replica::leading();
        let mut wake = replica.0.wake().unwrap();
        while wake.at < at(10.0) {
            let latest = wake.at.plus(wake.spread);
            assert!(latest <= at(10.0), "{wake:?}");
            let now = wake.at.plus(wake.spread * twentieths / 20);
            let now = now.since_epoch().as_secs_f64();
            let mut calls = replica.calls(now, Event::Wake);
            while !calls.is_empty() {
                calls = replica.calls(now, Event::Answer(Answer::Failed));
            }
            wake = replica.0.wake().unwrap();
        }
    }
}

#[test]
fn a_hanging_server_gets_three_tries_before_the_deadline() {
    let mut replica = Replica::leading();
    assert_eq!(replica.calls(2.0, Event::Wake), [renewal(2)]);
    assert_eq!(
        replica.calls(5.0, Event::Answer(Answer::Failed)),
        [Call::Get]
    );
    assert_eq!(
        replica.calls(8.0, Event::Answer(Answer::Failed)),
        [Call::Get]
    );
    let read = Event::Answer(Answer::Read(Some(own(2))));
    assert_eq!(replica.calls(9.0, read), [renewal(2)], "just in time");
}

#[test]
fn a_renewal_refused_is_paced() {
    let mut replica = Replica::leading();
    replica.step(2.0, Event::Wake);
    assert_eq!(
        replica.calls(2.0, Event::Answer(Answer::Failed)),
        [Call::Get]
    );
    let read = Event::Answer(Answer::Read(Some(own(2))));
    assert_eq!(replica.calls(2.0, read), []);
    assert_eq!(replica.wake(), 3.0);
}

#[test]
fn a_write_by_another_that_leaves_the_holder_is_taken_up() {
    let mut replica = Replica::leading();
    replica.step(2.0, Event::Wake);
    assert_eq!(
        replica.calls(2.1, Event::Answer(Answer::Conflict)),
        [Call::Get]
    );
    let read = Event::Answer(Answer::Read(Some(own(9))));
    assert_eq!(replica.calls(2.2, read), [renewal(9)]);
}

#[rstest]
#[case::taken(Some(foreign(9)), EndReason::Taken { by: "other".into() })]
#[case::vacated(Some(record(None, Some(3), 9)), EndReason::Vacated)]
#[case::deleted(None, EndReason::Deleted)]
fn a_term_ends_when_a_read_confirms_the_watch(
    #[case] seen: Option<Record>,
    #[case] reason: EndReason,
) {
    let mut replica = Replica::leading();
    assert_eq!(
        replica.calls(1.0, Event::Watched(seen.clone())),
        [Call::Get]
    );
    let holder = seen.as_ref().and_then(|record| record.holder.clone());
    let actions = replica.answer(1.01, Answer::Read(seen));
    assert_eq!(actions, [Action::End(reason), Action::Saw { holder }]);
}

#[test]
fn old_news_from_the_watch_end_no_term() {
    let mut replica = Replica::leading();
    let old = Event::Watched(Some(record(None, Some(2), 1)));
    assert_eq!(replica.calls(0.2, old), [Call::Get]);
    assert_eq!(replica.answer(0.3, Answer::Read(Some(own(2)))), []);
    assert_eq!(replica.wake(), 2.0);
}

#[test]
fn the_watch_is_heard_while_a_renewal_hangs() {
    let mut replica = Replica::leading();
    replica.step(2.0, Event::Wake);
    let taken = Event::Watched(Some(foreign(9)));
    assert_eq!(
        replica.calls(2.5, taken),
        [Call::Get],
        "instead of the renewal"
    );
}

#[test]
fn a_lease_deleted_under_a_renewal_ends_the_term_and_is_created_anew() {
    let mut replica = Replica::leading();
    replica.step(2.0, Event::Wake);
    let actions = replica.answer(2.1, Answer::Gone);
    assert_eq!(actions[0], Action::End(EndReason::Deleted));
    let calls = replica.calls(2.2, Event::TermEnded);
    assert_eq!(calls, [Call::Create(claim(0, false))]);
}

#[test]
fn a_standby_gives_the_holder_of_a_deleted_lease_time_to_notice() {
    let mut replica = Replica::reading();
    replica.answer(1.0, Answer::Read(Some(foreign(1))));
    assert_eq!(replica.calls(2.0, Event::Watched(None)), []);
    assert_eq!(replica.calls(16.9, Event::Watched(None)), []);
    let create = Call::Create(claim(0, false));
    assert_eq!(replica.calls(17.0, Event::Wake), [create]);
}

#[test]
fn a_leader_that_saw_another_hold_the_lease_gives_it_time_to_notice_a_deletion() {
    let mut replica = Replica::leading();
    replica.step(1.0, Event::Watched(Some(foreign(9))));
    replica.answer(4.0, Answer::Failed);
    replica.step(5.0, Event::Watched(None));
    let actions = replica.answer(5.1, Answer::Read(None));
    assert_eq!(actions[0], Action::End(EndReason::Deleted));
    assert_eq!(replica.calls(5.2, Event::TermEnded), [Call::Get]);
    replica.answer(5.3, Answer::Read(None));
    assert_eq!(replica.calls(20.0, Event::Watched(None)), []);
    let create = Call::Create(claim(0, false));
    assert_eq!(replica.calls(20.1, Event::Wake), [create]);
}

#[test]
fn what_a_leader_has_read_to_be_false_delays_nothing() {
    let mut replica = Replica::leading();
    replica.step(1.0, Event::Watched(Some(foreign(1))));
    replica.answer(1.1, Answer::Read(Some(own(2))));
    replica.step(5.0, Event::Watched(None));
    replica.answer(5.1, Answer::Read(None));
    assert_eq!(replica.calls(5.2, Event::TermEnded), [Call::Get]);
    let calls = replica.calls(5.3, Event::Answer(Answer::Read(None)));
    assert_eq!(calls, [Call::Create(claim(0, false))]);
}

#[test]
fn a_clock_that_jumped_does_not_shorten_the_wait() {
    let mut replica = Replica::reading();
    let patient = Record {
        duration: Duration::from_secs(60),
        ..foreign(1)
    };
    replica.answer(1.0, Answer::Read(Some(patient)));
    replica.step(2.0, Event::Watched(None));
    replica.0.restart_wait(at(6.0));
    assert_eq!(replica.calls(61.9, Event::Watched(None)), []);
    let create = Call::Create(claim(0, false));
    assert_eq!(replica.calls(62.0, Event::Wake), [create]);
}

#[test]
fn a_deletion_may_come_after_renewals_that_were_not_seen() {
    let mut replica = Replica::reading();
    replica.answer(1.0, Answer::Read(Some(foreign(1))));
    replica.calls(4.0, Event::Wake);
    replica.answer(7.0, Answer::Failed);
    assert_eq!(replica.calls(10.0, Event::Wake), [Call::Get]);
    replica.answer(10.1, Answer::Read(None));
    assert_eq!(
        replica.calls(25.0, Event::Watched(None)),
        [],
        "the holder may have renewed it right before"
    );
    let create = Call::Create(claim(0, false));
    assert_eq!(replica.calls(25.1, Event::Wake), [create]);
}

#[test]
fn a_foreign_holder_is_waited_out_from_when_it_was_read() {
    let mut replica = Replica::leading();
    replica.step(1.0, Event::Watched(Some(foreign(9))));
    replica.answer(1.0, Answer::Read(Some(foreign(9))));
    assert_eq!(replica.calls(2.0, Event::TermEnded), [Call::Get]);
    replica.answer(2.1, Answer::Read(Some(foreign(9))));
    assert_eq!(
        replica.calls(16.0, Event::Wake),
        [replace(9, claim(4, false))]
    );
}

#[test]
fn a_stop_ends_the_term_then_releases() {
    let mut replica = Replica::leading();
    let actions = replica.step(1.0, Event::Stop(EndReason::Stopped));
    assert_eq!(actions, [Action::End(EndReason::Stopped)]);
    let actions = replica.step(1.5, Event::TermEnded);
    let bound = Duration::from_secs(1);
    let call = release(2);
    assert_eq!(actions, [Action::Call { call, bound }]);
    let actions = replica.answer(1.6, Answer::Written(record(None, Some(3), 3)));
    assert_eq!(actions, [Action::Finish(Release::Released)]);
}

#[test]
fn a_renewal_on_its_way_is_waited_for_before_the_release() {
    let mut replica = Replica::leading();
    replica.step(2.0, Event::Wake);
    replica.step(2.1, Event::Stop(EndReason::Stopped));
    assert_eq!(replica.calls(2.2, Event::TermEnded), []);
    let written = Event::Answer(Answer::Written(own(3)));
    assert_eq!(replica.calls(2.3, written), [release(3)]);
}

#[test]
fn a_renewal_that_hangs_is_given_up_for_the_release() {
    let mut replica = Replica::leading();
    replica.step(2.0, Event::Wake);
    replica.step(2.1, Event::Stop(EndReason::Stopped));
    replica.step(2.2, Event::TermEnded);
    assert_eq!(replica.wake(), 3.15, "half of what is left");
    assert_eq!(replica.calls(3.15, Event::Wake), [Call::Get]);
    let read = Event::Answer(Answer::Read(Some(own(2))));
    assert_eq!(replica.calls(3.3, read), [release(2)]);
    assert_eq!(
        replica.calls(3.4, Event::Answer(Answer::Conflict)),
        [Call::Get]
    );
    let landed = Event::Answer(Answer::Read(Some(own(3))));
    assert_eq!(replica.calls(3.5, landed), [release(3)]);
}

#[test]
fn a_release_has_a_bound_from_when_the_stop_was_asked_for() {
    let mut replica = Replica::leading();
    replica.step(1.0, Event::Stop(EndReason::Stopped));
    replica.step(1.9, Event::TermEnded);
    replica.answer(2.0, Answer::Failed);
    assert_eq!(replica.wake(), 2.1, "a pause, then a read");
    assert_eq!(replica.calls(2.1, Event::Wake), [Call::Get]);
    assert_eq!(replica.wake(), 3.0);
    let actions = replica.step(3.0, Event::Wake);
    assert_eq!(actions, [Action::Finish(Release::TimedOut)]);
}

#[rstest]
#[case::taken(Answer::Read(Some(foreign(9))))]
#[case::free(Answer::Read(Some(record(None, Some(3), 9))))]
#[case::gone(Answer::Gone)]
fn what_is_not_ours_is_not_released(#[case] answer: Answer) {
    let mut replica = Replica::leading();
    replica.step(1.0, Event::Stop(EndReason::Stopped));
    replica.step(1.0, Event::TermEnded);
    replica.answer(1.1, Answer::Conflict);
    let actions = replica.answer(1.2, answer);
    assert_eq!(actions, [Action::Finish(Release::NotHeld)]);
}

#[test]
fn a_standby_stops_at_once() {
    let mut replica = Replica::reading();
    let actions = replica.step(0.1, Event::Stop(EndReason::Stopped));
    assert_eq!(actions, [Action::Finish(Release::NotHeld)]);
}

#[test]
fn a_stop_in_the_middle_of_a_claim_waits_for_it_and_releases() {
    let mut replica = Replica::reading();
    replica.answer(0.0, Answer::Read(Some(record(None, Some(2), 1))));
    assert_eq!(replica.step(0.1, Event::Stop(EndReason::Stopped)), []);
    let written = Event::Answer(Answer::Written(own(2)));
    assert_eq!(replica.calls(0.2, written), [release(2)]);
}

#[test]
fn a_stop_after_an_ambiguous_claim_reads_and_releases() {
    let mut replica = Replica::reading();
    replica.answer(0.0, Answer::Read(Some(record(None, Some(2), 1))));
    replica.answer(3.0, Answer::Failed);
    replica.answer(6.0, Answer::Failed);
    let stop = Event::Stop(EndReason::Stopped);
    assert_eq!(replica.calls(6.1, stop), [Call::Get]);
    let read = Event::Answer(Answer::Read(Some(own(2))));
    assert_eq!(replica.calls(6.2, read), [release(2)]);
}

#[rstest]
#[case::unsigned(None, true)]
#[case::this_process(Some(process("mine", None)), true)]
#[case::the_same_pod(Some(process("before", Some("uid"))), true)]
#[case::another_pod(Some(process("other", Some("uid-2"))), false)]
#[case::an_unknown_pod(Some(process("other", None)), false)]
fn a_lease_in_our_name_is_resumed_unless_another_process_lives(
    #[case] signer: Option<Process>,
    #[case] resumed: bool,
) {
    let mut replica = Replica::reading();
    let seen = by(signer.clone(), 1);
    let actions = replica.answer(0.1, Answer::Read(Some(seen)));
    let call = Action::Call {
        call: renewal(1),
        bound: Timings::default().call_timeout,
    };
    assert_eq!(actions.contains(&call), resumed, "{actions:?}");
    let pod = signer.map(|signer| signer.pod().to_owned());
    let told = actions.contains(&Action::Duplicate { pod });
    assert_eq!(told, !resumed, "{actions:?}");
}

#[test]
fn a_duplicate_is_told_of_once_and_waited_out_like_any_other_holder() {
    let mut replica = Replica::reading();
    let rival = by(Some(process("other", None)), 1);
    replica.answer(1.0, Answer::Read(Some(rival.clone())));
    assert_eq!(replica.step(2.0, Event::Watched(Some(rival))), []);
    assert_eq!(
        replica.calls(16.0, Event::Wake),
        [replace(1, claim(4, false))]
    );
}

#[test]
fn a_duplicate_that_holds_the_lease_once_more_is_told_of_once_more() {
    let mut replica = Replica::reading();
    let rival = || Some(by(Some(process("other", None)), 1));
    let told = |actions: Vec<Action>| {
        let told = |action: &Action| matches!(action, Action::Duplicate { .. });
        actions.iter().filter(|action| told(action)).count()
    };
    assert_eq!(told(replica.answer(1.0, Answer::Read(rival()))), 1);
    assert_eq!(told(replica.step(2.0, Event::Watched(Some(foreign(2))))), 0);
    assert_eq!(told(replica.step(3.0, Event::Watched(rival()))), 1);
    assert_eq!(told(replica.step(4.0, Event::Watched(None))), 0);
    assert_eq!(told(replica.step(5.0, Event::Watched(rival()))), 1);
}

#[rstest]
#[case::signed(Some(process("other", Some("uid"))), Some("pod-of-other"))]
#[case::unsigned(None, None)]
fn a_term_ends_when_another_process_renews_in_our_name(
    #[case] signer: Option<Process>,
    #[case] pod: Option<&str>,
) {
    let mut replica = Replica::leading();
    let renewed = Record {
        renew_time: Some("2026-01-01T00:00:00Z".parse().unwrap()),
        ..by(signer, 3)
    };
    assert_eq!(
        replica.calls(1.0, Event::Watched(Some(renewed.clone()))),
        [Call::Get]
    );
    let actions = replica.answer(1.1, Answer::Read(Some(renewed.clone())));
    let pod = pod.map(str::to_owned);
    let reason = EndReason::Impersonated { pod: pod.clone() };
    assert_eq!(actions[0], Action::End(reason));
    assert!(actions.contains(&Action::Duplicate { pod }), "{actions:?}");
    assert_eq!(replica.calls(1.2, Event::TermEnded), [Call::Get]);
    assert_eq!(
        replica.calls(1.3, Event::Answer(Answer::Read(Some(renewed)))),
        [],
        "it may live for its whole duration"
    );
}

#[test]
fn a_signature_taken_off_ends_no_term() {
    let mut replica = Replica::leading();
    assert_eq!(replica.calls(1.0, Event::Watched(Some(by(None, 3)))), []);
}

#[test]
fn a_lease_that_another_process_holds_in_our_name_is_not_released() {
    let mut replica = Replica::leading();
    replica.calls(2.0, Event::Wake);
    replica.answer(2.1, Answer::Failed);
    replica.step(2.2, Event::Stop(EndReason::Stopped));
    assert_eq!(replica.calls(2.3, Event::TermEnded), [Call::Get]);
    let rival = by(Some(process("other", Some("uid"))), 3);
    let actions = replica.answer(2.4, Answer::Read(Some(rival)));
    assert_eq!(actions, [Action::Finish(Release::NotHeld)]);
}

fn any_record() -> impl Strategy<Value = Record> {
    let holder = prop_oneof![Just(None), Just(Some(ME)), Just(Some("other"))];
    let transitions = proptest::option::of(0..=i32::MAX);
    (holder, 1..=300_u64, transitions, 0..4_u32).prop_map(|(holder, duration, count, version)| {
        Record {
            duration: Duration::from_secs(duration),
            ..record(holder, count, version)
        }
    })
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Wake),
        3 => proptest::option::of(any_record()).prop_map(Event::Watched),
        3 => proptest::option::of(any_record()).prop_map(|r| Event::Answer(Answer::Read(r))),
        4 => any_record().prop_map(|r| Event::Answer(Answer::Written(Record {
            holder: Some(ME.into()),
            ..r
        }))),
        1 => Just(Event::Answer(Answer::Conflict)),
        1 => Just(Event::Answer(Answer::Gone)),
        1 => Just(Event::Answer(Answer::Failed)),
        1 => Just(Event::TermEnded),
    ]
}

proptest! {
    /// Any Lease has an outcome: a read of it leads to a claim now or at a bounded time.
    #[test]
    fn any_lease_is_claimed_in_the_end(seen in proptest::option::of(any_record())) {
        let mut replica = Replica::reading();
        let first = replica.calls(0.0, Event::Answer(Answer::Read(seen)));
        let later = replica.calls(300.0, Event::Wake);
        let claims = first.iter().chain(&later).filter(|call| call.is_write()).count();
        prop_assert_eq!(claims, 1);
    }

    /// Whatever happens: terms begin and end in turn, none goes on past its deadline, and a
    /// candidate or holder always has something to wait for.
    #[test]
    fn terms_are_well_formed(events in prop::collection::vec((any_event(), 0..4_000_u64), 1..200)) {
        let mut state = State::new(me(), Timings::default(), at(0.0));
        let (mut now, mut until) = (at(0.0), None);
        for (event, millis) in events {
            now = now.plus(Duration::from_millis(millis));
            let (next, actions) = decide(state, event, now);
            state = next;
            for action in actions {
                match action {
                    Action::Begin(begun) => {
                        prop_assert_eq!(until, None, "a term within a term");
                        prop_assert!(begun.until > now);
                        until = Some(begun.until);
                    }
                    Action::Extend { until: later, .. } => {
                        prop_assert!(until.is_some_and(|until| until > now), "extended too late");
                        until = Some(later);
                    }
                    Action::End(_) => prop_assert!(until.take().is_some(), "no term to end"),
                    _ => {}
                }
            }
            prop_assert!(until.is_none_or(|until| until > now), "a term past its deadline");
            let waits = state.wake().is_some() || state.outstanding.is_some();
            prop_assert!(waits || matches!(state.phase, Phase::Ending(_)));
        }
    }
}
