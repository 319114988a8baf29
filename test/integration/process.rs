//! The operator as a process: how it starts, how it ends, and how leadership moves between two.

mod trouble;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use mzcompose::control_plane::{Access, ControlPlane};
use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::conversion::certificate;

/// Generous: a loaded machine is slow, and no figure is taken here.
const BOUND: Duration = Duration::from_secs(60);

const REQUIRED: [&str; 4] = [
    "--cloud-provider=local",
    "--region=kind",
    "--console-image-tag-default=v26.40.0",
    "--profiling-listen-address=127.0.0.1:0",
];

fn command(kubeconfig: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orchestratord"));
    command
        .args(REQUIRED)
        .env("KUBECONFIG", kubeconfig)
        .env_remove("KUBERNETES_SERVICE_HOST")
        .stdin(Stdio::null());
    command
}

fn run(kubeconfig: &Path, arguments: &[&str]) -> Output {
    command(kubeconfig).args(arguments).output().unwrap()
}

/// A kubeconfig for a server that does not exist.
fn nowhere(folder: &Path, namespace: Option<&str>) -> PathBuf {
    let path = folder.join("config");
    let context = match namespace {
        Some(namespace) => json!({"cluster": "c", "user": "u", "namespace": namespace}),
        None => json!({"cluster": "c", "user": "u"}),
    };
    let config = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "mzcompose", "context": context}],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

#[rstest]
#[case(&["--no-such-flag"], 2, "--no-such-flag")]
#[case(&["--install-v1-crd"], 2, "--webhook-service-name")]
#[case(&["--leader-election-renew-deadline=20s"], 2, "renew deadline")]
#[case(&["--kubernetes-context=missing"], 1, "--kubernetes-context missing")]
#[case(&["--kubernetes-context=mzcompose"], 1, "--leader-election-namespace")]
fn a_bad_start_ends_with_one_line_that_names_the_way_out(
    #[case] arguments: &[&str],
    #[case] code: i32,
    #[case] told: &str,
) {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&nowhere(folder.path(), None), arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(error.contains(told), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn an_unreadable_kubeconfig_is_named() {
    let output = run(Path::new("/nonexistent/config"), &[]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("/nonexistent/config"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn a_taken_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("--metrics-listen-address={}", taken.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = nowhere(folder.path(), Some("default"));
    let output = run(&kubeconfig, &["--kubernetes-context=mzcompose", &address]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("--metrics-listen-address"), "{error}");
}

/// One running replica; killed when dropped.
struct Replica {
    child: Child,
    metrics: u16,
    log: PathBuf,
}

impl Replica {
    /// One that campaigns in the namespace `default`, under the name of its pod.
    fn start(kubeconfig: &Path, folder: &Path, pod: &str) -> Self {
        let arguments = ["--leader-election-namespace=default"];
        Self::start_with(kubeconfig, folder, pod, &arguments)
    }

    fn start_with(kubeconfig: &Path, folder: &Path, pod: &str, arguments: &[&str]) -> Self {
        let metrics = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let log = folder.join(format!("{pod}.log"));
        let output = std::fs::File::create(&log).unwrap();
        let child = command(kubeconfig)
            .arg("--kubernetes-context=mzcompose")
            .arg(format!("--metrics-listen-address=127.0.0.1:{metrics}"))
            .args(arguments)
            .env("HOSTNAME", pod)
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        Self {
            child,
            metrics,
            log,
        }
    }

    async fn get(&self, path: &str) -> Option<(u16, String)> {
        let url = format!("http://127.0.0.1:{}{path}", self.metrics);
        let response = reqwest::get(url).await.ok()?;
        let status = response.status().as_u16();
        Some((status, response.text().await.ok()?))
    }

    async fn is_ready(&self) -> bool {
        matches!(self.get("/readyz").await, Some((200, _)))
    }

    async fn metrics(&self) -> String {
        let metrics = self.get("/metrics").await;
        metrics.map(|(_, text)| text).unwrap_or_default()
    }

    async fn leads(&self) -> bool {
        let metrics = self.metrics().await;
        metrics
            .lines()
            .any(|line| line == "orchestratord_is_leader 1")
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    async fn exit_code(&mut self) -> Option<i32> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(started.elapsed() < BOUND, "does not end:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn wait_for(what: &str, mut is_there: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !is_there().await {
        assert!(started.elapsed() < BOUND, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_stop_while_the_api_server_is_away_is_honoured() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = nowhere(folder.path(), Some("default"));
    let mut replica = Replica::start(&kubeconfig, folder.path(), "alone");
    wait_for("health", async || {
        matches!(replica.get("/livez").await, Some((200, _)))
    })
    .await;
    assert!(!replica.is_ready().await, "nothing is registered");
    replica.signal(Signal::TERM);
    assert_eq!(replica.exit_code().await, Some(0), "{}", replica.log());
    assert!(!replica.log().contains("ERROR"), "{}", replica.log());
}

/// The value of a metric in the text form.
fn value(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    let value = line.unwrap_or_else(|| panic!("no {name} in {metrics}"));
    value.trim().parse().unwrap()
}

/// Whether there is an Event on the Lease with this reason, whose note ends so.
async fn has_event(access: &Access, reason: &str, note: &str) -> bool {
    let events: Api<Event> = Api::all(access.client().await.unwrap());
    let events = events.list(&ListParams::default()).await.unwrap();
    events.iter().any(|event| {
        let regarding = event
            .regarding
            .as_ref()
            .and_then(|object| object.kind.as_deref());
        regarding == Some("Lease")
            && event.reason.as_deref() == Some(reason)
            && event
                .note
                .as_deref()
                .is_some_and(|told| told.ends_with(note))
    })
}

async fn lease(leases: &Api<Lease>) -> (String, i32) {
    let spec = leases.get("orchestratord").await.unwrap().spec.unwrap();
    (
        spec.holder_identity.unwrap_or_default(),
        spec.lease_transitions.unwrap_or_default(),
    )
}

/// A replica with a webhook that nobody needs.
fn serving_the_webhook(kubeconfig: &Path, folder: &Path, certificate: &Path, pod: &str) -> Replica {
    let file = |flag, name| format!("--{flag}={}", certificate.join(name).display());
    let files = [
        file("tls-ca", "ca.crt"),
        file("tls-cert", "tls.crt"),
        file("tls-key", "tls.key"),
    ];
    let mut arguments = vec![
        "--leader-election-namespace=default",
        "--install-v1-crd",
        "--webhook-url=https://127.0.0.1:9/convert",
        "--webhook-listen-address=127.0.0.1:0",
    ];
    arguments.extend(files.iter().map(String::as_str));
    Replica::start_with(kubeconfig, folder, pod, &arguments)
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_moves_on_sigterm_and_comes_back_from_a_stranger() {
    let control_plane = ControlPlane::private().await.unwrap();
    let leases: Api<Lease> =
        Api::default_namespaced(control_plane.access().client().await.unwrap());
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = control_plane.kubeconfig().to_owned();

    // It goes on serving metrics for as long as the webhook lingers.
    let certificate = certificate();
    let mut first = serving_the_webhook(&kubeconfig, folder.path(), certificate.path(), "first");
    wait_for("the first to lead", async || first.leads().await).await;
    let second = Replica::start(&kubeconfig, folder.path(), "second");
    wait_for("the second to be ready", async || second.is_ready().await).await;
    // It is ready before it campaigns: only then does it know whose Lease it takes over.
    wait_for("the second to campaign", async || is_standing_by(&second)).await;
    assert!(!second.leads().await);
    assert_eq!(lease(&leases).await, ("first".to_owned(), 0));
    let age = "orchestratord_lease_renewal_age_seconds";
    assert_eq!(value(&second.metrics().await, age), 0.0);
    wait_for("the first to renew", async || {
        let metrics = first.metrics().await;
        value(&metrics, "orchestratord_lease_renew_duration_seconds_count") >= 1.0
    })
    .await;
    let aged = value(&first.metrics().await, age);
    assert!(aged > 0.0 && aged < 10.0, "{aged}");

    first.signal(Signal::TERM);
    wait_for("the second to lead", async || second.leads().await).await;
    assert_eq!(lease(&leases).await, ("second".to_owned(), 1));
    wait_for("the first to have given the Lease back", async || {
        let metrics = first.metrics().await;
        value(&metrics, "orchestratord_handover_duration_seconds_count") == 1.0
    })
    .await;
    assert_eq!(first.exit_code().await, Some(0), "{}", first.log());
    assert!(!first.log().contains("ERROR"), "{}", first.log());

    let metrics = second.metrics().await;
    assert_eq!(
        value(&metrics, "orchestratord_term_starts_total{how=\"free\"}"),
        1.0
    );
    assert_eq!(
        value(&metrics, "orchestratord_lease_vacant_seconds_count"),
        1.0
    );
    assert_eq!(value(&metrics, "orchestratord_duplicate_identity"), 0.0);
    assert!(value(&metrics, age) > 0.0);

    let stranger = json!({"spec": {"holderIdentity": "not-a-real-candidate"}});
    let params = PatchParams::default();
    leases
        .patch("orchestratord", &params, &Patch::Merge(stranger))
        .await
        .unwrap();
    wait_for("the second to stand back", async || !second.leads().await).await;
    wait_for("the second to lead again", async || second.leads().await).await;
    assert_eq!(lease(&leases).await, ("second".to_owned(), 2));
    assert!(second.is_ready().await);
    let metrics = second.metrics().await;
    assert_eq!(
        value(&metrics, "orchestratord_term_ends_total{reason=\"taken\"}"),
        1.0
    );
    assert_eq!(
        value(&metrics, "orchestratord_term_starts_total{how=\"expired\"}"),
        1.0
    );

    let told = [
        ("LeaderElected", "first leads: there was no Lease"),
        ("LeaderStopped", ": asked to stop"),
        ("LeaderElected", "second leads: first gave the Lease back"),
        ("LeaderStopped", ": not-a-real-candidate holds the Lease"),
        (
            "LeaderElected",
            "second leads: not-a-real-candidate did not renew the Lease",
        ),
    ];
    for (reason, note) in told {
        wait_for(note, async || {
            has_event(control_plane.access(), reason, note).await
        })
        .await;
    }
}

/// What a replica is at when it is asked to stop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Registering,
    StandingBy,
    Claiming,
    Leading,
}

/// Were the bounds of the stop not kept, the process would end itself with another code.
#[rstest]
#[case::while_registering(At::Registering)]
#[case::while_standing_by(At::StandingBy)]
#[case::while_claiming(At::Claiming)]
#[case::while_leading(At::Leading)]
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_clean_while_the_api_server_hangs(#[case] at: At) {
    let control_plane = ControlPlane::private().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    match at {
        At::Registering => control_plane.pause().unwrap(),
        At::StandingBy => hold_lease(&control_plane, 300).await,
        At::Claiming => hold_lease(&control_plane, 5).await,
        At::Leading => {}
    }
    let mut replica = Replica::start(&control_plane.kubeconfig(), folder.path(), "alone");
    wait_for("it to come far enough", async || match at {
        At::Registering => matches!(replica.get("/livez").await, Some((200, _))),
        At::StandingBy | At::Claiming => is_standing_by(&replica),
        At::Leading => replica.leads().await,
    })
    .await;
    control_plane.pause().unwrap();
    if at == At::Claiming {
        wait_for("a claim to hang", async || {
            let timeouts = "orchestratord_lease_call_failures_total{kind=\"timeout\"}";
            value(&replica.metrics().await, timeouts) >= 1.0
        })
        .await;
    }
    replica.signal(Signal::TERM);
    assert_eq!(replica.exit_code().await, Some(0), "{}", replica.log());
    assert!(!replica.log().contains("ERROR"), "{}", replica.log());
    control_plane.resume().unwrap();
}

/// Has somebody hold the Lease who will not renew it.
async fn hold_lease(control_plane: &ControlPlane, seconds: i32) {
    let lease = json!({
        "metadata": {"name": "orchestratord"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": seconds},
    });
    let lease = serde_json::from_value(lease).unwrap();
    let leases: Api<Lease> =
        Api::default_namespaced(control_plane.access().client().await.unwrap());
    leases.create(&PostParams::default(), &lease).await.unwrap();
}

fn is_standing_by(replica: &Replica) -> bool {
    replica.log().contains("another replica holds the Lease")
}
