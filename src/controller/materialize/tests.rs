//! What cannot be undone is not done on the word of an object that is not the newest.

use std::convert::Infallible;
use std::sync::Mutex;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use kube::runtime::reflector;
use kube::runtime::watcher::Event;
use rstest::rstest;
use serde_json::json;

use super::leader_api::Resolver;
use super::*;
use crate::api::Balancer;
use crate::controller::Settings;
use crate::controller::rendering::fixtures;
use crate::metrics::Metrics;

/// Methods and paths of what was written.
type Written = Arc<Mutex<Vec<String>>>;

/// An API server that has the environment in this version, and an environmentd of this status.
fn api_server(version: &'static str, status: &'static str) -> (Client, Written) {
    let written = Written::default();
    let notes = written.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (method, path) = (request.method(), request.uri().path());
        if method != Method::GET {
            notes.lock().unwrap().push(format!("{method} {path}"));
        }
        let (code, body) = if path.ends_with("/materializes/env") {
            (200, json!({"metadata": {"resourceVersion": version}}))
        } else if path.ends_with("/leader/status") {
            (200, json!({"status": status}))
        } else {
            let status = json!({"kind": "Status", "status": "Failure", "code": 404});
            (404, status)
        };
        let response = Response::builder().status(code);
        let response = response.body(Body::from(body.to_string().into_bytes()));
        async move { Ok::<_, Infallible>(response.unwrap()) }
    });
    (Client::new(service, "default"), written)
}

/// A term that knows of a Balancer of the environment, and wants none.
fn context(client: &Client) -> Context {
    let mut caches = Caches::start(client);
    let balancer: Balancer = serde_json::from_value(json!({
        "metadata": {"name": "env", "namespace": "ns", "ownerReferences": [
            {"apiVersion": "materialize.cloud/v1alpha1", "kind": "Materialize", "name": "env", "uid": "u"},
        ]},
        "spec": {"balancerdImageRef": "materialize/balancerd:v26.40.0"},
    }))
    .unwrap();
    let (balancers, mut writer) = reflector::store();
    writer.apply_watcher_event(&Event::Apply(balancer));
    caches.balancers = balancers;
    let options = fixtures::options(&[]);
    let settings = Settings {
        environment: Arc::new(options.environment),
        logging: Arc::new(options.logging),
        operator_namespace: "operators".to_owned(),
        identity: "a".to_owned(),
        environmentd: Resolver::ApiServerProxy,
    };
    Context::without_term(client.clone(), caches, settings, Metrics::new().unwrap())
}

/// An environment in version 1, of which generation 1 serves.
fn materialize() -> Materialize {
    serde_json::from_value(json!({
        "metadata": {"name": "env", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "environmentdImageRef": "materialize/environmentd:v26.40.0",
            "backendSecretName": "backend",
            "environmentId": "a0000000-0000-4000-8000-00000000000e",
        },
        "status": {
            "resourceId": "abc",
            "activeGeneration": 1,
            "lastCompletedRolloutRequest": "a0000000-0000-4000-8000-00000000000b",
            "resourcesHash": "",
            "conditions": [],
        },
    }))
    .unwrap()
}

#[derive(Clone, Copy)]
enum Step {
    TearDown,
    DeleteBalancer,
    Promote,
}

/// How a step ends, and what it writes first, while the newest object has this version.
async fn take(
    step: Step,
    status: &'static str,
    version: &'static str,
) -> (Result<(), Stop>, Option<String>) {
    let (client, written) = api_server(version, status);
    let context = context(&client);
    let pass = Pass {
        client: client.clone(),
        metrics: context.metrics.clone(),
        controller: MaterializeReconciler::NAME,
        applied: Arc::default(),
        polls: 0,
    };
    let materialize = materialize();
    let mut environment = Environment {
        context: &context,
        pass: &pass,
        publisher: &Publisher::new(client, MaterializeReconciler::NAME, "a"),
        status: materialize.status.clone().unwrap(),
        materialize,
    };
    let ended = match step {
        Step::TearDown => teardown::teardown(&environment, Generation(1)).await,
        Step::DeleteBalancer => children::balancer(&environment).await,
        Step::Promote => {
            let wanted = Wanted::render(&environment, Generation(2)).unwrap();
            promote::promote(&mut environment, &wanted, true).await
        }
    };
    let first = written.lock().unwrap().first().cloned();
    (ended, first)
}

#[rstest]
#[case::teardown(Step::TearDown, "", "DELETE", "/statefulsets/mzabc-environmentd-1")]
#[case::balancer(Step::DeleteBalancer, "", "DELETE", "/balancers/env")]
#[case::promotion(Step::Promote, "ReadyToPromote", "POST", "/leader/promote")]
#[case::skipped_catch_up(Step::Promote, "Initializing", "POST", "/leader/skip-catchup")]
#[tokio::test]
async fn nothing_final_is_done_on_the_word_of_an_old_object(
    #[case] step: Step,
    #[case] status: &'static str,
    #[case] method: &str,
    #[case] path: &str,
) {
    let (ended, written) = take(step, status, "2").await;
    assert!(
        matches!(ended, Err(Stop::Early(Outcome::Wait(_)))),
        "{ended:?}"
    );
    assert_eq!(written, None);
    let (_, written) = take(step, status, "1").await;
    let written = written.unwrap();
    assert!(
        written.starts_with(method) && written.ends_with(path),
        "{written}"
    );
}
