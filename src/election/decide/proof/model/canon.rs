//! Time passes, and what makes no difference any more is forgotten.
//!
//! Moments are kept relative to now, versions relative to each other, and what only serves
//! messages and metrics is left out. So a course that comes back to where it was is where it was.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use super::super::super::candidate::{Candidate, Seen};
use super::super::super::{Call, Phase, Takeover};
use super::*;

/// Nothing depends on how long ago something was that is longer ago than this.
const AGES_AGO: Duration = Duration::from_secs(6);

impl World {
    /// A tick passes.
    pub(super) fn age(&mut self) {
        for node in &mut self.nodes {
            let node = Arc::make_mut(node);
            let (now, passed) = (node.now().since_epoch(), TICK * node.rate / 100);
            node.each_moment(&mut |moment| {
                let then = moment.since_epoch();
                if then != Duration::ZERO && then != Duration::MAX {
                    *moment = Moment::new((then - passed).max(now - AGES_AGO));
                }
            });
        }
    }

    /// Forgets what makes no difference. All nodes must be this world's own.
    pub(super) fn forget(&mut self, setup: &Setup) {
        let hands = setup
            .faults
            .iter()
            .any(|(fault, _)| matches!(fault, Fault::By(_)));
        for node in &mut self.nodes {
            Arc::make_mut(node).forget(hands);
        }
        self.forget_seizure();
        if setup.bug != Some(Bug::BlindWrites) {
            self.forget_strays();
        }
        let mut versions = BTreeSet::new();
        self.each_version(&mut |version| {
            versions.insert(version);
            version
        });
        let place = |version| versions.range(..=version).count();
        self.each_version(&mut |version| u32::try_from(place(version)).unwrap());
        self.server.version = u32::try_from(versions.len()).unwrap();
    }

    /// A hand's deed that came before all terms matters to none.
    fn forget_seizure(&mut self) {
        let mut terms = self
            .nodes
            .iter()
            .filter_map(|node| node.replica.term.as_ref());
        let claims = self.nodes.iter().any(|node| {
            let request = node.replica.sent.as_ref().map(|sent| &sent.request);
            request.is_some_and(Request::is_write)
        });
        if !claims && terms.all(|term| self.server.seized(term).is_none()) {
            self.server.seized = None;
        }
    }

    /// A write that is compared with a version that is gone does nothing any more.
    fn forget_strays(&mut self) {
        let lease = self.server.lease.as_ref();
        self.strays.retain(|request| match request {
            Request::Replace { version, .. } => {
                lease.is_some_and(|lease| lease.version == *version)
            }
            _ => true,
        });
    }

    fn each_version(&mut self, visit: &mut dyn FnMut(u32) -> u32) {
        for node in &mut self.nodes {
            Arc::make_mut(node).each_version(visit);
        }
        for request in &mut self.strays {
            in_request(request, visit);
        }
        in_record(self.server.lease.as_mut(), visit);
        if let Some((version, _)) = &mut self.server.seized {
            *version = visit(*version);
        }
    }
}

impl Node {
    fn forget(&mut self, hands: bool) {
        if !hands {
            self.replica.last_signer = None;
            if let Some(sent) = &mut self.replica.sent {
                sent.knew = None;
            }
        }
        let now = self.now();
        let state = &mut self.replica.state;
        state.conflicts = state.conflicts.min(super::super::super::CONFLICTS_AT_ONCE);
        if let Some(outstanding) = &mut state.outstanding {
            outstanding.how = match &outstanding.how {
                Takeover::Free { .. } => Takeover::Free { previous: None },
                Takeover::Expired { .. } => Takeover::Expired {
                    holder: String::new(),
                },
                how => how.clone(),
            };
        }
        let candidate = match &mut state.phase {
            Phase::Candidate(candidate) => candidate,
            Phase::Ending(ending) => &mut ending.next,
            _ => return,
        };
        candidate.previous = None;
        candidate.duplicate = None;
        candidate.vacant_since = candidate.vacant_since.map(|_| now);
    }

    fn each_moment(&mut self, visit: &mut dyn FnMut(&mut Moment)) {
        let replica = &mut self.replica;
        visit(&mut replica.state.not_before);
        let outstanding = &mut replica.state.outstanding;
        outstanding.iter_mut().for_each(|o| visit(&mut o.sent));
        replica.sent.iter_mut().for_each(|s| visit(&mut s.until));
        replica.term.iter_mut().for_each(|t| visit(&mut t.until));
        replica.joining.iter_mut().for_each(|j| visit(&mut j.until));
        match &mut replica.state.phase {
            Phase::Candidate(candidate) => in_candidate(candidate, visit),
            Phase::Leading(leading) => {
                visit(&mut leading.until);
                visit(&mut leading.renew_at);
                leading.read_at.iter_mut().for_each(visit);
            }
            Phase::Ending(ending) => in_candidate(&mut ending.next, visit),
            Phase::Releasing(releasing) => {
                visit(&mut releasing.patience);
                visit(&mut releasing.until);
                visit(&mut releasing.read_at);
            }
            Phase::Done => {}
        }
    }

    fn each_version(&mut self, visit: &mut dyn FnMut(u32) -> u32) {
        let replica = &mut self.replica;
        replica
            .base
            .iter_mut()
            .for_each(|base| in_text(base, visit));
        if let Some(sent) = &mut replica.sent {
            in_request(&mut sent.request, visit);
        }
        if let Some(term) = &mut replica.term {
            term.version = visit(term.version);
        }
        if let Some(seen) = replica.joining.as_mut().and_then(|j| j.seen.as_mut()) {
            in_text(seen, visit);
        }
        if let Some(outstanding) = &mut replica.state.outstanding
            && let Call::Replace { version, .. } = &mut outstanding.call
        {
            in_text(version, visit);
        }
        match &mut replica.state.phase {
            Phase::Candidate(candidate) => in_record(seen(candidate), visit),
            Phase::Leading(leading) => {
                in_record(Some(&mut leading.record), visit);
                in_record(leading.rumour.as_mut(), visit);
            }
            Phase::Ending(ending) => {
                in_record(seen(&mut ending.next), visit);
                in_record(ending.own.as_mut(), visit);
            }
            Phase::Releasing(releasing) => in_record(releasing.own.as_mut(), visit),
            Phase::Done => {}
        }
        if let Way::Back { answer, .. } = &mut self.way {
            let record = match answer {
                Answer::Read(record) => record.as_mut(),
                Answer::Written(record) => Some(record),
                _ => None,
            };
            in_record(record, visit);
        }
        for sighting in &mut self.sightings {
            in_record(sighting.as_mut(), visit);
        }
    }
}

fn in_candidate(candidate: &mut Candidate, visit: &mut dyn FnMut(&mut Moment)) {
    visit(&mut candidate.poll.at);
    match &mut candidate.seen {
        Seen::Nothing => {}
        Seen::Absent(moment) | Seen::Present(_, moment) => visit(moment),
    }
}

fn seen(candidate: &mut Candidate) -> Option<&mut Record> {
    match &mut candidate.seen {
        Seen::Present(record, _) => Some(record),
        Seen::Nothing | Seen::Absent(_) => None,
    }
}

fn in_request(request: &mut Request, visit: &mut dyn FnMut(u32) -> u32) {
    match request {
        Request::Get | Request::Baseless => {}
        Request::Create(record) => record.transitions = Some(0),
        Request::Replace { version, record } => {
            in_text(version, visit);
            record.transitions = Some(0);
        }
    }
}

/// Its version, and its renew time, which is the version of the renewal.
fn in_record(record: Option<&mut Record>, visit: &mut dyn FnMut(u32) -> u32) {
    if let Some(record) = record {
        record.transitions = Some(0);
        in_text(&mut record.version, visit);
        record.renew_time = record.renew_time.map(|time| {
            let version = visit(u32::try_from(time.as_second()).unwrap());
            Timestamp::from_second(version.into()).unwrap()
        });
    }
}

fn in_text(version: &mut String, visit: &mut dyn FnMut(u32) -> u32) {
    let number = version.parse().unwrap();
    *version = visit(number).to_string();
}
