//! What an election tells about itself, for metrics and Events.

use std::time::Duration;

use super::decide::{Begun, EndReason};

/// Told what happens, on the elector's own task: methods must return at once.
pub trait Observer: Send + Sync + 'static {
    /// A term started.
    fn term_started(&self, _begun: &Begun) {}
    /// A term is over: its tasks are joined (or stuck, which also ends the election).
    fn term_ended(&self, _reason: &EndReason, _held_for: Duration) {}
    /// The Lease was renewed; the request took this long.
    fn renewed(&self, _took: Duration) {}
    /// A Lease request failed. While leading this is a renewal, or the read after one.
    fn call_failed(&self, _kind: CallError) {}
    /// The Lease is seen in the hands of another, or of nobody.
    fn holder_changed(&self, _holder: Option<&str>) {}
    /// Another live process holds the Lease under this replica's identity. `other_pod` is unknown
    /// if that process does not sign.
    fn duplicate_identity(&self, _own_pod: &str, _other_pod: Option<&str>) {}
    /// Nobody held the Lease for this long, as seen from here.
    fn vacant(&self, _time: Duration) {}
    /// The Lease was given back, this long after a stop was asked for.
    fn released(&self, _took: Duration) {}
    /// A write was refused by a term's fence.
    fn fence_refused(&self) {}
}

/// Watches nothing.
impl Observer for () {}

/// How a Lease request failed; fit for a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallError {
    /// No answer in time.
    Timeout,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 429.
    Throttled,
    /// 5xx.
    Server,
    /// Some other refusal of the API server.
    Refused,
    /// No connection, or it broke.
    Connection,
}

impl CallError {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Timeout,
        Self::Unauthorized,
        Self::Forbidden,
        Self::Throttled,
        Self::Server,
        Self::Refused,
        Self::Connection,
    ];

    /// The kind in snake case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Throttled => "throttled",
            Self::Server => "server",
            Self::Refused => "refused",
            Self::Connection => "connection",
        }
    }

    /// Whether the way out is the operator's configuration, and not to wait.
    pub const fn is_permission(self) -> bool {
        matches!(self, Self::Unauthorized | Self::Forbidden)
    }
}
