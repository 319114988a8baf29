//! The election as a function: (state, event, now) -> (state, actions).
//!
//! No clock, no network, no async, no randomness: the driver in [`super::lease`] carries the
//! actions out and reports what came of them. One call to the API server is outstanding at a
//! time; a newer [`Action::Call`] supersedes it, and the driver drops it (compare-and-swap makes
//! a late arrival of its write harmless). A watch is only ever an alarm clock: what ends a term
//! is a read, what starts one is a write that succeeded.

mod candidate;
mod leading;
#[cfg(test)]
mod proof;
mod releasing;
#[cfg(test)]
mod tests;

use std::time::Duration;

use thiserror::Error;

use self::candidate::Candidate;
use self::leading::Leading;
use self::releasing::Releasing;
use super::clock::Moment;
use super::process::Process;
use super::record::Record;
use super::timings::Timings;

/// Conflicts in a row after which writes are paced instead of tried again at once.
const CONFLICTS_AT_ONCE: u8 = 3;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The moment of [`State::wake`] has come (or some other: it does no harm).
    Wake,
    /// The watch shows the Lease (`None`: deleted). May be old news.
    Watched(Option<Record>),
    /// The answer to the outstanding call.
    Answer(Answer),
    /// The process stops, or the term's work has ended by itself.
    Stop(EndReason),
    /// The driver has carried out [`Action::End`]: nothing of the term runs any more.
    TermEnded,
}

/// What a call to the API server came to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// A read: the Lease, or that there is none.
    Read(Option<Record>),
    /// A write succeeded; this is the Lease now.
    Written(Record),
    /// Compare-and-swap failed: somebody else wrote (409).
    Conflict,
    /// There is no such Lease to replace (404).
    Gone,
    /// Anything else. If the call was a write, it may or may not have happened.
    Failed,
}

/// A request to the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Read the Lease.
    Get,
    /// Create the Lease.
    Create(Claim),
    /// Replace the Lease if it is still at this version.
    Replace {
        /// The `resourceVersion` that is compared.
        version: String,
        /// What to write.
        claim: Claim,
    },
}

impl Takeover {
    /// Every kind, as [`Self::as_str`] names it.
    pub const KINDS: [&str; 4] = ["created", "free", "expired", "resumed"];

    /// The kind in snake case; fit for a metric's label.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Free { .. } => "free",
            Self::Expired { .. } => "expired",
            Self::Resumed => "resumed",
        }
    }
}

impl EndReason {
    /// Every kind, as [`Self::as_str`] names it.
    pub const KINDS: [&str; 7] = [
        "stopped",
        "task_ended",
        "deadline",
        "taken",
        "duplicate_identity",
        "vacated",
        "deleted",
    ];

    /// The reason without its particulars, in snake case; fit for a metric's label.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::TaskEnded => "task_ended",
            Self::Deadline => "deadline",
            Self::Taken { .. } => "taken",
            Self::Impersonated { .. } => "duplicate_identity",
            Self::Vacated => "vacated",
            Self::Deleted => "deleted",
        }
    }
}

impl Call {
    /// Whether the call changes the Lease.
    pub const fn is_write(&self) -> bool {
        !matches!(self, Self::Get)
    }
}

/// What to write into a Lease; the driver adds wall-clock times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// `holderIdentity`; `None` releases the Lease and clears its times.
    pub holder: Option<String>,
    /// `leaseTransitions`.
    pub transitions: i32,
    /// Whether `acquireTime` is left as it is: a renewal or resumption, not a change of holder.
    pub keep_acquire_time: bool,
}

/// What to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send this, instead of whatever is outstanding, and answer within `bound`.
    Call {
        /// The request.
        call: Call,
        /// The longest to wait for an answer.
        bound: Duration,
    },
    /// Start a term.
    Begin(Begun),
    /// Move the term's fence forward.
    Extend {
        /// The moment from which on the term must not write.
        until: Moment,
        /// How long the renewal took.
        took: Duration,
    },
    /// End the term: close the fence, stop its tasks, then report [`Event::TermEnded`].
    End(EndReason),
    /// Say who holds the Lease, after a change.
    Saw {
        /// The holder; `None` if the Lease is free or absent.
        holder: Option<String>,
    },
    /// Say that another live process, in `pod` if it signs, holds the Lease under our identity.
    Duplicate {
        /// Its pod.
        pod: Option<String>,
    },
    /// Say how long nobody held the Lease, as seen from here.
    Vacant(Duration),
    /// Nothing is left to do.
    Finish(Release),
}

/// How a term starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Begun {
    /// `leaseTransitions` of this term.
    pub transitions: i32,
    /// Why the Lease could be had.
    pub how: Takeover,
    /// When the write that made it ours was sent.
    pub sent: Moment,
    /// The moment from which on the term must not write.
    pub until: Moment,
}

/// Why the Lease could be had.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Takeover {
    /// There was none.
    Created,
    /// It was free; `previous` is the holder last seen from here.
    Free {
        /// The holder before, if one was seen.
        previous: Option<String>,
    },
    /// Its holder did not renew it for its whole duration.
    Expired {
        /// The holder that fell silent.
        holder: String,
    },
    /// It named us already.
    Resumed,
}

/// Why a term ends, or the election.
#[derive(Clone, Debug, Error, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// The process was asked to stop.
    #[error("asked to stop")]
    Stopped,
    /// A task of the term ended by itself.
    #[error("a task of the term ended by itself")]
    TaskEnded,
    /// No renewal succeeded in time.
    #[error("no renewal succeeded in time")]
    Deadline,
    /// Another holds the Lease.
    #[error("{by} holds the Lease")]
    Taken {
        /// The other holder.
        by: String,
    },
    /// Another process holds the Lease under our identity.
    #[error("another process ({}) holds the Lease under this replica's identity", .pod.as_deref().unwrap_or("unknown pod"))]
    Impersonated {
        /// Its pod, if it signs.
        pod: Option<String>,
    },
    /// The Lease names nobody, and we did not release it.
    #[error("somebody cleared the holder")]
    Vacated,
    /// The Lease is gone.
    #[error("the Lease was deleted")]
    Deleted,
}

/// What became of the Lease when the election stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Release {
    /// It was ours and is free now.
    Released,
    /// It was not ours.
    NotHeld,
    /// It may still name us: the API server did not answer in time.
    TimedOut,
}

/// When to wake the state up with [`Event::Wake`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wake {
    /// Not before this.
    pub at: Moment,
    /// Spread over this much, so that replicas do not act in step.
    pub spread: Duration,
}

impl Wake {
    const fn exactly(at: Moment) -> Self {
        Self {
            at,
            spread: Duration::ZERO,
        }
    }

    /// This, but with no part of its spread later than `limit`.
    fn not_after(self, limit: Moment) -> Self {
        let at = self.at.min(limit);
        Self {
            at,
            spread: self.spread.min(limit.since(at)),
        }
    }
}

/// The one call whose answer is awaited.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Outstanding {
    call: Call,
    /// When it was sent; a little before, to be exact, which is the safe side.
    sent: Moment,
    /// What it means if the call is a claim and succeeds.
    how: Takeover,
}

/// Who campaigns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Me {
    /// `holderIdentity`.
    pub identity: String,
    /// The process, in case another uses the same identity.
    pub process: Process,
}

impl Me {
    /// Whether this very process wrote the Lease as holder.
    fn signed(&self, record: &Record) -> bool {
        let signer = record.process.as_ref();
        record.is_held_by(&self.identity) && signer.is_some_and(|signer| self.process.is(signer))
    }

    /// Whether the Lease is held by this process, or was by one that it succeeds. One that bears
    /// our name and no signature counts as ours: something wrote it that does not sign.
    fn inherits(&self, record: &Record) -> bool {
        let signer = record.process.as_ref();
        record.is_held_by(&self.identity)
            && signer.is_none_or(|signer| self.process.succeeds(signer))
    }
}

/// One replica's part in the election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    me: Me,
    timings: Timings,
    phase: Phase,
    outstanding: Option<Outstanding>,
    /// Writes wait until then, after one that failed.
    not_before: Moment,
    conflicts: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Candidate(Candidate),
    Leading(Leading),
    Ending(Ending),
    Releasing(Releasing),
    Done,
}

/// A term has ended, and its tasks are being joined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Ending {
    /// When the election was asked to stop after this term, if it was.
    stop: Option<Moment>,
    /// What to go on with as a candidate.
    next: Candidate,
    /// Our Lease as last seen, if it was ours until the end and nothing is in doubt.
    own: Option<Record>,
}

/// One step of the election.
pub fn decide(mut state: State, event: Event, now: Moment) -> (State, Vec<Action>) {
    let mut actions = Vec::new();
    state.step(event, now, &mut actions);
    (state, actions)
}

impl State {
    /// A candidate that has seen nothing yet. Its first [`Event::Wake`] is due at once.
    pub const fn new(me: Me, timings: Timings, now: Moment) -> Self {
        Self {
            me,
            timings,
            phase: Phase::Candidate(Candidate::new(now)),
            outstanding: None,
            not_before: now,
            conflicts: 0,
        }
    }

    /// When this state wants to be woken; `None` while only an answer can move it on.
    pub fn wake(&self) -> Option<Wake> {
        match &self.phase {
            Phase::Candidate(candidate) => candidate.wake(self),
            Phase::Leading(leading) => Some(leading.wake(self)),
            Phase::Releasing(releasing) => Some(releasing.wake(self)),
            Phase::Ending(_) | Phase::Done => None,
        }
    }

    /// The clock has moved on by more than it should: it jumped, or the process was stopped. So it
    /// does not tell how long a holder has been silent, and its silence is counted from now.
    pub fn restart_wait(&mut self, now: Moment) {
        if let Phase::Candidate(candidate) = &mut self.phase {
            candidate.restart_wait(now, self.timings.lease_duration);
        }
    }

    /// The `resourceVersion` that the next replace is compared with, if there is one.
    pub fn version(&self) -> Option<&str> {
        let record = match &self.phase {
            Phase::Candidate(candidate) => candidate.record(),
            Phase::Leading(leading) => Some(&leading.record),
            Phase::Ending(ending) => ending.own.as_ref().or_else(|| ending.next.record()),
            Phase::Releasing(releasing) => releasing.own.as_ref(),
            Phase::Done => None,
        };
        record.map(|record| record.version.as_str())
    }

    fn step(&mut self, event: Event, now: Moment, out: &mut Vec<Action>) {
        // The phase is taken out for the step, so that it can change itself and the rest freely.
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Candidate(candidate) => self.candidate(candidate, event, now, out),
            Phase::Leading(leading) => self.leading(leading, event, now, out),
            Phase::Ending(ending) => self.ending(ending, event, now, out),
            Phase::Releasing(releasing) => self.releasing(releasing, event, now, out),
            Phase::Done => {}
        }
    }

    fn ending(&mut self, mut ending: Ending, event: Event, now: Moment, out: &mut Vec<Action>) {
        match event {
            Event::TermEnded => {
                match ending.stop {
                    Some(asked) => self.start_releasing(ending.own, asked, now, out),
                    None => self.start_campaign(ending.next, now, out),
                }
                return;
            }
            Event::Stop(_) => ending.stop = Some(now),
            Event::Answer(answer) => {
                if let Some(outstanding) = self.outstanding.take() {
                    match answer {
                        Answer::Written(record) => ending.own = Some(record),
                        _ if outstanding.call.is_write() => {
                            ending.own = None;
                            ending.next.unsettled = true;
                        }
                        _ => {}
                    }
                }
            }
            Event::Wake | Event::Watched(_) => {}
        }
        self.phase = Phase::Ending(ending);
    }

    fn issue(&mut self, call: Call, how: Takeover, now: Moment, out: &mut Vec<Action>) {
        let bound = match &self.phase {
            Phase::Releasing(_) => self
                .timings
                .call_timeout
                .min(self.timings.release_bound / 2),
            _ => self.timings.call_timeout,
        };
        self.outstanding = Some(Outstanding {
            call: call.clone(),
            sent: now,
            how,
        });
        out.push(Action::Call { call, bound });
    }

    fn get(&mut self, now: Moment, out: &mut Vec<Action>) {
        self.issue(Call::Get, Takeover::Resumed, now, out);
    }

    fn write_is_outstanding(&self) -> bool {
        self.outstanding
            .as_ref()
            .is_some_and(|outstanding| outstanding.call.is_write())
    }

    /// Counts a conflict: the first few are answered at once, then writes are paced.
    fn count_conflict(&mut self, sent: Moment) {
        self.conflicts = self.conflicts.saturating_add(1);
        if self.conflicts >= CONFLICTS_AT_ONCE {
            self.not_before = sent.plus(self.timings.retry_period);
        }
    }

    /// Half a retry period: between two tries while leading, because the deadline runs.
    fn hurry(&self) -> Duration {
        self.timings.retry_period / 2
    }
}
