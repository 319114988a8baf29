//! The operator on a cluster: its chart, its certificate, its definitions.

mod certificate;
mod record;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use mzcompose::command;
use mzcompose::tools::repository;
use serde::Deserialize;
use tokio::process::Command;

use crate::kubernetes::{OPERATOR, OPERATOR_NAMESPACE, eventually, unless_an_image_fails};

use certificate::webhook_certificate;
use record::{Recorded, chart_digest};

const RELEASE: &str = "operator";
const CERTIFICATE: &str = "operator-webhook-cert";
const CRD: &str = "materializes.materialize.cloud";
const HELM_TIMEOUT: &str = "240s";
/// Ends a helm that outstays its own time-out.
const HELM_LIMIT: Duration = Duration::from_secs(300);
/// How long the CRD may take to be established with the right versions.
const CRD_LIMIT: Duration = Duration::from_secs(240);
/// How long a rollout of the operator may take.
pub const ROLLOUT_LIMIT: Duration = Duration::from_secs(300);

/// The operator's release on one cluster.
pub struct Installation {
    /// The cluster's API.
    pub client: Client,
    helm: PathBuf,
    kubeconfig: PathBuf,
}

/// What happened to the release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Chart, values and image are what they were.
    Unchanged,
    /// The chart was installed or upgraded.
    Upgraded,
}

#[derive(Deserialize)]
struct Status {
    info: Info,
}

#[derive(Deserialize)]
struct Info {
    status: String,
    description: String,
}

impl Installation {
    /// The release on the cluster of `kubeconfig`, which `client` speaks to.
    pub fn new(client: Client, helm: &Path, kubeconfig: &Path) -> Self {
        Self {
            client,
            helm: helm.to_path_buf(),
            kubeconfig: kubeconfig.to_path_buf(),
        }
    }

    /// The chart's default of `operator.replicas`.
    pub async fn default_replicas(&self) -> Result<usize> {
        let mut helm = Command::new(&self.helm);
        helm.args(["show", "values"])
            .arg(chart()?)
            .args(["--jsonpath", "{.operator.replicas}"]);
        let printed = run(&mut helm).await?;
        printed
            .trim()
            .parse()
            .with_context(|| format!("operator.replicas is `{printed}`"))
    }

    /// Installs or upgrades the release, unless chart, values and image (`digest` of its content) are as recorded.
    pub async fn ensure(&self, digest: &str) -> Result<Outcome> {
        self.ensure_certificate().await?;
        let wanted = Recorded {
            chart: chart_digest(&chart()?, &values()?)?,
            image: digest.to_owned(),
        };
        let status = self.status().await?;
        let before = status
            .as_ref()
            .and_then(|status| Recorded::parse(&status.info.description));
        if let Some(status) = &status {
            if status.info.status == "deployed" && before.as_ref() == Some(&wanted) {
                self.ready().await?;
                return Ok(Outcome::Unchanged);
            }
            if status.info.status != "deployed" {
                self.uninstall()
                    .await
                    .context("removing a release that an earlier run left half-way")?;
            }
        }
        self.upgrade(&wanted).await?;
        if before.is_some_and(|before| before.image != wanted.image) {
            self.restart().await?;
        }
        self.ready().await?;
        Ok(Outcome::Upgraded)
    }

    /// Removes the release, if there is one; the CRDs and the certificate stay.
    pub async fn uninstall(&self) -> Result<()> {
        run(self.helm().args([
            "uninstall",
            RELEASE,
            "--ignore-not-found",
            "--wait",
            "--timeout",
            HELM_TIMEOUT,
        ]))
        .await
        .map(drop)
    }

    /// Restarts the operator as `kubectl rollout restart` does, and waits for the end of the rollout.
    pub async fn restart(&self) -> Result<()> {
        self.deployments()
            .restart(OPERATOR)
            .await
            .context("restarting the operator's Deployment")?;
        self.rolled_out().await
    }

    async fn upgrade(&self, record: &Recorded) -> Result<()> {
        let mut helm = self.helm();
        helm.args(["upgrade", "--install", RELEASE])
            .arg(chart()?)
            .arg("--values")
            .arg(values()?);
        helm.args([
            "--description",
            &record.to_string(),
            "--timeout",
            HELM_TIMEOUT,
        ]);
        run(&mut helm).await.map(drop)
    }

    async fn status(&self) -> Result<Option<Status>> {
        let known = run(self.helm().args([
            "list",
            "--all",
            "--short",
            "--filter",
            &format!("^{RELEASE}$"),
        ]))
        .await?;
        if known.trim().is_empty() {
            return Ok(None);
        }
        let printed = run(self.helm().args(["status", RELEASE, "--output", "json"])).await?;
        Ok(Some(
            serde_json::from_str(&printed).context("parsing `helm status`")?,
        ))
    }

    async fn ready(&self) -> Result<()> {
        self.rolled_out().await?;
        eventually(CRD_LIMIT, || self.definition())
            .await
            .with_context(|| format!("waiting for CRD {CRD}"))
    }

    async fn rolled_out(&self) -> Result<()> {
        let look = || async {
            let deployment = self.deployments().get(OPERATOR).await?;
            ensure!(
                is_rolled_out(&deployment),
                "status of Deployment {OPERATOR}: {}",
                serde_json::to_string(&deployment.status)?
            );
            Ok(())
        };
        unless_an_image_fails(
            &self.client,
            OPERATOR_NAMESPACE,
            eventually(ROLLOUT_LIMIT, look),
        )
        .await
        .context("waiting for the operator's rollout")
    }

    /// With the v1 CRD installed there are exactly two versions, and a webhook converts between them.
    async fn definition(&self) -> Result<()> {
        let definition = Api::<CustomResourceDefinition>::all(self.client.clone())
            .get(CRD)
            .await?;
        let conditions = definition
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        ensure!(
            conditions
                .iter()
                .any(|one| one.type_ == "Established" && one.status == "True"),
            "CRD {CRD} is not established"
        );
        let mut versions: Vec<_> = definition
            .spec
            .versions
            .iter()
            .map(|version| version.name.as_str())
            .collect();
        versions.sort_unstable();
        let strategy = definition
            .spec
            .conversion
            .map(|conversion| conversion.strategy);
        ensure!(
            versions == ["v1", "v1alpha1"] && strategy.as_deref() == Some("Webhook"),
            "versions {versions:?}, conversion {strategy:?}"
        );
        Ok(())
    }

    /// The Secret that the chart mounts with `certificate.source: secret`; an existing one stays as it is.
    async fn ensure_certificate(&self) -> Result<()> {
        let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPERATOR_NAMESPACE}});
        let parameters = PatchParams::apply("mzcompose").force();
        Api::<Namespace>::all(self.client.clone())
            .patch(OPERATOR_NAMESPACE, &parameters, &Patch::Apply(&namespace))
            .await?;
        let secrets = Api::<Secret>::namespaced(self.client.clone(), OPERATOR_NAMESPACE);
        if secrets.get_opt(CERTIFICATE).await?.is_some() {
            return Ok(());
        }
        let metadata = ObjectMeta {
            name: Some(CERTIFICATE.to_owned()),
            ..ObjectMeta::default()
        };
        let secret = Secret {
            metadata,
            data: Some(webhook_certificate()?),
            ..Secret::default()
        };
        secrets
            .create(&PostParams::default(), &secret)
            .await
            .with_context(|| format!("creating Secret {CERTIFICATE}"))?;
        Ok(())
    }

    /// Removes the webhook's certificate, if it is there.
    pub async fn delete_certificate(&self) -> Result<()> {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), OPERATOR_NAMESPACE);
        match secrets.delete(CERTIFICATE, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            outcome => outcome
                .map(drop)
                .with_context(|| format!("deleting Secret {CERTIFICATE}")),
        }
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), OPERATOR_NAMESPACE)
    }

    fn helm(&self) -> Command {
        let mut helm = Command::new(&self.helm);
        helm.arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--namespace", OPERATOR_NAMESPACE]);
        helm
    }
}

async fn run(helm: &mut Command) -> Result<String> {
    command::run(helm, HELM_LIMIT).await
}

fn chart() -> Result<PathBuf> {
    Ok(repository()?.join("charts/materialize-operator"))
}

fn values() -> Result<PathBuf> {
    Ok(repository()?.join("test/fixtures/operator-values.yaml"))
}

fn is_rolled_out(deployment: &Deployment) -> bool {
    let Some(status) = &deployment.status else {
        return false;
    };
    let wanted = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1);
    status.observed_generation >= deployment.metadata.generation
        && status.updated_replicas.unwrap_or(0) == wanted
        && status.replicas.unwrap_or(0) == wanted
        && status.available_replicas.unwrap_or(0) == wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(status: serde_json::Value) -> Deployment {
        serde_json::from_value(json!({"metadata": {"generation": 2}, "spec": {"replicas": 2, "selector": {}, "template": {}}, "status": status})).unwrap()
    }

    #[test]
    fn a_rollout_ends_when_all_pods_are_new_and_available() {
        let done = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
        assert!(is_rolled_out(&deployment(done.clone())));
        for (field, value) in [
            ("observedGeneration", 1),
            ("replicas", 3),
            ("updatedReplicas", 1),
            ("availableReplicas", 1),
        ] {
            let mut status = done.clone();
            status[field] = json!(value);
            assert!(!is_rolled_out(&deployment(status)), "{field}");
        }
    }
}
