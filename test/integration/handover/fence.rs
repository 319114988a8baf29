//! Only the leader can write: by its own fence, and by the API server's.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::{Api, Client};
use mzcompose::client::connect;
use mzcompose::control_plane::ControlPlane;
use rand::RngExt;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::candidate::{Replica, Settings};
use super::world::{ALL, Audit, World, tell, wait_for};
use crate::chart::render_in;

/// How often leadership changes hands in a storm.
const CHANGES: usize = 100;
/// The same where there are two storms.
const FEWER_CHANGES: usize = 50;
/// Generous: a storm takes less than a minute.
const STORM_BOUND: Duration = Duration::from_secs(300);
/// How late an API server may see who holds the Lease: its policies look at a cache.
const LAG: Duration = Duration::from_secs(1);
const NAMES: [&str; 3] = ["pod-a", "pod-b", "pod-c"];

/// Leaders are stopped, killed and frozen until leadership has changed hands so often, and each
/// writes as fast as it can all the while.
async fn storm(world: &World, settings: &[Settings], changes: usize) {
    let stormed = tokio::time::timeout(STORM_BOUND, strike(world, settings, changes));
    stormed.await.expect("that many changes in time");
}

async fn strike(world: &World, settings: &[Settings], changes: usize) {
    let mut replicas: Vec<Replica> = settings.iter().map(|one| world.start(one)).collect();
    let mut frozen: Option<usize> = None;
    let (mut holders, mut last) = (0, None);
    for round in 0.. {
        wait_for("one to lead", async || leader(&replicas, frozen).is_some()).await;
        let Some(now) = leader(&replicas, frozen) else {
            continue;
        };
        holders += usize::from(last.replace(now) != Some(now));
        if holders > changes {
            return;
        }
        match round % 20 {
            // Its container restarts: nothing changes.
            3 => {
                replicas[now].kill();
                replicas[now] = world.start(&settings[now]);
            }
            // Rare, for it takes a whole lease duration.
            7 => {
                replicas[now].signal(Signal::STOP);
                frozen = Some(now);
            }
            8 => {
                if let Some(frozen) = frozen.take() {
                    replicas[frozen].signal(Signal::CONT);
                    replicas[frozen].ended().await;
                }
            }
            _ => {
                replicas[now].stop().await;
                replicas[now] = world.start(&settings[now]);
            }
        }
        let pause = rand::rng().random_range(0..100);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

fn leader(replicas: &[Replica], frozen: Option<usize>) -> Option<usize> {
    let mut alive = (0..replicas.len()).filter(|index| Some(*index) != frozen);
    alive.find(|index| replicas[*index].leads())
}

/// Service accounts' tokens, bound to pods, so that the API server knows which pod writes.
pub async fn pods(world: &World) -> Vec<Settings> {
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), &world.namespace);
    let account = json!({"metadata": {"name": "orchestratord"}});
    let account = serde_json::from_value(account).unwrap();
    accounts
        .create(&PostParams::default(), &account)
        .await
        .unwrap();
    let user = format!("system:serviceaccount:{}:orchestratord", world.namespace);
    grant(world, &user).await;
    let mut settings = vec![];
    for name in NAMES {
        let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"serviceAccountName": "orchestratord", "containers": [{"name": "c", "image": "i"}]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
        let request = json!({"spec": {
            "audiences": [],
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": pod.metadata.uid},
        }});
        let request: TokenRequest = serde_json::from_value(request).unwrap();
        let params = PostParams::default();
        let token = accounts
            .create_token_request("orchestratord", &params, &request)
            .await;
        let token = token.unwrap().status.unwrap().token;
        let mut config = Kubeconfig::read_from(world.access.kubeconfig()).unwrap();
        config.auth_infos[0].auth_info =
            Some(serde_json::from_value(json!({"token": token})).unwrap());
        let path = world.folder.path().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, serde_json::to_string(&config).unwrap()).unwrap();
        let mut one = world.settings_of(name, path);
        one.lease_duration = Duration::from_secs(2);
        one.renew_deadline = Duration::from_millis(1_500);
        one.retry_period = Duration::from_millis(300);
        one.call_timeout = Duration::from_millis(500);
        settings.push(one);
    }
    settings
}

/// Writes an object that the operator could have made, by its label, or one that it did not.
async fn write(client: &Client, namespace: &str, is_operators: bool) -> kube::Result<ConfigMap> {
    let objects: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let (name, labels) = match is_operators {
        true => (
            "operators",
            json!({"materialize.cloud/mz-resource-id": "test"}),
        ),
        false => ("others", json!({})),
    };
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels},
    });
    let params = PatchParams::apply("test").force();
    objects.patch(name, &params, &Patch::Apply(&object)).await
}

/// How many of the pods may not write.
async fn refused(world: &World, settings: &[Settings]) -> usize {
    let mut refused = 0;
    for one in settings {
        let client = connect(&one.kubeconfig).await.unwrap();
        refused += usize::from(write(&client, &world.namespace, true).await.is_err());
    }
    refused
}

async fn grant(world: &World, user: &str) {
    world.grant("orchestratord", &ALL).await;
    let bindings = Api::<k8s_openapi::api::rbac::v1::RoleBinding>::namespaced(
        world.client.clone(),
        &world.namespace,
    );
    let subjects = json!({"subjects": [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user},
    ]});
    let (params, patch) = (PatchParams::default(), Patch::Merge(subjects));
    bindings
        .patch("orchestratord", &params, &patch)
        .await
        .unwrap();
}

/// Puts up the chart's own server fence.
async fn raise_server_fence(world: &World) {
    let values = "operator: {leaderElection: {serverFence: true}}";
    for object in render_in(&world.namespace, values) {
        let kind = object["kind"].as_str().unwrap();
        let resource = match kind {
            "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
            "ValidatingAdmissionPolicyBinding" => "validatingadmissionpolicybindings",
            _ => continue,
        };
        apply(world, kind, resource, &object).await;
    }
}

async fn apply(world: &World, kind: &str, plural: &str, object: &Value) {
    let resource = kube::api::ApiResource {
        group: "admissionregistration.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "admissionregistration.k8s.io/v1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(world.client.clone(), &resource);
    let name = object["metadata"]["name"].as_str().unwrap();
    let params = PatchParams::apply("test").force();
    api.patch(name, &params, &Patch::Apply(object))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fence_of_each_term_lets_only_the_leader_write() {
    let world = World::shared().await;
    let settings = pods(&world).await;
    storm(&world, &settings, CHANGES).await;
    let audit = world.audit();
    let slipped = audit.slipped(Duration::ZERO, str::to_owned);
    tell(&format!(
        "the fence of each term: {} of {} writes accepted from others than the holder, {} holders",
        slipped.len(),
        audit.writes(),
        audit.changes(),
    ));
    assert!(audit.changes() > CHANGES, "{}", audit.changes());
    assert_eq!(slipped, [""; 0]);
}

/// With no fence of their own and writers that never end, only the API server is left to refuse.
#[tokio::test(flavor = "multi_thread")]
async fn the_fence_of_the_server_lets_only_the_leader_write() {
    let world = World::shared().await;
    let mut settings = pods(&world).await;
    for one in &mut settings {
        one.is_rogue = true;
        one.admission_lag = Duration::from_secs(2);
    }
    storm(&world, &settings, FEWER_CHANGES).await;
    let without = world.audit();
    raise_server_fence(&world).await;
    wait_for("the fence to stand", async || {
        refused(&world, &settings).await >= NAMES.len() - 1
    })
    .await;
    let before = world.audit();
    storm(&world, &settings, FEWER_CHANGES).await;
    let both = world.audit();
    let slipped = |audit: &Audit, lag| audit.slipped(lag, str::to_owned).len();
    let with = |lag| slipped(&both, lag) - slipped(&before, lag);
    println!(
        "accepted from others than the holder: {} of {} without the server's fence, {} of {} with it, {} of them {LAG:?} late",
        slipped(&without, Duration::ZERO),
        without.writes(),
        with(Duration::ZERO),
        both.writes() - before.writes(),
        with(LAG),
    );
    assert!(
        slipped(&without, Duration::ZERO) > 0,
        "the writers are no threat"
    );
    assert!(both.writes() > before.writes(), "the leader is refused too");
    assert_eq!(with(LAG), 0);
}

/// Without a Lease nobody leads. The API server asks for it before it asks who writes, so this is
/// felt by all who write the operator's own objects, and by nobody else.
#[tokio::test]
async fn a_missing_lease_shuts_the_operators_objects_until_there_is_one() {
    let control_plane = ControlPlane::private().await.unwrap();
    let world = World::on(control_plane.access().clone()).await;
    let settings = pods(&world).await;
    raise_server_fence(&world).await;
    let of_pod = connect(&settings[0].kubeconfig).await.unwrap();
    wait_for("the fence to stand", async || {
        write(&of_pod, &world.namespace, true).await.is_err()
    })
    .await;
    write(&world.client, &world.namespace, false).await.unwrap();

    let leader = world.start(&settings[0]);
    leader.begun().await;
    wait_for("the fence to open for the leader", async || {
        write(&of_pod, &world.namespace, true).await.is_ok()
    })
    .await;
    write(&world.client, &world.namespace, true).await.unwrap();
    let of_other = connect(&settings[1].kubeconfig).await.unwrap();
    let refused = write(&of_other, &world.namespace, true).await.unwrap_err();
    let told = "only the leader may write: pod-a leads, not pod-b";
    assert!(refused.to_string().contains(told), "{refused}");
}
