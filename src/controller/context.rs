//! What all passes of one term share.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use kube::Client;
use tracing::info;

use super::cache::Caches;
use super::materialize::leader_api::{LeaderApi, Resolver};
use super::materialize::render::LeaderEndpoint;
use super::rendering::Inputs;
use crate::cli::{EnvironmentArgs, LoggingArgs};
use crate::election::{Fence, Term};
use crate::metrics::Metrics;

/// What a replica works with in every term.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Everything that shapes an environment.
    pub environment: Arc<EnvironmentArgs>,
    /// Logging options, forwarded to environmentd.
    pub logging: Arc<LoggingArgs>,
    /// Namespace of the operator.
    pub operator_namespace: String,
    /// Name of this replica, as in the Lease.
    pub identity: String,
    /// Where environmentd is reached.
    pub environmentd: Resolver,
}

/// What all passes of one term share. Made of a term and of nothing less: through it, everything
/// is written that only the leader may write.
pub struct Context {
    /// The term's client: its writes are refused once the term is over.
    pub(super) client: Client,
    fence: Fence,
    /// What every replica knows of the cluster.
    pub(super) caches: Caches,
    /// What the replica works with.
    pub(super) settings: Settings,
    /// All metrics.
    pub(super) metrics: Metrics,
    /// When the term began.
    pub(super) term_started: Instant,
    /// What only this term knows.
    pub(super) memory: TermMemory,
}

impl Context {
    /// What the passes of `term`, which begins now, share.
    pub fn new(term: &Term, caches: Caches, settings: Settings, metrics: Metrics) -> Self {
        Self {
            client: term.client(),
            fence: term.fence(),
            caches,
            settings,
            term_started: Instant::now(),
            memory: TermMemory::new(metrics.clone()),
            metrics,
        }
    }

    /// One whose writes nothing refuses, for tests.
    #[cfg(test)]
    pub(super) fn without_term(
        client: Client,
        caches: Caches,
        settings: Settings,
        metrics: Metrics,
    ) -> Self {
        Self {
            client,
            fence: crate::election::testing::fence(true),
            caches,
            settings,
            term_started: Instant::now(),
            memory: TermMemory::new(metrics.clone()),
            metrics,
        }
    }

    /// A client of one generation's leader API, which writes no longer than the term lasts.
    pub(super) fn leader_api(&self, endpoint: &LeaderEndpoint) -> LeaderApi {
        LeaderApi::new(
            &self.settings.environmentd,
            &self.client,
            &self.fence,
            endpoint,
        )
    }

    /// What rendering needs besides the object.
    pub(super) fn inputs(&self) -> Inputs<'_> {
        Inputs {
            environment: &self.settings.environment,
            logging: &self.settings.logging,
            operator_namespace: &self.settings.operator_namespace,
        }
    }
}

/// What only one term knows; the gauge falls back to 0 with it.
pub(super) struct TermMemory {
    metrics: Metrics,
    needs_update: Mutex<HashSet<(String, String)>>,
    has_reconciled: AtomicBool,
}

impl TermMemory {
    /// An empty memory.
    fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            needs_update: Mutex::default(),
            has_reconciled: AtomicBool::new(false),
        }
    }

    /// Records whether an environment's wanted generation differs from the active one.
    pub(super) fn set_needs_update(&self, namespace: &str, name: &str, needs_update: bool) {
        let mut environments = self
            .needs_update
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), name.to_owned());
        if needs_update {
            environments.insert(key);
        } else {
            environments.remove(&key);
        }
        let count = i64::try_from(environments.len()).unwrap_or(i64::MAX);
        self.metrics.environmentd_needs_update.set(count);
    }

    /// Tells once how long after the start of the term the first pass was finished.
    pub(super) fn tell_first_reconcile(&self, term_started: Instant) {
        if !self.has_reconciled.swap(true, Ordering::Relaxed) {
            let since_lease = term_started.elapsed();
            self.metrics
                .first_reconcile_seconds
                .set(since_lease.as_secs_f64());
            let since_lease_ms = u64::try_from(since_lease.as_millis()).unwrap_or(u64::MAX);
            info!(since_lease_ms, "first reconcile of this term");
        }
    }
}

impl Drop for TermMemory {
    fn drop(&mut self) {
        self.metrics.environmentd_needs_update.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_of_one_name_in_two_namespaces_are_two() {
        let metrics = Metrics::new().unwrap();
        let memory = TermMemory::new(metrics.clone());
        memory.set_needs_update("a", "env", true);
        memory.set_needs_update("b", "env", true);
        memory.set_needs_update("b", "env", true);
        assert_eq!(metrics.environmentd_needs_update.get(), 2);
        memory.set_needs_update("a", "env", false);
        assert_eq!(metrics.environmentd_needs_update.get(), 1);
        drop(memory);
        assert_eq!(
            metrics.environmentd_needs_update.get(),
            0,
            "the term is over"
        );
    }

    #[test]
    fn only_the_first_reconcile_of_a_term_counts() {
        let metrics = Metrics::new().unwrap();
        let memory = TermMemory::new(metrics.clone());
        let started = Instant::now()
            .checked_sub(std::time::Duration::from_secs(3))
            .unwrap();
        memory.tell_first_reconcile(started);
        let first = metrics.first_reconcile_seconds.get();
        assert!(first >= 3.0);
        memory.tell_first_reconcile(Instant::now());
        assert!((metrics.first_reconcile_seconds.get() - first).abs() < f64::EPSILON);
    }
}
