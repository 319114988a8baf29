//! Calls about the Lease go ahead of other workloads' at the API server.

use http::Request;
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use mzcompose::client::connect;

use super::fence::pods;
use super::world::{World, wait_for};
use crate::chart::render_in;

/// The uid of the FlowSchema that a read falls under.
async fn schema_of(client: &Client, path: &str) -> Option<String> {
    let request = Request::get(path)
        .body(kube::client::Body::empty())
        .unwrap();
    let answer = client.send(request).await.unwrap();
    let schema = answer.headers().get("x-kubernetes-pf-flowschema-uid")?;
    Some(schema.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn only_calls_about_the_own_lease_fall_under_the_charts_flow_schema() {
    let world = World::shared().await;
    let settings = pods(&world).await;
    let values = "operator: {leaderElection: {flowSchema: true}}";
    let objects = render_in(&world.namespace, values);
    let object = objects
        .iter()
        .find(|object| object["kind"] == "FlowSchema")
        .unwrap();
    let schemas: Api<FlowSchema> = Api::all(world.client.clone());
    let name = object["metadata"]["name"].as_str().unwrap();
    let params = PatchParams::apply("test").force();
    let schema = schemas
        .patch(name, &params, &Patch::Apply(object))
        .await
        .unwrap();

    let operator = connect(&settings[0].kubeconfig).await.unwrap();
    let namespace = &world.namespace;
    let leases = |namespace: &str| {
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/orchestratord")
    };
    wait_for("the FlowSchema to be in force", async || {
        schema_of(&operator, &leases(namespace)).await == schema.metadata.uid
    })
    .await;
    for other in [
        leases("default"),
        format!("/api/v1/namespaces/{namespace}/configmaps/x"),
    ] {
        assert_ne!(
            schema_of(&operator, &other).await,
            schema.metadata.uid,
            "{other}"
        );
    }
    let others = schema_of(&world.client, &leases(namespace)).await;
    assert_ne!(others, schema.metadata.uid, "another user");
    schemas
        .delete(name, &kube::api::DeleteParams::default())
        .await
        .unwrap();
}
