//! The stand-in for environmentd, as a process and as a library.

mod args;
mod catalog;
mod env;
mod fault;
mod http;
mod leader;
mod listeners;
mod parameters;
mod process;
mod replica;
mod shared;
mod sql;
mod statement;
mod version;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use axum_server::tls_rustls::RustlsConfig;
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

pub use catalog::{Catalog, MemoryCatalog};
pub use fault::Fault;
pub use leader::{Status, Timings};
pub use listeners::{AllowedRoles, AuthenticatorKind, HttpListener, Listeners, Route, SqlListener};
pub use process::main;

use leader::{Action, Machine};
use parameters::Parameters;
use shared::Shared;

/// What one generation is and how it behaves.
pub struct Options {
    /// Its number; the highest that was promoted leads.
    pub generation: u64,
    /// Where it and its siblings record who leads.
    pub catalog: Arc<dyn Catalog>,
    /// How long it takes to start, catch up and take over.
    pub timings: Timings,
    /// What it does wrong.
    pub fault: Fault,
    /// The image tag it claims to come from.
    pub version: String,
    /// The password of `mz_system`, asked for where a listener's authenticator says so.
    pub password: Option<String>,
    /// Its ports.
    pub listeners: Listeners,
    /// Values for `SHOW`.
    pub parameters: BTreeMap<String, String>,
    /// A JSON file whose values win over `parameters`.
    pub parameters_file: Option<PathBuf>,
    /// For the listeners that speak TLS.
    pub tls: Option<RustlsConfig>,
}

impl Options {
    /// A well-behaved generation on free loopback ports, without authentication.
    pub fn new(generation: u64, catalog: Arc<dyn Catalog>) -> Self {
        Self {
            generation,
            catalog,
            timings: Timings::default(),
            fault: Fault::None,
            version: "v26.40.0".into(),
            password: None,
            listeners: Listeners::loopback(AuthenticatorKind::None),
            parameters: BTreeMap::new(),
            parameters_file: None,
            tls: None,
        }
    }
}

/// One running generation. Dropping it closes its ports at once.
#[derive(Debug)]
pub struct Environmentd {
    shared: Arc<Shared>,
    sql: BTreeMap<String, SocketAddr>,
    http: BTreeMap<String, SocketAddr>,
    leader_port: Option<String>,
    tasks: JoinSet<Result<()>>,
}

impl Environmentd {
    /// Opens the ports and begins to start. Fails when a port cannot be opened, or when told to
    /// by [`Fault::Exit`].
    pub async fn start(options: Options) -> Result<Self> {
        if options.fault == Fault::Exit {
            bail!("told to exit by MZ_STANDIN_FAULT");
        }
        let shared = Arc::new(Shared::new(
            options.generation,
            options.version,
            options.password,
            Parameters::new(options.parameters, options.parameters_file),
            options.timings,
            options.fault,
        ));
        let mut tasks = JoinSet::new();
        let mut sql = BTreeMap::new();
        let mut http = BTreeMap::new();
        let leader_port = leader_port(&options.listeners);
        for (name, listener) in options.listeners.sql {
            let tls = tls_for(
                &format!("sql.{name}"),
                listener.enable_tls,
                options.tls.as_ref(),
            )?;
            let socket = crate::http::bind(&format!("sql.{name}"), listener.addr)?;
            sql.insert(name, socket.local_addr()?);
            tasks.spawn(sql::serve(socket, listener, Arc::clone(&shared), tls));
        }
        for (name, listener) in options.listeners.http {
            let tls = tls_for(
                &format!("http.{name}"),
                listener.enable_tls,
                options.tls.as_ref(),
            )?;
            let socket = crate::http::bind(&format!("http.{name}"), listener.addr)?;
            http.insert(name, socket.local_addr()?);
            tasks.spawn(crate::http::serve(
                socket,
                http::router(&listener, &shared),
                tls,
            ));
        }
        tasks.spawn(drive(Arc::clone(&shared), options.catalog));
        Ok(Self {
            shared,
            sql,
            http,
            leader_port,
            tasks,
        })
    }

    /// The HTTP port that serves the leader API; an error names the lack of one.
    pub fn http_addr(&self) -> Result<SocketAddr> {
        let name = self
            .leader_port
            .as_ref()
            .ok_or_else(|| anyhow!("no HTTP listener serves the leader API"))?;
        self.http
            .get(name)
            .copied()
            .ok_or_else(|| anyhow!("the listener http.{name} is not open"))
    }

    /// The first SQL port by name; an error names the lack of one.
    pub fn sql_addr(&self) -> Result<SocketAddr> {
        self.sql
            .values()
            .next()
            .copied()
            .ok_or_else(|| anyhow!("there is no SQL listener"))
    }

    /// What it says of itself, faults left aside.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Follows [`Environmentd::status`].
    pub fn watch_status(&self) -> watch::Receiver<Status> {
        self.shared.watch_status()
    }

    /// Changes what it does wrong; [`Fault::Exit`] only matters at start.
    pub fn set_fault(&self, fault: Fault) {
        self.shared.set_fault(fault);
    }

    /// Changes how long catch-up takes, counted from its beginning.
    pub fn set_catchup(&self, catchup: Duration) {
        self.shared
            .with_machine(|machine| machine.set_catchup(catchup));
        self.shared.nudge.notify_one();
    }

    /// How many promote requests came.
    pub fn promotes(&self) -> u64 {
        self.shared.promotes()
    }

    /// How many requests to skip catch-up came.
    pub fn skips(&self) -> u64 {
        self.shared.skips()
    }

    /// Runs a task as a part of this generation: it ends with it, and its error ends it.
    pub(crate) fn spawn(&mut self, task: BoxFuture<'static, Result<()>>) {
        self.tasks.spawn(task);
    }

    /// Waits until the generation ends by itself; the error says why, for instance that a later
    /// one has taken over.
    pub async fn ended(&mut self) -> Result<()> {
        while let Some(ended) = self.tasks.join_next().await {
            ended.context("a task of environmentd")??;
        }
        Ok(())
    }

    /// Closes the ports and ends every task.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

fn leader_port(listeners: &Listeners) -> Option<String> {
    let mut serving = listeners.http.iter().filter(|(_, listener)| {
        listener
            .routes
            .get(&Route::Internal)
            .is_some_and(|roles| roles.internal())
    });
    serving.next().map(|(name, _)| name.clone())
}

fn tls_for(name: &str, enabled: bool, tls: Option<&RustlsConfig>) -> Result<Option<RustlsConfig>> {
    match (enabled, tls) {
        (false, _) => Ok(None),
        (true, Some(config)) => Ok(Some(config.clone())),
        (true, None) => bail!("the listener {name} has enable_tls, but --tls-mode is disable"),
    }
}

/// Moves the generation through its life until a later one leads.
async fn drive(shared: Arc<Shared>, catalog: Arc<dyn Catalog>) -> Result<()> {
    let generation = shared.generation;
    loop {
        match catalog.leader().await {
            Ok(leader) => {
                let now = shared.now();
                shared.with_machine(|machine| machine.observe(leader, now));
            }
            Err(err) => warn!("the catalog: {err:#}"),
        }
        let now = shared.now();
        if shared.with_machine(|machine| machine.tick(now)) == Action::Claim {
            claim(&shared, catalog.as_ref()).await;
        }
        if let Some(by) = shared.with_machine(|machine| machine.fenced_by()) {
            bail!("generation {generation} is fenced: generation {by} leads this environment");
        }
        let deadline = shared.with_machine(|machine| machine.deadline());
        let rest = deadline.map_or(catalog.interval(), |at| at.saturating_sub(shared.now()));
        tokio::select! {
            () = tokio::time::sleep(rest.clamp(Duration::from_millis(1), catalog.interval())) => {}
            () = shared.nudge.notified() => {}
        }
    }
}

async fn claim(shared: &Shared, catalog: &dyn Catalog) {
    match catalog.claim(shared.generation).await {
        Ok(leader) if leader == shared.generation => {
            shared.with_machine(Machine::claimed);
            info!("generation {leader} leads");
        }
        Ok(leader) => {
            let now = shared.now();
            shared.with_machine(|machine| machine.observe(Some(leader), now));
        }
        Err(err) => warn!("the catalog: {err:#}"),
    }
}

#[cfg(test)]
mod args_tests;
#[cfg(test)]
mod tests;
