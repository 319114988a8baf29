//! The examples do what they say, on a real API server.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kube::config::Kubeconfig;
use rustix::process::{Pid, Signal, kill_process};

use crate::handover::world::{ALL, World, wait_for};

struct Example {
    child: Child,
    log: PathBuf,
}

impl Example {
    fn start(world: &World, name: &str, kubeconfig: &Path, arguments: &[&str]) -> Self {
        let log = world
            .folder
            .path()
            .join(format!("{name}-{}", arguments.concat()));
        let output = std::fs::File::create(&log).unwrap();
        // target/debug/deps/integration-… is this program.
        let this = std::env::current_exe().unwrap();
        let program = this.ancestors().nth(2).unwrap().join("examples").join(name);
        let child = Command::new(&program)
            .args(arguments)
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "{}: {error}: `cargo mzcompose test` builds it",
                    program.display()
                )
            });
        Self { child, log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    async fn leads(&self, leases: usize) {
        wait_for("an example to lead", async || {
            self.log().matches("leading: ").count() >= leases
        })
        .await;
    }

    async fn stop(mut self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        wait_for("an example to end", async || {
            self.child.try_wait().unwrap().is_some()
        })
        .await;
        assert!(self.child.wait().unwrap().success(), "{}", self.log());
        assert!(self.log().contains("gave the Lease back"), "{}", self.log());
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A kubeconfig whose context names the test's namespace.
async fn kubeconfig(world: &World) -> PathBuf {
    let path = world.user("example", &ALL).await;
    let mut config = Kubeconfig::read_from(&path).unwrap();
    let context = config.contexts[0].context.as_mut().unwrap();
    context.namespace = Some(world.namespace.clone());
    std::fs::write(&path, serde_json::to_string(&config).unwrap()).unwrap();
    path
}

#[tokio::test]
async fn split_serves_on_every_replica_and_reconciles_on_one() {
    let world = World::shared().await;
    let kubeconfig = kubeconfig(&world).await;
    let ports: [String; 2] = std::array::from_fn(|_| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port().to_string()
    });
    let first = Example::start(&world, "split", &kubeconfig, &["one", &ports[0]]);
    first.leads(1).await;
    let second = Example::start(&world, "split", &kubeconfig, &["two", &ports[1]]);
    wait_for("the second to stand by", async || {
        second.log().contains("another replica holds the Lease")
    })
    .await;
    for port in &ports {
        let answer = reqwest::get(format!("http://127.0.0.1:{port}/readyz")).await;
        assert_eq!(answer.unwrap().text().await.unwrap(), "ok\n");
    }
    first.stop(Signal::INT).await;
    second.leads(1).await;
}

#[tokio::test]
async fn two_locks_are_led_by_one_process_each_under_its_own_lease() {
    let world = World::shared().await;
    let kubeconfig = kubeconfig(&world).await;
    let example = Example::start(&world, "two_locks", &kubeconfig, &["one"]);
    example.leads(2).await;
    for lease in ["example-volumes", "example-networks"] {
        let lease = world.leases().get(lease).await.unwrap();
        assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some("one"));
    }
    example.stop(Signal::TERM).await;
}

#[tokio::test]
async fn outside_the_cluster_the_namespace_is_given() {
    let world = World::shared().await;
    let kubeconfig = world.user("example", &ALL).await;
    let arguments = [
        "--leader-election-namespace",
        &world.namespace,
        "--leader-election-identity",
        "machine",
    ];
    let example = Example::start(&world, "outside", &kubeconfig, &arguments);
    example.leads(1).await;
    example.stop(Signal::TERM).await;
    let spec = world
        .leases()
        .get("outside-example")
        .await
        .unwrap()
        .spec
        .unwrap();
    assert_eq!(spec.holder_identity, None);
}
