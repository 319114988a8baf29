//! A candidate outside the cluster: a systemd service with a kubeconfig.
//!
//! There is no pod here, and no service account that names a namespace, so both are given: the
//! Lease's namespace, an identity, and what stands for the pod's uid. The machine's id is that,
//! because systemd runs one process of the unit at a time: restarted, it need not wait for its
//! own Lease to expire.
//!
//! ```ini
//! [Service]
//! Environment=KUBECONFIG=/etc/example/kubeconfig
//! ExecStart=/usr/local/bin/outside --leader-election-namespace example --leader-election-identity %H
//! Restart=always
//! # Longer than `Timings::stop_time`, 2 s by default.
//! TimeoutStopSec=10
//! ```

use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use kube::Config;
use orchestratord::election::{Candidate, Elector, Process, Term, Timings, prompt_client};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[derive(Parser)]
struct Arguments {
    /// Namespace of the Lease
    #[arg(long)]
    leader_election_namespace: String,
    /// Name of this machine in the Lease
    #[arg(long)]
    leader_election_identity: String,
}

/// Stands for the work of the leader.
async fn work(ended: CancellationToken) {
    tracing::info!("working");
    ended.cancelled().await;
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let arguments = Arguments::parse();
    let mut terminate = signal(SignalKind::terminate())?;
    let machine = std::fs::read_to_string("/etc/machine-id").ok();
    let identity = arguments.leader_election_identity;

    let config = Config::infer().await?;
    let client = prompt_client(config.clone())?;
    let candidate = Candidate {
        namespace: arguments.leader_election_namespace,
        lease: "outside-example".to_owned(),
        identity: identity.clone(),
        process: Process::new(identity, machine.map(|id| id.trim().to_owned())),
        timings: Timings::default(),
        admission_lag: Duration::ZERO,
    };
    let elector = Elector::new(config, client, candidate, Arc::new(()))?;
    let stop = CancellationToken::new();
    let asked = stop.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        asked.cancel();
    });
    elector
        .run(stop, |term: &mut Term| {
            term.spawn("work", work(term.token()))
        })
        .await?;
    Ok(())
}
