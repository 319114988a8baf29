use std::cell::Cell;
use std::time::Instant;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestError, TestRunner};

use super::network::{Course, LATENCY, TASKS};
use super::*;
use crate::election::testing::report;

const SCHEDULES: u32 = 100_000;

/// Troubles begin within this.
const TROUBLED: Micros = 12 * SECOND;

/// So long after the last trouble one leads: a Lease that nobody renews is noticed, waited out and
/// claimed, if need be at the second try, on a slow clock.
const PATIENCE: Micros = 25 * SECOND;

/// After this, whatever was tried while there was trouble has been tried again.
const PACE: Micros = 8 * SECOND;

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        2 => Just(Kind::Cut),
        2 => Just(Kind::Mute),
        2 => Just(Kind::Slow),
        1 => Just(Kind::Twice),
        2 => Just(Kind::Blind),
        1 => Just(Kind::Pause),
        2 => Just(Kind::Freeze),
        2 => any::<bool>().prop_map(|same_pod| Kind::Restart { same_pod }),
        2 => Just(Kind::Stop),
        1 => prop_oneof![
            Just(Hand::Delete),
            Just(Hand::Clear),
            Just(Hand::Unsign),
            Just(Hand::Name("a")),
            Just(Hand::Name("kubectl")),
        ]
        .prop_map(Kind::By),
    ]
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let lasts = prop_oneof![10_000..SECOND, SECOND..20 * SECOND];
    (0..TROUBLED, lasts, 0..5_usize, kind()).prop_map(|(at, lasts, whose, kind)| Trouble {
        at,
        lasts,
        whose,
        kind,
    })
}

fn schedule(bug: Option<Bug>) -> impl Strategy<Value = Schedule> {
    let rates = prop::collection::vec(900..=1100_u64, 2..=5);
    let troubles = prop::collection::vec(trouble(), 0..6);
    (any::<u64>(), rates, troubles).prop_map(move |(seed, rates, troubles)| Schedule {
        seed,
        rates,
        troubles,
        bug,
    })
}

/// Runs a course to its end; returns how many terms it had.
fn run(schedule: &Schedule) -> Result<usize, String> {
    let mut course = Course::new(schedule);
    while course.step(TROUBLED.max(course.troubled + PACE))? {}
    for node in &mut course.nodes {
        node.freezes = None;
    }
    let leader = elected(&mut course)?;
    calm(&mut course, leader)?;
    hand_over(&mut course, leader)?;
    Ok(course.terms)
}

/// Goes on until one leads.
fn elected(course: &mut Course) -> Result<usize, String> {
    loop {
        let leaders = course.nodes.iter().filter(|node| node.leads());
        let leaders: Vec<_> = leaders.map(|node| node.index).collect();
        if let [leader] = leaders.as_slice() {
            return Ok(*leader);
        }
        if !course.step(course.troubled + PATIENCE)? {
            return Err(format!("not led: {} lead", leaders.len()));
        }
    }
}

/// For a while, the leader renews its Lease and loses no term.
fn calm(course: &mut Course, leader: usize) -> Result<(), String> {
    let lost = course.lost;
    let until = course.now + PACE;
    while course.step(until)? {}
    let node = &course.nodes[leader];
    let term = node.replica.term.as_ref().map(|term| term.until);
    let left = term.unwrap_or_default().since(node.clock(course.now));
    let timings = Timings::default();
    if course.lost > lost || left + timings.retry_period * 2 < timings.renew_deadline {
        return Err("not led: a term is lost, or not renewed, without a cause".to_owned());
    }
    Ok(())
}

/// A leader that is asked to stop is succeeded at once.
fn hand_over(course: &mut Course, leader: usize) -> Result<(), String> {
    let heirs = course.nodes.iter().filter(|node| !node.is_done()).count();
    if heirs < 2 {
        return Ok(());
    }
    let asked = course.now;
    course.stop(leader, NEVER)?;
    // A renewal that is on its way, the release, its sighting and the claim: seven ways.
    let limit = asked + TASKS + 7 * LATENCY;
    while course.step(limit)? {
        if course.nodes.iter().any(Node::leads) {
            return Ok(());
        }
    }
    Err("not led: nobody takes over from a leader that stops".to_owned())
}

/// Runs random courses until one breaks `promise` (the beginning of what it says then; all of them
/// if empty); returns how many terms there were.
fn simulate(promise: &str, bug: Option<Bug>) -> Result<usize, TestError<Schedule>> {
    let config = ProptestConfig {
        cases: SCHEDULES,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let terms = Cell::new(0);
    TestRunner::new(config).run(&schedule(bug), |schedule| match run(&schedule) {
        Ok(more) => {
            terms.set(terms.get() + more);
            Ok(())
        }
        Err(broken) if broken.starts_with(promise) => Err(TestCaseError::fail(broken)),
        Err(_) => Ok(()),
    })?;
    Ok(terms.get())
}

#[test]
fn promises_are_kept_on_random_schedules() {
    let started = Instant::now();
    let terms = simulate("", None).unwrap_or_else(|error| panic!("{error}"));
    let took = started.elapsed();
    report(&format!(
        "simulation: {SCHEDULES} schedules, {terms} terms, in {took:.1?}"
    ));
    assert!(terms > SCHEDULES as usize, "{terms} terms");
}

#[rstest::rstest]
#[case::deadline_from_reply(Bug::DeadlineFromReply, "two write")]
#[case::blind_writes(Bug::BlindWrites, "two write")]
#[case::no_timeouts(Bug::NoTimeouts, "not led")]
fn a_bug_is_found(#[case] bug: Bug, #[case] promise: &str) {
    match simulate(promise, Some(bug)) {
        Err(TestError::Fail(reason, schedule)) => report(&format!(
            "simulation: {reason}, as it must be: {schedule:?}"
        )),
        other => panic!("not found: {other:?}"),
    }
}

/// A course that once broke a promise: d still leads when its watch shows it b, whom somebody let in
/// by clearing the Lease; d can't confirm it by a read before the Lease is deleted.
#[test]
fn a_leader_that_was_superseded_and_cut_off_is_patient_after_a_deletion() {
    let trouble = |at, lasts, whose, kind| Trouble {
        at,
        lasts,
        whose,
        kind,
    };
    let schedule = Schedule {
        seed: 2_596_638_465_888_144_942,
        rates: vec![900, 900, 900, 1054, 1055],
        troubles: vec![
            trouble(2_634, 4_133_788, 3, Kind::Cut),
            trouble(1_903_477, 10_000, 0, Kind::By(Hand::Clear)),
            trouble(1_907_503, 3_087_992, 1, Kind::Mute),
            trouble(4_988_733, 10_000, 0, Kind::By(Hand::Delete)),
        ],
        bug: None,
    };
    assert_eq!(run(&schedule).err(), None);
}
