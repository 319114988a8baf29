//! How a generation becomes the leader. Pure: events and the time go in, a state comes out.

use std::time::Duration;

use serde::Serialize;

/// What `GET /api/leader/status` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Status {
    /// Starting, or catching up with the leader.
    Initializing,
    /// Caught up, waiting to be promoted.
    ReadyToPromote,
    /// Promoted, taking over.
    Promoting,
    /// The leader.
    IsLeader,
}

/// How long each step takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// Of a first generation, and of a leader that starts again.
    pub startup: Duration,
    /// From the start of a later generation until it is ready to be promoted.
    pub catchup: Duration,
    /// From a promotion until the generation leads.
    pub promote: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            startup: Duration::from_millis(200),
            catchup: Duration::from_secs(1),
            promote: Duration::from_millis(200),
        }
    }
}

/// What the driver must do for the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing now.
    Wait,
    /// Record this generation as the leader, then tell the machine.
    Claim,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Starting,
    Booting { since: Duration },
    CatchingUp { since: Duration },
    ReadyToPromote,
    Promoting { since: Duration },
    Leading,
    Fenced { by: u64 },
}

/// The life of one generation. Times are since the start of the process.
#[derive(Debug)]
pub(crate) struct Machine {
    generation: u64,
    timings: Timings,
    state: State,
}

impl Machine {
    pub(crate) fn new(generation: u64, timings: Timings) -> Self {
        Self {
            generation,
            timings,
            state: State::Starting,
        }
    }

    pub(crate) fn status(&self) -> Status {
        match self.state {
            State::Starting | State::Booting { .. } | State::CatchingUp { .. } => {
                Status::Initializing
            }
            State::ReadyToPromote | State::Fenced { .. } => Status::ReadyToPromote,
            State::Promoting { .. } => Status::Promoting,
            State::Leading => Status::IsLeader,
        }
    }

    /// The generation that took over from this one, if any.
    pub(crate) fn fenced_by(&self) -> Option<u64> {
        match self.state {
            State::Fenced { by } => Some(by),
            _ => None,
        }
    }

    /// The catalog names `leader`.
    pub(crate) fn observe(&mut self, leader: Option<u64>, now: Duration) {
        match (leader, self.state) {
            (Some(leader), _) if leader > self.generation => {
                self.state = State::Fenced { by: leader }
            }
            (Some(leader), State::Starting) if leader < self.generation => {
                self.state = State::CatchingUp { since: now };
            }
            (_, State::Starting) => self.state = State::Booting { since: now },
            _ => {}
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Duration) -> Action {
        match self.state {
            State::Booting { since } if now >= since + self.timings.startup => Action::Claim,
            State::Promoting { since } if now >= since + self.timings.promote => Action::Claim,
            State::CatchingUp { since } if now >= since + self.timings.catchup => {
                self.state = State::ReadyToPromote;
                Action::Wait
            }
            _ => Action::Wait,
        }
    }

    /// When the next [`Machine::tick`] will matter, if time alone decides that.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        match self.state {
            State::Booting { since } => Some(since + self.timings.startup),
            State::CatchingUp { since } => Some(since + self.timings.catchup),
            State::Promoting { since } => Some(since + self.timings.promote),
            _ => None,
        }
    }

    /// The catalog has recorded this generation as the leader.
    pub(crate) fn claimed(&mut self) {
        if self.fenced_by().is_none() {
            self.state = State::Leading;
        }
    }

    /// `POST /api/leader/promote`; repeating it is harmless.
    pub(crate) fn promote(&mut self, now: Duration) -> Result<(), &'static str> {
        match self.state {
            State::Starting | State::Booting { .. } | State::CatchingUp { .. } => {
                Err("cannot promote a generation that is initializing")
            }
            State::Fenced { .. } => Err("cannot promote a generation that was superseded"),
            State::ReadyToPromote => {
                self.state = State::Promoting { since: now };
                Ok(())
            }
            State::Promoting { .. } | State::Leading => Ok(()),
        }
    }

    /// `POST /api/leader/skip-catchup`. A no-op once caught up: a user may force the promotion of
    /// a generation that has long been ready.
    pub(crate) fn skip_catchup(&mut self) -> Result<(), &'static str> {
        match self.state {
            State::Starting | State::Booting { .. } => {
                Err("cannot skip catch-up before it has begun; try again later")
            }
            State::Fenced { .. } => {
                Err("cannot skip the catch-up of a generation that was superseded")
            }
            State::CatchingUp { .. } => {
                self.state = State::ReadyToPromote;
                Ok(())
            }
            State::ReadyToPromote | State::Promoting { .. } | State::Leading => Ok(()),
        }
    }

    pub(crate) fn set_catchup(&mut self, catchup: Duration) {
        self.timings.catchup = catchup;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::ZERO;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn machine(generation: u64) -> Machine {
        Machine::new(generation, Timings::default())
    }

    #[test]
    fn a_first_generation_leads_after_its_start_up() {
        let mut first = machine(1);
        first.observe(None, START);
        assert_eq!(
            (first.tick(at(199)), first.status()),
            (Action::Wait, Status::Initializing)
        );
        assert_eq!(first.tick(at(200)), Action::Claim);
        first.claimed();
        assert_eq!(first.status(), Status::IsLeader);
    }

    #[test]
    fn a_leader_that_starts_again_leads_without_promotion() {
        let mut leader = machine(3);
        leader.observe(Some(3), START);
        assert_eq!(leader.tick(at(200)), Action::Claim);
    }

    #[test]
    fn a_later_generation_catches_up_and_waits_to_be_promoted() {
        let mut later = machine(2);
        later.observe(Some(1), START);
        assert!(later.promote(at(999)).is_err());
        assert_eq!(
            (later.tick(at(999)), later.status()),
            (Action::Wait, Status::Initializing)
        );
        assert_eq!(
            (later.tick(at(1000)), later.status()),
            (Action::Wait, Status::ReadyToPromote)
        );
        assert_eq!(later.tick(at(3_600_000)), Action::Wait);
        later.promote(at(5000)).unwrap();
        assert_eq!(
            (later.tick(at(5199)), later.status()),
            (Action::Wait, Status::Promoting)
        );
        assert_eq!(later.tick(at(5200)), Action::Claim);
        later.claimed();
        assert_eq!(
            (later.status(), later.promote(at(6000))),
            (Status::IsLeader, Ok(()))
        );
    }

    #[test]
    fn catch_up_can_be_skipped_once_begun_and_skipping_again_is_harmless() {
        let mut later = machine(2);
        assert!(later.skip_catchup().is_err());
        later.observe(Some(1), START);
        later.skip_catchup().unwrap();
        assert_eq!(later.status(), Status::ReadyToPromote);
        later.skip_catchup().unwrap();
    }

    #[test]
    fn a_higher_leader_fences_in_every_state() {
        for recorded in [None, Some(1), Some(2)] {
            let mut old = machine(2);
            old.observe(recorded, START);
            old.observe(Some(3), at(1));
            assert_eq!(old.fenced_by(), Some(3));
            old.claimed();
            assert_eq!(
                (old.fenced_by(), old.tick(at(9000))),
                (Some(3), Action::Wait)
            );
            assert!(old.promote(at(9001)).is_err());
        }
    }

    #[test]
    fn a_shorter_catch_up_takes_effect_at_once() {
        let mut later = machine(2);
        later.observe(Some(1), START);
        later.set_catchup(at(10));
        assert_eq!(later.deadline(), Some(at(10)));
        later.tick(at(10));
        assert_eq!(
            (later.status(), later.deadline()),
            (Status::ReadyToPromote, None)
        );
    }
}
