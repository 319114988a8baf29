//! The life of a stand-in process.

use std::future::Future;
use std::process::ExitCode;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};

/// How a stand-in writes its log lines, always to standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Sends log lines of level info and up to standard error.
pub(crate) fn log(format: LogFormat) {
    let lines = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO);
    let outcome = match format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    if outcome.is_err() {
        info!("logging was set up before; keeping that");
    }
}

/// Runs `serve` until it ends or the process is told to stop: 0 when told, 1 with one line
/// that says why otherwise.
pub(crate) fn run(name: &str, serve: impl Future<Output = Result<()>>) -> ExitCode {
    let outcome = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")
        .and_then(|runtime| {
            let outcome = runtime.block_on(until_told_to_stop(serve));
            runtime.shutdown_background();
            outcome
        });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            let line = format!("{name} (stand-in): {err:#}");
            if tracing::enabled!(tracing::Level::ERROR) {
                error!("{line}");
            } else {
                eprintln!("{line}");
            }
            ExitCode::FAILURE
        }
    }
}

async fn until_told_to_stop(serve: impl Future<Output = Result<()>>) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    tokio::select! {
        outcome = serve => outcome,
        _ = terminate.recv() => { info!("stopping on SIGTERM"); Ok(()) }
        _ = interrupt.recv() => { info!("stopping on SIGINT"); Ok(()) }
    }
}
