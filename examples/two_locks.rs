//! Two controllers in one process, each under a Lease of its own.
//!
//! Each can be led by another replica. If one fails, the other gives its Lease back before the process
//! ends.
//!
//! ```sh
//! cargo run --example two_locks -- one
//! cargo run --example two_locks -- two
//! ```

use std::sync::Arc;
use std::time::Duration;

use kube::Config;
use orchestratord::election::{Candidate, Elector, Error, Process, Term, Timings, prompt_client};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Stands for a controller.
async fn control(what: &'static str, ended: CancellationToken) {
    tracing::info!(what, "controlling");
    ended.cancelled().await;
    tracing::info!(what, "no longer controlling");
}

/// Campaigns for the Lease `lease` and runs its controller in each term.
async fn campaign(
    config: Config,
    lease: &'static str,
    name: String,
    stop: CancellationToken,
) -> Result<(), Error> {
    let client = prompt_client(config.clone()).map_err(|error| Error::Client(Box::new(error)))?;
    let candidate = Candidate {
        namespace: config.default_namespace.clone(),
        lease: lease.to_owned(),
        identity: name.clone(),
        process: Process::new(name, std::env::var("POD_UID").ok()),
        timings: Timings::default(),
        admission_lag: Duration::ZERO,
    };
    let elector = Elector::new(config, client, candidate, Arc::new(()))?;
    let lead = |term: &mut Term| term.spawn(lease, control(lease, term.token()));
    let _ending = stop.clone().drop_guard();
    elector.run(stop, lead).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let name = std::env::args().nth(1).ok_or("which name?")?;
    let config = Config::infer().await?;
    let stop = CancellationToken::new();
    let asked = stop.clone();
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        asked.cancel();
    });
    let (volumes, networks) = tokio::join!(
        campaign(
            config.clone(),
            "example-volumes",
            name.clone(),
            stop.clone()
        ),
        campaign(config, "example-networks", name, stop),
    );
    Ok(volumes.and(networks)?)
}
