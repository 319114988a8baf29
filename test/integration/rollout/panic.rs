//! A controller that panics ends the operator, and so does one that blocks its thread.

use std::process::{self, Output, Stdio};
use std::thread;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use orchestratord::cli::{self, Invocation};
use orchestratord::controller::Resolver;
use orchestratord::operator;
use serde_json::json;
use tokio::process::Command;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::world::{BOUND, IMAGE, World};

const IDENTITY: &str = "child";

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_panics_ends_the_operator_with_the_lease_given_back() {
    let world = world().await;
    let output = run(&world, "rollout::panic::panics").await;
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("orchestratord: leader task materialize panicked"),
        "{told}"
    );
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert_eq!(world.lease().await.holder_identity, None);
}

/// It may still write: so it is gone before others take over, and they have to wait for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_blocks_ends_the_operator_before_its_lease_does() {
    let world = world().await;
    let output = run(&world, "rollout::panic::blocks").await;
    let ended = Timestamp::now();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("orchestratord: leader tasks [\"materialize\"] run on"),
        "{told}"
    );
    assert_eq!(output.status.code(), Some(1), "{told}");
    let lease = world.lease().await;
    assert_eq!(lease.holder_identity.as_deref(), Some(IDENTITY));
    let duration = SignedDuration::from_secs(lease.lease_duration_seconds.unwrap().into());
    let unrenewed = ended.duration_since(lease.renew_time.unwrap().0);
    assert!(unrenewed < duration, "{unrenewed}");
}

/// With an environment, but for an operator.
async fn world() -> World {
    let (world, _stand_ins) = World::start_without_operator().await;
    world
        .create(json!({ "environmentdImageRef": IMAGE, "backendSecretName": "backend" }))
        .await;
    world
}

/// Runs one of the operators below as a process.
async fn run(world: &World, operator: &str) -> Output {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", operator])
        .args(["--ignored", "--nocapture"])
        .env("KUBECONFIG", world.kubeconfig())
        .env_remove("KUBERNETES_SERVICE_HOST")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let bounded = tokio::time::timeout(BOUND, output).await;
    bounded.expect("it ends by itself").unwrap()
}

#[test]
#[ignore = "no test of its own: another one starts it as a process"]
fn panics() {
    operator(|_| panic!("on purpose"));
}

#[test]
#[ignore = "no test of its own: another one starts it as a process"]
fn blocks() {
    operator(|stop| {
        stop.cancel();
        loop {
            thread::park();
        }
    });
}

/// Does as `main` does, and `act` on the way of the one controller that talks to environmentd.
fn operator(act: impl Fn(&CancellationToken) -> String + Send + Sync + 'static) -> ! {
    let identity = format!("--leader-election-identity={IDENTITY}");
    let arguments = [
        "orchestratord",
        "--cloud-provider=local",
        "--region=test",
        "--console-image-tag-default=v26.40.0",
        "--kubernetes-context=mzcompose",
        "--leader-election-namespace=default",
        &identity,
        "--metrics-listen-address=127.0.0.1:0",
    ];
    let Ok(Invocation::Run(args)) = cli::parse(arguments) else {
        panic!("bad arguments");
    };
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    let resolver = Resolver::direct(move |_| act(&stopping)).unwrap();
    let runtime = Runtime::new().unwrap();
    let code = operator::run_to_end(runtime, *args, Some(resolver), stop);
    process::exit(code.into())
}
