//! Flags of the election. The identity is upstream's; the rest is ours, with upstream's values.

use std::time::Duration;

use clap::Args;

use super::parse::{duration, non_empty};
use crate::election::Timings;

/// An admission policy sees a new holder after some 5 ms, rarely after 40 ms.
const ADMISSION_LAG: Duration = Duration::from_secs(2);

/// The Lease.
#[derive(Args, Clone, Debug)]
pub struct ElectionArgs {
    /// Name of this replica in the Lease, unique per replica [default: $HOSTNAME, else random]
    #[arg(long, env = "ORCHESTRATORD_LEADER_ELECTION_IDENTITY", value_parser = non_empty)]
    pub leader_election_identity: Option<String>,
    /// Namespace of the Lease [default: the pod's, else that of the kubeconfig context]
    #[arg(long, env = "ORCHESTRATORD_LEADER_ELECTION_NAMESPACE", value_parser = non_empty)]
    pub leader_election_namespace: Option<String>,
    /// Uid of this pod, or what else no two live replicas share: a restarted process that finds its
    /// own uid in the Lease leads again at once (ours)
    #[arg(long, env = "POD_UID", value_parser = non_empty)]
    pub pod_uid: Option<String>,
    /// An admission policy of the API server admits only the leader's writes, so one that is refused
    /// in the first 2s as leader is tried again (ours)
    #[arg(long)]
    pub server_fence: bool,
    /// How long a Lease is left to a holder that no longer renews it
    #[arg(long, default_value = "15s", value_parser = duration)]
    pub leader_election_lease_duration: Duration,
    /// How long after its last renewal was sent a leader may still write
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub leader_election_renew_deadline: Duration,
    /// How often the leader renews, and how often a candidate looks without a watch
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub leader_election_retry_period: Duration,
    /// How long one call about the Lease may take
    #[arg(long, default_value = "3s", value_parser = duration)]
    pub leader_election_call_timeout: Duration,
    /// How long a stopped leader may take to join its tasks and give the Lease back
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub leader_election_release_timeout: Duration,
    /// How long the leader's tasks may take to end before they are aborted
    #[arg(long, default_value = "1s", value_parser = duration)]
    pub leader_election_join_timeout: Duration,
}

impl ElectionArgs {
    /// How long the API server may take to see a new leader where it admits only the leader's writes.
    pub fn admission_lag(&self) -> Duration {
        if self.server_fence {
            ADMISSION_LAG
        } else {
            Duration::ZERO
        }
    }

    /// The bounds of the election, as given.
    pub fn timings(&self) -> Timings {
        Timings {
            lease_duration: self.leader_election_lease_duration,
            renew_deadline: self.leader_election_renew_deadline,
            retry_period: self.leader_election_retry_period,
            call_timeout: self.leader_election_call_timeout,
            release_bound: self.leader_election_release_timeout,
            join_bound: self.leader_election_join_timeout,
        }
    }
}
