//! The few questions that the runner asks an API server.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, LogParams};
use kube::{Client, ResourceExt};
use tokio::time::Instant;

/// Where the operator is installed.
pub const OPERATOR_NAMESPACE: &str = "materialize";
/// The Deployment, its PodDisruptionBudget and the webhook's Service all have this name.
pub const OPERATOR: &str = "operator-materialize-operator";
/// The Lease that the operator's replicas elect their leader by.
pub const LEASE: &str = "orchestratord";
/// Where the environment lives.
pub const ENVIRONMENT_NAMESPACE: &str = "materialize-environment";
/// The environment's name.
pub const ENVIRONMENT: &str = "12345678-1234-1234-1234-123456789012";

const POLL_INTERVAL: Duration = Duration::from_millis(100);
const TROUBLE_INTERVAL: Duration = Duration::from_secs(1);
/// Reasons of a waiting container that name its image as the trouble.
const IMAGE_TROUBLES: [&str; 3] = ["ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName"];
const LOG_LINES: i64 = 200;
const REVISION: &str = "deployment.kubernetes.io/revision";
const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// The environments' `Materialize` objects, read and written at `version`.
pub fn materializes(client: &Client, version: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("materialize.cloud", version, "Materialize");
    Api::namespaced_with(
        client.clone(),
        ENVIRONMENT_NAMESPACE,
        &ApiResource::from_gvk(&kind),
    )
}

/// The operator's pods of the current generation: those of the ReplicaSet whose revision is the Deployment's.
pub async fn operator_pods(client: &Client) -> Result<Vec<Pod>> {
    let deployment = Api::<Deployment>::namespaced(client.clone(), OPERATOR_NAMESPACE)
        .get(OPERATOR)
        .await?;
    let ours = ListParams::default().labels("app.kubernetes.io/instance=operator");
    let replica_sets = Api::<ReplicaSet>::namespaced(client.clone(), OPERATOR_NAMESPACE)
        .list(&ours)
        .await?;
    let revision = deployment
        .annotations()
        .get(REVISION)
        .context("the operator's Deployment has no revision yet")?;
    let current = replica_sets
        .iter()
        .find(|set| set.annotations().get(REVISION) == Some(revision));
    let hash = current
        .and_then(|set| set.labels().get(POD_TEMPLATE_HASH))
        .context("no ReplicaSet has the Deployment's revision")?;
    let pods = Api::<Pod>::namespaced(client.clone(), OPERATOR_NAMESPACE)
        .list(&ours)
        .await?;
    let wanted = |pod: &Pod| {
        pod.metadata.deletion_timestamp.is_none()
            && pod.labels().get(POD_TEMPLATE_HASH) == Some(hash)
    };
    Ok(pods.into_iter().filter(wanted).collect())
}

/// The names of those of the operator's pods that are ready.
pub async fn ready_operator_pods(client: &Client) -> Result<Vec<String>> {
    Ok(operator_pods(client)
        .await?
        .iter()
        .filter(|pod| is_ready(pod))
        .map(ResourceExt::name_any)
        .collect())
}

/// Whether the pod's condition `Ready` is true.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| {
        all.iter()
            .any(|one| one.type_ == "Ready" && one.status == "True")
    })
}

/// The restart count of each container of `pods`, by pod and container.
pub fn restart_counts(pods: &[Pod]) -> BTreeMap<String, i32> {
    let containers = |pod: &Pod| {
        let statuses = pod
            .status
            .as_ref()
            .and_then(|status| status.container_statuses.clone())
            .unwrap_or_default();
        let name = pod.name_any();
        statuses
            .into_iter()
            .map(move |status| (format!("{name}/{}", status.name), status.restart_count))
    };
    pods.iter().flat_map(containers).collect()
}

/// The phases of the environment's pods with the label `materialize.cloud/app` or `app` set to `app`.
pub async fn pod_phases(client: &Client, selector: &str) -> Result<Vec<String>> {
    let pods = Api::<Pod>::namespaced(client.clone(), ENVIRONMENT_NAMESPACE);
    let pods = pods.list(&ListParams::default().labels(selector)).await?;
    let phase = |pod: Pod| {
        pod.status
            .and_then(|status| status.phase)
            .unwrap_or_default()
    };
    Ok(pods.into_iter().map(phase).collect())
}

/// The Lease `orchestratord`.
pub fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), OPERATOR_NAMESPACE)
}

/// Who holds the Lease, if anyone does.
pub async fn lease_holder(client: &Client) -> Result<Option<String>> {
    let spec = lease_spec(client).await?;
    Ok(spec
        .and_then(|spec| spec.holder_identity)
        .filter(|holder| !holder.is_empty()))
}

/// How often the Lease has changed hands.
pub async fn lease_transitions(client: &Client) -> Result<i32> {
    let spec = lease_spec(client).await?;
    Ok(spec
        .and_then(|spec| spec.lease_transitions)
        .unwrap_or_default())
}

async fn lease_spec(client: &Client) -> Result<Option<LeaseSpec>> {
    let lease = leases(client).get(LEASE).await;
    Ok(lease.context("reading the Lease")?.spec)
}

/// The metrics page of one of the operator's pods, read through the API server.
pub async fn operator_metrics(client: &Client, pod: &str) -> Result<String> {
    let path = format!("/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{pod}:3100/proxy/metrics");
    let request = http::Request::get(path).body(Vec::new())?;
    client
        .request_text(request)
        .await
        .with_context(|| format!("reading the metrics of pod {pod}"))
}

/// The value of the metric `name`, which carries no labels.
pub fn parse_gauge(metrics: &str, name: &str) -> Option<f64> {
    let values = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.filter_map(|value| value.trim().parse().ok()).next()
}

/// Does `work` until its end, or until a pod of `namespace` cannot get its image, which no waiting mends.
pub async fn unless_an_image_fails<T>(
    client: &Client,
    namespace: &str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let trouble = async {
        loop {
            // An API server that does not answer is the business of `work`.
            let listed = pods
                .list(&ListParams::default())
                .await
                .into_iter()
                .flatten();
            if let Some(trouble) = listed.into_iter().find_map(|pod| image_trouble(&pod)) {
                return trouble;
            }
            tokio::time::sleep(TROUBLE_INTERVAL).await;
        }
    };
    tokio::select! {
        outcome = work => outcome,
        trouble = trouble => Err(anyhow!(trouble)),
    }
}

fn image_trouble(pod: &Pod) -> Option<String> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find_map(|status| {
        let waiting = status.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting
            .reason
            .as_deref()
            .filter(|reason| IMAGE_TROUBLES.contains(reason))?;
        let message = waiting.message.as_deref().unwrap_or_default();
        Some(format!(
            "pod {} cannot get image {}: {reason}: {message}",
            pod.name_any(),
            status.image
        ))
    })
}

/// The newest log lines of all of the operator's pods, deposed generations included.
pub async fn operator_logs(client: &Client) -> Result<String> {
    let pods = Api::<Pod>::namespaced(client.clone(), OPERATOR_NAMESPACE);
    let tail = LogParams {
        tail_lines: Some(LOG_LINES),
        ..LogParams::default()
    };
    let mut text = String::new();
    for pod in pods
        .list(&ListParams::default().labels("app.kubernetes.io/instance=operator"))
        .await?
    {
        let name = pod.name_any();
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.clone())
            .unwrap_or_default();
        let restarts: i32 = restart_counts(std::slice::from_ref(&pod)).values().sum();
        text += &format!(
            "--- pod {name}: {phase}, ready {}, {restarts} restarts\n",
            is_ready(&pod)
        );
        text += &pods
            .logs(&name, &tail)
            .await
            .unwrap_or_else(|error| format!("no logs: {error}\n"));
        if restarts > 0 {
            let before = LogParams {
                previous: true,
                ..tail.clone()
            };
            let logs = pods
                .logs(&name, &before)
                .await
                .unwrap_or_else(|error| format!("no logs: {error}\n"));
            text += &format!("--- pod {name}, before its last restart\n{logs}");
        }
    }
    Ok(text)
}

/// Looks again and again until `look` is content, for at most `limit`; else the error is what was found last.
pub async fn eventually<T, F>(limit: Duration, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let deadline = Instant::now() + limit;
    let mut found = anyhow!("no answer");
    loop {
        match tokio::time::timeout_at(deadline, look()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => found = error,
            Err(_) => return Err(found.context(format!("still so after {} s", limit.as_secs()))),
        }
        if Instant::now() + POLL_INTERVAL > deadline {
            return Err(found.context(format!("still so after {} s", limit.as_secs())));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_is_found_among_other_metrics() {
        let page = "# TYPE orchestratord_is_leader gauge\norchestratord_is_leader_total 7\norchestratord_is_leader 1\n";
        assert_eq!(parse_gauge(page, "orchestratord_is_leader"), Some(1.0));
    }

    #[test]
    fn a_gauge_with_labels_or_garbage_does_not_count() {
        let page = "orchestratord_is_leader{pod=\"a\"} 1\norchestratord_is_leader yes\n";
        assert_eq!(parse_gauge(page, "orchestratord_is_leader"), None);
    }

    #[test]
    fn a_pod_that_waits_for_its_image_says_which() {
        let pod = |reason: &str| -> Pod {
            let state = serde_json::json!({"waiting": {"reason": reason, "message": "not found"}});
            let container = serde_json::json!({
                "name": "c", "image": "a/b:1", "imageID": "", "ready": false, "restartCount": 0, "state": state,
            });
            let pod = serde_json::json!({"metadata": {"name": "p"}, "status": {"containerStatuses": [container]}});
            serde_json::from_value(pod).unwrap()
        };
        assert_eq!(image_trouble(&pod("ContainerCreating")), None);
        let trouble = image_trouble(&pod("ImagePullBackOff")).unwrap();
        assert_eq!(
            trouble,
            "pod p cannot get image a/b:1: ImagePullBackOff: not found"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_found_last_is_the_error() {
        let mut looks = 0;
        let error = eventually::<(), _>(Duration::from_secs(1), || {
            looks += 1;
            let found = anyhow!("look {}", looks.min(3));
            async { Err(found) }
        });
        assert_eq!(
            format!("{:#}", error.await.unwrap_err()),
            "still so after 1 s: look 3"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_is_cut_off() {
        let error = eventually::<(), _>(Duration::from_secs(1), std::future::pending);
        assert!(error.await.is_err());
    }
}
