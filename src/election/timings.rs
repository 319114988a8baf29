//! Every bound of the election, in one place, checked against each other.

use std::time::Duration;

use thiserror::Error;

/// The longest lease duration that is honoured, also in a Lease written by somebody else: a huge
/// value must not freeze the fleet.
pub const LONGEST_LEASE_DURATION: Duration = Duration::from_secs(300);

/// How long each step of an election may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timings {
    /// How long others wait, after the last renewal that they saw, before they take the Lease over.
    pub lease_duration: Duration,
    /// How long a holder may act after it sent its last successful renewal.
    pub renew_deadline: Duration,
    /// Time between two renewals; others poll every 1.0 to 1.5 times this if the watch is silent.
    pub retry_period: Duration,
    /// Bound on one Lease request.
    pub call_timeout: Duration,
    /// Bound on giving the Lease back, from when the stop is asked for: the term's tasks are joined
    /// within it.
    pub release_bound: Duration,
    /// Bound on the tasks of a term after they were cancelled, and once more after they were aborted.
    pub join_bound: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            call_timeout: Duration::from_secs(3),
            release_bound: Duration::from_secs(2),
            join_bound: Duration::from_secs(1),
        }
    }
}

impl Timings {
    /// Checks every bound against the others.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn validate(&self) -> Result<(), TimingsError> {
        self.validate_positive()?;
        if self.lease_duration.subsec_nanos() != 0 {
            return Err(TimingsError::FractionalLeaseDuration(self.lease_duration));
        }
        if self.lease_duration > LONGEST_LEASE_DURATION {
            return Err(TimingsError::LeaseDurationTooLong(self.lease_duration));
        }
        let stopped = self.renew_deadline.saturating_add(self.join_time());
        if stopped.saturating_mul(11) >= self.lease_duration.saturating_mul(10) {
            return Err(TimingsError::NoMargin {
                lease_duration: self.lease_duration,
                renew_deadline: self.renew_deadline,
                join_time: self.join_time(),
            });
        }
        if self.release_bound <= self.join_bound {
            return Err(TimingsError::ReleaseTooShort {
                release_bound: self.release_bound,
                join_bound: self.join_bound,
            });
        }
        // A waiting candidate sleeps up to 1.5 times the retry period.
        if self.retry_period.saturating_mul(3) / 2 >= self.renew_deadline {
            return Err(TimingsError::RetryPeriodTooLong {
                retry_period: self.retry_period,
                renew_deadline: self.renew_deadline,
            });
        }
        if self.call_timeout > self.renew_deadline / 3 {
            return Err(TimingsError::CallTimeoutTooLong {
                call_timeout: self.call_timeout,
                renew_deadline: self.renew_deadline,
            });
        }
        Ok(())
    }

    fn validate_positive(&self) -> Result<(), TimingsError> {
        let named = [
            ("lease duration", self.lease_duration),
            ("renew deadline", self.renew_deadline),
            ("retry period", self.retry_period),
            ("call timeout", self.call_timeout),
            ("release bound", self.release_bound),
            ("join bound", self.join_bound),
        ];
        match named.into_iter().find(|(_, value)| value.is_zero()) {
            Some((name, _)) => Err(TimingsError::Zero(name)),
            None => Ok(()),
        }
    }

    /// The longest that the tasks of a term can live after its end: cancelled, then aborted.
    pub const fn join_time(&self) -> Duration {
        self.join_bound.saturating_mul(2)
    }

    /// What is left of the Lease when nothing of a term that was not renewed can live any more.
    pub(super) fn margin(&self) -> Duration {
        let stopped = self.renew_deadline.saturating_add(self.join_time());
        self.lease_duration.saturating_sub(stopped)
    }

    /// The longest that a stop can take, from the request until the elector has returned.
    pub fn stop_time(&self) -> Duration {
        self.join_time().max(self.release_bound)
    }
}

/// A rule that [`Timings`] break.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TimingsError {
    /// A bound is zero.
    #[error("the {0} must be longer than zero")]
    Zero(&'static str),
    /// `leaseDurationSeconds` holds whole seconds only.
    #[error("the lease duration ({0:?}) must be whole seconds")]
    FractionalLeaseDuration(Duration),
    /// Other replicas would not honour it.
    #[error("the lease duration ({0:?}) must be at most {LONGEST_LEASE_DURATION:?}")]
    LeaseDurationTooLong(Duration),
    /// A holder's tasks could outlive its Lease.
    #[error(
        "the renew deadline ({renew_deadline:?}) and two join bounds ({join_time:?}), with a tenth more for \
         clocks that differ, must be shorter than the lease duration ({lease_duration:?}): a holder must have \
         stopped before others take over"
    )]
    NoMargin {
        /// The lease duration.
        lease_duration: Duration,
        /// The renew deadline.
        renew_deadline: Duration,
        /// Twice the join bound.
        join_time: Duration,
    },
    /// Nothing would be left of the bound once the tasks are aborted.
    #[error(
        "the release bound ({release_bound:?}) must be longer than the join bound ({join_bound:?}): it counts \
         from the stop, and the tasks are joined first"
    )]
    ReleaseTooShort {
        /// The release bound.
        release_bound: Duration,
        /// The join bound.
        join_bound: Duration,
    },
    /// A holder would not come to renew in time.
    #[error(
        "1.5 times the retry period ({retry_period:?}) must be shorter than the renew deadline ({renew_deadline:?})"
    )]
    RetryPeriodTooLong {
        /// The retry period.
        retry_period: Duration,
        /// The renew deadline.
        renew_deadline: Duration,
    },
    /// One request that hangs must not use up the deadline.
    #[error(
        "the call timeout ({call_timeout:?}) must be at most a third of the renew deadline ({renew_deadline:?})"
    )]
    CallTimeoutTooLong {
        /// The call timeout.
        call_timeout: Duration,
        /// The renew deadline.
        renew_deadline: Duration,
    },
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn defaults_are_valid_and_stop_within_two_seconds() {
        let timings = Timings::default();
        assert_eq!(timings.validate(), Ok(()));
        assert_eq!(timings.stop_time(), s(2));
    }

    /// 13 s on a clock that is a tenth slow are 14.3 s; 14 s are 15.4 s.
    #[rstest]
    #[case::fits(s(11), true)]
    #[case::too_long(s(12), false)]
    fn clocks_may_differ_by_a_tenth(#[case] renew_deadline: Duration, #[case] fits: bool) {
        let timings = Timings {
            renew_deadline,
            ..Timings::default()
        };
        assert_eq!(timings.validate().is_ok(), fits);
    }

    #[rstest]
    #[case::zero(Timings { join_bound: s(0), ..Timings::default() }, "the join bound must be longer than zero")]
    #[case::fraction(Timings { lease_duration: Duration::from_millis(15_500), ..Timings::default() }, "must be whole seconds")]
    #[case::ceiling(Timings { lease_duration: s(301), ..Timings::default() }, "must be at most 300s")]
    #[case::margin(Timings { lease_duration: s(12), ..Timings::default() }, "must have stopped before others take over")]
    #[case::release(Timings { release_bound: s(1), ..Timings::default() }, "the release bound (1s) must be longer than the join bound (1s)")]
    #[case::retry(Timings { retry_period: s(7), ..Timings::default() }, "1.5 times the retry period (7s)")]
    #[case::call(Timings { call_timeout: s(4), ..Timings::default() }, "at most a third of the renew deadline (10s)")]
    fn names_the_broken_rule(#[case] timings: Timings, #[case] message: &str) {
        let error = timings.validate().unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}
