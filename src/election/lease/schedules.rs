//! Random courses of two to five real electors in virtual time: what the simulation of
//! [`crate::election::decide`] shows of the state alone, shown of the driver with its calls,
//! watch, fences and tasks.
//!
//! All that is random in a course follows from one seed. A course that breaks a promise is made
//! smaller and printed, with its seed last; `ELECTION_SEED=seed cargo test --lib lease::schedules`
//! runs that one alone.

mod course;
mod process;
mod referee;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use tokio::runtime;

use self::course::Course;
use crate::election::testing::{Fault, report};
use crate::election::{Takeover, jitter};

const SCHEDULES: u64 = 500;

/// The environment variable that asks for the course of one seed alone.
const SEED: &str = "ELECTION_SEED";

/// Who takes part, and what goes wrong.
#[derive(Clone, Debug)]
struct Schedule {
    /// Of all that is left to chance.
    seed: u64,
    /// How fast each replica's clock runs, per mille.
    rates: Vec<u32>,
    /// Whether the last replica uses the identity of the first.
    twins: bool,
    /// How long a task of a term lives on after it was cancelled, in milliseconds, if it may.
    linger: u64,
    troubles: Vec<Trouble>,
    bug: Option<Bug>,
}

#[derive(Clone, Debug)]
struct Trouble {
    /// When it begins, in milliseconds.
    at: u64,
    /// How long it lasts, in milliseconds.
    lasts: u64,
    whose: Whose,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// Modulo the number of replicas.
    One(usize),
    /// Whoever leads when it begins.
    Leader,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Something is wrong on the way to the API server.
    Way(Fault),
    /// The elector does not get to run, at once or when it has sent a write, but the tasks of its
    /// term do.
    Starve { at_write: bool },
    /// The clock jumps, by so much and what it takes to notice.
    Jump,
    /// The process is killed; another takes its place, in the same pod or in another.
    Kill { same_pod: bool },
    /// The process is asked to stop; another takes its place.
    Stop { same_pod: bool },
    /// Somebody else changes the Lease.
    By(Hand),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hand {
    Delete,
    Clear,
    Name(&'static str),
    /// Makes its holder's signature void.
    Unsign,
    /// Asks others to wait for a second only.
    Shorten,
}

/// A fault put into the election, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// The server does not compare writes.
    BlindWrites,
    /// Fences do not look at the clock.
    OpenFences,
    /// A clock runs at half the rate of the others.
    SlowClock,
    /// A task does not belong to its term.
    StrayTask,
    /// A holder that fell silent is waited for far too long.
    LongLease,
    /// A server that hangs is asked to release the Lease for far too long.
    LongRelease,
}

fn fault() -> impl Strategy<Value = Fault> {
    let late = || (5..4_000_u64).prop_map(Duration::from_millis);
    prop_oneof![
        2 => Just(Fault::Hangs),
        2 => Just(Fault::LosesAnswers),
        2 => prop::sample::select(vec![403, 409, 429, 500, 503]).prop_map(Fault::Answers),
        1 => prop::sample::select(vec![403, 410, 500]).prop_map(Fault::AnswersWatch),
        2 => Just(Fault::HidesWatch),
        3 => late().prop_map(Fault::Slow),
        1 => late().prop_map(Fault::Twice),
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    let hands = vec![
        Hand::Delete,
        Hand::Clear,
        Hand::Name("a"),
        Hand::Name("kubectl"),
        Hand::Unsign,
        Hand::Shorten,
    ];
    prop_oneof![
        5 => fault().prop_map(Kind::Way),
        3 => any::<bool>().prop_map(|at_write| Kind::Starve { at_write }),
        1 => Just(Kind::Jump),
        2 => any::<bool>().prop_map(|same_pod| Kind::Kill { same_pod }),
        3 => any::<bool>().prop_map(|same_pod| Kind::Stop { same_pod }),
        1 => prop::sample::select(hands).prop_map(Kind::By),
    ]
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let lasts = prop_oneof![10..1_000_u64, 1_000..5_000_u64, 5_000..25_000_u64];
    let whose = prop_oneof![
        2 => (0..5_usize).prop_map(Whose::One),
        2 => Just(Whose::Leader),
        1 => Just(Whose::All),
    ];
    (0..12_000_u64, lasts, whose, kind()).prop_map(|(at, lasts, whose, kind)| Trouble {
        at,
        lasts,
        whose,
        kind,
    })
}

fn schedule(bug: Option<Bug>) -> impl Strategy<Value = Schedule> {
    let rates = prop::collection::vec(900..=1100_u32, 2..=5);
    let troubles = prop::collection::vec(trouble(), 0..8);
    let twins = prop::bool::weighted(0.1);
    (any::<u64>(), rates, twins, 0..1_500_u64, troubles).prop_map(
        move |(seed, rates, twins, linger, troubles)| Schedule {
            seed,
            rates,
            twins,
            linger,
            troubles,
            bug,
        },
    )
}

/// Runs a course to its end; returns what happened, one line each.
fn run(schedule: &Schedule) -> Result<Vec<String>, String> {
    let mut runtime = runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    jitter::seeded::start(schedule.seed);
    runtime.block_on(async { Course::new(schedule).run().await })
}

/// Runs the course of a seed. If it breaks `promise` (the beginning of what it says then; any if
/// empty), the smallest that is found to do the same is told.
fn simulate(seed: u64, promise: &str, bug: Option<Bug>) -> Result<Vec<String>, String> {
    let log = RefCell::default();
    let ran = runner(seed, bug).run(&schedule(bug), |schedule| match run(&schedule) {
        Ok(course) => {
            log.replace(course);
            Ok(())
        }
        Err(broken) if broken.starts_with(promise) => Err(TestCaseError::fail(broken)),
        Err(_) => Ok(()),
    });
    ran.map(|()| log.take()).map_err(|error| match error {
        TestError::Fail(reason, schedule) => format!("{reason}\n{schedule:?}\n{SEED}={seed}"),
        TestError::Abort(reason) => reason.to_string(),
    })
}

fn runner(seed: u64, bug: Option<Bug>) -> TestRunner {
    let config = ProptestConfig {
        cases: 1,
        failure_persistence: None,
        // What a bug was found by is not looked at.
        max_shrink_iters: if bug.is_some() { 0 } else { 1_000 },
        ..ProptestConfig::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// So many seeds, new ones each time; or the one that is asked for.
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let asked = std::env::var(SEED).ok().map(|seed| seed.parse().unwrap());
    let first: u64 = asked.unwrap_or_else(rand::random);
    let count = asked.map_or(count, |_| 1);
    (0..count).map(move |index| first.wrapping_add(index))
}

#[test]
fn promises_are_kept_on_random_schedules() {
    let started = Instant::now();
    let mut terms = Takeover::KINDS.map(|kind| (kind, 0));
    let seeds: Vec<_> = seeds(SCHEDULES).collect();
    for seed in &seeds {
        let log = simulate(*seed, "", None).unwrap_or_else(|broken| panic!("{broken}"));
        for (kind, count) in &mut terms {
            let begun = format!(" leads: {kind}");
            *count += log.iter().filter(|line| line.ends_with(&begun)).count();
        }
    }
    report(&format!(
        "electors: {} schedules from seed {}, terms by how they began: {terms:?}, in {:.1?}",
        seeds.len(),
        seeds[0],
        started.elapsed()
    ));
    let seen = terms.iter().all(|(_, count)| *count > 0);
    assert!(seen || seeds.len() == 1, "{terms:?}");
}

#[test]
fn a_seed_gives_one_course() {
    for seed in seeds(5) {
        let schedule = schedule(None).new_tree(&mut runner(seed, None));
        let schedule = schedule.unwrap().current();
        assert_eq!(run(&schedule), run(&schedule), "{SEED}={seed}");
    }
}

#[rstest::rstest]
#[case::blind_writes(Bug::BlindWrites, "two write")]
#[case::open_fences(Bug::OpenFences, "two write")]
#[case::slow_clock(Bug::SlowClock, "two write")]
#[case::stray_task(Bug::StrayTask, "tasks outlive")]
#[case::long_lease(Bug::LongLease, "not led")]
#[case::long_release(Bug::LongRelease, "not stopped")]
fn a_bug_is_found(#[case] bug: Bug, #[case] promise: &str) {
    let started = Instant::now();
    // Some are rare.
    let mut courses = (1..).zip(seeds(10 * SCHEDULES));
    let found =
        courses.find_map(|(nth, seed)| Some((nth, simulate(seed, promise, Some(bug)).err()?)));
    let (nth, broken) = found.expect("a course that breaks the promise");
    let (what, seed) = (broken.lines().next(), broken.lines().last());
    report(&format!(
        "electors with {bug:?}, schedule {nth}, in {:.1?}: {} ({})",
        started.elapsed(),
        what.unwrap_or_default(),
        seed.unwrap_or_default()
    ));
}
