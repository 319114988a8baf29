//! The floor: what a handover costs when nothing but the API server takes part. One client frees the Lease by a bare
//! PUT, another sees that on a watch and takes the Lease by a bare PUT.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{Stream, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use mzcompose::control_plane::Access;
use mzcompose::progress::Step;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::arena::{create_namespace, kubeconfig_for};
use super::candidate::Name;
use super::prompt::prompt_client;
use super::sightings::{Sightings, holder};

const NAMESPACE: &str = "bench-floor";
const LEASE: &str = "handover";
/// How long a round may take.
const ROUND_LIMIT: Duration = Duration::from_secs(30);

/// One who would take part in an election.
struct Hand {
    name: &'static str,
    leases: Api<Lease>,
}

/// Until the second PUT is answered, and until a third party sees the first, `rounds` times.
pub async fn handovers(
    access: &Access,
    rounds: usize,
    step: &Step,
    handovers: &mut Vec<Duration>,
    releases: &mut Vec<Duration>,
) -> Result<()> {
    let client = access.client().await?;
    create_namespace(&client, NAMESPACE).await?;
    let sightings = Sightings::start(&client, NAMESPACE, LEASE);
    let mut holds = hand(access, "one").await?;
    let mut waits = hand(access, "two").await?;
    let mut lease = holds.create().await?;
    for round in 1..=rounds {
        step.at(&format!("{round} of {rounds}"));
        let taken = timeout(ROUND_LIMIT, hand_over(&holds, &waits, lease)).await;
        let (since, took, now) =
            taken.with_context(|| format!("a round took {ROUND_LIMIT:?}"))??;
        handovers.push(took);
        releases.push(sightings.released(since, holds.name, ROUND_LIMIT).await?);
        lease = now;
        std::mem::swap(&mut holds, &mut waits);
    }
    Ok(())
}

async fn hand(access: &Access, name: &'static str) -> Result<Hand> {
    let kubeconfig = kubeconfig_for(access, &format!("{NAMESPACE}-{name}"))?;
    let client = prompt_client(&kubeconfig).await?;
    Ok(Hand {
        name,
        leases: Api::namespaced(client, NAMESPACE),
    })
}

/// One round: when it began, how long it took, and the Lease as it is then.
async fn hand_over(holds: &Hand, waits: &Hand, lease: Lease) -> Result<(Instant, Duration, Lease)> {
    let version = lease.metadata.resource_version.clone().unwrap_or_default();
    let only = WatchParams::default().fields(&format!("metadata.name={LEASE}"));
    let events = waits.leases.watch(&only, &version).await?;
    // Like a replica that is to be replaced: at any moment, on a connection that has been in use.
    sleep(Name::Floor.period().mul_f64(rand::random_range(0.0..1.0))).await;
    let lease = holds.put(lease, Some(holds.name)).await?;
    let since = Instant::now();
    let (freed, taken) = tokio::join!(holds.put(lease, None), take_once_free(waits, events));
    let took = since.elapsed();
    freed?;
    Ok((since, took, taken?))
}

async fn take_once_free(
    hand: &Hand,
    events: impl Stream<Item = kube::Result<WatchEvent<Lease>>>,
) -> Result<Lease> {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(lease) | WatchEvent::Modified(lease) if holder(&lease).is_none() => {
                return hand.put(lease, Some(hand.name)).await;
            }
            WatchEvent::Error(status) => bail!("the watch broke: {status:?}"),
            _ => {}
        }
    }
    bail!("the watch ended")
}

impl Hand {
    async fn create(&self) -> Result<Lease> {
        let lease = json!({
            "metadata": {"name": LEASE},
            "spec": {"holderIdentity": self.name, "leaseDurationSeconds": 15},
        });
        let lease = serde_json::from_value(lease).context("the Lease is malformed")?;
        Ok(self.leases.create(&PostParams::default(), &lease).await?)
    }

    async fn put(&self, mut lease: Lease, holder: Option<&str>) -> Result<Lease> {
        lease.spec.get_or_insert_default().holder_identity = holder.map(str::to_owned);
        let params = PostParams::default();
        Ok(self.leases.replace(LEASE, &params, &lease).await?)
    }
}
