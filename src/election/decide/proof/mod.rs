//! What the election promises, proven for `decide` as the driver runs it: over every course that
//! three replicas and a few faults can take, with no limit in time ([`model`]), and over many random
//! courses of up to five replicas with more faults and finer time ([`simulation`]).
//!
//! The promises hold as long as a lease duration on the fastest clock is longer than a renew
//! deadline on the slowest.
//!
//! Somebody who changes the Lease past the election (kubectl) can give it to another while its
//! holder does not know yet, and then both write until it does. Only who knew the holder of a
//! Lease that was deleted gives it the time to notice.

mod lease;
mod model;
mod replica;
mod simulation;

use self::lease::{Hand, Request, Server};
use self::replica::{Effects, Open, Replica};

/// A fault put into the election, to see that the proofs find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Bug {
    /// The right to write is counted from the reply, not from the sending.
    DeadlineFromReply,
    /// Writes are not compared.
    BlindWrites,
    /// A call that is not answered is waited for forever.
    NoTimeouts,
}
