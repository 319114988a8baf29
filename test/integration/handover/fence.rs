//! Only the leader can write: by its own fence, and by the API server's.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::{Api, Client, CustomResourceExt};
use mzcompose::client::connect;
use mzcompose::control_plane::ControlPlane;
use orchestratord::api::materialize::v1alpha1::Materialize;
use orchestratord::api::registration;
use orchestratord::operator::LEASE;
use rand::RngExt;
use rustix::process::Signal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::candidate::{FENCED, Replica, Settings};
use super::world::{ALL, Audit, World, tell, wait_for};
use crate::chart::render_in;

/// How often leadership changes hands in a storm.
const CHANGES: usize = 100;
/// The same where there are two storms.
const FEWER_CHANGES: usize = 50;
/// Generous: a storm takes about a minute.
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
    let mut dead: Option<usize> = None;
    let (mut holders, mut last) = (0, None);
    for round in 0.. {
        let idle = [frozen, dead];
        wait_for("one to lead", async || leader(&replicas, idle).is_some()).await;
        let Some(now) = leader(&replicas, idle) else {
            continue;
        };
        if let Some(dead) = dead.take() {
            replicas[dead] = world.start(&settings[dead]);
        }
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
            // Rare, for they take a whole lease duration.
            13 => {
                replicas[now].kill();
                dead = Some(now);
            }
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
        tokio::time::sleep(match round % 20 {
            // Time enough for one that was frozen to write what is too late by any measure.
            8 => 2 * LAG,
            _ => Duration::from_millis(rand::rng().random_range(0..100)),
        })
        .await;
    }
}

fn leader(replicas: &[Replica], idle: [Option<usize>; 2]) -> Option<usize> {
    let mut alive = (0..replicas.len()).filter(|index| !idle.contains(&Some(*index)));
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

async fn fence_stands(world: &World, settings: &[Settings]) {
    wait_for("the fence to stand", async || {
        refused(world, settings).await >= NAMES.len() - 1
    })
    .await;
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

/// Puts up the chart's own server fence; it admits writes of the pod that this Lease names.
async fn raise_server_fence(world: &World, lease: &str) {
    let values = "operator: {leaderElection: {serverFence: true}}";
    for mut object in render_in(&world.namespace, values) {
        let kind = object["kind"].as_str().unwrap().to_owned();
        let resource = match &*kind {
            "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
            "ValidatingAdmissionPolicyBinding" => {
                object["spec"]["paramRef"]["name"] = json!(lease);
                "validatingadmissionpolicybindings"
            }
            _ => continue,
        };
        apply(world, &kind, resource, &object).await;
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

/// What writers behind their term's fence were told of the API server's.
fn told_of_refusals(world: &World) -> Vec<String> {
    let is_of_fenced = format!("refused: {FENCED}: ");
    let mut told = vec![];
    for name in NAMES {
        // One that was never started has none.
        let log = std::fs::read_to_string(world.folder.path().join(name)).unwrap_or_default();
        let lines = log.lines().filter(|line| line.starts_with(&is_of_fenced));
        let told_of = lines.filter(|line| line.contains("only the leader may write"));
        told.extend(told_of.map(str::to_owned));
    }
    told
}

/// Beside writers behind their term's fence are some without, that never end: only the API server
/// is left to refuse theirs, and must not refuse the others' for longer than a new leader waits.
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
    raise_server_fence(&world, LEASE).await;
    fence_stands(&world, &settings).await;
    let before = world.audit();
    storm(&world, &settings, CHANGES).await;
    let both = world.audit();
    let slipped = |audit: &Audit, lag| audit.slipped(lag, str::to_owned).len();
    let with = |lag| slipped(&both, lag) - slipped(&before, lag);
    let (off, off_late) = (slipped(&without, Duration::ZERO), slipped(&without, LAG));
    let (on, on_late) = (with(Duration::ZERO), with(LAG));
    tell(&format!(
        "the fence of the server: {off} of {} writes accepted from others than the holder with it off, \
         {off_late} of them {LAG:?} late; {on} of {} with it on, {on_late} of them as late; \
         new leaders waited out {} refusals",
        without.writes(),
        both.writes() - before.writes(),
        both.refusals() - before.refusals(),
    ));
    assert!(off_late > 0, "the writers are no threat");
    assert!(on < off / 2, "most are let through");
    assert_eq!(on_late, 0);
    assert!(both.writes() > before.writes(), "the leader is refused too");
    assert_eq!(told_of_refusals(&world), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_fences_together_let_only_the_leader_write() {
    let world = World::shared().await;
    let mut settings = pods(&world).await;
    for one in &mut settings {
        one.admission_lag = Duration::from_secs(2);
    }
    raise_server_fence(&world, LEASE).await;
    fence_stands(&world, &settings).await;
    storm(&world, &settings, FEWER_CHANGES).await;
    let audit = world.audit();
    assert!(audit.writes() > 0, "the leader is refused too");
    assert_eq!(audit.slipped(Duration::ZERO, str::to_owned), [""; 0]);
    assert_eq!(told_of_refusals(&world), [""; 0]);
}

/// A Lease of the test's own stands for what the API server still sees of the real one.
#[tokio::test]
async fn a_new_leader_waits_until_the_server_sees_it() {
    let world = World::shared().await;
    let mut settings = pods(&world).await.swap_remove(0);
    settings.admission_lag = Duration::from_secs(60);
    raise_server_fence(&world, "late").await;
    see_holder(&world, "late", "nobody").await;
    let of_pod = connect(&settings.kubeconfig).await.unwrap();
    wait_for("the fence to stand", async || {
        write(&of_pod, &world.namespace, true).await.is_err()
    })
    .await;

    let leader = world.start(&settings);
    leader.begun().await;
    wait_for("its writes to be forbidden", async || {
        world.audit().refusals() > 0
    })
    .await;
    assert_eq!(world.audit().writes(), 0);
    see_holder(&world, "late", &settings.pod).await;
    wait_for("its writes to be admitted", async || {
        world.audit().writes() > 0
    })
    .await;
    assert_eq!(told_of_refusals(&world), [""; 0]);
}

async fn see_holder(world: &World, lease: &str, holder: &str) {
    let object = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": lease},
        "spec": {"holderIdentity": holder},
    });
    let params = PatchParams::apply("test").force();
    let leases = world.leases();
    leases
        .patch(lease, &params, &Patch::Apply(&object))
        .await
        .unwrap();
}

/// Without a Lease nobody leads. The API server asks for it before it asks who writes, so this is
/// felt by all who write the operator's own objects, and by nobody else.
#[tokio::test]
async fn a_missing_lease_shuts_the_operators_objects_until_there_is_one() {
    let control_plane = ControlPlane::private().await.unwrap();
    let world = World::on(control_plane.access().clone()).await;
    let settings = pods(&world).await;
    create_environment(&world).await;
    raise_server_fence(&world, LEASE).await;
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
    write_status(&of_pod, &world.namespace).await.unwrap();
    let refused = write_status(&of_other, &world.namespace).await.unwrap_err();
    assert!(refused.to_string().contains(told), "{refused}");
    write_exempt(&of_other, &world.namespace).await.unwrap();
}

/// An environment, and every right for the operator, so that the fence alone refuses what it writes.
async fn create_environment(world: &World) {
    let definitions = registration::crds(None, &[]);
    registration::register(&world.client, &definitions)
        .await
        .unwrap();
    let binding = json!({
        "metadata": {"name": "orchestratord"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "orchestratord", "namespace": world.namespace}],
    });
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    create(&bindings, binding).await.unwrap();
    let spec = json!({"environmentdImageRef": "environmentd:v26.40.0", "backendSecretName": "s"});
    let environment = json!({
        "apiVersion": "materialize.cloud/v1alpha1", "kind": "Materialize",
        "metadata": {"name": "demo"}, "spec": spec,
    });
    let environments: Api<Materialize> = Api::namespaced(world.client.clone(), &world.namespace);
    create(&environments, environment).await.unwrap();
}

async fn create<K>(api: &Api<K>, object: Value) -> kube::Result<K>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await
}

async fn write_status(client: &Client, namespace: &str) -> kube::Result<Materialize> {
    let environments: Api<Materialize> = Api::namespaced(client.clone(), namespace);
    let status = json!({"status": {
        "resourceId": "a", "activeGeneration": 1, "resourcesHash": "", "conditions": [],
        "lastCompletedRolloutRequest": "00000000-0000-0000-0000-000000000000",
    }});
    let params = PatchParams::default();
    let patch = Patch::Merge(&status);
    environments.patch_status("demo", &params, &patch).await
}

/// Writes what every replica may, whoever leads: a definition, its own pod's cost, and an Event.
async fn write_exempt(client: &Client, namespace: &str) -> kube::Result<()> {
    let cost = json!({"metadata": {"annotations": {
        "controller.kubernetes.io/pod-deletion-cost": "1000",
    }}});
    let (params, cost) = (PatchParams::default(), Patch::Merge(&cost));
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = Materialize::crd_name();
    definitions
        .patch_metadata(definition, &params, &cost)
        .await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    pods.patch_metadata(NAMES[1], &params, &cost).await?;
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let event = json!({
        "metadata": {"name": "demo"},
        "involvedObject": {"kind": "Materialize", "name": "demo", "namespace": namespace},
    });
    create(&events, event).await.map(|_| ())
}
