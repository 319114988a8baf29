//! A replica that holds the Lease.

use super::candidate::Candidate;
use super::{
    Action, Answer, Call, Claim, EndReason, Ending, Event, Outstanding, Phase, State, Takeover,
    Wake,
};
use crate::election::clock::Moment;
use crate::election::record::Record;
use crate::election::timings::Timings;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Leading {
    /// Our Lease, as last written or read.
    pub(super) record: Record,
    /// The right to write ends here: send time of the last successful write + renew deadline.
    pub(super) until: Moment,
    pub(super) renew_at: Moment,
    /// Set while it is in doubt that the Lease is as in `record`: when to read it.
    pub(super) read_at: Option<Moment>,
    /// What the watch showed last that is not our Lease, for no read has denied it yet.
    pub(super) rumour: Option<Record>,
}

/// What was seen of the Lease at the end of a term.
type Sighting = Option<Option<Record>>;

impl Leading {
    pub(super) fn new(record: Record, sent: Moment, timings: &Timings) -> Self {
        Self {
            record,
            until: sent.plus(timings.renew_deadline),
            renew_at: sent.plus(timings.retry_period),
            read_at: None,
            rumour: None,
        }
    }

    pub(super) fn wake(&self, state: &State) -> Wake {
        if state.outstanding.is_some() {
            return Wake::exactly(self.until);
        }
        let next = match self.read_at {
            Some(at) => Wake {
                at,
                spread: state.hurry() / 4,
            },
            None => Wake::exactly(self.renew_at.max(state.not_before)),
        };
        next.not_after(self.until)
    }
}

impl State {
    pub(super) fn leading(
        &mut self,
        mut leading: Leading,
        event: Event,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        // Before all else: an answer that comes too late can't revive the term.
        if now >= leading.until && !matches!(event, Event::Stop(_)) {
            self.end_term(leading, EndReason::Deadline, None, now, out);
            if matches!(event, Event::Answer(_)) {
                self.step(event, now, out);
            }
            return;
        }
        match event {
            Event::Stop(reason) => self.end_term(leading, reason, None, now, out),
            Event::Watched(seen) => {
                let ours = seen
                    .as_ref()
                    .is_some_and(|record| self.still_holds(&leading.record, record));
                let duration = seen.as_ref().map(|record| record.duration);
                if !ours || duration != Some(leading.record.duration) {
                    leading.read_at = Some(now);
                    self.get(now, out);
                }
                if !ours {
                    leading.rumour = seen.or(leading.rumour);
                }
                self.phase = Phase::Leading(leading);
            }
            Event::Answer(answer) => match self.outstanding.take() {
                Some(outstanding) => self.renewed(leading, outstanding, answer, now, out),
                None => self.hold(leading, now, out),
            },
            Event::Wake | Event::TermEnded => self.hold(leading, now, out),
        }
    }

    /// Takes in the answer to a renewal, or to the read that settles a doubt.
    fn renewed(
        &mut self,
        mut leading: Leading,
        outstanding: Outstanding,
        answer: Answer,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        let Outstanding { call, sent, .. } = outstanding;
        match answer {
            Answer::Written(record) => {
                leading = Leading::new(record, sent, &self.timings);
                self.conflicts = 0;
                out.push(Action::Extend {
                    until: leading.until,
                    took: now.since(sent),
                });
            }
            Answer::Read(Some(record)) if self.still_holds(&leading.record, &record) => {
                if record.duration != leading.record.duration {
                    // Others would wait for another time than we count on: set it right.
                    leading.renew_at = now;
                }
                leading.record = record;
                leading.read_at = None;
                leading.rumour = None;
            }
            Answer::Read(seen) => {
                let reason = match &seen {
                    Some(record) => match &record.holder {
                        Some(by) if *by == self.me.identity => EndReason::Impersonated {
                            pod: record.process.as_ref().map(|by| by.pod().to_owned()),
                        },
                        Some(by) => EndReason::Taken { by: by.clone() },
                        None => EndReason::Vacated,
                    },
                    None => EndReason::Deleted,
                };
                self.end_term(leading, reason, Some(seen), now, out);
                return;
            }
            Answer::Gone => {
                self.end_term(leading, EndReason::Deleted, Some(None), now, out);
                return;
            }
            Answer::Conflict => {
                self.count_conflict(sent);
                leading.read_at = Some(now);
            }
            Answer::Failed if call.is_write() => {
                self.not_before = sent.plus(self.hurry());
                leading.read_at = Some(now);
            }
            Answer::Failed => leading.read_at = Some(now.max(sent.plus(self.hurry()))),
        }
        self.hold(leading, now, out);
    }

    /// Whether the Lease is as we left it, or differs in what does not matter.
    fn still_holds(&self, ours: &Record, seen: &Record) -> bool {
        // Somebody may have taken our signature off; but who renews without it is not us.
        let untouched = seen.process.is_none() && seen.renew_time == ours.renew_time;
        self.me.signed(seen) || (seen.is_held_by(&self.me.identity) && untouched)
    }

    /// Reads or renews, whichever is due.
    fn hold(&mut self, leading: Leading, now: Moment, out: &mut Vec<Action>) {
        if self.outstanding.is_none() {
            match leading.read_at {
                Some(at) if now >= at => self.get(now, out),
                None if now >= leading.renew_at.max(self.not_before) => {
                    let claim = Claim {
                        holder: Some(self.me.identity.clone()),
                        transitions: leading.record.transitions.unwrap_or_default(),
                        keep_acquire_time: true,
                    };
                    let version = leading.record.version.clone();
                    self.issue(
                        Call::Replace { version, claim },
                        Takeover::Resumed,
                        now,
                        out,
                    );
                }
                _ => {}
            }
        }
        self.phase = Phase::Leading(leading);
    }

    fn end_term(
        &mut self,
        leading: Leading,
        reason: EndReason,
        seen: Sighting,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        let in_doubt = leading.read_at.is_some();
        let own = (seen.is_none() && !in_doubt).then_some(leading.record);
        out.push(Action::End(reason.clone()));
        // Another that held the Lease before it was deleted is given time to notice.
        let seen = leading.rumour.map(Some).into_iter().chain(seen);
        let next = Candidate::after_term(&self.me, seen, &reason, in_doubt, now, out);
        self.phase = Phase::Ending(Ending {
            stop: matches!(reason, EndReason::Stopped | EndReason::TaskEnded).then_some(now),
            next,
            own,
        });
    }
}
