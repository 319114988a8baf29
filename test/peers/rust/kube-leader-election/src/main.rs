//! A candidate that asks `kube-leader-election` every 5 s for a lease of 15 s, as its documentation says.

use std::time::Duration;

use anyhow::Result;
use contract::{Candidate, Leadership, termination};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube_leader_election::{LeaseLock, LeaseLockParams, LeaseLockResult};

const LEASE_TTL: Duration = Duration::from_secs(15);
const RETRY_PERIOD: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<()> {
    let candidate = Candidate::parse();
    let mut termination = termination()?;
    let kubeconfig = Kubeconfig::read_from(&candidate.kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = kube::Client::try_from(config)?;
    let params = LeaseLockParams {
        lease_name: candidate.lease,
        holder_id: candidate.identity,
        lease_ttl: LEASE_TTL,
    };
    let lock = LeaseLock::new(client, &candidate.namespace, params);
    let mut leadership = Leadership::default();
    let mut leads = false;
    loop {
        match lock.try_acquire_or_renew().await {
            Ok(result) => leads = matches!(result, LeaseLockResult::Acquired(_)),
            Err(error) => eprintln!("{error}"),
        }
        leadership.is(leads);
        tokio::select! {
            () = tokio::time::sleep(RETRY_PERIOD) => {}
            _ = termination.recv() => break,
        }
    }
    leadership.is(false);
    if leads {
        lock.step_down().await?;
    }
    Ok(())
}
