//! A candidate that watches `kube-lease-manager`'s channel, with its default duration of 30 s and grace of 5 s.

use anyhow::Result;
use contract::{Candidate, Leadership, termination};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube_lease_manager::{LeaseCreateMode, LeaseManagerBuilder};

#[tokio::main]
async fn main() -> Result<()> {
    let candidate = Candidate::parse();
    let mut termination = termination()?;
    let kubeconfig = Kubeconfig::read_from(&candidate.kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = kube::Client::try_from(config)?;
    let manager = LeaseManagerBuilder::new(client, candidate.lease)
        .with_namespace(candidate.namespace)
        .with_identity(candidate.identity)
        .with_create_mode(LeaseCreateMode::AutoCreate)
        .build()
        .await?;
    let (mut states, task) = manager.watch().await;
    let mut leadership = Leadership::default();
    loop {
        leadership.is(*states.borrow_and_update());
        tokio::select! {
            changed = states.changed() => if changed.is_err() { break },
            _ = termination.recv() => break,
        }
    }
    leadership.is(false);
    drop(states);
    task.await??;
    Ok(())
}
