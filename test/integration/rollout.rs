//! Rollouts on a real control plane: real controllers make pods, the test makes them ready, and
//! environmentd is its stand-in.

mod panic;
mod world;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use orchestratord::api::materialize::RolloutStrategy;
use orchestratord::api::materialize::v1alpha1::Materialize;
use orchestratord::api::{Balancer, Console};
use serde_json::json;
use uuid::Uuid;

use world::{IMAGE, World, condition, is_settled};

/// Names of all objects of a kind in the environment's namespace that have the prefix of children.
macro_rules! children {
    ($world:expr, $kind:ty) => {{
        let mut names = $world.names::<$kind>().await;
        names.retain(|name| name.starts_with("mz"));
        names
    }};
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_rolls_out_changes_and_goes() {
    let world = World::start().await;
    world
        .create(json!({ "environmentdImageRef": IMAGE, "backendSecretName": "backend" }))
        .await;

    let first = world.wait("the first rollout", is_settled).await;
    let id = first.status.as_ref().unwrap().resource_id.clone();
    assert_eq!(first.status.as_ref().unwrap().active_generation, 1);
    assert_eq!(
        children!(world, StatefulSet),
        [format!("mz{id}-environmentd-1")]
    );
    world
        .wait_for::<Console>("the Console to be ready", "env", |console| {
            console
                .status
                .as_ref()
                .is_some_and(|status| status.conditions.iter().any(|c| c.status == "True"))
        })
        .await;
    assert!(
        world.has::<Balancer>("env").await,
        "the Balancer stands before the pass goes on to the Console"
    );
    assert_eq!(
        children!(world, Deployment),
        [format!("mz{id}-balancerd"), format!("mz{id}-console")]
    );

    let old = first.metadata.generation;
    world
        .patch(json!({ "spec": { "environmentdExtraArgs": ["--changed"] } }))
        .await;
    let asked = world
        .wait("approval to be awaited", |m| {
            condition(m).reason == "WaitingForApproval"
        })
        .await;
    assert_eq!(
        (
            asked.status.unwrap().active_generation,
            old < asked.metadata.generation
        ),
        (1, true)
    );

    world
        .patch(json!({ "spec": { "requestRollout": Uuid::new_v4() } }))
        .await;
    let second = world
        .wait("the second rollout", |m| is_settled(m) && active(m) == 2)
        .await;
    assert_eq!(
        children!(world, StatefulSet),
        [format!("mz{id}-environmentd-2")],
        "the first is torn down"
    );
    assert_eq!(
        children!(world, ConfigMap),
        [format!("mz{id}-console"), format!("mz{id}-listeners-2")]
    );
    let public = world
        .get::<Service>(&format!("mz{id}-environmentd"))
        .await
        .unwrap();
    let selected = public.spec.unwrap().selector.unwrap();
    assert_eq!(
        selected["materialize.cloud/name"],
        format!("mz{id}-environmentd-2")
    );
    assert_eq!(
        condition(&second).message,
        "Promoted generation 2, which serves now"
    );

    for reason in ["Applying", "Promoting", "Applied", "WaitingForApproval"] {
        let event = world.event(reason).await;
        assert_eq!(event.type_.as_deref(), Some("Normal"), "{reason}");
        let reporter = event.reporting_controller.as_deref();
        assert_eq!(
            reporter,
            Some("orchestratord.materialize.cloud/materialize"),
            "{reason}"
        );
        assert!(event.note.unwrap().contains("generation"), "{reason}");
    }

    world.delete_and_wait().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manual_rollout_waits_to_be_promoted_and_can_be_taken_back() {
    let world = World::start().await;
    world
        .create(json!({ "environmentdImageRef": IMAGE, "backendSecretName": "backend" }))
        .await;
    let first = world.wait("the first rollout", is_settled).await;
    let request = first.spec.request_rollout;
    let id = first.status.as_ref().unwrap().resource_id.clone();

    let change = json!({
        "environmentdExtraArgs": ["--changed"],
        "rolloutStrategy": RolloutStrategy::ManuallyPromote,
        "requestRollout": Uuid::new_v4(),
    });
    world.patch(json!({ "spec": change })).await;
    let parked = world
        .wait("the rollout to be ready", |m| {
            condition(m).reason == "ReadyToPromote"
        })
        .await;
    assert_eq!(
        (active(&parked), condition(&parked).status.as_str()),
        (1, "Unknown")
    );
    let both = [
        format!("mz{id}-environmentd-1"),
        format!("mz{id}-environmentd-2"),
    ];
    assert_eq!(children!(world, StatefulSet), both);

    world
        .patch(json!({ "spec": { "requestRollout": request } }))
        .await;
    world
        .wait("the rollout to be taken back", |m| {
            condition(m).reason == "WaitingForApproval"
        })
        .await;
    assert_eq!(children!(world, StatefulSet), both[..1]);

    world
        .patch(json!({ "spec": { "environmentdExtraArgs": null } }))
        .await;
    let back = world.wait("nothing to be left to do", is_settled).await;
    assert_eq!(active(&back), 1, "no rollout for what runs already");

    let again = Uuid::new_v4();
    let change = json!({ "environmentdExtraArgs": ["--changed"], "requestRollout": again });
    world.patch(json!({ "spec": change })).await;
    world
        .wait("the rollout to be ready again", |m| {
            condition(m).reason == "ReadyToPromote"
        })
        .await;
    world
        .patch(json!({ "spec": { "forcePromote": again.to_string() } }))
        .await;
    let promoted = world
        .wait("the promotion", |m| is_settled(m) && active(m) == 2)
        .await;
    assert_eq!(
        promoted.status.unwrap().last_completed_rollout_request,
        again
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_are_told_and_overcome_and_rollouts_time_out() {
    let world = World::start().await;
    let spec = json!({ "environmentdImageRef": IMAGE, "backendSecretName": "missing" });
    world.create(spec).await;
    let event = world.event("ReconcileFailed").await;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert!(
        event.note.as_ref().unwrap().contains("not found"),
        "{event:?}"
    );

    let line = "ERROR reconciling object{object.ref=Materialize.v1alpha1.materialize.cloud/env.environment";
    assert!(world.has_logged(line));
    assert!(world.has_logged("first reconcile of this term since_lease_ms="));

    world
        .patch(json!({ "spec": { "backendSecretName": "backend" } }))
        .await;
    let first = world.wait("the first rollout", is_settled).await;
    let id = first.status.as_ref().unwrap().resource_id.clone();

    world.hold_catchup();
    let asked = Uuid::new_v4();
    let change = json!({
        "environmentdExtraArgs": ["--changed"], "rolloutRequestTimeout": "1s", "requestRollout": asked,
    });
    world.patch(json!({ "spec": change })).await;
    let cancelled = world
        .wait("the timeout", |m| condition(m).reason == "RolloutTimeout")
        .await;
    assert_eq!(condition(&cancelled).status, "False");
    let status = cancelled.status.unwrap();
    assert_eq!(
        (
            status.last_completed_rollout_request,
            status.active_generation
        ),
        (asked, 1)
    );
    assert_eq!(
        children!(world, StatefulSet),
        [format!("mz{id}-environmentd-1")]
    );
}

fn active(materialize: &Materialize) -> u64 {
    materialize
        .status
        .as_ref()
        .map_or(0, |status| status.active_generation)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generation_that_is_refused_is_tried_again_at_leisure_and_goes_on_once_it_is_not() {
    let world = World::start().await;
    world.forbid_stateful_sets().await;
    world
        .create(json!({ "environmentdImageRef": IMAGE, "backendSecretName": "backend" }))
        .await;
    let refused = world
        .wait("the refusal", |m| condition(m).reason == "FailedDeploy")
        .await;
    let tries = world.failures();
    world.wait_for_failures(tries + 2).await;
    let still = world.get::<Materialize>("env").await.unwrap();
    assert_eq!(
        still.metadata.resource_version, refused.metadata.resource_version,
        "what is not news is not written"
    );
    let tries = world.failures();
    assert!(tries < 10, "{tries} tries");

    world.allow_stateful_sets().await;
    world
        .wait("the rollout to go on", |m| {
            condition(m).reason == "Applying"
        })
        .await;
    world.wait("the rollout", is_settled).await;
}
