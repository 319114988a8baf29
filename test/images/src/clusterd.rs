//! The stand-in for clusterd: open ports, and nothing behind them.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Result;
use axum::Router;
use axum::routing::get;
use clap::Parser;
use tracing::info;

use crate::flags::{environment_id, parse, url};
use crate::http::{bind, metrics, serve};
use crate::process::{LogFormat, log, run};

/// What the stand-in for environmentd tells clusterd.
#[derive(Debug, Parser)]
#[command(name = "clusterd", disable_help_flag = true)]
struct Args {
    #[arg(long)]
    storage_controller_listen_addr: SocketAddr,
    #[arg(long)]
    compute_controller_listen_addr: SocketAddr,
    #[arg(long)]
    internal_http_listen_addr: SocketAddr,
    #[arg(long, value_parser = environment_id)]
    environment_id: String,
    #[arg(long, value_parser = url)]
    persist_pubsub_url: String,
}

/// Runs the stand-in as a process.
pub fn main() -> ExitCode {
    run("clusterd", serve_ports())
}

async fn serve_ports() -> Result<()> {
    let args: Args = parse(std::env::args_os())?;
    log(LogFormat::Json);
    let _storage = bind(
        "the storage controller's port",
        args.storage_controller_listen_addr,
    )?;
    let _compute = bind(
        "the compute controller's port",
        args.compute_controller_listen_addr,
    )?;
    let internal_http = bind("internal HTTP", args.internal_http_listen_addr)?;
    info!(
        "clusterd (stand-in) of {}, pubsub at {}",
        args.environment_id, args.persist_pubsub_url
    );
    serve(internal_http, router(), None).await
}

fn router() -> Router {
    Router::new()
        .route("/api/livez", get(|| async { "live" }))
        .route("/api/readyz", get(|| async { "ready" }))
        .route(
            "/metrics",
            get(|| async { metrics("# TYPE mz_standin_up gauge\nmz_standin_up 1\n".into()) }),
        )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const GOOD: [&str; 6] = [
        "clusterd",
        "--storage-controller-listen-addr=0.0.0.0:2100",
        "--compute-controller-listen-addr=0.0.0.0:2101",
        "--internal-http-listen-addr=0.0.0.0:6878",
        "--environment-id=generic-kind-12345678-1234-1234-1234-123456789012-0",
        "--persist-pubsub-url=http://mz1-persist-pubsub-1:6879",
    ];

    #[test]
    fn accepts_what_environmentd_passes() {
        parse::<Args>(GOOD).unwrap();
    }

    #[rstest]
    #[case(&GOOD[..5], "--persist-pubsub-url")]
    #[case(&[&GOOD[..], &["--workers=2"]].concat(), "--workers")]
    fn names_what_is_wrong(#[case] args: &[&str], #[case] named: &str) {
        let error = parse::<Args>(args.iter().copied()).unwrap_err().to_string();
        assert!(error.contains(named) && !error.contains('\n'), "{error}");
    }
}
