//! The whole life of a process, on one page: start order, term, stop order.

use std::process;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::api::registration::{self, RegistrationError};
use crate::cli::{Args, DefinitionsArgs};
use crate::connection::{Connection, ConnectionError};
use crate::controller::materialize::leader_api::TransportError;
use crate::controller::{self, Caches, Context, Resolver, Settings};
use crate::election::{self, Candidate, Elector, Process, Term, prompt_client};
use crate::errors::cause_chain;
use crate::health::{self, Health};
use crate::leadership::Leadership;
use crate::metrics::Metrics;
use crate::webhook::{CaBundle, Webhook, WebhookConfig, WebhookError};

/// Name of the Lease that the leader holds.
pub const LEASE: &str = "orchestratord";

/// How often it is told that the caches do not fill at start.
const CACHES_BOUND: Duration = Duration::from_secs(60);

/// Pause before the leader's registration, and before a failed one is tried again.
const REGISTRATION_PAUSE: Duration = Duration::from_secs(10);

/// All replicas have a new CA by then: kubelets pass a changed Secret on within about two minutes.
const CA_SPREAD: Duration = Duration::from_secs(600);

/// Why a process ends with a failure.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// There is no usable cluster or namespace.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// A metric is malformed.
    #[error("cannot set up metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The metrics and health server cannot run.
    #[error(transparent)]
    Health(#[from] health::ServeError),
    /// The webhook cannot run.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// A server ended by itself.
    #[error("the {0} ended by itself; see the log above")]
    ServerEnded(&'static str),
    /// No Kubernetes client can be made.
    #[error("cannot make a Kubernetes client: {0}")]
    Client(#[from] kube::Error),
    /// The custom resource definitions cannot be registered.
    #[error(transparent)]
    Registration(#[from] registration::RegistrationError),
    /// There can be no thread that watches the election.
    #[error("cannot start a thread: {0}")]
    Guard(#[from] std::io::Error),
    /// No client for environmentd can be made.
    #[error("cannot make a client for environmentd: {0}")]
    Environmentd(#[from] TransportError),
    /// The election cannot go on.
    #[error(transparent)]
    Election(#[from] election::Error),
}

/// Runs one replica to the end of its process, and returns the exit code.
pub fn run_to_end(
    runtime: Runtime,
    args: Args,
    resolver: Option<Resolver>,
    stop: CancellationToken,
) -> u8 {
    let ended = runtime.block_on(run(args, resolver, stop));
    // Nothing that still blocks a thread may hold up the end of the process.
    runtime.shutdown_background();
    match ended {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("orchestratord: {}", cause_chain(&error));
            1
        }
    }
}

/// Runs one replica until `stop` is cancelled, or something fails for good.
///
/// `resolver` says how environmentd is reached; `None` picks by where the process runs.
///
/// # Errors
/// [`OperatorError`]; the process should end with a failure then.
pub async fn run(
    args: Args,
    resolver: Option<Resolver>,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let connection = Connection::open(&args).await?;
    let metrics = Metrics::new()?;
    let health = Health::default();
    health.set_ready("crd", Err("not registered yet".to_owned()));
    let address = args.process.metrics_listen_address;
    let health_server = health::serve(address, health.clone(), metrics.clone()).await?;
    let webhook = start_webhook(&args, &metrics).await?;
    if let Some(validity) = webhook.as_ref().map(Webhook::validity) {
        health.add_readiness("webhook", move || validity.check());
    }

    let replica = Replica {
        identity: identity(&args),
        args: &args,
        connection: &connection,
        metrics: &metrics,
        health: &health,
        ca: webhook.as_ref().map(Webhook::ca),
    };
    let serving = async {
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(Ok(())),
            _ = health_server => "metrics and health server",
            () = ended(webhook.as_ref()) => "webhook",
        };
        stop.cancel();
        Ok(Err(OperatorError::ServerEnded(ended)))
    };
    let reconciling = async {
        let outcome = replica.campaign(resolver, &stop).await;
        if let Err(OperatorError::Election(stuck @ election::Error::TasksStuck { .. })) = outcome {
            // They may still write: no time for a polite end.
            return Err(OperatorError::from(stuck));
        }
        stop.cancel();
        Ok(outcome)
    };
    let stopping = async {
        stop.cancelled().await;
        health.set_ready("stopping", Err("this replica is shutting down".to_owned()));
        if let Some(webhook) = &webhook {
            let (linger, drain) = (args.webhook.webhook_linger, args.webhook.webhook_drain);
            webhook.drain(linger, drain).await;
        }
        Ok(())
    };
    let (reconciled, served, ()) = tokio::try_join!(reconciling, serving, stopping)?;
    reconciled.and(served)
}

/// Waits until the webhook ends, if there is one.
async fn ended(webhook: Option<&Webhook>) {
    match webhook {
        Some(webhook) => webhook.ended().await,
        None => std::future::pending().await,
    }
}

async fn start_webhook(args: &Args, metrics: &Metrics) -> Result<Option<Webhook>, WebhookError> {
    let Some(name) = args.definitions.webhook_name() else {
        return Ok(None);
    };
    let config = WebhookConfig {
        name,
        address: args.webhook.webhook_listen_address,
        ca: args.definitions.tls_ca.clone(),
        cert: args.webhook.tls_cert.clone(),
        key: args.webhook.tls_key.clone(),
        reload_interval: args.webhook.webhook_cert_reload_interval,
    };
    Webhook::start(config, metrics.clone()).await.map(Some)
}

/// The name of this replica in the Lease.
fn identity(args: &Args) -> String {
    let given = args.election.leader_election_identity.clone();
    given
        .or_else(pod_name)
        .unwrap_or_else(|| format!("orchestratord-{}", uuid::Uuid::new_v4()))
}

/// The name of this pod, or of this host.
fn pod_name() -> Option<String> {
    let name = std::env::var("HOSTNAME").ok();
    name.filter(|name| !name.is_empty())
}

/// One replica, between its start and its stop.
struct Replica<'a> {
    identity: String,
    args: &'a Args,
    connection: &'a Connection,
    metrics: &'a Metrics,
    health: &'a Health,
    ca: Option<watch::Receiver<CaBundle>>,
}

impl Replica<'_> {
    /// Registers the custom resource definitions, warms the caches and campaigns for the Lease.
    /// A stop is honoured at every point of it.
    async fn campaign(
        &self,
        resolver: Option<Resolver>,
        stop: &CancellationToken,
    ) -> Result<(), OperatorError> {
        let client = prompt_client(self.connection.config.clone())?;
        let Some(registered) = stop.run_until_cancelled(self.register(&client)).await else {
            return Ok(());
        };
        registered?;
        self.health.set_ready("crd", Ok(()));
        let caches = Caches::start(&client);
        if stop.run_until_cancelled(warm(&caches)).await.is_none() {
            return Ok(());
        }
        let resolver = match resolver {
            Some(given) => given,
            None if self.connection.in_cluster => Resolver::service_dns()?,
            None => Resolver::ApiServerProxy,
        };
        let (leadership, announcer) = Leadership::start(
            &client,
            self.metrics.clone(),
            &self.connection.lease_namespace,
            &self.identity,
            self.pod(),
            stop,
        );
        let elector = self.elector(&client, leadership)?;
        let (health, stopping) = (elector.health(), stop.clone());
        self.health.add_liveness("elector", move || {
            let check = health.check();
            check
                .or_else(|error| stopping.is_cancelled().then_some(()).ok_or(error))
                .map_err(|error| error.to_string())
        });
        elector.health().guard(|error| {
            eprintln!("orchestratord: {error}, ending at once");
            process::exit(1);
        })?;
        let ended = tokio::select! {
            ended = elector.run(stop.clone(), |term| self.lead(term, &caches, &resolver)) => ended,
            () = self.follow_certificate_authority(&client) => Ok(()),
        };
        if !matches!(ended, Err(election::Error::TasksStuck { .. })) {
            announcer.finish().await;
        }
        Ok(ended?)
    }

    /// Starts what only the leader runs.
    fn lead(&self, term: &mut Term, caches: &Caches, resolver: &Resolver) {
        let settings = Settings {
            environment: Arc::new(self.args.environment.clone()),
            logging: Arc::new(self.args.logging.clone()),
            operator_namespace: self.connection.namespace.clone(),
            identity: self.identity.clone(),
            environmentd: resolver.clone(),
        };
        let context = Context::new(term, caches.clone(), settings, self.metrics.clone());
        controller::spawn(term, &Arc::new(context));
        let definitions = self.args.definitions.clone();
        let keeping = keep_definitions(term.client(), definitions, self.ca.clone());
        let token = term.token();
        term.spawn("definitions", async move {
            token.run_until_cancelled(keeping).await;
        });
    }

    /// Name and namespace of the pod that this process is, if it is one.
    fn pod(&self) -> Option<(String, String)> {
        let name = pod_name().filter(|_| self.connection.in_cluster)?;
        Some((name, self.connection.namespace.clone()))
    }

    fn elector(&self, client: &Client, leadership: Leadership) -> Result<Elector, OperatorError> {
        let candidate = Candidate {
            namespace: self.connection.lease_namespace.clone(),
            lease: LEASE.to_owned(),
            identity: self.identity.clone(),
            process: Process::new(
                pod_name().unwrap_or_else(|| self.identity.clone()),
                self.args.election.pod_uid.clone(),
            ),
            timings: self.args.election.timings(),
            admission_lag: self.args.election.admission_lag(),
        };
        Ok(Elector::new(
            self.connection.config.clone(),
            client.clone(),
            candidate,
            Arc::new(leadership),
        )?)
    }

    async fn register(&self, client: &Client) -> Result<(), OperatorError> {
        let ca = self.ca.as_ref().map(|ca| ca.borrow().clone());
        let definitions = self.args.definitions.crds(ca);
        Ok(registration::register(client, &definitions).await?)
    }

    /// Has the webhook's CA trusted whenever it changes. Never returns.
    async fn follow_certificate_authority(&self, client: &Client) {
        let Some(mut ca) = self.ca.clone() else {
            return std::future::pending().await;
        };
        loop {
            change_of(&mut ca).await;
            let newest = ca.borrow_and_update().clone();
            insist("have the new CA trusted", || {
                registration::trust(client, &newest)
            })
            .await;
        }
    }
}

/// What the leader does for the definitions: registers them once more, for the newest replica leads
/// last; and once all replicas must have its CA, lets no other be trusted. Never returns.
async fn keep_definitions(
    client: Client,
    definitions: DefinitionsArgs,
    ca: Option<watch::Receiver<CaBundle>>,
) {
    // The environments come first.
    sleep(REGISTRATION_PAUSE).await;
    let crds = definitions.crds(ca.as_ref().map(|ca| ca.borrow().clone()));
    insist("register the definitions", || {
        registration::register(&client, &crds)
    })
    .await;
    let Some(mut ca) = ca else {
        return std::future::pending().await;
    };
    loop {
        let newest = ca.borrow_and_update().clone();
        if timeout(CA_SPREAD, change_of(&mut ca)).await.is_err() {
            insist("trust the newest CA alone", || {
                registration::trust_only(&client, &newest)
            })
            .await;
            change_of(&mut ca).await;
        }
    }
}

/// Waits for the next CA; for ever, if the webhook has ended.
async fn change_of(ca: &mut watch::Receiver<CaBundle>) {
    if ca.changed().await.is_err() {
        std::future::pending().await
    }
}

/// Waits until the caches are filled. What keeps them empty, like a right that lacks, ends no
/// process, for that would take its webhook along.
async fn warm(caches: &Caches) {
    while let Err(error) = caches.ready(CACHES_BOUND).await {
        tracing::error!("cannot lead yet: {error}");
    }
}

/// Tries until it succeeds.
async fn insist<F>(what: &str, mut attempt: impl FnMut() -> F)
where
    F: Future<Output = Result<(), RegistrationError>>,
{
    while let Err(error) = attempt().await {
        tracing::error!("cannot {what}: {}", cause_chain(&error));
        sleep(REGISTRATION_PAUSE).await;
    }
}
