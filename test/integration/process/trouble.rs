//! What is wrong with an election, as one sees it from outside the operator's process.

use std::time::{Duration, Instant};

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::PostParams;
use kube::{Api, Client};
use mzcompose::control_plane::ControlPlane;
use rustix::process::Signal;
use serde_json::json;

use super::{Replica, has_event, value, wait_for};
use crate::handover::world::{ALL, World};

/// Gives a user every right that the operator needs but those on Leases.
async fn grant_all_but_leases(client: &Client, user: &str) {
    let groups = [
        "",
        "apiextensions.k8s.io",
        "apps",
        "cert-manager.io",
        "events.k8s.io",
        "materialize.cloud",
        "networking.k8s.io",
        "rbac.authorization.k8s.io",
    ];
    let role = json!({
        "metadata": {"name": user},
        "rules": [{"apiGroups": groups, "resources": ["*"], "verbs": ["*"]}],
    });
    let binding = json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    let role: ClusterRole = serde_json::from_value(role).unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(binding).unwrap();
    let (roles, bindings) = (Api::all(client.clone()), Api::all(client.clone()));
    let params = PostParams::default();
    roles.create(&params, &role).await.unwrap();
    bindings.create(&params, &binding).await.unwrap();
}

/// There is no running without an election: who may not use the Lease never leads.
#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_on_the_lease_are_told_and_nobody_leads_without() {
    let control_plane = ControlPlane::private().await.unwrap();
    let world = World::on(control_plane.access().clone()).await;
    let kubeconfig = world.user("operator", &ALL).await;
    world.revoke("operator").await;
    grant_all_but_leases(&world.client, &world.user_name("operator")).await;
    let namespace = format!("--leader-election-namespace={}", world.namespace);
    let folder = world.folder.path();
    let replica = Replica::start_with(&kubeconfig, folder, "alone", &[&namespace]);

    let told = "alone may not use the Lease (forbidden), so it cannot lead: \
                grant it get, create and update on leases";
    wait_for("the missing rights to be told of", async || {
        has_event(control_plane.access(), "LeaseForbidden", told).await
    })
    .await;
    let failures = "orchestratord_lease_call_failures_total{kind=\"forbidden\"}";
    let metrics = replica.metrics().await;
    assert!(value(&metrics, failures) >= 1.0);
    let starts = "orchestratord_term_starts_total{how=\"created\"}";
    assert_eq!(value(&metrics, starts), 0.0);
    wait_for("it to be ready", async || replica.is_ready().await).await;

    world.grant("operator", &ALL).await;
    wait_for("it to lead", async || replica.leads().await).await;
    assert_eq!(value(&replica.metrics().await, starts), 1.0);
    world.revoke("operator").await;
    wait_for("it to stand back", async || !replica.leads().await).await;
    let metrics = replica.metrics().await;
    let ends = "orchestratord_term_ends_total{reason=\"deadline\"}";
    assert_eq!(value(&metrics, ends), 1.0);
    assert!(replica.is_ready().await);
    world.grant("operator", &ALL).await;
    wait_for("it to lead again", async || replica.leads().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_of_one_identity_is_told_of_and_stays_ready() {
    let control_plane = ControlPlane::private().await.unwrap();
    let kubeconfig = control_plane.kubeconfig();
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--leader-election-namespace=default",
        "--leader-election-identity=same",
    ];
    let start = |pod| Replica::start_with(&kubeconfig, folder.path(), pod, &arguments);
    let first = start("first");
    wait_for("the first to lead", async || first.leads().await).await;
    let second = start("second");

    let told = "second and first both campaign as same; second stays a standby: \
                give each replica an identity of its own";
    wait_for("the duplicate to be told of", async || {
        has_event(control_plane.access(), "DuplicateIdentity", told).await
    })
    .await;
    for (replica, leads) in [(&first, 1.0), (&second, 0.0)] {
        let metrics = replica.metrics().await;
        assert_eq!(value(&metrics, "orchestratord_is_leader"), leads);
        let duplicate = value(&metrics, "orchestratord_duplicate_identity");
        assert_eq!(duplicate, 1.0 - leads);
        assert!(replica.is_ready().await);
    }
}

/// The code is 128 and the signal's number. Had the kernel ended it, there would be none; had it
/// stopped by itself, 0.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_a_stop_that_hangs_at_once() {
    let control_plane = ControlPlane::private().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--leader-election-namespace=default",
        "--leader-election-release-timeout=30s",
        "--termination-grace-period=90s",
    ];
    let kubeconfig = control_plane.kubeconfig();
    let mut replica = Replica::start_with(&kubeconfig, folder.path(), "alone", &arguments);
    wait_for("it to lead", async || replica.leads().await).await;
    control_plane.pause().unwrap();
    replica.signal(Signal::TERM);
    wait_for("the first signal to be heard", async || {
        matches!(replica.get("/readyz").await, Some((503, why)) if why.contains("shutting down"))
    })
    .await;
    let second = Instant::now();
    replica.signal(Signal::TERM);
    let code = Some(128 + Signal::TERM.as_raw());
    assert_eq!(replica.exit_code().await, code, "{}", replica.log());
    let took = second.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    control_plane.resume().unwrap();
}
