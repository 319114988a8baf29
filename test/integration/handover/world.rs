//! A namespace of an API server, candidates in it, and what the audit log tells of them.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use mzcompose::control_plane::{Access, ControlPlane, SHARED_AUDIT_LOG};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::candidate::{FENCED, GUARDED, Replica, Settings};

/// Generous: a loaded machine is slow, and no figure is taken here.
const BOUND: Duration = Duration::from_secs(120);
/// Claims so close to a write are told with it.
const NEAR: SignedDuration = SignedDuration::from_secs(3);
/// Everything that a candidate does with its Lease.
pub const ALL: [&str; 6] = ["get", "list", "watch", "create", "update", "patch"];

/// One test's part of an API server.
pub struct World {
    pub client: Client,
    pub namespace: String,
    pub access: Access,
    pub folder: TempDir,
}

impl World {
    /// A namespace of its own on the API server that all tests share.
    pub async fn shared() -> Self {
        Self::on(ControlPlane::shared().unwrap()).await
    }

    pub async fn on(access: Access) -> Self {
        let client = access.client().await.unwrap();
        let object = json!({"metadata": {"generateName": "handover-"}});
        let object: Namespace = serde_json::from_value(object).unwrap();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let created = namespaces.create(&PostParams::default(), &object).await;
        Self {
            client,
            namespace: created.unwrap().metadata.name.unwrap(),
            access,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// The user that `name` is to the API server, with these rights on the Lease.
    pub async fn user(&self, name: &str, lease_verbs: &[&str]) -> PathBuf {
        let user = self.user_name(name);
        self.grant(name, lease_verbs).await;
        self.access.kubeconfig_for(&user, None).unwrap()
    }

    pub fn user_name(&self, name: &str) -> String {
        format!("{}-{name}", self.namespace)
    }

    /// Gives a user rights on Leases, and on what the leader writes.
    pub async fn grant(&self, name: &str, lease_verbs: &[&str]) {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": name},
            "rules": [
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": lease_verbs},
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch", "create"]},
            ],
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self.user_name(name)}],
        });
        let params = PatchParams::apply("test").force();
        let roles: Api<Role> = Api::namespaced(self.client.clone(), &self.namespace);
        roles
            .patch(name, &params, &Patch::Apply(role))
            .await
            .unwrap();
        let bindings: Api<RoleBinding> = Api::namespaced(self.client.clone(), &self.namespace);
        bindings
            .patch(name, &params, &Patch::Apply(binding))
            .await
            .unwrap();
    }

    /// Takes every right from a user.
    pub async fn revoke(&self, name: &str) {
        let bindings: Api<RoleBinding> = Api::namespaced(self.client.clone(), &self.namespace);
        bindings
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// A candidate's settings, as the user of that name, with short bounds.
    pub async fn settings(&self, name: &str) -> Settings {
        self.settings_of(name, self.user(name, &ALL).await)
    }

    pub fn settings_of(&self, name: &str, kubeconfig: PathBuf) -> Settings {
        Settings {
            kubeconfig,
            namespace: self.namespace.clone(),
            identity: name.to_owned(),
            pod: name.to_owned(),
            lease_duration: Duration::from_secs(4),
            renew_deadline: Duration::from_secs(3),
            retry_period: Duration::from_millis(500),
            call_timeout: Duration::from_secs(1),
            is_rogue: false,
            admission_lag: Duration::ZERO,
        }
    }

    pub fn start(&self, settings: &Settings) -> Replica {
        Replica::start(settings, &self.folder.path().join(&settings.pod))
    }

    pub async fn candidate(&self, name: &str) -> Replica {
        self.start(&self.settings(name).await)
    }

    /// A leader and a standby that watches.
    pub async fn two(&self) -> (Replica, Replica) {
        let leader = self.candidate("a").await;
        leader.begun().await;
        let standby = self.candidate("b").await;
        standby.campaigns().await;
        (leader, standby)
    }

    pub fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Holder and transitions.
    pub async fn lease(&self) -> (String, i32) {
        let spec = self
            .leases()
            .get("orchestratord")
            .await
            .unwrap()
            .spec
            .unwrap();
        let holder = spec.holder_identity.unwrap_or_default();
        (holder, spec.lease_transitions.unwrap_or_default())
    }

    /// Waits until only one says that it leads, and the Lease says so too.
    pub async fn one_leads(&self, candidates: [&Replica; 2]) {
        wait_for("one to lead, and the Lease to name it", async || {
            let Ok(lease) = self.leases().get("orchestratord").await else {
                return false;
            };
            let holder = lease.spec.and_then(|spec| spec.holder_identity);
            let leaders = candidates.iter().filter(|one| one.leads());
            let leaders: Vec<_> = leaders.map(|one| &one.settings.identity).collect();
            holder.is_some_and(|holder| leaders == [&holder])
        })
        .await;
    }

    pub fn audit(&self) -> Audit {
        let log = std::env::var_os(SHARED_AUDIT_LOG);
        let log = log.expect("no audit log is named: run the tests by `cargo mzcompose test`");
        Audit::read(Path::new(&log), &self.namespace)
    }
}

/// Tells a figure where libtest does not hide it.
pub fn tell(figure: &str) {
    writeln!(std::io::stderr(), "{figure}").unwrap();
}

pub async fn wait_for(what: &str, mut is_there: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !is_there().await {
        assert!(started.elapsed() < BOUND, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What the API server let through in one namespace.
pub struct Audit {
    /// Accepted writes of the Lease, in order.
    claims: Vec<Claim>,
    /// Accepted writes of anything else, but for Events.
    writes: Vec<Write>,
    /// How often a writer behind a term's fence was forbidden to write.
    refusals: usize,
    /// Who asked for the Lease, and when.
    reads: Vec<(String, Timestamp)>,
}

#[derive(Debug)]
struct Claim {
    holder: String,
    /// The version that it was compared with: claims follow each other by that, while their answers
    /// may overtake each other.
    replaced: u64,
    received: Timestamp,
    completed: Timestamp,
}

#[derive(Debug)]
pub struct Write {
    pub user: String,
    object: String,
    received: Timestamp,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    verb: String,
    user: Value,
    #[serde(rename = "requestURI")]
    uri: String,
    object_ref: Option<Value>,
    response_status: Option<Value>,
    request_object: Option<Value>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

/// The pod that a token is bound to, else the user.
fn writer(user: &Value) -> String {
    let pod = user.pointer("/extra/authentication.kubernetes.io~1pod-name/0");
    let name = pod.or_else(|| user.get("username"));
    name.and_then(Value::as_str).unwrap_or_default().to_owned()
}

impl Audit {
    pub fn read(log: &Path, namespace: &str) -> Self {
        let (mut claims, mut writes, mut refusals, mut reads) = (vec![], vec![], 0, vec![]);
        let fenced = format!("fieldManager={FENCED}");
        for line in std::fs::read_to_string(log).unwrap().lines() {
            // The last line may be half written.
            let Ok(entry) = serde_json::from_str::<Entry>(line) else {
                continue;
            };
            let object = entry.object_ref.unwrap_or_default();
            let code = &entry.response_status.unwrap_or_default()["code"];
            let is_write = ["create", "update", "patch", "delete"].contains(&&*entry.verb);
            if object["namespace"] != namespace {
                continue;
            }
            match (code.as_u64(), object["resource"].as_str()) {
                (_, Some("leases")) if entry.verb == "get" => {
                    reads.push((writer(&entry.user), entry.request_received_timestamp));
                }
                _ if !is_write => {}
                (Some(403), _) => refusals += usize::from(entry.uri.contains(&fenced)),
                (Some(200..300), Some("leases")) => {
                    let lease = entry.request_object.unwrap_or_default();
                    let text = |path| lease.pointer(path).and_then(Value::as_str);
                    let replaced = text("/metadata/resourceVersion").and_then(|v| v.parse().ok());
                    claims.push(Claim {
                        holder: text("/spec/holderIdentity").unwrap_or_default().to_owned(),
                        replaced: replaced.unwrap_or_default(),
                        received: entry.request_received_timestamp,
                        completed: entry.stage_timestamp,
                    });
                }
                (Some(200..300), Some("events")) => {}
                (Some(200..300), _) => writes.push(Write {
                    user: writer(&entry.user),
                    object: object["name"].as_str().unwrap_or_default().to_owned(),
                    received: entry.request_received_timestamp,
                }),
                _ => {}
            }
        }
        claims.sort_by_key(|claim| claim.replaced);
        Self {
            claims,
            writes,
            refusals,
            reads,
        }
    }

    /// How often `user` asked for the Lease between its release and the claim that followed.
    pub fn reads_before_takeover(&self, user: &str) -> usize {
        let free = self
            .claims
            .iter()
            .rposition(|claim| claim.holder.is_empty());
        let free = free.expect("a release");
        let (from, to) = (self.claims[free].completed, self.claims[free + 1].received);
        let is_between = |at: Timestamp| from < at && at < to;
        let reads = self.reads.iter();
        reads
            .filter(|(by, at)| by == user && is_between(*at))
            .count()
    }

    /// Accepted writes by `user` of anything but the Lease and Events.
    pub fn writes_by(&self, user: &str) -> usize {
        self.writes
            .iter()
            .filter(|write| write.user == user)
            .count()
    }

    fn guarded(&self) -> impl Iterator<Item = &Write> {
        self.writes.iter().filter(|write| write.object == GUARDED)
    }

    /// Accepted writes of the guarded object.
    pub fn writes(&self) -> usize {
        self.guarded().count()
    }

    /// How often a writer behind a term's fence was forbidden to write by the API server.
    pub fn refusals(&self) -> usize {
        self.refusals
    }

    /// Accepted writes that arrived while the Lease named somebody else than the writer: that claim
    /// had been answered `lag` before the write was received, and the writer had not made one since.
    pub fn slipped(&self, lag: Duration, holder_of: impl Fn(&str) -> String) -> Vec<String> {
        let slipped = |write: &&Write| {
            let answered = |claim: &Claim| claim.completed + lag < write.received;
            let Some(last) = self.claims.iter().rposition(answered) else {
                return false;
            };
            let holder = holder_of(&write.user);
            let mut since = self.claims.iter().skip(last);
            let held = since.any(|claim| claim.holder == holder && claim.received < write.received);
            !held
        };
        let writes = self.guarded().filter(slipped);
        writes.map(|write| self.describe(write)).collect()
    }

    /// A write, and the claims around it.
    fn describe(&self, write: &Write) -> String {
        let near = |claim: &&Claim| claim.received.duration_since(write.received).abs() < NEAR;
        let claims: Vec<_> = self.claims.iter().filter(near).collect();
        format!("{write:?} among {claims:#?}")
    }

    /// How often the Lease was given to another holder.
    pub fn changes(&self) -> usize {
        let mut holders: Vec<_> = self.claims.iter().map(|claim| &claim.holder).collect();
        holders.retain(|holder| !holder.is_empty());
        holders.dedup();
        holders.len()
    }
}
