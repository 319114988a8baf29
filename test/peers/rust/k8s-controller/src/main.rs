//! A candidate that works under `k8s-controller`'s lease and releases it on SIGTERM, as its documentation says.

use std::future::pending;

use anyhow::{Context, Result};
use contract::{Candidate, Leadership, termination};
use k8s_controller::LeaderElection;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

#[tokio::main]
async fn main() -> Result<()> {
    let candidate = Candidate::parse();
    let mut termination = termination()?;
    let kubeconfig = Kubeconfig::read_from(&candidate.kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = kube::Client::try_from(config)?;
    let (namespace, lease) = (&candidate.namespace, &candidate.lease);
    let election = LeaderElection::new(client, namespace, lease, &candidate.identity);
    let campaign = async {
        loop {
            let mut leadership = Leadership::default();
            let work = async {
                leadership.is(true);
                pending::<()>().await;
            };
            election.with_lease(work).await;
            leadership.is(false);
        }
    };
    tokio::select! {
        () = campaign => {}
        signal = termination.recv() => signal.context("no more signals")?,
    }
    println!("stopped");
    election.release().await;
    Ok(())
}
