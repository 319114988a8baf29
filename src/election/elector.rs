//! One replica's part in an election, as its user sees it.

use std::sync::Arc;
use std::time::Duration;

use kube::{Client, Config};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::client::prompt_client;
use super::clock::{BootClock, Clock};
use super::health::ElectorHealth;
use super::lease::Driver;
use super::observer::Observer;
use super::process::Process;
use super::term::Term;
use super::timings::{Timings, TimingsError};

/// Who campaigns for which Lease.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub lease: String,
    /// `holderIdentity`; unique among the candidates. If it is not, only one of them ever leads.
    pub identity: String,
    /// The process that campaigns.
    pub process: Process,
    /// Its bounds.
    pub timings: Timings,
    /// How long after a takeover an admission policy of the API server that admits only the
    /// holder's writes may still refuse them, so that a 403 is tried again; zero without one.
    pub admission_lag: Duration,
}

/// Why an election could not start, or ended otherwise than by a stop.
#[derive(Debug, Error)]
pub enum Error {
    /// The timings contradict each other.
    #[error("leader election timings: {0}")]
    Timings(#[from] TimingsError),
    /// A name is empty.
    #[error("leader election: the {0} must not be empty")]
    Empty(&'static str),
    /// No client could be made of the configuration.
    #[error("leader election: building a client for the Lease: {0}")]
    Client(#[source] Box<kube::Error>),
    /// A task of the term ended although nobody asked it to; the Lease has been given back.
    #[error("leader task {name} {}", if *panicked { "panicked" } else { "ended by itself" })]
    TaskEnded {
        /// The task's name.
        name: String,
        /// Whether it panicked.
        panicked: bool,
    },
    /// Tasks of the term could not be stopped. The Lease is not given back, for they may still
    /// act: end the process.
    #[error("leader tasks {names:?} run on although they were aborted; end the process")]
    TasksStuck {
        /// The tasks' names.
        names: Vec<String>,
    },
}

/// One replica's part in the election for a Lease.
pub struct Elector {
    pub(super) candidate: Candidate,
    pub(super) lease: Client,
    pub(super) work: Client,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) health: ElectorHealth,
}

impl Elector {
    /// An elector with a client for the Lease alone, made of `config`, so that nothing can starve
    /// it; terms lend `work` out behind their fence. Needs a Tokio runtime.
    ///
    /// # Errors
    /// Timings that contradict each other, an empty name, or a `config` no client can be made of.
    pub fn new(
        mut config: Config,
        work: Client,
        candidate: Candidate,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, Error> {
        // Each try for the Lease is ours to bound and to count.
        config.default_retry = false;
        config.connect_timeout = Some(candidate.timings.call_timeout);
        let lease = prompt_client(config).map_err(|e| Error::Client(Box::new(e)))?;
        Self::with_clients(lease, work, candidate, Arc::new(BootClock), observer)
    }

    /// An elector with these clients and this clock. `lease` must not be shared with anything
    /// that could starve it; terms lend `work` out behind their fence.
    ///
    /// # Errors
    /// Timings that contradict each other, or an empty name.
    pub fn with_clients(
        lease: Client,
        work: Client,
        candidate: Candidate,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, Error> {
        candidate.timings.validate()?;
        let names = [
            ("namespace", &candidate.namespace),
            ("name of the Lease", &candidate.lease),
            ("identity", &candidate.identity),
        ];
        if let Some((name, _)) = names.into_iter().find(|(_, value)| value.is_empty()) {
            return Err(Error::Empty(name));
        }
        Ok(Self {
            health: ElectorHealth::new(clock.clone(), &candidate.timings),
            candidate,
            lease,
            work,
            clock,
            observer,
        })
    }

    /// The elector's pulse, for a liveness probe.
    pub fn health(&self) -> ElectorHealth {
        self.health.clone()
    }

    /// Campaigns until `stop`, and calls `lead` with each term won, to spawn the term's tasks;
    /// `lead` must return at once. A term that is lost is followed by the next campaign.
    ///
    /// After `stop` it returns within [`Timings::stop_time`], the Lease given back. Dropping the
    /// future ends a term too, but does not wait for anything or give the Lease back.
    ///
    /// # Errors
    /// A task of a term ended by itself (the Lease is given back), or could not be stopped.
    pub async fn run(
        self,
        stop: CancellationToken,
        lead: impl FnMut(&mut Term) + Send,
    ) -> Result<(), Error> {
        let _running = self.health.start(self.clock.now());
        Driver::new(&self, stop, lead).run().await
    }
}
