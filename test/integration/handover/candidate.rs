//! A candidate: a process of its own that writes for as long as it may, and longer if it can.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use orchestratord::election::{
    Begun, BootClock, Candidate, Clock, Elector, EndReason, Moment, Observer, Process, Term,
    Timings, prompt_client,
};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::world::wait_for;

/// The object that only the leader may write.
pub const GUARDED: &str = "guarded";
/// The field manager of writers behind their term's fence.
pub const FENCED: &str = "fenced";
/// The field manager of those without.
const ROGUE: &str = "rogue";
const SETTINGS: &str = "CANDIDATE_SETTINGS";
/// How far the clock of a candidate jumps when it is told to.
const JUMP: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);
/// How long a rogue goes on writing after it gave the Lease back.
const ROGUES_LINGER: Duration = Duration::from_millis(100);

/// What a candidate is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    pub kubeconfig: PathBuf,
    pub namespace: String,
    pub identity: String,
    pub pod: String,
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
    pub call_timeout: Duration,
    /// Writes by a client without a fence too, and goes on after the end of its term.
    pub is_rogue: bool,
    pub admission_lag: Duration,
}

impl Settings {
    /// The same with the bounds that are the default.
    pub fn unhurried(self) -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            call_timeout: Duration::from_secs(3),
            ..self
        }
    }

    fn timings(&self) -> Timings {
        Timings {
            lease_duration: self.lease_duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
            call_timeout: self.call_timeout,
            join_bound: self.lease_duration / 20,
            ..Timings::default()
        }
    }
}

/// A running candidate; killed when dropped.
pub struct Replica {
    pub settings: Settings,
    child: Child,
    log: PathBuf,
    /// Where its part of the log starts.
    start: usize,
}

impl Replica {
    /// Starts this test program again, as a candidate.
    pub fn start(settings: &Settings, log: &Path) -> Self {
        let start = std::fs::read_to_string(log).map_or(0, |text| text.len());
        let output = File::options().create(true).append(true).open(log).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "handover::candidate::process"])
            .args(["--ignored", "--nocapture", "--test-threads=1"])
            .env(SETTINGS, serde_json::to_string(settings).unwrap())
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        Self {
            settings: settings.clone(),
            child,
            log: log.to_owned(),
            start,
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log)
            .unwrap()
            .split_off(self.start)
    }

    /// What it said of its terms, in order.
    pub fn said(&self) -> Vec<String> {
        let log = self.log();
        let said = log.lines().filter_map(|line| line.strip_prefix("> "));
        said.map(str::to_owned).collect()
    }

    pub fn leads(&self) -> bool {
        let said = self.said();
        let last = said
            .iter()
            .rfind(|line| line.starts_with("leading") || line.starts_with("ended"));
        last.is_some_and(|line| line.starts_with("leading"))
    }

    pub async fn begun(&self) {
        wait_for("a candidate to lead", async || self.leads()).await;
    }

    pub async fn ended(&self) {
        wait_for("a term to end", async || {
            self.said().iter().any(|line| line.starts_with("ended"))
        })
        .await;
    }

    /// Waits until it campaigns, so that it can take over.
    pub async fn campaigns(&self) {
        wait_for("a candidate to campaign", async || {
            self.log().contains("another replica holds the Lease")
        })
        .await;
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Kills it and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop, and waits until it has.
    pub async fn stop(&mut self) {
        self.signal(Signal::TERM);
        wait_for("a candidate to stop", async || {
            self.child.try_wait().unwrap().is_some()
        })
        .await;
        assert!(
            self.said().ends_with(&["stopped".to_owned()]),
            "{}",
            self.log()
        );
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A clock that jumps when the process gets SIGUSR1.
struct JumpingClock(Arc<AtomicU64>);

impl Clock for JumpingClock {
    fn now(&self) -> Moment {
        BootClock
            .now()
            .plus(Duration::from_millis(self.0.load(Ordering::SeqCst)))
    }
}

struct Voice;

impl Observer for Voice {
    fn term_started(&self, begun: &Begun) {
        println!("> leading {} {}", begun.transitions, begun.how.as_str());
    }
    fn term_ended(&self, reason: &EndReason, _held_for: Duration) {
        println!("> ended {}", reason.as_str());
    }
    fn duplicate_identity(&self, own_pod: &str, other_pod: Option<&str>) {
        println!("> duplicate {own_pod} {}", other_pod.unwrap_or("?"));
    }
}

/// Writes the guarded object again and again.
async fn write(client: Client, settings: Settings, manager: &str) {
    let objects: Api<ConfigMap> = Api::namespaced(client, &settings.namespace);
    for count in 0_u64.. {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": GUARDED, "labels": {"materialize.cloud/mz-resource-id": "test"}},
            "data": {"by": settings.pod, "count": count.to_string()},
        });
        let (params, patch) = (PatchParams::apply(manager).force(), Patch::Apply(&object));
        if let Err(error) = objects.patch(GUARDED, &params, &patch).await {
            println!("refused: {manager}: {error}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[tokio::test]
#[ignore = "no test of its own: the other tests start it as a process"]
async fn process() {
    let settings = std::env::var(SETTINGS).expect("settings, from the test that starts this");
    let settings: Settings = serde_json::from_str(&settings).unwrap();
    tracing_subscriber::fmt().with_ansi(false).init();
    let jump = Arc::new(AtomicU64::new(0));
    let stop = CancellationToken::new();
    tokio::spawn(hear(jump.clone(), stop.clone()));

    let kubeconfig = Kubeconfig::read_from(&settings.kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    let work = prompt_client(config.clone()).unwrap();
    let unfenced = work.clone();
    config.default_retry = false;
    let lease = prompt_client(config).unwrap();
    let candidate = Candidate {
        namespace: settings.namespace.clone(),
        lease: "orchestratord".to_owned(),
        identity: settings.identity.clone(),
        process: Process::new(&settings.pod, Some(settings.pod.clone())),
        timings: settings.timings(),
        admission_lag: settings.admission_lag,
    };
    let clock = Arc::new(JumpingClock(jump));
    let elector = Elector::with_clients(lease, work, candidate, clock, Arc::new(Voice)).unwrap();
    let lead = |term: &mut Term| {
        if settings.is_rogue {
            tokio::spawn(write(unfenced.clone(), settings.clone(), ROGUE));
        } else {
            tokio::spawn(write(term.client(), settings.clone(), FENCED));
        }
        // That one leaks out of the term, this one ends with it.
        term.spawn("writer", write(term.client(), settings.clone(), FENCED));
    };
    elector.run(stop, lead).await.unwrap();
    if settings.is_rogue {
        tokio::time::sleep(ROGUES_LINGER).await;
    }
    println!("> stopped");
}

async fn hear(jump: Arc<AtomicU64>, stop: CancellationToken) {
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    let mut user = signal(SignalKind::user_defined1()).unwrap();
    loop {
        tokio::select! {
            _ = terminate.recv() => stop.cancel(),
            _ = user.recv() => {
                let millis = u64::try_from(JUMP.as_millis()).unwrap();
                jump.fetch_add(millis, Ordering::SeqCst);
            }
        }
    }
}
