//! A replica that wants the Lease.

use std::time::Duration;

use super::leading::Leading;
use super::{
    Action, Answer, Begun, Call, Claim, EndReason, Event, Me, Outstanding, Phase, Process, Release,
    State, Takeover, Wake,
};
use crate::election::clock::Moment;
use crate::election::record::Record;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Candidate {
    pub(super) seen: Seen,
    /// When to read the Lease if the watch stays silent.
    pub(super) poll: Wake,
    /// The outcome of a write of ours is unknown: nothing is written before a read has told.
    pub(super) unsettled: bool,
    /// Since when the Lease is seen without a holder.
    pub(super) vacant_since: Option<Moment>,
    /// The last holder seen.
    pub(super) previous: Option<String>,
    /// Another process wrote the Lease in our name while we led, so it lives.
    contested: bool,
    /// The process that was told of as a duplicate of this one.
    pub(super) duplicate: Option<Process>,
}

/// What was last seen of the Lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Seen {
    Nothing,
    /// Until when another that held it when it was last seen may still act, for it need not know
    /// yet that its Lease was deleted.
    Absent(Moment),
    /// Unchanged since the moment.
    Present(Record, Moment),
}

impl Candidate {
    pub(super) const fn new(now: Moment) -> Self {
        Self {
            seen: Seen::Nothing,
            poll: Wake::exactly(now),
            unsettled: false,
            vacant_since: None,
            previous: None,
            contested: false,
            duplicate: None,
        }
    }

    /// `seen` is what was seen of the Lease at the end of a term, in this order.
    pub(super) fn after_term(
        me: &Me,
        seen: impl Iterator<Item = Option<Record>>,
        reason: &EndReason,
        unsettled: bool,
        now: Moment,
        out: &mut Vec<Action>,
    ) -> Self {
        let mut candidate = Self::new(now);
        candidate.previous = Some(me.identity.clone());
        candidate.unsettled = unsettled;
        candidate.contested = matches!(reason, EndReason::Impersonated { .. });
        for seen in seen {
            candidate.sight(me, seen, now, out);
        }
        candidate
    }

    /// Whether another process holds the Lease, be it under our own identity.
    fn is_foreign(&self, me: &Me, record: &Record) -> bool {
        let inherited = me.signed(record) || (me.inherits(record) && !self.contested);
        record.holder.is_some() && !inherited
    }

    pub(super) const fn record(&self) -> Option<&Record> {
        match &self.seen {
            Seen::Present(record, _) => Some(record),
            Seen::Nothing | Seen::Absent(_) => None,
        }
    }

    pub(super) fn wake(&self, state: &State) -> Option<Wake> {
        if state.write_is_outstanding() {
            return None;
        }
        let spread = state.hurry();
        let poll = state.outstanding.is_none().then_some(self.poll);
        let claim = self.claim_at(state).filter(|_| !self.unsettled);
        let claim = claim.map(|due| {
            if state.not_before > due {
                let at = state.not_before;
                return Wake { at, spread };
            }
            Wake::exactly(due)
        });
        poll.into_iter().chain(claim).min()
    }

    /// Counts a holder's silence from now.
    pub(super) fn restart_wait(&mut self, now: Moment, lease_duration: Duration) {
        match &mut self.seen {
            Seen::Nothing => {}
            Seen::Absent(until) if *until == Moment::default() => {}
            Seen::Absent(until) => *until = now.plus(lease_duration).max(*until),
            Seen::Present(_, since) => *since = now,
        }
        self.poll = Wake::exactly(now);
    }

    /// Takes in what is seen of the Lease.
    fn sight(&mut self, me: &Me, seen: Option<Record>, now: Moment, out: &mut Vec<Action>) {
        let holder = seen.as_ref().and_then(|record| record.holder.clone());
        let first = matches!(self.seen, Seen::Nothing);
        let before = self.record().and_then(|record| record.holder.clone());
        if first || holder != before {
            out.push(Action::Saw {
                holder: holder.clone(),
            });
        }
        match holder {
            Some(holder) => {
                self.previous = Some(holder);
                if let Some(since) = self.vacant_since.take() {
                    out.push(Action::Vacant(now.since(since)));
                }
            }
            None => {
                self.vacant_since.get_or_insert(now);
            }
        }
        let named = seen
            .as_ref()
            .filter(|record| record.is_held_by(&me.identity));
        match named {
            Some(record) if self.is_foreign(me, record) => self.tell_duplicate(record, out),
            Some(_) => {}
            // Should it hold the Lease again, that is told again.
            None => self.duplicate = None,
        }
        let contested = self.contested && named.is_some();
        self.seen = match (seen, &self.seen) {
            // It may have been renewed right before, unseen.
            (None, Seen::Present(old, _)) if self.is_foreign(me, old) => {
                Seen::Absent(now.plus(old.duration))
            }
            (None, Seen::Absent(until)) => Seen::Absent(*until),
            (None, Seen::Present(..) | Seen::Nothing) => Seen::Absent(Moment::default()),
            (Some(record), Seen::Present(old, since)) if record.is_same_renewal(old) => {
                Seen::Present(record, *since)
            }
            (Some(record), _) => Seen::Present(record, now),
        };
        self.contested = contested;
    }

    /// Tells of each process that goes by our name once.
    fn tell_duplicate(&mut self, record: &Record, out: &mut Vec<Action>) {
        let told = self.duplicate.is_some() || matches!(self.seen, Seen::Present(..));
        if told && self.duplicate == record.process {
            return;
        }
        self.duplicate.clone_from(&record.process);
        let pod = record
            .process
            .as_ref()
            .map(|process| process.pod().to_owned());
        out.push(Action::Duplicate { pod });
    }

    /// When the Lease may be claimed as far as its content goes; `None` if nothing was seen.
    fn claim_at(&self, state: &State) -> Option<Moment> {
        match &self.seen {
            Seen::Nothing => None,
            Seen::Absent(until) => Some(*until),
            Seen::Present(record, since) if self.is_foreign(&state.me, record) => {
                Some(since.plus(record.duration))
            }
            Seen::Present(..) => Some(Moment::default()),
        }
    }

    /// The write that makes the Lease ours.
    fn claim(&self, me: &Me) -> Option<(Call, Takeover)> {
        let claim = |transitions, keep_acquire_time| Claim {
            holder: Some(me.identity.clone()),
            transitions,
            keep_acquire_time,
        };
        let record = match &self.seen {
            Seen::Nothing => return None,
            Seen::Absent(_) => return Some((Call::Create(claim(0, false)), Takeover::Created)),
            Seen::Present(record, _) => record,
        };
        let (claim, how) = match &record.holder {
            Some(_) if !self.is_foreign(me, record) => (
                claim(record.transitions.unwrap_or_default(), true),
                Takeover::Resumed,
            ),
            Some(holder) => (
                claim(record.next_transitions(), false),
                Takeover::Expired {
                    holder: holder.clone(),
                },
            ),
            None => (
                claim(record.next_transitions(), false),
                Takeover::Free {
                    previous: self.previous.clone(),
                },
            ),
        };
        let version = record.version.clone();
        Some((Call::Replace { version, claim }, how))
    }
}

impl State {
    pub(super) fn candidate(
        &mut self,
        mut candidate: Candidate,
        event: Event,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        match event {
            Event::Stop(_) => {
                if candidate.unsettled || self.write_is_outstanding() {
                    self.start_releasing(None, now, now, out);
                } else {
                    self.outstanding = None;
                    out.push(Action::Finish(Release::NotHeld));
                }
            }
            Event::Watched(seen) => {
                candidate.sight(&self.me, seen, now, out);
                // What settles a doubt is a read only, so that is not put off.
                if !candidate.unsettled {
                    candidate.poll = self.next_poll(now);
                }
                self.campaign(candidate, now, out);
            }
            Event::Answer(answer) => match self.outstanding.take() {
                Some(outstanding) => self.answered(candidate, outstanding, answer, now, out),
                None => self.campaign(candidate, now, out),
            },
            Event::Wake | Event::TermEnded => self.campaign(candidate, now, out),
        }
    }

    pub(super) fn start_campaign(
        &mut self,
        mut candidate: Candidate,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        candidate.poll = Wake::exactly(now);
        self.conflicts = 0;
        self.campaign(candidate, now, out);
    }

    fn answered(
        &mut self,
        mut candidate: Candidate,
        outstanding: Outstanding,
        answer: Answer,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        let Outstanding { call, sent, how } = outstanding;
        match answer {
            Answer::Written(record) => {
                candidate.unsettled = false;
                let until = sent.plus(self.timings.renew_deadline);
                if now < until {
                    self.begin(&candidate, record, how, sent, now, out);
                    return;
                }
                // Too late to act on (the process was stopped meanwhile), but it names us.
                candidate.sight(&self.me, Some(record), now, out);
            }
            Answer::Read(seen) => {
                candidate.unsettled = false;
                candidate.sight(&self.me, seen, now, out);
                if let Some(record) = candidate.record()
                    && candidate.is_foreign(&self.me, record)
                {
                    // The race is over: its conflicts don't count in the next.
                    self.conflicts = 0;
                }
            }
            Answer::Gone => {
                self.count_conflict(sent);
                candidate.sight(&self.me, None, now, out);
            }
            Answer::Conflict => {
                self.count_conflict(sent);
                candidate.poll = Wake::exactly(now);
                self.get(now, out);
                self.phase = Phase::Candidate(candidate);
                return;
            }
            Answer::Failed => {
                if call.is_write() {
                    candidate.unsettled = true;
                    self.not_before = sent.plus(self.timings.retry_period);
                    self.get(now, out);
                }
            }
        }
        candidate.poll = self.next_poll(now);
        self.campaign(candidate, now, out);
    }

    fn begin(
        &mut self,
        candidate: &Candidate,
        record: Record,
        how: Takeover,
        sent: Moment,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        if let Some(since) = candidate.vacant_since {
            out.push(Action::Vacant(now.since(since)));
        }
        out.push(Action::Begin(Begun {
            transitions: record.transitions.unwrap_or_default(),
            how,
            sent,
            until: sent.plus(self.timings.renew_deadline),
        }));
        self.conflicts = 0;
        self.not_before = now;
        self.phase = Phase::Leading(Leading::new(record, sent, &self.timings));
    }

    fn next_poll(&self, now: Moment) -> Wake {
        Wake {
            at: now.plus(self.timings.retry_period),
            spread: self.hurry(),
        }
    }

    /// Claims the Lease if it may be claimed, else reads it if that is due.
    fn campaign(&mut self, candidate: Candidate, now: Moment, out: &mut Vec<Action>) {
        let due = candidate
            .claim_at(self)
            .is_some_and(|due| now >= due && now >= self.not_before);
        let claim = candidate.claim(&self.me).filter(|_| due);
        match claim {
            _ if self.write_is_outstanding() => {}
            Some((call, how)) if !candidate.unsettled => self.issue(call, how, now, out),
            _ if self.outstanding.is_none() && now >= candidate.poll.at => self.get(now, out),
            _ => {}
        }
        self.phase = Phase::Candidate(candidate);
    }
}
