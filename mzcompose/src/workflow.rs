//! Workflows: scenarios that run against a real cluster.

mod case;
mod conversion_probe;
pub mod leader_failover;
mod lease_watch;
pub mod report;
pub mod steps;

/// Every workflow, with one line of what it shows.
pub const WORKFLOWS: [(&str, &str); 1] = [(
    "leader-failover",
    "leadership moves between replicas, and neither a conversion nor a rollout notices; installs operator and environment afresh",
)];
