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

#[cfg(test)]
mod tests {
    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::Value;
    use tower_test::mock::{self, Handle};

    use super::*;

    type Server = Handle<Request<Body>, Response<Body>>;

    /// Answers the next request, and returns the cost that it sets.
    async fn cost(server: &mut Server) -> Value {
        let (request, answer) = server.next_request().await.unwrap();
        assert_eq!(request.method(), Method::PATCH);
        assert_eq!(request.uri().path(), "/api/v1/namespaces/ns/pods/a");
        let body = request.into_body().collect_bytes().await.unwrap();
        let patch: Value = serde_json::from_slice(&body).unwrap();
        let cost = patch["metadata"]["annotations"][DELETION_COST].clone();
        // A null that is missing would remove nothing.
        let expected = json!({"metadata": {"annotations": {DELETION_COST: cost}}});
        assert_eq!(patch, expected);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
        answer.send_response(Response::new(pod.to_string().into_bytes().into()));
        cost
    }

    #[tokio::test]
    async fn the_pod_is_costly_to_delete_while_it_leads() {
        let (service, mut server) = mock::pair();
        let client = Client::new(service, "default");
        let (leading, follow) = watch::channel(false);
        let (namespace, name) = ("ns".to_owned(), "a".to_owned());
        let following = tokio::spawn(follow_leadership(client, namespace, name, follow));
        assert_eq!(cost(&mut server).await, Value::Null);
        leading.send_replace(true);
        assert_eq!(cost(&mut server).await, json!("1000"));
        leading.send_replace(false);
        assert_eq!(cost(&mut server).await, Value::Null);
        drop(leading);
        following.await.unwrap();
        assert!(
            server.next_request().await.is_none(),
            "nothing else was sent"
        );
    }
}
