//! A candidate that holds a claim of `kubert`'s lease, with its default duration of 30 s and grace of 1 s.

use anyhow::{Result, bail};
use contract::{Candidate, Leadership, termination};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Error};
use kubert::lease::{ClaimParams, LeaseManager};

#[tokio::main]
async fn main() -> Result<()> {
    let candidate = Candidate::parse();
    let mut termination = termination()?;
    let kubeconfig = Kubeconfig::read_from(&candidate.kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let leases = Api::namespaced(Client::try_from(config)?, &candidate.namespace);
    ensure(&leases, &candidate.lease).await?;
    let manager = LeaseManager::init(leases, &candidate.lease).await?;
    let spawned = manager.spawn(&candidate.identity, ClaimParams::default());
    let (mut claims, task) = tokio::select! {
        spawned = spawned => spawned?,
        _ = termination.recv() => return Ok(()),
    };
    let mut leadership = Leadership::default();
    loop {
        leadership.is(claims
            .borrow_and_update()
            .is_current_for(&candidate.identity));
        tokio::select! {
            changed = claims.changed() => if changed.is_err() { break },
            _ = termination.recv() => break,
        }
    }
    leadership.is(false);
    drop(claims);
    task.await??;
    Ok(())
}

/// `kubert` leaves it to others to create the Lease.
async fn ensure(leases: &Api<Lease>, name: &str) -> Result<()> {
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec::default()),
    };
    match leases.create(&PostParams::default(), &lease).await {
        Ok(_) => Ok(()),
        Err(Error::Api(response)) if response.code == 409 => Ok(()),
        Err(error) => bail!("cannot create the Lease: {error}"),
    }
}
