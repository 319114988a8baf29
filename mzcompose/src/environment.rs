//! One Materialize environment: its manifests, and whether it runs.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::kubernetes::{ENVIRONMENT, ENVIRONMENT_NAMESPACE, eventually, materializes, pod_phases};

const V1ALPHA1: &str = include_str!("../../test/fixtures/environment-v1alpha1.yaml");
const V1: &str = include_str!("../../test/fixtures/environment-v1.yaml");
const BACKEND_SECRET: &str = include_str!("../../test/fixtures/backend-secret.yaml");
const FIELD_MANAGER: &str = "mzcompose";

/// How long a namespace may take to be gone.
pub const DELETION_LIMIT: Duration = Duration::from_secs(300);
/// How long an apply is repeated while the conversion webhook is the reason of its failure.
const APPLY_LIMIT: Duration = Duration::from_secs(300);
const APPLY_INTERVAL: Duration = Duration::from_secs(2);
/// How long a rollout may take.
const ROLLOUT_LIMIT: Duration = Duration::from_secs(900);
/// How long the operator may take to look at a changed spec.
const OBSERVED_LIMIT: Duration = Duration::from_secs(60);
/// How long environmentd's pod may take to run once the rollout is complete.
const RUNNING_LIMIT: Duration = Duration::from_secs(480);

/// The version at which the environment is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// `materialize.cloud/v1alpha1`
    V1Alpha1,
    /// `materialize.cloud/v1`
    V1,
}

impl Version {
    /// The version as the API server spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1Alpha1 => "v1alpha1",
            Self::V1 => "v1",
        }
    }

    /// The environment's manifest, with `extra` as one more variable in environmentd's environment.
    fn manifest(self, extra: Option<(&str, &str)>) -> Result<Value> {
        let text = match self {
            Self::V1Alpha1 => V1ALPHA1,
            Self::V1 => V1,
        };
        let mut manifest: Value =
            serde_saphyr::from_str(text).context("parsing the environment's manifest")?;
        if let (Some((name, value)), Some(spec)) = (
            extra,
            manifest.get_mut("spec").and_then(Value::as_object_mut),
        ) {
            spec.insert(
                "environmentdExtraEnv".into(),
                json!([{"name": name, "value": value}]),
            );
        }
        Ok(manifest)
    }
}

/// Applies the namespace, the backend Secret and the Materialize, and again for as long as the conversion
/// webhook does not answer: the operator may have been installed a moment ago.
pub async fn apply_first(client: &Client, version: Version) -> Result<()> {
    let apply = async {
        while let Err(error) = apply(client, version, None).await {
            if !is_of_the_webhook(&format!("{error:#}")) {
                return Err(error);
            }
            tokio::time::sleep(APPLY_INTERVAL).await;
        }
        Ok(())
    };
    tokio::time::timeout(APPLY_LIMIT, apply)
        .await
        .context("the conversion webhook did not answer for as long as apply may be repeated")?
}

/// Applies the namespace, the backend Secret and the Materialize; `extra` is a variable for environmentd's environment.
pub async fn apply(client: &Client, version: Version, extra: Option<(&str, &str)>) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ENVIRONMENT_NAMESPACE}});
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .patch(
            ENVIRONMENT_NAMESPACE,
            &parameters,
            &Patch::Apply(&namespace),
        )
        .await
        .context("applying the environment's namespace")?;
    let secret: Value =
        serde_saphyr::from_str(BACKEND_SECRET).context("parsing the backend Secret's manifest")?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), ENVIRONMENT_NAMESPACE);
    secrets
        .patch("materialize-backend", &parameters, &Patch::Apply(&secret))
        .await
        .context("applying Secret materialize-backend")?;
    let manifest = version.manifest(extra)?;
    materializes(client, version.name())
        .patch(ENVIRONMENT, &parameters, &Patch::Apply(&manifest))
        .await
        .context("applying the Materialize")?;
    Ok(())
}

fn is_of_the_webhook(message: &str) -> bool {
    message.contains("conversion webhook for") || message.contains("failed calling webhook")
}

/// What the resource says about its rollout, read at the stored version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// `spec.requestRollout`
    pub requested: String,
    /// `status.lastCompletedRolloutRequest`
    pub completed: String,
    /// Type, status and reason of the first condition.
    pub condition: [String; 3],
    /// Whether the condition is about the newest spec.
    pub observed: bool,
}

impl Rollout {
    fn of(object: &DynamicObject) -> Self {
        let text = |path: &str| {
            object
                .data
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        Self {
            requested: text("/spec/requestRollout"),
            completed: text("/status/lastCompletedRolloutRequest"),
            condition: ["type", "status", "reason"]
                .map(|field| text(&format!("/status/conditions/0/{field}"))),
            observed: object.metadata.generation.is_some()
                && object
                    .data
                    .pointer("/status/conditions/0/observedGeneration")
                    .and_then(Value::as_i64)
                    == object.metadata.generation,
        }
    }

    fn is_complete(&self) -> bool {
        let [kind, status, _] = &self.condition;
        kind == "UpToDate"
            && status == "True"
            && !self.requested.is_empty()
            && self.completed == self.requested
    }
}

/// The rollout's state now.
pub async fn rollout(client: &Client) -> Result<Rollout> {
    let object = materializes(client, Version::V1Alpha1.name())
        .get(ENVIRONMENT)
        .await
        .context("reading the Materialize at v1alpha1")?;
    Ok(Rollout::of(&object))
}

/// Waits until the requested rollout is complete and environmentd's pod runs; returns the request.
pub async fn completed(client: &Client) -> Result<String> {
    let request = eventually(ROLLOUT_LIMIT, || async {
        let rollout = rollout(client).await?;
        ensure!(rollout.is_complete(), "{rollout:?}");
        Ok(rollout.requested)
    });
    let request = request.await?;
    eventually(RUNNING_LIMIT, || running(client, "app=environmentd", 1)).await?;
    Ok(request)
}

/// At v1alpha1 a changed spec only rolls out on request: requests it if the operator waits for that.
pub async fn request_rollout(client: &Client) -> Result<()> {
    let observed = eventually(OBSERVED_LIMIT, || async {
        let rollout = rollout(client).await?;
        ensure!(
            rollout.observed,
            "the operator has not looked at the newest spec: {rollout:?}"
        );
        Ok(rollout)
    });
    let [_, _, reason] = observed.await?.condition;
    if reason == "WaitingForApproval" {
        let patch = Patch::Merge(json!({"spec": {"requestRollout": Uuid::new_v4()}}));
        let api = materializes(client, Version::V1Alpha1.name());
        api.patch(ENVIRONMENT, &PatchParams::default(), &patch)
            .await
            .context("requesting a rollout")?;
    }
    Ok(())
}

/// Checks that at least `count` pods have the label `selector`, and that all of them run.
pub async fn running(client: &Client, selector: &str, count: usize) -> Result<()> {
    let phases = pod_phases(client, selector).await?;
    let all_run = phases.iter().all(|phase| phase == "Running");
    ensure!(
        phases.len() >= count && all_run,
        "pods with {selector}: {phases:?}"
    );
    Ok(())
}

/// Whether the environment's namespace is there.
pub async fn exists(client: &Client) -> Result<bool> {
    Ok(Api::<Namespace>::all(client.clone())
        .get_opt(ENVIRONMENT_NAMESPACE)
        .await?
        .is_some())
}

/// Removes the environment's namespace with everything in it.
pub async fn delete(client: &Client) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .delete(ENVIRONMENT_NAMESPACE, &DeleteParams::default())
        .await
        .context("deleting the environment's namespace")?;
    eventually(DELETION_LIMIT, || async {
        let Some(left) = namespaces.get_opt(ENVIRONMENT_NAMESPACE).await? else {
            return Ok(());
        };
        let conditions = left
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone())
            .unwrap_or_default();
        let why: Vec<_> = conditions
            .iter()
            .filter(|one| one.status == "True")
            .filter_map(|one| one.message.as_deref())
            .collect();
        bail!(
            "namespace {} is still there: {}",
            left.name_any(),
            why.join("; ")
        )
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(requested: &str, completed: &str, status: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "generation": 2},
            "spec": {"requestRollout": requested},
            "status": {
                "lastCompletedRolloutRequest": completed,
                "conditions": [{"type": "UpToDate", "status": status, "reason": "Applied"}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_rollout_is_complete_when_the_request_is_and_the_condition_says_so() {
        assert!(Rollout::of(&object("r1", "r1", "True")).is_complete());
        assert!(!Rollout::of(&object("r2", "r1", "True")).is_complete());
        assert!(!Rollout::of(&object("r1", "r1", "Unknown")).is_complete());
        assert!(!Rollout::of(&object("", "", "True")).is_complete());
    }

    #[test]
    fn a_condition_is_about_the_newest_spec_when_its_generation_is() {
        let mut object = object("r1", "r1", "True");
        assert!(!Rollout::of(&object).observed);
        object.data["status"]["conditions"][0]["observedGeneration"] = json!(2);
        assert!(Rollout::of(&object).observed);
        object.metadata.generation = Some(3);
        assert!(!Rollout::of(&object).observed);
    }

    #[test]
    fn both_manifests_parse_and_take_a_variable() {
        for version in [Version::V1Alpha1, Version::V1] {
            let manifest = version.manifest(Some(("NONCE", "7"))).unwrap();
            assert_eq!(
                manifest["apiVersion"],
                format!("materialize.cloud/{}", version.name())
            );
            assert_eq!(manifest["metadata"]["name"], ENVIRONMENT);
            assert_eq!(manifest["metadata"]["namespace"], ENVIRONMENT_NAMESPACE);
            assert_eq!(
                manifest["spec"]["environmentdExtraEnv"],
                json!([{"name": "NONCE", "value": "7"}])
            );
        }
    }

    #[test]
    fn the_manifest_alone_sets_no_variable() {
        assert!(
            Version::V1.manifest(None).unwrap()["spec"]
                .get("environmentdExtraEnv")
                .is_none()
        );
    }

    #[test]
    fn only_the_webhook_is_a_reason_to_apply_again() {
        assert!(is_of_the_webhook(
            "conversion webhook for materialize.cloud/v1, Kind=Materialize failed"
        ));
        assert!(!is_of_the_webhook(
            "spec.environmentdImageRef: Required value"
        ));
    }
}
