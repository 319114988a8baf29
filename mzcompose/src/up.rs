//! `up`: a cluster, the operator on it, and one environment running.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use mzcompose::progress::Progress;

use crate::cli::Target;
use crate::environment::{self, Version};
use crate::install::Outcome;
use crate::kubernetes::{
    ENVIRONMENT_NAMESPACE, LEASE, OPERATOR_NAMESPACE, eventually, is_ready, lease_holder,
    operator_logs, unless_an_image_fails,
};
use crate::output::say;
use crate::target::{self, Ready};

/// How long the environment's pods may take once the rollout is complete.
const PODS_LIMIT: Duration = Duration::from_secs(300);
/// What a default environment consists of.
const PODS: [(&str, usize); 3] = [
    ("materialize.cloud/app=environmentd", 1),
    ("materialize.cloud/app=balancerd", 2),
    ("materialize.cloud/app=console", 2),
];

/// Brings everything up that is missing, and says what to do next.
pub async fn up(target: &Target, progress: &Progress) -> Result<()> {
    let done = target::with(target, progress, async |ready| {
        let installed = install_and_apply(ready, progress).await;
        if installed.is_err() {
            explain(ready).await;
        }
        installed?;
        next_steps(ready).await
    });
    say(done.await?)
}

async fn install_and_apply(ready: &Ready, progress: &Progress) -> Result<()> {
    let step = progress.step("install chart");
    match ready
        .installation
        .ensure(&ready.archives.operator.digest)
        .await?
    {
        Outcome::Unchanged => step.done_with("unchanged"),
        Outcome::Upgraded => step.done(),
    }
    let client = &ready.installation.client;
    let step = progress.step("apply environment");
    environment::apply_first(client, Version::V1Alpha1).await?;
    environment::request_rollout(client).await?;
    step.done();
    let step = progress.step("wait for the environment");
    let running = async {
        step.at("rollout");
        environment::completed(client).await?;
        step.at("pods");
        for (selector, count) in PODS {
            eventually(PODS_LIMIT, || environment::running(client, selector, count)).await?;
        }
        eventually(PODS_LIMIT, || all_ready(ready)).await
    };
    unless_an_image_fails(client, ENVIRONMENT_NAMESPACE, running).await?;
    step.done_with("UpToDate=True");
    Ok(())
}

/// Every pod of the environment, clusterd's included, is ready.
async fn all_ready(ready: &Ready) -> Result<()> {
    let pods = Api::<Pod>::namespaced(ready.installation.client.clone(), ENVIRONMENT_NAMESPACE);
    let pods = pods.list(&ListParams::default()).await?;
    let waiting: Vec<_> = pods
        .iter()
        .filter(|pod| !is_ready(pod))
        .map(ResourceExt::name_any)
        .collect();
    ensure!(waiting.is_empty(), "pods that are not ready: {waiting:?}");
    Ok(())
}

/// Shows what the operator said before everything is removed.
async fn explain(ready: &Ready) {
    match operator_logs(&ready.installation.client).await {
        Ok(logs) => eprintln!("{logs}"),
        Err(error) => eprintln!("the operator's logs cannot be read: {error:#}"),
    }
}

async fn next_steps(ready: &Ready) -> Result<String> {
    let holder = lease_holder(&ready.installation.client)
        .await?
        .unwrap_or_default();
    let kubectl = ready
        .kubectl
        .clone()
        .unwrap_or_else(|| PathBuf::from("kubectl"));
    let kubectl = if on_path("kubectl") {
        "kubectl".to_owned()
    } else {
        kubectl.display().to_string()
    };
    Ok(format!(
        "
The environment runs. What next:

  export KUBECONFIG={kubeconfig}
  {kubectl} get materializes -A
  {kubectl} get lease {LEASE} -n {OPERATOR_NAMESPACE} --watch         # in a second terminal: who leads
  {kubectl} delete pod {holder} -n {OPERATOR_NAMESPACE} --wait=false  # the leader goes, the Lease moves

  cargo mzcompose run leader-failover   # the same with all assertions and measurements
  cargo mzcompose down                  # removes everything again",
        kubeconfig = ready.kubeconfig.display(),
    ))
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
