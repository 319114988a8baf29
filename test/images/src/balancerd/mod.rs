//! The stand-in for balancerd: forwards TCP to environmentd.

mod args;
mod forward;
mod tls;

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::Value;
use tokio::net::TcpStream;
use tracing::{info, warn};

use crate::flags::parse;
use crate::http::{bind, metrics, serve};
use crate::process::{LogFormat, log, run};
use args::{Args, Command, Service};
use forward::{Protocol, forward};
use tls::Tls;

/// How long a readiness check may take; the probe gives up after 1 s.
const READY_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs the stand-in as a process.
pub fn main() -> ExitCode {
    run("balancerd", async {
        let Args {
            command: Command::Service(service),
        } = parse(std::env::args_os())?;
        service.check()?;
        log(LogFormat::Json);
        Balancerd::open(service)?.serve().await
    })
}

/// The open ports of one balancer.
struct Balancerd {
    service: Service,
    tls: Tls,
    pgwire: TcpListener,
    https: TcpListener,
    internal_http: TcpListener,
}

impl Balancerd {
    fn open(service: Service) -> Result<Self> {
        Ok(Self {
            tls: Tls::new(&service)?,
            pgwire: bind("pgwire", service.pgwire_listen_addr)?,
            https: bind("https", service.https_listen_addr)?,
            internal_http: bind("internal HTTP", service.internal_http_listen_addr)?,
            service,
        })
    }

    async fn serve(self) -> Result<()> {
        let service = &self.service;
        info!(
            "balancerd (stand-in) in front of {} and {}",
            service.static_resolver_addr, service.https_resolver_template
        );
        let internal = Arc::new(Internal {
            backend: service.static_resolver_addr.clone(),
            config: service.config_sync_file_path.clone(),
        });
        tokio::try_join!(
            forward(
                self.pgwire,
                Protocol::Pgwire,
                service.static_resolver_addr.clone(),
                self.tls.clone()
            ),
            forward(
                self.https,
                Protocol::Http,
                service.https_resolver_template.clone(),
                self.tls
            ),
            serve(self.internal_http, router(internal), None),
        )?;
        Ok(())
    }
}

/// What the internal HTTP port needs.
struct Internal {
    backend: String,
    config: Option<PathBuf>,
}

fn router(internal: Arc<Internal>) -> Router {
    Router::new()
        .route("/api/livez", get(|| async { "live" }))
        .route("/api/readyz", get(readyz))
        .route("/metrics", get(show_metrics))
        .with_state(internal)
}

/// Ready once the backend's name resolves and it accepts connections.
async fn readyz(State(internal): State<Arc<Internal>>) -> Response {
    let attempt = tokio::time::timeout(READY_TIMEOUT, TcpStream::connect(&internal.backend)).await;
    match attempt
        .map_err(anyhow::Error::from)
        .and_then(|connected| connected.map_err(Into::into))
    {
        Ok(_) => "ready".into_response(),
        Err(err) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not ready: {}: {err}", internal.backend),
        )
            .into_response(),
    }
}

async fn show_metrics(State(internal): State<Arc<Internal>>) -> Response {
    metrics(format!(
        "# HELP mz_balancer_connection_limit How many connections may be open; shown, not enforced.\n\
         # TYPE mz_balancer_connection_limit gauge\n\
         mz_balancer_connection_limit {}\n",
        internal.connection_limit(),
    ))
}

impl Internal {
    /// `balancerd_max_connections` of the synced file, read anew each time; 0 without one.
    fn connection_limit(&self) -> u64 {
        let Some(path) = &self.config else { return 0 };
        read_limit(path).unwrap_or_else(|err| {
            warn!("--config-sync-file-path: {err:#}");
            0
        })
    }
}

fn read_limit(path: &std::path::Path) -> Result<u64> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let config: Value = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    match config.get("balancerd_max_connections") {
        None => Ok(0),
        Some(limit) => limit
            .as_u64()
            .context("balancerd_max_connections must be a whole number"),
    }
}

#[cfg(test)]
mod tests;
