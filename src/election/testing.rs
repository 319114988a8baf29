//! An API server for one Lease, in memory, and candidates on it; for tests under paused time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    Begun, BootClock, Candidate, Clock, Elector, ElectorHealth, EndReason, Error, Fence, Moment,
    Observer, Process, Term, Timings,
};

/// A fence without a term.
pub(crate) fn fence(is_open: bool) -> Fence {
    let fence = Fence::new(
        Arc::new(BootClock),
        Arc::new(()),
        Moment::new(Duration::MAX),
    );
    if !is_open {
        fence.close();
    }
    fence
}

/// Says a line that is seen even if the test passes: what is written past `println!` is not held
/// back.
pub(super) fn report(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// How long a request is on its way to the server, and its answer back.
pub(super) const LATENCY: Duration = Duration::from_millis(2);

/// What is wrong between one client and the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fault {
    #[default]
    Fine,
    /// Nothing arrives.
    Hangs,
    /// Requests arrive, answers do not.
    LosesAnswers,
    /// The server answers this to all.
    Answers(u16),
    /// The server answers this to watches.
    AnswersWatch(u16),
    /// Watches show nothing.
    HidesWatch,
    /// Requests, answers and sightings take this long each.
    Slow(Duration),
    /// Writes arrive once more, so much later.
    Twice(Duration),
}

#[derive(Default)]
struct Server {
    lease: Option<Value>,
    /// Writes are not compared.
    blind: bool,
    version: u64,
    watches: Vec<(mpsc::UnboundedSender<Bytes>, Link)>,
}

#[derive(Clone, Default)]
pub(super) struct FakeApi(Arc<Mutex<Server>>);

/// One client's way to the server.
#[derive(Clone, Default)]
pub(super) struct Link(Arc<Mutex<(Fault, BTreeMap<String, usize>)>>);

impl Link {
    pub(super) fn set(&self, fault: Fault) {
        self.0.lock().unwrap().0 = fault;
    }

    fn fault(&self) -> Fault {
        self.0.lock().unwrap().0
    }

    fn latency(&self) -> Duration {
        match self.fault() {
            Fault::Slow(latency) => latency,
            _ => LATENCY,
        }
    }

    fn hides_watch(&self) -> bool {
        matches!(self.fault(), Fault::Hangs | Fault::HidesWatch)
    }

    /// Requests so far, of all methods or one (`WATCH` for watches).
    pub(super) fn requests(&self, method: Option<&str>) -> usize {
        let counts = &self.0.lock().unwrap().1;
        let counted = |(name, _): &(&String, &usize)| method.is_none_or(|m| m == *name);
        counts.iter().filter(counted).map(|(_, count)| count).sum()
    }

    fn count(&self, method: &str) {
        *self
            .0
            .lock()
            .unwrap()
            .1
            .entry(method.to_owned())
            .or_default() += 1;
    }
}

impl FakeApi {
    pub(super) fn connect(&self) -> (Client, Link) {
        let link = Link::default();
        let (api, to_link) = (self.clone(), link.clone());
        let service = tower::service_fn(move |request| {
            let (api, link) = (api.clone(), to_link.clone());
            // A task of its own: a request that was sent arrives, whether or not it is waited for.
            let answer = tokio::spawn(api.serve(request, link));
            async move { Ok::<_, Infallible>(answer.await.unwrap()) }
        });
        (Client::new(service, "default"), link)
    }

    /// How to reach it through a socket.
    pub(super) async fn listen(&self) -> (Config, Link) {
        let link = Link::default();
        let (api, to_link) = (self.clone(), link.clone());
        let router = Router::new().fallback(async move |request: Request<Body>| {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            api.serve(Request::from_parts(parts, body.to_vec().into()), to_link)
                .await
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(axum::serve(listener, router).into_future());
        (Config::new(url.parse().unwrap()), link)
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        self.0.lock().unwrap()
    }

    pub(super) fn lease(&self) -> Option<Value> {
        self.server().lease.clone()
    }

    pub(super) fn holder(&self) -> Option<String> {
        let lease = self.lease()?;
        lease["spec"]["holderIdentity"].as_str().map(str::to_owned)
    }

    /// Changes the Lease as `kubectl patch` does.
    pub(super) fn patch(&self, spec: Value) {
        let mut server = self.server();
        let mut lease = server.lease.clone().unwrap();
        for (key, value) in spec.as_object().unwrap() {
            lease["spec"][key] = value.clone();
        }
        server.store(lease, "MODIFIED");
    }

    pub(super) fn create(&self, spec: Value) {
        let lease = json!({"metadata": {"name": "l", "namespace": "default"}, "spec": spec});
        self.server().store(lease, "ADDED");
    }

    pub(super) fn delete(&self) {
        let mut server = self.server();
        let lease = server.lease.take().unwrap();
        server.tell("DELETED", &lease);
    }

    /// From now on writes are not compared.
    pub(super) fn blind(&self) {
        self.server().blind = true;
    }

    async fn serve(self, request: Request<kube::client::Body>, link: Link) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let watch = parts
            .uri
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        link.count(if watch {
            "WATCH"
        } else {
            parts.method.as_str()
        });
        sleep(link.latency()).await;
        match link.fault() {
            Fault::Hangs => std::future::pending().await,
            Fault::Answers(code) => return status(code),
            Fault::AnswersWatch(code) if watch => return status(code),
            _ => {}
        }
        if watch {
            return self.server().watch(link);
        }
        let body = body.collect_bytes().await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let answer = self.server().handle(&parts.method, body.clone());
        if let Fault::Twice(later) = link.fault() {
            let api = self.clone();
            tokio::spawn(async move {
                sleep(later).await;
                api.server().handle(&parts.method, body);
            });
        }
        sleep(link.latency()).await;
        if link.fault() == Fault::LosesAnswers {
            std::future::pending().await
        }
        answer
    }
}

impl Server {
    fn handle(&mut self, method: &Method, mut lease: Value) -> Response<Body> {
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        match (method.as_str(), &self.lease) {
            ("GET", Some(lease)) => answer(lease),
            ("PUT", Some(old)) if self.blind || version(old) == version(&lease) => {
                answer(self.store(lease, "MODIFIED"))
            }
            ("POST", None) => {
                lease["metadata"]["namespace"] = json!("default");
                answer(self.store(lease, "ADDED"))
            }
            (_, None) => status(404),
            (_, Some(_)) => status(409),
        }
    }

    fn store(&mut self, mut lease: Value, event: &str) -> &Value {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.tell(event, &lease);
        self.lease.insert(lease)
    }

    fn tell(&mut self, event: &str, lease: &Value) {
        let line = line(event, lease);
        self.watches
            .retain(|(watch, link)| link.hides_watch() || watch.send(line.clone()).is_ok());
    }

    fn watch(&mut self, link: Link) -> Response<Body> {
        let (sender, receiver) = mpsc::unbounded_channel();
        if let Some(lease) = self.lease.as_ref().filter(|_| !link.hides_watch()) {
            sender.send(line("ADDED", lease)).unwrap();
        }
        self.watches.push((sender, link.clone()));
        let way = (receiver, link);
        let lines = futures::stream::unfold(way, |(mut receiver, link)| async move {
            let line = receiver.recv().await?;
            sleep(link.latency()).await;
            Some((line, (receiver, link)))
        });
        Response::new(Body::from_stream(lines.map(Ok::<_, Infallible>)))
    }
}

fn line(event: &str, lease: &Value) -> Bytes {
    format!("{}\n", json!({"type": event, "object": lease})).into()
}

fn answer(lease: &Value) -> Response<Body> {
    Response::new(Body::from(lease.to_string()))
}

fn status(code: u16) -> Response<Body> {
    let reason = if code == 404 { "NotFound" } else { "" };
    let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason});
    let mut response = Response::new(Body::from(status.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

/// The runtime's (paused) time, plus time in which the process was stopped.
#[derive(Clone)]
pub(super) struct TestClock {
    start: Instant,
    stopped: Arc<Mutex<Duration>>,
}

impl TestClock {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            stopped: Arc::default(),
        }
    }

    /// Time goes on, but nothing has run meanwhile.
    pub(super) fn stop_for(&self, time: Duration) {
        *self.stopped.lock().unwrap() += time;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Moment {
        Moment::new(self.start.elapsed() + *self.stopped.lock().unwrap())
    }
}

/// What a candidate has told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Began(Begun),
    Ended(EndReason),
    Refused,
    Released(Duration),
    Duplicate { own: String, other: Option<String> },
}

#[derive(Default)]
struct Diary(Mutex<Vec<(Instant, Told)>>);

impl Diary {
    fn note(&self, told: Told) {
        self.0.lock().unwrap().push((Instant::now(), told));
    }
}

impl Observer for Diary {
    fn term_started(&self, begun: &Begun) {
        self.note(Told::Began(begun.clone()));
    }
    fn term_ended(&self, reason: &EndReason, _held_for: Duration) {
        self.note(Told::Ended(reason.clone()));
    }
    fn fence_refused(&self) {
        self.note(Told::Refused);
    }
    fn released(&self, took: Duration) {
        self.note(Told::Released(took));
    }
    fn duplicate_identity(&self, own_pod: &str, other_pod: Option<&str>) {
        self.note(Told::Duplicate {
            own: own_pod.to_owned(),
            other: other_pod.map(str::to_owned),
        });
    }
}

/// A running candidate.
pub(super) struct Replica {
    pub(super) link: Link,
    pub(super) work_link: Link,
    pub(super) clock: TestClock,
    pub(super) health: ElectorHealth,
    pub(super) stop: CancellationToken,
    pub(super) run: JoinHandle<Result<(), Error>>,
    /// The fenced client of the latest term.
    pub(super) client: Arc<Mutex<Option<Client>>>,
    diary: Arc<Diary>,
}

impl Replica {
    /// Starts a candidate whose terms have one task, which waits for the end of the term.
    pub(super) fn start(api: &FakeApi, identity: &str) -> Self {
        Self::start_in_pod(api, identity, identity)
    }

    /// The same, in a pod of this name and uid.
    pub(super) fn start_in_pod(api: &FakeApi, identity: &str, pod: &str) -> Self {
        let process = Process::new(pod, Some(pod.to_owned()));
        Self::start_process(api, identity, process, Timings::default(), |term| {
            let token = term.token();
            term.spawn("waits", async move { token.cancelled().await });
        })
    }

    pub(super) fn start_with(
        api: &FakeApi,
        identity: &str,
        timings: Timings,
        lead: impl FnMut(&mut Term) + Send + 'static,
    ) -> Self {
        let process = Process::new(identity, Some(identity.to_owned()));
        Self::start_process(api, identity, process, timings, lead)
    }

    fn start_process(
        api: &FakeApi,
        identity: &str,
        process: Process,
        timings: Timings,
        mut lead: impl FnMut(&mut Term) + Send + 'static,
    ) -> Self {
        let ((lease, link), (work, work_link)) = (api.connect(), api.connect());
        let (clock, diary) = (TestClock::new(), Arc::new(Diary::default()));
        let candidate = Candidate {
            namespace: "default".into(),
            lease: "l".into(),
            identity: identity.into(),
            process,
            timings,
            admission_lag: Duration::ZERO,
        };
        let at = Arc::new(clock.clone());
        let elector = Elector::with_clients(lease, work, candidate, at, diary.clone()).unwrap();
        let (health, stop) = (elector.health(), CancellationToken::new());
        let client = Arc::new(Mutex::new(None));
        let latest = client.clone();
        let run = tokio::spawn(elector.run(stop.clone(), move |term| {
            *latest.lock().unwrap() = Some(term.client());
            lead(term);
        }));
        Self {
            link,
            work_link,
            clock,
            health,
            stop,
            run,
            client,
            diary,
        }
    }

    pub(super) fn told(&self) -> Vec<Told> {
        let diary = self.diary.0.lock().unwrap();
        diary.iter().map(|(_, told)| told.clone()).collect()
    }

    /// When the latest thing was told.
    pub(super) fn told_at(&self) -> Instant {
        self.diary.0.lock().unwrap().last().unwrap().0
    }

    pub(super) fn leads(&self) -> bool {
        matches!(self.told().last(), Some(Told::Began(_)))
    }

    /// Waits until it leads, and returns how the term began.
    pub(super) async fn begun(&self) -> Begun {
        until("it leads", || self.leads()).await;
        match self.told().pop() {
            Some(Told::Began(begun)) => begun,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until its term has ended, and returns why.
    pub(super) async fn ended(&self) -> EndReason {
        let ended = || matches!(self.told().last(), Some(Told::Ended(_)));
        until("its term has ended", ended).await;
        match self.told().pop() {
            Some(Told::Ended(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    /// Stops it, waits for its end, and returns what it has told.
    pub(super) async fn last_words(self) -> Vec<Told> {
        let diary = self.diary.clone();
        self.stopped().await.unwrap();
        let diary = diary.0.lock().unwrap();
        diary.iter().map(|(_, told)| told.clone()).collect()
    }

    /// Stops it and waits for its end.
    pub(super) async fn stopped(self) -> Result<(), Error> {
        self.stop.cancel();
        timeout(Duration::from_secs(60), self.run)
            .await
            .unwrap()
            .unwrap()
    }

    /// Ends it as SIGKILL does: nothing is said to the API server.
    pub(super) async fn kill(self) {
        self.run.abort();
        let _ = self.run.await;
    }
}

/// Waits for a condition, within ten minutes of paused time.
pub(super) async fn until(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(
        timeout(Duration::from_secs(600), wait).await.is_ok(),
        "never: {what}"
    );
}
