//! A control plane with the controllers on it, a kubelet that only says so, and stand-ins.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "everything here is part of a test"
)]

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Namespace, Pod, ResourceQuota, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Config, Resource, ResourceExt};
use mzcompose::control_plane::ControlPlane;
use orchestratord::api::materialize::v1alpha1::Materialize;
use orchestratord::api::registration;
use orchestratord::cli::{self, Invocation};
use orchestratord::controller::{self, Caches, Context, Resolver, Settings};
use orchestratord::election::{Candidate, Elector, Process, Term, Timings};
use orchestratord::metrics::Metrics;
use orchestratord::operator::LEASE;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stand_ins::environmentd::{Environmentd, MemoryCatalog, Options};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The image of the environment.
pub const IMAGE: &str = "materialize/environmentd:v26.40.0";
const NAMESPACE: &str = "environment";
/// Where the Lease is; an API server has it from the start.
const OPERATOR_NAMESPACE: &str = "default";
const NAME: &str = "env";
/// Generous: a rollout takes a second or two on idle cores.
pub const BOUND: Duration = Duration::from_secs(120);
/// Longer than any test.
const FOREVER: Duration = Duration::from_secs(3600);

/// What all operators of this process have logged, as text for people.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Stand-ins by the name of their Service.
pub type StandIns = Arc<Mutex<HashMap<String, Environmentd>>>;

pub struct World {
    client: Client,
    hold_catchup: Arc<Mutex<bool>>,
    metrics: Metrics,
    tasks: JoinSet<()>,
    control_plane: ControlPlane,
}

impl World {
    /// Starts everything, with an empty namespace and a good backend Secret.
    pub async fn start() -> Self {
        let (mut world, stand_ins) = Self::start_without_operator().await;
        let metrics = world.metrics.clone();
        let campaign = campaign(&world.control_plane, &world.client, stand_ins, metrics).await;
        world.tasks.spawn(campaign);
        world
    }

    /// Starts everything but an operator, which finds environmentd among the stand-ins.
    pub async fn start_without_operator() -> (Self, StandIns) {
        capture_log();
        let control_plane = ControlPlane::private().await.unwrap();
        let client = control_plane.access().client().await.unwrap();
        registration::register(&client, &registration::crds(None, &[]))
            .await
            .unwrap();
        create_namespace(&client).await;
        let stand_ins = StandIns::default();
        let hold_catchup = Arc::new(Mutex::new(false));
        let mut tasks = JoinSet::new();
        tasks.spawn(run_hollow_kubelet(
            client.clone(),
            stand_ins.clone(),
            hold_catchup.clone(),
        ));
        let world = Self {
            client,
            hold_catchup,
            metrics: Metrics::new().unwrap(),
            tasks,
            control_plane,
        };
        (world, stand_ins)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.control_plane.kubeconfig()
    }

    /// The operator's Lease.
    pub async fn lease(&self) -> LeaseSpec {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), OPERATOR_NAMESPACE);
        leases.get(LEASE).await.unwrap().spec.unwrap()
    }

    /// Creates the environment.
    pub async fn create(&self, spec: Value) {
        let object = json!({
            "apiVersion": "materialize.cloud/v1alpha1", "kind": "Materialize",
            "metadata": { "name": NAME, "namespace": NAMESPACE }, "spec": spec,
        });
        let object = serde_json::from_value(object).unwrap();
        self.api::<Materialize>()
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
    }

    /// Changes the environment.
    pub async fn patch(&self, patch: Value) {
        let api = self.api::<Materialize>();
        api.patch(NAME, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Generations that start from now on never catch up.
    pub fn hold_catchup(&self) {
        *self.hold_catchup.lock().unwrap() = true;
    }

    /// Waits until the environment is as it should be.
    pub async fn wait(&self, what: &str, is_there: impl Fn(&Materialize) -> bool) -> Materialize {
        self.wait_for(what, NAME, is_there).await
    }

    /// Waits until an object is as it should be.
    pub async fn wait_for<K: Namespaced>(
        &self,
        what: &str,
        name: &str,
        is_there: impl Fn(&K) -> bool,
    ) -> K {
        let fields = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut objects = watcher(self.api::<K>(), fields)
            .default_backoff()
            .applied_objects()
            .boxed();
        let mut last = None;
        let deadline = tokio::time::Instant::now() + BOUND;
        loop {
            match tokio::time::timeout_at(deadline, objects.next()).await {
                Ok(Some(Ok(object))) if is_there(&object) => return object,
                Ok(Some(Ok(object))) => last = Some(object),
                Ok(Some(Err(error))) => eprintln!("watch: {error}"),
                Ok(None) => panic!("the watch ended"),
                Err(_) => panic!("waited {BOUND:?} for {what}; last seen: {last:#?}"),
            }
        }
    }

    /// An Event about the environment with this reason, waited for.
    pub async fn event(&self, reason: &str) -> Event {
        let mut events = watcher(self.api::<Event>(), watcher::Config::default())
            .default_backoff()
            .applied_objects()
            .boxed();
        let found = async {
            while let Some(event) = events.next().await {
                if let Ok(event) = event
                    && event.reason.as_deref() == Some(reason)
                    && event
                        .regarding
                        .as_ref()
                        .is_some_and(|r| r.kind.as_deref() == Some("Materialize"))
                {
                    return event;
                }
            }
            panic!("the watch ended")
        };
        tokio::time::timeout(BOUND, found)
            .await
            .unwrap_or_else(|_| panic!("no Event {reason}"))
    }

    /// Sorted names of all objects of a kind.
    pub async fn names<K: Namespaced>(&self) -> Vec<String> {
        let objects = self.api::<K>().list(&ListParams::default()).await.unwrap();
        let mut names: Vec<_> = objects.iter().map(ResourceExt::name_any).collect();
        names.sort();
        names
    }

    pub async fn get<K: Namespaced>(&self, name: &str) -> Option<K> {
        self.api::<K>().get_opt(name).await.unwrap()
    }

    pub async fn has<K: Namespaced>(&self, name: &str) -> bool {
        self.get::<K>(name).await.is_some()
    }

    /// Deletes the environment, and waits until nothing holds it any more.
    pub async fn delete_and_wait(&self) {
        let api = self.api::<Materialize>();
        let uid = api.get(NAME).await.unwrap().uid().unwrap();
        api.delete(NAME, &DeleteParams::default()).await.unwrap();
        let gone = kube::runtime::conditions::is_deleted(&uid);
        let waited = kube::runtime::wait::await_condition(api, NAME, gone);
        tokio::time::timeout(BOUND, waited)
            .await
            .expect("the finalizer is removed")
            .unwrap();
    }

    /// Has the API server refuse every StatefulSet.
    pub async fn forbid_stateful_sets(&self) {
        let quota = json!({
            "metadata": { "name": "none" },
            "spec": { "hard": { "count/statefulsets.apps": "0" } },
        });
        let quota = serde_json::from_value(quota).unwrap();
        let api = self.api::<ResourceQuota>();
        api.create(&PostParams::default(), &quota).await.unwrap();
        let counted = |quota: &ResourceQuota| {
            quota
                .status
                .as_ref()
                .is_some_and(|status| status.hard.is_some())
        };
        self.wait_for("the quota to count", "none", counted).await;
    }

    pub async fn allow_stateful_sets(&self) {
        let api = self.api::<ResourceQuota>();
        api.delete("none", &DeleteParams::default()).await.unwrap();
    }

    /// How many passes over environments have failed.
    pub fn failures(&self) -> u64 {
        let passes = &self.metrics.reconciliations;
        passes
            .with_label_values(&["materialize", "apply", "failed"])
            .get()
    }

    pub async fn wait_for_failures(&self, count: u64) {
        let failed = async {
            while self.failures() < count {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(BOUND, failed)
            .await
            .expect("more failures");
    }

    /// Whether a line with this text was logged.
    pub fn has_logged(&self, text: &str) -> bool {
        String::from_utf8_lossy(&LOG.lock().unwrap()).contains(text)
    }

    fn api<K: Namespaced>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }
}

/// Any kind that the tests look at.
pub trait Namespaced:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + DeserializeOwned
    + Debug
    + Send
    + 'static
{
}

impl<K> Namespaced for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + 'static
{
}

/// The condition of an environment; an empty one before the first.
pub fn condition(materialize: &Materialize) -> Condition {
    let status = materialize.status.clone().unwrap_or_default();
    status.conditions.into_iter().next().unwrap_or_else(|| {
        serde_json::from_value(json!({
            "type": "", "status": "", "reason": "", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z",
        }))
        .unwrap()
    })
}

/// Whether the environment is up to date with its newest spec.
pub fn is_settled(materialize: &Materialize) -> bool {
    let condition = condition(materialize);
    condition.status == "True"
        && condition.observed_generation == materialize.metadata.generation
        && materialize
            .status
            .as_ref()
            .unwrap()
            .last_completed_rollout_request
            == materialize.spec.request_rollout
}

/// Logs to [`LOG`] as the operator does to standard output; another subscriber may be first.
fn capture_log() {
    struct Log;
    impl std::io::Write for Log {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            LOG.lock().unwrap().write(line)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let _ = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_ansi(false)
        .with_writer(|| Log)
        .try_init();
}

async fn create_namespace(client: &Client) {
    let namespace = json!({ "metadata": { "name": NAMESPACE } });
    let namespace: Namespace = serde_json::from_value(namespace).unwrap();
    Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let secret = Secret {
        string_data: Some(BTreeMap::from([("license_key".to_owned(), license_key())])),
        ..serde_json::from_value(json!({ "metadata": { "name": "backend" } })).unwrap()
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
}

/// A licence key for any environment, signed by nobody.
fn license_key() -> String {
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = part(json!({ "alg": "PS256", "typ": "JWT" }));
    let claims = part(json!({
        "iss": "Materialize, Inc.", "sub": "test", "aud": "test", "version": 1, "nbf": 0, "iat": 1, "exp": 2,
    }));
    format!("{header}.{claims}.{}", URL_SAFE_NO_PAD.encode("nobody"))
}

/// One replica's part in the election, with the controllers in its terms.
async fn campaign(
    control_plane: &ControlPlane,
    client: &Client,
    stand_ins: StandIns,
    metrics: Metrics,
) -> impl Future<Output = ()> + use<> {
    let arguments = [
        "orchestratord",
        "--cloud-provider=local",
        "--region=test",
        "--console-image-tag-default=v26.40.0",
        "--create-balancers",
        "--create-console",
    ];
    let Ok(Invocation::Run(args)) = cli::parse(arguments) else {
        panic!("bad arguments");
    };
    let locate = move |service: &str| {
        let stand_ins = stand_ins.lock().unwrap();
        let address = stand_ins
            .get(service)
            .map(|stand_in| stand_in.http_addr().unwrap());
        // Nobody listens on port 1.
        address.map_or("http://127.0.0.1:1".to_owned(), |address| {
            format!("http://{address}")
        })
    };
    let caches = Caches::start(client);
    caches.ready(BOUND).await.unwrap();
    let settings = Settings {
        environment: Arc::new(args.environment),
        logging: Arc::new(args.logging),
        operator_namespace: OPERATOR_NAMESPACE.to_owned(),
        identity: "test".to_owned(),
        environmentd: Resolver::direct(move |endpoint| locate(&endpoint.service)).unwrap(),
    };
    let candidate = Candidate {
        namespace: OPERATOR_NAMESPACE.to_owned(),
        lease: LEASE.to_owned(),
        identity: settings.identity.clone(),
        process: Process::new("test", None),
        timings: Timings::default(),
        admission_lag: Duration::ZERO,
    };
    let config = config(control_plane).await;
    let elector = Elector::new(config, client.clone(), candidate, Arc::new(())).unwrap();
    async move {
        let lead = |term: &mut Term| {
            let context = Context::new(term, caches.clone(), settings.clone(), metrics.clone());
            controller::spawn(term, &Arc::new(context));
        };
        elector.run(CancellationToken::new(), lead).await.unwrap();
    }
}

async fn config(control_plane: &ControlPlane) -> Config {
    let kubeconfig = Kubeconfig::read_from(control_plane.kubeconfig()).unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap()
}

/// Makes every pod ready, and starts a stand-in for each of environmentd.
async fn run_hollow_kubelet(client: Client, stand_ins: StandIns, hold_catchup: Arc<Mutex<bool>>) {
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let catalog = Arc::new(MemoryCatalog::default());
    let mut changes = watcher(pods.clone(), watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .boxed();
    while let Some(pod) = changes.next().await {
        let Ok(pod) = pod else { continue };
        let is_ready = pod
            .status
            .as_ref()
            .is_some_and(|status| status.phase.as_deref() == Some("Running"));
        if is_ready || pod.metadata.deletion_timestamp.is_some() {
            continue;
        }
        if pod
            .labels()
            .get("app")
            .is_some_and(|app| app == "environmentd")
        {
            let workload = pod.labels()["materialize.cloud/name"].clone();
            let generation = pod.annotations()["materialize.cloud/generation"]
                .parse()
                .unwrap();
            let mut options = Options::new(generation, catalog.clone());
            if *hold_catchup.lock().unwrap() {
                options.timings.catchup = FOREVER;
            }
            let stand_in = Environmentd::start(options).await.unwrap();
            stand_ins.lock().unwrap().insert(workload, stand_in);
        }
        let ready = json!({ "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        }});
        // A pod that is gone by now needs no status.
        let _ = pods
            .patch_status(
                &pod.name_any(),
                &PatchParams::default(),
                &Patch::Merge(ready),
            )
            .await;
    }
}
