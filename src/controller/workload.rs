//! What the Balancer and Console controllers share: a status that follows one Deployment.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::PostParams;
use thiserror::Error;

use super::pass::{Object, ObjectError, Pass, describe_name};
use super::rendering::RenderError;
use crate::api::FIELD_MANAGER;
use crate::api::balancer::{Balancer, BalancerStatus};
use crate::api::console::{Console, ConsoleStatus};

/// Why a pass over a Balancer or a Console fails.
#[derive(Debug, Error)]
pub enum WorkloadError {
    /// An object could not be applied.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// An object could not be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The status could not be written.
    #[error("cannot write the status of {object}")]
    WriteStatus {
        /// Kind, namespace and name.
        object: String,
        /// Why.
        source: Box<kube::Error>,
    },
}

/// A custom resource that one Deployment carries out.
pub trait Workload: Object {
    /// What runs in the Deployment.
    const COMPONENT: &'static str;

    /// `status.conditions`, if there is a status.
    fn conditions(&self) -> Option<&[Condition]>;

    /// The same object with another status.
    fn with_status(&self, resource_id: String, conditions: Vec<Condition>) -> Self;
}

impl Workload for Balancer {
    const COMPONENT: &'static str = "balancerd";

    fn conditions(&self) -> Option<&[Condition]> {
        self.status
            .as_ref()
            .map(|status| status.conditions.as_slice())
    }

    fn with_status(&self, resource_id: String, conditions: Vec<Condition>) -> Self {
        Self {
            status: Some(BalancerStatus {
                resource_id,
                conditions,
            }),
            ..self.clone()
        }
    }
}

impl Workload for Console {
    const COMPONENT: &'static str = "console";

    fn conditions(&self) -> Option<&[Condition]> {
        self.status
            .as_ref()
            .map(|status| status.conditions.as_slice())
    }

    fn with_status(&self, resource_id: String, conditions: Vec<Condition>) -> Self {
        Self {
            status: Some(ConsoleStatus {
                resource_id,
                conditions,
            }),
            ..self.clone()
        }
    }
}

/// Writes the first status; the write brings the next pass.
///
/// # Errors
/// [`WorkloadError::WriteStatus`].
pub async fn initialize_status<K: Workload>(
    pass: &Pass,
    object: &K,
    resource_id: Option<&String>,
) -> Result<(), WorkloadError> {
    let resource_id = resource_id
        .cloned()
        .unwrap_or_else(super::materialize::new_resource_id);
    write_status(pass, &object.with_status(resource_id, Vec::new())).await
}

/// Writes the `Ready` condition if the Deployment's availability has changed.
///
/// # Errors
/// [`WorkloadError::WriteStatus`].
pub async fn follow<K: Workload>(
    pass: &Pass,
    object: &K,
    resource_id: &str,
    deployment: &Deployment,
) -> Result<(), WorkloadError> {
    let conditions = object.conditions().unwrap_or_default();
    match ready(object, conditions, deployment, Timestamp::now()) {
        Some(condition) => {
            write_status(
                pass,
                &object.with_status(resource_id.to_owned(), vec![condition]),
            )
            .await
        }
        None => Ok(()),
    }
}

/// The new `Ready` condition; `None` if nothing is known yet or nothing has changed.
fn ready<K: Workload>(
    object: &K,
    before: &[Condition],
    deployment: &Deployment,
    now: Timestamp,
) -> Option<Condition> {
    let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
    let is_available = conditions
        .iter()
        .any(|condition| condition.type_ == "Available" && condition.status == "True");
    let (status, word) = if is_available {
        ("True", "ready")
    } else {
        ("False", "not ready")
    };
    let is_known = before
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == status);
    (!is_known).then(|| Condition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: "DeploymentStatus".to_owned(),
        message: format!("The {} deployment is {word}", K::COMPONENT),
        observed_generation: object.meta().generation,
        last_transition_time: Time(now),
    })
}

async fn write_status<K: Workload>(pass: &Pass, object: &K) -> Result<(), WorkloadError> {
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    let parameters = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    pass.api::<K>(&namespace)
        .replace_status(&name, &parameters, object)
        .await
        .map(drop)
        .map_err(|source| WorkloadError::WriteStatus {
            object: describe_name::<K>(&namespace, &name),
            source: source.into(),
        })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn condition(status: &str) -> Condition {
        serde_json::from_value(json!({
            "type": "Ready", "status": status, "reason": "DeploymentStatus", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }))
        .unwrap()
    }

    #[rstest]
    #[case::no_status(json!({}), None, None)]
    #[case::no_conditions_yet(json!({"status": {"replicas": 2}}), None, None)]
    #[case::available(json!({"status": {"conditions": [{"type": "Available", "status": "True"}]}}), None, Some("True"))]
    #[case::progressing(json!({"status": {"conditions": [{"type": "Progressing", "status": "True"}]}}), None, Some("False"))]
    #[case::still_available(json!({"status": {"conditions": [{"type": "Available", "status": "True"}]}}), Some("True"), None)]
    #[case::lost(json!({"status": {"conditions": [{"type": "Available", "status": "False"}]}}), Some("True"), Some("False"))]
    fn readiness_follows_the_deployment(
        #[case] deployment: Value,
        #[case] before: Option<&str>,
        #[case] after: Option<&str>,
    ) {
        let mut deployment = deployment;
        deployment["apiVersion"] = "apps/v1".into();
        deployment["kind"] = "Deployment".into();
        let deployment: Deployment = serde_json::from_value(deployment).unwrap();
        let balancer = Balancer::new("env", crate::api::balancer::BalancerSpec::default());
        let before: Vec<_> = before.map(condition).into_iter().collect();
        let condition = ready(&balancer, &before, &deployment, Timestamp::UNIX_EPOCH);
        assert_eq!(
            condition.map(|condition| condition.status).as_deref(),
            after
        );
    }
}
