//! The pod that this process is.
//!
//! The leader makes its own pod the costliest to delete, so that a rolling update replaces it
//! last: one change of leader per rollout.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Pods of a ReplicaSet with a lower cost are deleted first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

const PATCH_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_PERIOD: Duration = Duration::from_secs(5);

/// Keeps the deletion cost of the pod `name` in step with `leading`, until its sender is gone.
///
/// Writes nothing but that annotation of that pod, so it needs no term.
pub async fn follow_leadership(
    client: Client,
    namespace: String,
    name: String,
    mut leading: watch::Receiver<bool>,
) {
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let mut told = false;
    loop {
        let cost = leading.borrow_and_update().then_some("1000");
        let patch = json!({"metadata": {"annotations": {DELETION_COST: cost}}});
        let params = PatchParams::default();
        let patch = Patch::Merge(&patch);
        let patched = pods.patch_metadata(&name, &params, &patch);
        let failure = match timeout(PATCH_TIMEOUT, patched).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("no answer in time".to_owned()),
        };
        let changed = match failure {
            None => leading.changed().await,
            Some(error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(
                        pod = name,
                        error,
                        "cannot set the pod's deletion cost, so a rolling update may change the leader more than once; \
                         will go on trying"
                    );
                }
                tokio::select! {
                    changed = leading.changed() => changed,
                    () = sleep(RETRY_PERIOD) => Ok(()),
                }
            }
        };
        if changed.is_err() {
            return;
        }
    }
}
