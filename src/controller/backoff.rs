//! When an object is looked at again. Pure: chance enters as an argument in `[0, 1)`.

use std::time::Duration;

/// The highest exponent step of the error back-off: at most 256 s.
const MOST_FAILURES: u32 = 7;
/// The first wait of a poll.
const FIRST_POLL: Duration = Duration::from_millis(200);
/// The longest wait of a poll.
const LONGEST_POLL: Duration = Duration::from_secs(2);
/// A settled object is looked at again after this at the earliest.
const SHORTEST_RESYNC: Duration = Duration::from_secs(40 * 60);
/// A settled object is looked at again after this at the latest.
const LONGEST_RESYNC: Duration = Duration::from_secs(60 * 60);

/// After a failure, with `failures` consecutive ones before it: 2^(n+1) s × [0.5, 1).
pub fn after_failure(failures: u32, chance: f64) -> Duration {
    let ceiling = Duration::from_secs(2 << failures.min(MOST_FAILURES));
    ceiling.mul_f64(0.5 + chance / 2.0)
}

/// While polling, with `polls` consecutive ones before it: 200 ms growing by half to 2 s.
pub fn poll(polls: u32) -> Duration {
    let growth = 1.5_f64.powi(i32::try_from(polls.min(16)).unwrap_or(16));
    FIRST_POLL.mul_f64(growth).min(LONGEST_POLL)
}

/// After a success that asks for nothing: 40 to 60 min, so that environments spread out.
pub fn resync(chance: f64) -> Duration {
    SHORTEST_RESYNC + (LONGEST_RESYNC - SHORTEST_RESYNC).mul_f64(chance)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::first(0, 0.0, 1_000)]
    #[case::first_late(0, 0.5, 1_500)]
    #[case::second(1, 0.0, 2_000)]
    #[case::eighth(7, 0.0, 128_000)]
    #[case::capped(u32::MAX, 0.0, 128_000)]
    #[case::ceiling(7, 1.0, 256_000)]
    fn failures_back_off(#[case] failures: u32, #[case] chance: f64, #[case] millis: u64) {
        assert_eq!(
            after_failure(failures, chance),
            Duration::from_millis(millis)
        );
    }

    #[rstest]
    #[case(0, 200)]
    #[case(1, 300)]
    #[case(5, 1518)]
    #[case(6, 2000)]
    #[case(u32::MAX, 2000)]
    fn polls_slow_down(#[case] polls: u32, #[case] millis: u128) {
        assert_eq!(poll(polls).as_millis(), millis);
    }

    #[test]
    fn resyncs_spread_over_twenty_minutes() {
        assert_eq!(resync(0.0), Duration::from_secs(2400));
        assert_eq!(resync(0.5), Duration::from_secs(3000));
        assert_eq!(resync(1.0), Duration::from_secs(3600));
    }
}
