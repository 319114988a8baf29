//! An API server for one Lease.

use k8s_openapi::jiff::Timestamp;

use super::super::Answer;
use super::{Bug, Open};
use crate::election::record::Record;

/// A request as it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Request {
    Get,
    Create(Record),
    Replace {
        version: String,
        record: Record,
    },
    /// Not sent: the driver does not have the Lease that it would change.
    Baseless,
}

impl Request {
    pub(super) const fn is_write(&self) -> bool {
        matches!(self, Self::Create(_) | Self::Replace { .. })
    }
}

/// What somebody does to the Lease who takes no part in the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Hand {
    Delete,
    /// Takes the holder out, and leaves the rest.
    Clear,
    /// Writes this name in, with a new renew time and no signature.
    Name(&'static str),
    /// Takes the signature off.
    Unsign,
}

impl Hand {
    /// Whether a replica that knew the holder can tell that it did not give the Lease back.
    pub(super) const fn leaves_a_trace(self) -> bool {
        matches!(self, Self::Delete)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Server {
    pub(super) lease: Option<Record>,
    pub(super) version: u32,
    /// The last deed of a hand that took the Lease from its holder, and its version.
    pub(super) seized: Option<(u32, Hand)>,
}

impl Server {
    /// Answers a request, and says whether the Lease has changed.
    pub(super) fn serve(&mut self, request: &Request, bug: Option<Bug>) -> (Answer, bool) {
        let blind = bug == Some(Bug::BlindWrites);
        match (request, &self.lease) {
            (Request::Get, lease) => (Answer::Read(lease.clone()), false),
            (Request::Create(record), None) => (self.store(record.clone()), true),
            (Request::Replace { .. }, None) => (Answer::Gone, false),
            (Request::Replace { version, record }, Some(lease))
                if blind || lease.version == *version =>
            {
                (self.store(record.clone()), true)
            }
            _ => (Answer::Conflict, false),
        }
    }

    /// Stores the record with the next version, and a renew time of its own.
    fn store(&mut self, mut record: Record) -> Answer {
        self.version += 1;
        record.version = self.version.to_string();
        let time = Timestamp::from_second(self.version.into()).ok();
        record.renew_time = time.filter(|_| record.holder.is_some());
        self.lease = Some(record.clone());
        Answer::Written(record)
    }

    /// Does what a hand does; says whether the Lease has changed.
    pub(super) fn touch(&mut self, hand: Hand) -> bool {
        let Some(lease) = &self.lease else {
            return false;
        };
        let mut record = Record {
            process: None,
            ..lease.clone()
        };
        match hand {
            Hand::Delete => {
                self.version += 1;
                self.lease = None;
            }
            Hand::Clear => {
                record.holder = None;
                self.put(record);
            }
            Hand::Unsign => self.put(record),
            Hand::Name(name) => {
                record.holder = Some(name.to_owned());
                self.store(record);
            }
        }
        if hand != Hand::Unsign {
            self.seized = Some((self.version, hand));
        }
        true
    }

    fn put(&mut self, record: Record) {
        self.version += 1;
        let version = self.version.to_string();
        self.lease = Some(Record { version, ..record });
    }

    /// By which hand the Lease was taken from this term; its holder need not know yet.
    pub(super) fn seized(&self, term: &Open) -> Option<Hand> {
        let seized = self.seized.filter(|(version, _)| *version > term.version);
        seized.map(|(_, hand)| hand)
    }
}
