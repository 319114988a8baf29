//! One replica: `decide`, and around it what the driver does.

use std::time::Duration;

use super::super::{Action, Answer, Call, Claim, EndReason, Event, Me, Release, State};
use super::{Bug, Request};
use crate::election::clock::Moment;
use crate::election::process::Process;
use crate::election::record::Record;
use crate::election::timings::Timings;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Replica {
    pub(super) state: State,
    /// The version of the Lease that the next replace changes.
    pub(super) base: Option<String>,
    pub(super) sent: Option<Sent>,
    pub(super) term: Option<Open>,
    pub(super) joining: Option<Joining>,
    pub(super) finished: Option<Release>,
    /// Who signed the last Lease that was seen here.
    pub(super) last_signer: Option<Process>,
    /// What the driver could not have carried out.
    pub(super) broken: Option<&'static str>,
}

/// The one outstanding call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    pub(super) request: Request,
    /// When it is given up.
    pub(super) until: Moment,
    /// Who had signed the last Lease that was seen here then.
    pub(super) knew: Option<Process>,
}

/// A term that has begun and not ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Open {
    /// Its fence lets writes through until then.
    pub(super) until: Moment,
    /// The version of its last write of the Lease.
    pub(super) version: u32,
}

/// A term whose tasks are being joined. The driver does nothing else meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Joining {
    pub(super) until: Moment,
    pub(super) seen: Option<String>,
}

/// What a step did, apart from changing the replica.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// The request that nobody waits for any more.
    pub(super) superseded: Option<Request>,
    pub(super) called: bool,
    /// How a term began, if one did.
    pub(super) began: Option<&'static str>,
    pub(super) ended: Option<EndReason>,
}

impl Replica {
    pub(super) fn new(me: Me, timings: Timings, now: Moment) -> Self {
        Self {
            state: State::new(me, timings, now),
            base: None,
            sent: None,
            term: None,
            joining: None,
            finished: None,
            last_signer: None,
            broken: None,
        }
    }

    pub(super) fn process(&self) -> &Process {
        &self.state.me.process
    }

    /// Whether a write of the term would be let through now.
    pub(super) fn is_open(&self, now: Moment) -> bool {
        self.term.as_ref().is_some_and(|term| now < term.until)
    }

    /// Whether there is something that will move it on.
    pub(super) fn has_a_future(&self) -> bool {
        let called = self.sent.is_some() && self.state.outstanding.is_some();
        self.finished.is_some() || self.joining.is_some() || called || self.state.wake().is_some()
    }

    /// The answer to the outstanding call.
    pub(super) fn answer(&mut self, answer: Answer, now: Moment, bug: Option<Bug>) -> Effects {
        self.sent = None;
        let written = matches!(answer, Answer::Written(_));
        if written
            && bug == Some(Bug::DeadlineFromReply)
            && let Some(outstanding) = &mut self.state.outstanding
        {
            outstanding.sent = now;
        }
        self.take(Event::Answer(answer), now, bug)
    }

    pub(super) fn take(&mut self, event: Event, now: Moment, bug: Option<Bug>) -> Effects {
        let seen = match &event {
            Event::Watched(Some(record))
            | Event::Answer(Answer::Read(Some(record)) | Answer::Written(record)) => {
                self.last_signer.clone_from(&record.process);
                Some(record.version.clone())
            }
            _ => None,
        };
        self.step(event, seen, now, bug)
    }

    /// The tasks of the term that ended are gone.
    pub(super) fn joined(&mut self, now: Moment, bug: Option<Bug>) -> Effects {
        let joining = self.joining.take();
        let seen = joining.and_then(|joining| joining.seen);
        self.step(Event::TermEnded, seen, now, bug)
    }

    fn step(
        &mut self,
        event: Event,
        seen: Option<String>,
        now: Moment,
        bug: Option<Bug>,
    ) -> Effects {
        let mut effects = Effects::default();
        let mut actions = Vec::new();
        // What `decide` does, without a copy of the state.
        self.state.step(event, now, &mut actions);
        if seen.is_some() && seen.as_deref() == self.state.version() {
            self.base.clone_from(&seen);
        }
        for action in actions {
            self.carry_out(action, seen.as_deref(), now, bug, &mut effects);
        }
        effects
    }

    fn carry_out(
        &mut self,
        action: Action,
        seen: Option<&str>,
        now: Moment,
        bug: Option<Bug>,
        effects: &mut Effects,
    ) {
        let version = seen.and_then(|seen| seen.parse().ok());
        match action {
            Action::Call { call, bound } => {
                let patience = (bug != Some(Bug::NoTimeouts)).then_some(bound);
                let sent = Sent {
                    request: self.request(call),
                    until: now.plus(patience.unwrap_or(Duration::MAX)),
                    knew: self.last_signer.clone(),
                };
                effects.superseded = self.sent.replace(sent).map(|sent| sent.request);
                effects.called = true;
            }
            Action::Begin(begun) => {
                self.open(begun.until, version, now);
                effects.began = Some(begun.how.as_str());
            }
            Action::Extend { until, .. } => {
                self.expect(self.is_open(now), "extends a term that is over");
                self.term = None;
                self.open(until, version, now);
            }
            Action::End(reason) => {
                self.expect(self.term.is_some(), "ends a term that has not begun");
                self.term = None;
                let until = now.plus(self.state.timings.join_time());
                let seen = seen.map(str::to_owned);
                self.joining = Some(Joining { until, seen });
                effects.ended = Some(reason);
            }
            Action::Finish(release) => {
                self.finished = Some(release);
                effects.superseded = self.sent.take().map(|sent| sent.request);
            }
            Action::Saw { .. } | Action::Duplicate { .. } | Action::Vacant(_) => {}
        }
    }

    fn open(&mut self, until: Moment, version: Option<u32>, now: Moment) {
        self.expect(self.term.is_none(), "begins a term within a term");
        self.expect(until > now, "opens a fence that is past");
        self.expect(version.is_some(), "leads by something else than a write");
        let version = version.unwrap_or_default();
        self.term = Some(Open { until, version });
    }

    fn expect(&mut self, holds: bool, otherwise: &'static str) {
        if !holds {
            self.broken = Some(otherwise);
        }
    }

    fn request(&self, call: Call) -> Request {
        match call {
            Call::Get => Request::Get,
            Call::Create(claim) => Request::Create(self.record(claim)),
            Call::Replace { version, claim } if self.base.as_ref() == Some(&version) => {
                let record = self.record(claim);
                Request::Replace { version, record }
            }
            Call::Replace { .. } => Request::Baseless,
        }
    }

    /// The Lease with the claim written into it.
    fn record(&self, claim: Claim) -> Record {
        let process = claim.holder.is_some().then(|| self.process().clone());
        Record {
            holder: claim.holder,
            duration: self.state.timings.lease_duration,
            transitions: Some(claim.transitions),
            renew_time: None,
            process,
            version: String::new(),
        }
    }
}
