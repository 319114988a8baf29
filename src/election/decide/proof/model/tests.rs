use std::time::Instant;

use rstest::rstest;
use stateright::{Checker, HasDiscoveries};

use super::Fault::*;
use super::*;
use crate::election::testing::report;

const EVEN: [u32; 3] = [100, 100, 100];
/// As far apart as the lease duration and the renew deadline let them be, all but a little.
const UNEVEN: [u32; 3] = [88, 100, 112];

fn setup(rates: [u32; 3], faults: &[(Fault, u8)], at_most: u8) -> Setup {
    let faults = faults.to_vec();
    Setup {
        rates,
        faults,
        at_most,
        bug: None,
    }
}

/// What is explored, in a few words.
fn told(setup: &Setup) -> String {
    let Setup {
        rates,
        faults,
        at_most,
        bug,
    } = setup;
    let bug = bug.map_or(String::new(), |bug| format!(", with {bug:?}"));
    format!("clocks {rates:?} %, at most {at_most} of {faults:?}{bug}")
}

/// Explores every course, and expects each promise to be kept in all of them.
fn prove(setup: Setup) {
    let (started, told) = (Instant::now(), told(&setup));
    let checker = setup.checker().spawn_bfs().join();
    report(&format!(
        "model: {} states, {} steps, in {:.1?}: {told}",
        checker.unique_state_count(),
        checker.state_count(),
        started.elapsed()
    ));
    checker.assert_properties();
}

/// Explores until a promise is broken: it has to be this one.
fn refute(setup: Setup, promise: &'static str) {
    let told = told(&setup);
    let checker = setup.checker().finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    report(&format!(
        "model: broken, as it must be, within {} states: {told}",
        checker.unique_state_count()
    ));
    let path = checker.discovery(promise);
    assert!(path.is_some(), "{:?}", checker.discoveries().keys());
}

#[test]
fn timings_are_valid() {
    assert_eq!(TIMINGS.validate(), Ok(()));
}

#[rstest]
#[case::even(EVEN)]
#[case::uneven(UNEVEN)]
fn nothing_goes_wrong(#[case] rates: [u32; 3]) {
    prove(setup(rates, &[], 0));
}

#[rstest]
fn one_thing_goes_wrong(
    #[values(
        SlowRequest,
        SlowAnswer,
        LostAnswer,
        Twice,
        EarlyWake,
        SlowWatch,
        BlindWatch,
        SlowTasks,
        Pause,
        Restart,
        Successor,
        Stop,
        By(Hand::Delete),
        By(Hand::Clear),
        By(Hand::Name("a")),
        By(Hand::Name("kubectl")),
        By(Hand::Unsign)
    )]
    fault: Fault,
) {
    prove(setup(UNEVEN, &[(fault, 1)], 1));
}

#[rstest]
#[case(&[(SlowAnswer, 2)], 2)]
#[case(&[(LostAnswer, 2), (BlindWatch, 2)], 2)]
#[case(&[(Stop, 2), (SlowTasks, 2)], 3)]
#[case(&[(Stop, 1), (SlowRequest, 1)], 2)]
#[case(&[(Restart, 1), (SlowRequest, 1)], 2)]
#[case(&[(Restart, 1), (LostAnswer, 1)], 2)]
#[case(&[(By(Hand::Delete), 1), (SlowRequest, 1)], 2)]
#[case(&[(By(Hand::Unsign), 1), (Successor, 1)], 2)]
fn several_things_go_wrong(#[case] faults: &[(Fault, u8)], #[case] at_most: u8) {
    prove(setup(EVEN, faults, at_most));
}

/// Nobody is told of the deletion but by reads.
#[test]
fn a_deletion_is_not_seen_by_two() {
    let faults = [(By(Hand::Delete), 1), (BlindWatch, 2)];
    prove(setup(UNEVEN, &faults, 3));
}

#[rstest]
#[case::deadline_from_reply(Bug::DeadlineFromReply, &[(Pause, 1)], "never two open fences")]
#[case::blind_writes(Bug::BlindWrites, &[(Stop, 1)], "never two open fences")]
#[case::no_timeouts(
    Bug::NoTimeouts,
    &[(LostAnswer, 3)],
    "without trouble, one leads and renews"
)]
fn a_bug_is_found(#[case] bug: Bug, #[case] faults: &[(Fault, u8)], #[case] promise: &'static str) {
    let bug = Some(bug);
    let at_most = faults.iter().map(|(_, most)| most).sum();
    refute(
        Setup {
            bug,
            ..setup(EVEN, faults, at_most)
        },
        promise,
    );
}

#[test]
fn clocks_may_not_be_too_far_apart() {
    let faults = [(Pause, 1)];
    refute(setup([70, 100, 140], &faults, 1), "never two open fences");
}
