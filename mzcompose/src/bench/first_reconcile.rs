//! How soon a new leader works when it has many environments to look after.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use kube::api::{Api, PostParams};
use kube::core::DynamicObject;
use mzcompose::process::wait_until;
use mzcompose::progress::Step;
use rustix::process::Signal;
use serde_json::json;
use uuid::Uuid;

use super::arena::{Arena, LEADER_LIMIT, create_namespace};
use super::replica::Replica;
use crate::kubernetes::{ENVIRONMENT_NAMESPACE, materializes, parse_gauge};

/// The operator's own figure: seconds from leading to the end of the first reconcile, 0 before that.
const METRIC: &str = "orchestratord_first_reconcile_seconds";
/// How often leadership is handed over.
const ROUNDS: usize = 5;
const CREATE_AT_ONCE: usize = 16;
const RECONCILE_LIMIT: Duration = Duration::from_secs(60);

/// Makes the environments, and hands leadership over from replica to replica.
pub async fn first_reconciles(
    arena: &mut Arena<'_>,
    environments: usize,
    step: &Step,
    durations: &mut Vec<Duration>,
) -> Result<()> {
    // The operator registers what its environments are made of.
    let mut pair = arena.pair().await?;
    step.at("creating environments");
    create_environments(arena.client, environments).await?;
    for round in 1..=ROUNDS {
        step.at(&format!("{round} of {ROUNDS}"));
        arena.pause().await;
        pair.check()?;
        pair.leader.signal(Signal::TERM)?;
        pair.standby.leads(LEADER_LIMIT).await?;
        durations.push(first_reconcile(&pair.standby).await?);
        pair = arena.relieve(pair).await?;
    }
    pair.end().await
}

async fn create_environments(client: &Client, count: usize) -> Result<()> {
    create_namespace(client, ENVIRONMENT_NAMESPACE).await?;
    let api: Api<DynamicObject> = materializes(client, "v1alpha1");
    let created = stream::iter(0..count).map(|_| create_environment(&api));
    created.buffer_unordered(CREATE_AT_ONCE).try_collect().await
}

/// An environment whose backend Secret is missing, so that reconciling it is all that happens.
async fn create_environment(api: &Api<DynamicObject>) -> Result<()> {
    let environment = json!({
        "apiVersion": "materialize.cloud/v1alpha1",
        "kind": "Materialize",
        "metadata": {"name": Uuid::new_v4().to_string()},
        "spec": {"environmentdImageRef": "materialize/environmentd:v26.40.0", "backendSecretName": "none"},
    });
    let environment = serde_json::from_value(environment).context("an environment is malformed")?;
    let created = api.create(&PostParams::default(), &environment).await;
    created.context("creating an environment")?;
    Ok(())
}

async fn first_reconcile(leader: &Replica) -> Result<Duration> {
    let mut found = None;
    wait_until("the first reconcile", RECONCILE_LIMIT, &[], async || {
        let seconds = parse_gauge(&leader.metrics().await?, METRIC);
        let seconds = seconds.with_context(|| format!("there is no metric {METRIC}"))?;
        found = Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|found| !found.is_zero());
        Ok(found.is_some())
    })
    .await?;
    found.context("a first reconcile takes time")
}
