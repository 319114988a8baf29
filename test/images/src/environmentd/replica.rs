//! The one clusterd that a generation runs, made as environmentd makes them: through the API
//! server, with the pod's own service account.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::{info, warn};

use super::args::Args;
use super::catalog::Catalog;
use super::leader::Status;

/// The label that says which generation a clusterd belongs to.
const GENERATION: &str = "cluster.environmentd.materialize.cloud/generation";
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LAST_RETRY: Duration = Duration::from_secs(10);

/// What a clusterd of one generation looks like.
#[derive(Debug)]
pub(crate) struct Replica {
    generation: u64,
    name: String,
    labels: BTreeMap<String, String>,
    template: Value,
}

impl Replica {
    /// Renders clusterd as the arguments ask.
    pub(crate) fn new(args: &Args) -> Self {
        let generation = args.identity.deploy_generation;
        let prefix = &args.orchestrator.orchestrator_kubernetes_name_prefix;
        let mut labels = owner_labels(args);
        labels.extend(
            [
                (
                    "environmentd.materialize.cloud/namespace",
                    "cluster".to_owned(),
                ),
                (
                    "cluster.environmentd.materialize.cloud/type",
                    "cluster".to_owned(),
                ),
                (
                    "cluster.environmentd.materialize.cloud/cluster-id",
                    "s2".to_owned(),
                ),
                (
                    "cluster.environmentd.materialize.cloud/replica-id",
                    "s1".to_owned(),
                ),
                (GENERATION, generation.to_string()),
            ]
            .map(|(key, value)| (key.to_owned(), value)),
        );
        Self {
            generation,
            name: format!("{prefix}cluster-s2-replica-s1-gen-{generation}"),
            template: template(args, &labels),
            labels,
        }
    }

    /// The StatefulSet of this generation.
    pub(crate) fn stateful_set(&self) -> Value {
        json!({
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": { "name": self.name, "labels": self.labels },
            "spec": {
                "replicas": 1,
                "serviceName": self.name,
                "podManagementPolicy": "Parallel",
                "selector": { "matchLabels": self.labels },
                "template": self.template,
            },
        })
    }

    /// Its headless Service.
    pub(crate) fn service(&self) -> Value {
        let port =
            |name: &str, port: u16| json!({ "name": name, "port": port, "targetPort": port });
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": self.name, "labels": self.labels },
            "spec": {
                "clusterIP": "None",
                "selector": self.labels,
                "ports": [port("storagectl", 2100), port("computectl", 2101), port("internal-http", 6878)],
            },
        })
    }

    /// Makes clusterd, and as the leader removes those of older generations. Tries until it
    /// works; returns then.
    pub(crate) async fn run(
        &self,
        client: Client,
        catalog: &dyn Catalog,
        mut status: watch::Receiver<Status>,
    ) -> Result<()> {
        until_done("making clusterd", || self.apply(&client, catalog)).await;
        status
            .wait_for(|status| *status == Status::IsLeader)
            .await
            .context("waiting to lead")?;
        until_done("removing older clusterds", || self.remove_older(&client)).await;
        Ok(())
    }

    async fn apply(&self, client: &Client, catalog: &dyn Catalog) -> Result<()> {
        // A generation that is fenced already must not bring back what the leader has removed.
        if catalog
            .leader()
            .await?
            .is_some_and(|leader| leader > self.generation)
        {
            return Ok(());
        }
        apply::<Service>(client, &self.name, &self.service()).await?;
        apply::<StatefulSet>(client, &self.name, &self.stateful_set()).await?;
        info!("made clusterd {}", self.name);
        Ok(())
    }

    async fn remove_older(&self, client: &Client) -> Result<()> {
        let siblings = self.siblings();
        remove_older::<StatefulSet>(client, &siblings, self.generation).await?;
        remove_older::<Service>(client, &siblings, self.generation).await
    }

    /// Selects clusterds of this environment whatever their generation.
    fn siblings(&self) -> ListParams {
        let same = self.labels.iter().filter(|(key, _)| *key != GENERATION);
        let selector = same
            .map(|(key, value)| format!("{key}={value}"))
            .collect::<Vec<_>>()
            .join(",");
        ListParams::default().labels(&selector)
    }
}

/// The labels that the operator wants on everything environmentd makes.
pub(crate) fn owner_labels(args: &Args) -> BTreeMap<String, String> {
    args.orchestrator
        .orchestrator_kubernetes_service_label
        .iter()
        .cloned()
        .collect()
}

fn template(args: &Args, labels: &BTreeMap<String, String>) -> Value {
    let orchestrator = &args.orchestrator;
    let node_selector: BTreeMap<_, _> = orchestrator
        .orchestrator_kubernetes_service_node_selector
        .iter()
        .cloned()
        .collect();
    let mut annotations: BTreeMap<_, _> = orchestrator
        .orchestrator_kubernetes_service_annotation
        .iter()
        .cloned()
        .collect();
    if orchestrator.orchestrator_kubernetes_enable_prometheus_scrape_annotations {
        annotations.extend(
            [
                ("scrape", "true"),
                ("port", "6878"),
                ("path", "/metrics"),
                ("scheme", "http"),
            ]
            .map(|(key, value)| (format!("prometheus.io/{key}"), value.to_owned())),
        );
    }
    let user = orchestrator.orchestrator_kubernetes_service_fs_group;
    let mut spec = json!({
        "serviceAccountName": orchestrator.orchestrator_kubernetes_service_account,
        "terminationGracePeriodSeconds": 0,
        "securityContext": { "fsGroup": user, "runAsUser": user, "runAsGroup": user },
        "containers": [container(args)],
    });
    let optional = [
        (
            "nodeSelector",
            (!node_selector.is_empty()).then(|| json!(node_selector)),
        ),
        (
            "affinity",
            orchestrator
                .orchestrator_kubernetes_service_affinity
                .as_ref()
                .map(|affinity| json!(affinity)),
        ),
        (
            "tolerations",
            orchestrator
                .orchestrator_kubernetes_service_tolerations
                .as_ref()
                .map(|all| json!(all.0)),
        ),
        (
            "schedulerName",
            orchestrator
                .orchestrator_kubernetes_scheduler_name
                .as_ref()
                .map(|name| json!(name)),
        ),
        (
            "priorityClassName",
            orchestrator
                .orchestrator_kubernetes_priority_class_name
                .as_ref()
                .map(|name| json!(name)),
        ),
    ];
    if let Some(spec) = spec.as_object_mut() {
        spec.extend(
            optional
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?))),
        );
    }
    json!({ "metadata": { "labels": labels, "annotations": annotations }, "spec": spec })
}

fn container(args: &Args) -> Value {
    let port = |name: &str, port: u16| json!({ "name": name, "containerPort": port });
    json!({
        "name": "clusterd",
        "image": args.orchestrator.clusterd_image,
        "imagePullPolicy": args.orchestrator.orchestrator_kubernetes_image_pull_policy.kubernetes(),
        "args": [
            "--storage-controller-listen-addr=0.0.0.0:2100",
            "--compute-controller-listen-addr=0.0.0.0:2101",
            "--internal-http-listen-addr=0.0.0.0:6878",
            format!("--environment-id={}", args.identity.environment_id),
            format!("--persist-pubsub-url={}", args.network.persist_pubsub_url),
        ],
        "ports": [port("storagectl", 2100), port("computectl", 2101), port("internal-http", 6878)],
        "resources": {
            "requests": { "cpu": "10m", "memory": "16Mi" },
            "limits": { "memory": "64Mi" },
        },
        "readinessProbe": { "httpGet": { "path": "/api/readyz", "port": "internal-http" }, "periodSeconds": 1 },
    })
}

async fn apply<K>(client: &Client, name: &str, object: &Value) -> Result<()>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api = Api::<K>::default_namespaced(client.clone());
    let params = PatchParams::apply("environmentd").force();
    let applied = api.patch(name, &params, &Patch::Apply(object)).await;
    if matches!(&applied, Err(kube::Error::Api(status)) if status.code == 422) {
        // Left by a cancelled rollout to this generation with other labels, which cannot change.
        delete(&api, name).await?;
    }
    applied.with_context(|| format!("applying the {} {name}", K::kind(&())))?;
    Ok(())
}

async fn delete<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => info!("removed the {} {name}", K::kind(&())),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(err) => {
            return Err(err).with_context(|| format!("deleting the {} {name}", K::kind(&())));
        }
    }
    Ok(())
}

async fn remove_older<K>(client: &Client, siblings: &ListParams, generation: u64) -> Result<()>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + Serialize
        + std::fmt::Debug,
{
    let api = Api::<K>::default_namespaced(client.clone());
    let found = api
        .list(siblings)
        .await
        .with_context(|| format!("listing each {}", K::kind(&())))?;
    for object in found {
        let older = object
            .labels()
            .get(GENERATION)
            .and_then(|text| text.parse::<u64>().ok())
            .is_some_and(|g| g < generation);
        if older {
            delete(&api, &object.name_any()).await?;
        }
    }
    Ok(())
}

async fn until_done<F>(what: &str, mut attempt: impl FnMut() -> F)
where
    F: Future<Output = Result<()>>,
{
    let mut pause = FIRST_RETRY;
    while let Err(err) = attempt().await {
        warn!("{what}: {err:#}; trying again in {pause:?}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_RETRY);
    }
}
