//! Liveness and readiness, as named checks in the form the API server itself uses.
//!
//! Readiness never depends on leadership: a standby serves the webhook like the leader.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::metrics::Metrics;

/// The outcome of a check: fine, or why not.
pub type Check = Result<(), String>;

type Probe = Box<dyn Fn() -> Check + Send + Sync>;

/// The health of this process; cheap to clone.
#[derive(Clone, Default)]
pub struct Health(Arc<RwLock<Checks>>);

#[derive(Default)]
struct Checks {
    live: BTreeMap<&'static str, Probe>,
    ready: BTreeMap<&'static str, Probe>,
}

impl Health {
    /// Records whether this replica is ready in one respect.
    pub fn set_ready(&self, name: &'static str, check: Check) {
        self.add_readiness(name, move || check.clone());
    }

    /// Adds a probe that says whether this replica is ready in one respect.
    pub fn add_readiness(
        &self,
        name: &'static str,
        probe: impl Fn() -> Check + Send + Sync + 'static,
    ) {
        self.write().ready.insert(name, Box::new(probe));
    }

    /// Adds a probe that says whether this process still works.
    pub fn add_liveness(
        &self,
        name: &'static str,
        probe: impl Fn() -> Check + Send + Sync + 'static,
    ) {
        self.write().live.insert(name, Box::new(probe));
    }

    fn readyz(&self) -> (StatusCode, String) {
        let checks = self.0.read().unwrap_or_else(PoisonError::into_inner);
        report(checks.ready.iter().map(|(name, probe)| (*name, probe())))
    }

    fn livez(&self) -> (StatusCode, String) {
        let checks = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let probed = checks.live.iter().map(|(name, probe)| (*name, probe()));
        // That there is an answer says that the event loop runs.
        report(std::iter::once(("ping", Ok(()))).chain(probed))
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Checks> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn report(checks: impl Iterator<Item = (&'static str, Check)>) -> (StatusCode, String) {
    let mut status = StatusCode::OK;
    let mut body = String::new();
    for (name, check) in checks {
        let line = match check {
            Ok(()) => format!("[+]{name} ok"),
            Err(why) => {
                status = StatusCode::SERVICE_UNAVAILABLE;
                format!("[-]{name} failed: {why}")
            }
        };
        let _ = writeln!(body, "{line}");
    }
    (status, body)
}

/// Why the metrics and health server cannot run.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on --metrics-listen-address {address}: {source}")]
pub struct ServeError {
    address: SocketAddr,
    source: std::io::Error,
}

/// Binds `address` and serves `/metrics`, `/livez` and `/readyz` in a task of its own, which only
/// ends if the server fails.
///
/// # Errors
/// [`ServeError`] if the address cannot be bound.
pub async fn serve(
    address: SocketAddr,
    health: Health,
    metrics: Metrics,
) -> Result<JoinHandle<()>, ServeError> {
    let failed = |source| ServeError { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let router = Router::new()
        .route("/metrics", get(render))
        .with_state(metrics)
        .merge(
            Router::new()
                .route(
                    "/livez",
                    get(|State(health): State<Health>| async move { health.livez() }),
                )
                .route(
                    "/readyz",
                    get(|State(health): State<Health>| async move { health.readyz() }),
                )
                .with_state(health),
        );
    Ok(tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "metrics server ended");
        }
    }))
}

async fn render(State(metrics): State<Metrics>) -> (StatusCode, String) {
    match metrics.render() {
        Ok(text) => (StatusCode::OK, text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_check_is_named() {
        let health = Health::default();
        health.set_ready("webhook", Ok(()));
        health.set_ready("crd", Err("not registered".to_owned()));
        let (status, body) = health.readyz();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(body, "[-]crd failed: not registered\n[+]webhook ok\n");
        health.set_ready("crd", Ok(()));
        assert_eq!(health.readyz().0, StatusCode::OK);
    }

    #[test]
    fn liveness_asks_each_time() {
        let health = Health::default();
        let alive = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let probe = alive.clone();
        health.add_liveness("elector", move || {
            if probe.load(std::sync::atomic::Ordering::Relaxed) {
                Ok(())
            } else {
                Err("dead".to_owned())
            }
        });
        let well = "[+]ping ok\n[+]elector ok\n".to_owned();
        assert_eq!(health.livez(), (StatusCode::OK, well));
        alive.store(false, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(health.livez().0, StatusCode::SERVICE_UNAVAILABLE);
    }
}
