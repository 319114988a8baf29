//! A clock that counts suspend, and the instants that decisions are made of.

use std::fmt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// An instant: time since an arbitrary epoch of one [`Clock`]. Never compared between processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The moment `since_epoch` after the clock's epoch.
    pub const fn new(since_epoch: Duration) -> Self {
        Self(since_epoch)
    }

    /// Time since the clock's epoch.
    pub const fn since_epoch(self) -> Duration {
        self.0
    }

    /// This moment and `after` more; saturates instead of wrapping.
    #[must_use]
    pub const fn plus(self, after: Duration) -> Self {
        Self(self.0.saturating_add(after))
    }

    /// How long after `earlier` this moment is; zero if it is not.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Where the election takes its time from.
pub trait Clock: Send + Sync + 'static {
    /// The current moment. Must never go back and must go on while the machine is suspended.
    fn now(&self) -> Moment;
}

/// `CLOCK_BOOTTIME`: monotonic, and it counts the time a machine was suspended, which
/// `CLOCK_MONOTONIC` (and so `std::time::Instant`) does not: a holder that slept past its
/// deadline must know.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Moment {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
        Moment::new(Duration::new(seconds, nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_clock_runs_forward() {
        let first = BootClock.now();
        let second = BootClock.now();
        assert!(first > Moment::default(), "epoch is boot, long gone");
        assert!(second >= first);
    }

    #[test]
    fn moments_saturate() {
        let end = Moment::new(Duration::MAX);
        assert_eq!(end.plus(Duration::from_secs(1)), end);
        assert_eq!(Moment::default().since(end), Duration::ZERO);
    }
}
