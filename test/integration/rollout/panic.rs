//! A controller that panics ends the operator.

use std::process::Stdio;

use orchestratord::cli::{self, Invocation};
use orchestratord::controller::Resolver;
use orchestratord::errors::cause_chain;
use orchestratord::operator;
use serde_json::json;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::world::{BOUND, IMAGE, World};

/// Of whatever error the operator ends with, its process makes an exit code: see `process`.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_panics_ends_the_operator_with_the_lease_given_back() {
    let (world, _stand_ins) = World::start_without_operator().await;
    world
        .create(json!({ "environmentdImageRef": IMAGE, "backendSecretName": "backend" }))
        .await;
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rollout::panic::operator"])
        .args(["--ignored", "--nocapture"])
        .env("KUBECONFIG", world.kubeconfig())
        .env_remove("KUBERNETES_SERVICE_HOST")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let bounded = tokio::time::timeout(BOUND, output).await;
    let output = bounded.expect("it ends by itself").unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(
        told.contains("> leader task materialize panicked"),
        "{told}"
    );
    assert_eq!(world.holder().await, None);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "no test of its own: the other one starts it as a process"]
async fn operator() {
    let arguments = [
        "orchestratord",
        "--cloud-provider=local",
        "--region=test",
        "--console-image-tag-default=v26.40.0",
        "--kubernetes-context=mzcompose",
        "--leader-election-namespace=default",
        "--metrics-listen-address=127.0.0.1:0",
    ];
    let Ok(Invocation::Run(args)) = cli::parse(arguments) else {
        panic!("bad arguments");
    };
    // Asked for on the way of the one controller that talks to environmentd.
    let resolver = Resolver::direct(|_| panic!("on purpose")).unwrap();
    let ended = operator::run(*args, Some(resolver), CancellationToken::new()).await;
    println!("> {}", cause_chain(&ended.unwrap_err()));
}
