//! Whether the elector itself is well, for a liveness probe.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use thiserror::Error;

use super::clock::{Clock, Moment};
use super::timings::Timings;

const NOT_STARTED: u8 = 0;
const RUNNING: u8 = 1;
const ENDED: u8 = 2;
const NEVER: u64 = u64::MAX;
/// How long the elector has to recover before it is reported.
const CONVALESCENCE: Duration = Duration::from_secs(2);
/// How often in a row a guard must see a term that should be over. While the whole process is
/// stopped it does not look, so that the elector has as long to find out.
const GUARD_LOOKS: u8 = 10;
/// The longest that all its looks take.
const GUARD_TIME: Duration = Duration::from_secs(1);

/// The elector's pulse. Says nothing of who leads: a standby is healthy. Clones show the same.
#[derive(Clone)]
pub struct ElectorHealth {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    /// The longest that the elector may be busy with one thing.
    pulse_bound: Duration,
    /// The longest that a term may take to end.
    join_time: Duration,
    /// What is left of the Lease then.
    margin: Duration,
    stage: AtomicU8,
    pulse: AtomicU64,
    until: AtomicU64,
    /// Since when something is wrong.
    ill_since: AtomicU64,
}

/// What is wrong with the elector.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Unhealthy {
    /// It has returned, or was dropped.
    #[error("the elector has ended")]
    Ended,
    /// Its task has not run for this long.
    #[error("the elector has not run for {0:?}")]
    Stalled(Duration),
    /// A term goes on although its right to write has ended this long ago.
    #[error("a term is held {0:?} past its deadline")]
    OverHolding(Duration),
}

impl ElectorHealth {
    pub(super) fn new(clock: Arc<dyn Clock>, timings: &Timings) -> Self {
        let inner = Inner {
            clock,
            pulse_bound: timings.lease_duration,
            join_time: timings.join_time(),
            margin: timings.margin(),
            stage: AtomicU8::new(NOT_STARTED),
            pulse: AtomicU64::new(0),
            until: AtomicU64::new(NEVER),
            ill_since: AtomicU64::new(NEVER),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Checks the elector. That it stands still is only told once it has for two seconds: after
    /// the whole process was stopped, the elector needs a moment to find out.
    ///
    /// # Errors
    /// What is wrong; the process should be restarted then.
    pub fn check(&self) -> Result<(), Unhealthy> {
        let now = self.inner.clock.now();
        let check = self.look(now);
        match check {
            Ok(()) => {
                self.inner.ill_since.store(NEVER, Ordering::SeqCst);
                return Ok(());
            }
            Err(Unhealthy::Ended) => return check,
            Err(Unhealthy::Stalled(_) | Unhealthy::OverHolding(_)) => {}
        }
        let _ = self.inner.ill_since.compare_exchange(
            NEVER,
            nanos(now),
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        check.or_else(|error| {
            let ill_for = now.since(moment(&self.inner.ill_since));
            if ill_for < CONVALESCENCE {
                Ok(())
            } else {
                Err(error)
            }
        })
    }

    /// Calls `end`, which should end the process, if a term goes on although its tasks should be
    /// gone, before the Lease expires: the last resort, on a thread of its own, so that it works
    /// also where a task blocks every other. The thread ends with the elector.
    ///
    /// # Errors
    /// The operating system refuses the thread.
    pub fn guard(&self, end: impl FnOnce(Unhealthy) + Send + 'static) -> std::io::Result<()> {
        let health = self.clone();
        let pause = GUARD_TIME.min(self.inner.margin / 2) / u32::from(GUARD_LOOKS);
        let watch = move || {
            let mut looks = 0;
            loop {
                thread::sleep(pause);
                match health.look(health.inner.clock.now()) {
                    Err(Unhealthy::Ended) => return,
                    Err(error @ Unhealthy::OverHolding(_)) if looks + 1 == GUARD_LOOKS => {
                        return end(error);
                    }
                    Err(Unhealthy::OverHolding(_)) => looks += 1,
                    Ok(()) | Err(Unhealthy::Stalled(_)) => looks = 0,
                }
            }
        };
        let thread = thread::Builder::new().name("election guard".to_owned());
        thread.spawn(watch).map(drop)
    }

    fn look(&self, now: Moment) -> Result<(), Unhealthy> {
        match self.inner.stage.load(Ordering::SeqCst) {
            NOT_STARTED => return Ok(()),
            ENDED => return Err(Unhealthy::Ended),
            _ => {}
        }
        let over = now.since(moment(&self.inner.until));
        if over > self.inner.join_time {
            return Err(Unhealthy::OverHolding(over));
        }
        let idle = now.since(moment(&self.inner.pulse));
        if idle > self.inner.pulse_bound {
            return Err(Unhealthy::Stalled(idle));
        }
        Ok(())
    }

    pub(super) fn beat(&self, now: Moment) {
        store(&self.inner.pulse, now);
    }

    /// A term is running until `until`; `None`: no term is running.
    pub(super) fn holding(&self, until: Option<Moment>) {
        match until {
            Some(until) => store(&self.inner.until, until),
            None => self.inner.until.store(NEVER, Ordering::SeqCst),
        }
    }

    /// The elector runs until the returned guard is dropped.
    pub(super) fn start(&self, now: Moment) -> Running {
        self.beat(now);
        self.inner.stage.store(RUNNING, Ordering::SeqCst);
        Running(self.clone())
    }
}

/// Marks the elector as ended when it is dropped, whatever the reason.
pub(super) struct Running(ElectorHealth);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.inner.stage.store(ENDED, Ordering::SeqCst);
    }
}

fn moment(nanos: &AtomicU64) -> Moment {
    Moment::new(Duration::from_nanos(nanos.load(Ordering::SeqCst)))
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.since_epoch().as_nanos()).unwrap_or(NEVER)
}

fn store(at: &AtomicU64, moment: Moment) {
    at.store(nanos(moment), Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};

    use super::*;
    use crate::election::clock::BootClock;

    const BOUND: Duration = Duration::from_secs(60);

    fn health() -> ElectorHealth {
        ElectorHealth::new(Arc::new(BootClock), &Timings::default())
    }

    fn ago(time: Duration) -> Moment {
        Moment::new(BootClock.now().since_epoch() - time)
    }

    #[test]
    fn a_term_that_does_not_end_is_ended_with_the_process() {
        let (health, (ended, end)) = (health(), channel());
        let _running = health.start(BootClock.now());
        health.holding(Some(ago(Duration::from_secs(3))));
        health
            .guard(move |error| ended.send(error).unwrap())
            .unwrap();
        let error = end.recv_timeout(BOUND).unwrap();
        assert!(matches!(error, Unhealthy::OverHolding(over) if over > Duration::from_secs(3)));
    }

    #[test]
    fn a_term_that_is_being_joined_is_left_alone_and_the_guard_goes_with_the_elector() {
        let (health, (ended, end)) = (health(), channel::<Unhealthy>());
        let running = health.start(BootClock.now());
        health.holding(Some(ago(Duration::ZERO)));
        health
            .guard(move |error| ended.send(error).unwrap())
            .unwrap();
        health.holding(None);
        drop(running);
        assert_eq!(end.recv_timeout(BOUND), Err(RecvTimeoutError::Disconnected));
    }
}
