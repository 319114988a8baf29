use std::sync::Mutex;

use http::Response;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::{Body, ClientBuilder};
use kube::{Api, Client};
use rstest::rstest;
use serde_json::json;
use tower_test::mock::{self, Handle};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Default)]
struct HandClock(Mutex<Duration>);

impl HandClock {
    fn set(&self, seconds: u64) {
        *self.0.lock().unwrap() = Duration::from_secs(seconds);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Moment {
        Moment::new(*self.0.lock().unwrap())
    }
}

#[derive(Default)]
struct Refusals(AtomicU64);

impl Observer for Refusals {
    fn fence_refused(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

type Server = Handle<Request<Body>, Response<Body>>;

/// A fence that is open until 10 s, around a client of a server that answers by hand.
struct Yard {
    clock: Arc<HandClock>,
    refusals: Arc<Refusals>,
    fence: Fence,
    maps: Api<ConfigMap>,
    server: Server,
}

impl Yard {
    fn new() -> Self {
        let (clock, refusals) = (
            Arc::new(HandClock::default()),
            Arc::new(Refusals::default()),
        );
        let until = Moment::new(10 * SECOND);
        let fence = Fence::new(clock.clone(), refusals.clone(), until);
        let (service, server) = mock::pair();
        let client: Client = ClientBuilder::new(service, "default")
            .with_layer(&FenceLayer::new(fence.clone()))
            .build();
        Self {
            clock,
            refusals,
            fence,
            maps: Api::default_namespaced(client),
            server,
        }
    }

    /// Sends a write, and returns once the server has it.
    async fn write_on_its_way(&mut self) -> (Writing, mock::SendResponse<Response<Body>>) {
        let maps = self.maps.clone();
        let writing = tokio::spawn(async move { delete(&maps).await });
        let (_, answer) = self.server.next_request().await.unwrap();
        (writing, answer)
    }
}

type Writing = tokio::task::JoinHandle<kube::Result<()>>;

async fn delete(maps: &Api<ConfigMap>) -> kube::Result<()> {
    maps.delete("x", &DeleteParams::default()).await.map(drop)
}

fn answer() -> Response<Body> {
    let body = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}});
    Response::new(Body::from(body.to_string().into_bytes()))
}

async fn is_refused(yard: &mut Yard) -> bool {
    let refusals = yard.refusals.0.load(Ordering::SeqCst);
    let maps = yard.maps.clone();
    let mut writing = tokio::spawn(async move { delete(&maps).await });
    tokio::select! {
        result = &mut writing => {
            let error = result.unwrap().unwrap_err();
            assert!(is_fence_closed(&error), "{error}");
            assert_eq!(yard.refusals.0.load(Ordering::SeqCst), refusals + 1);
            true
        }
        request = yard.server.next_request() => {
            request.unwrap().1.send_response(answer());
            writing.await.unwrap().unwrap();
            false
        }
    }
}

#[tokio::test(start_paused = true)]
async fn writes_pass_until_the_moment_and_not_after() {
    let mut yard = Yard::new();
    yard.clock.set(9);
    assert!(!is_refused(&mut yard).await);
    yard.clock.set(10);
    assert!(is_refused(&mut yard).await, "nobody woke the elector");
    assert_eq!(yard.fence.check(), Err(FenceClosed));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_moves_the_fence_forward_and_never_back() {
    let mut yard = Yard::new();
    yard.fence.extend(Moment::new(20 * SECOND));
    yard.fence.extend(Moment::new(15 * SECOND));
    yard.clock.set(19);
    assert!(!is_refused(&mut yard).await);
    yard.clock.set(20);
    assert!(is_refused(&mut yard).await);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_term_closes_it_for_good() {
    let mut yard = Yard::new();
    yard.fence.close();
    yard.fence.extend(Moment::new(20 * SECOND));
    assert!(is_refused(&mut yard).await);
}

#[rstest]
#[case::create("POST")]
#[case::replace("PUT")]
#[case::patch("PATCH")]
#[case::delete("DELETE")]
#[tokio::test(start_paused = true)]
async fn every_verb_that_writes_is_refused(#[case] verb: &str) {
    let yard = Yard::new();
    yard.fence.close();
    let (maps, map) = (&yard.maps, ConfigMap::default());
    let post = PostParams::default();
    let error = match verb {
        "POST" => maps.create(&post, &map).await.unwrap_err(),
        "PUT" => maps.replace("x", &post, &map).await.unwrap_err(),
        "PATCH" => {
            let (params, patch) = (PatchParams::apply("test"), Patch::Apply(&map));
            maps.patch("x", &params, &patch).await.unwrap_err()
        }
        _ => delete(maps).await.unwrap_err(),
    };
    assert!(is_fence_closed(&error), "{error}");
}

#[tokio::test(start_paused = true)]
async fn reads_pass_a_closed_fence() {
    let mut yard = Yard::new();
    yard.fence.cut();
    yard.clock.set(99);
    let maps = yard.maps.clone();
    let reading = tokio::spawn(async move { maps.get("x").await });
    yard.server
        .next_request()
        .await
        .unwrap()
        .1
        .send_response(answer());
    assert_eq!(
        reading.await.unwrap().unwrap().metadata.name.as_deref(),
        Some("x")
    );
}

#[tokio::test(start_paused = true)]
async fn other_errors_are_not_the_fence() {
    let mut yard = Yard::new();
    let maps = yard.maps.clone();
    let listing = tokio::spawn(async move { maps.list(&ListParams::default()).await });
    yard.server
        .next_request()
        .await
        .unwrap()
        .1
        .send_error("broken");
    assert!(!is_fence_closed(&listing.await.unwrap().unwrap_err()));
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_a_write_on_its_way() {
    let mut yard = Yard::new();
    let (writing, answered) = yard.write_on_its_way().await;
    let drain = yard.fence.drain(SECOND);
    tokio::pin!(drain);
    assert!(futures::poll!(&mut drain).is_pending());
    answered.send_response(answer());
    drain.await;
    writing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_a_write_whose_task_was_aborted() {
    let mut yard = Yard::new();
    let (writing, answered) = yard.write_on_its_way().await;
    writing.abort();
    assert!(writing.await.unwrap_err().is_cancelled());
    let drain = yard.fence.drain(SECOND);
    tokio::pin!(drain);
    assert!(
        futures::poll!(&mut drain).is_pending(),
        "it may still be carried out"
    );
    answered.send_response(answer());
    drain.await;
}

#[tokio::test(start_paused = true)]
async fn the_end_gives_up_a_write_that_hangs() {
    let mut yard = Yard::new();
    let (writing, _answered) = yard.write_on_its_way().await;
    let start = tokio::time::Instant::now();
    yard.fence.drain(SECOND).await;
    assert_eq!(start.elapsed(), SECOND);
    assert!(is_fence_closed(&writing.await.unwrap().unwrap_err()));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waits_for_its_connection_is_refused_after_the_moment() {
    let yard = Yard::new();
    let (release, connected) = tokio::sync::oneshot::channel::<()>();
    let sent = Arc::new(AtomicU64::new(0));
    let (connected, count) = (Arc::new(Mutex::new(Some(connected))), sent.clone());
    let service = tower::service_fn(move |_: Request<Body>| {
        let (connected, count) = (connected.lock().unwrap().take(), count.clone());
        async move {
            connected.unwrap().await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            Ok::<_, BoxError>(answer())
        }
    });
    let client: Client = ClientBuilder::new(service, "default")
        .with_layer(&FenceLayer::new(yard.fence.clone()))
        .build();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let writing = tokio::spawn(async move { delete(&maps).await });
    tokio::task::yield_now().await;
    yard.clock.set(10);
    release.send(()).unwrap();
    assert!(is_fence_closed(&writing.await.unwrap().unwrap_err()));
    assert_eq!(sent.load(Ordering::SeqCst), 0);
}
