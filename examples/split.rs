//! A server on every replica, a reconciler only on the leader.
//!
//! Readiness is that of the server; who leads is nobody's business but the reconciler's. Run it
//! twice, with two names, against any cluster, and stop the one that leads:
//!
//! ```sh
//! cargo run --example split -- one 8081
//! cargo run --example split -- two 8082
//! ```

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Config};
use orchestratord::election::{Candidate, Elector, Process, Term, Timings, prompt_client};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Counts in a ConfigMap for as long as the term lasts. The client refuses writes after that, but
/// to end by itself is politer than to be aborted.
async fn reconcile(client: Client, ended: CancellationToken) {
    let config_maps: Api<ConfigMap> = Api::default_namespaced(client);
    for count in 0_u64.. {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "split-example"}, "data": {"count": count.to_string()},
        });
        let params = PatchParams::apply("split-example").force();
        let patch = Patch::Apply(&object);
        if let Err(error) = config_maps.patch("split-example", &params, &patch).await {
            tracing::warn!(%error, "cannot write");
        }
        tokio::select! {
            () = ended.cancelled() => return,
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("which name?")?;
    let port: u16 = arguments.next().ok_or("which port?")?.parse()?;

    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let router = Router::new().route("/readyz", get(async || "ok\n"));
    let server = tokio::spawn(async move { axum::serve(listener, router).await });

    let config = Config::infer().await?;
    let client = prompt_client(config.clone())?;
    let candidate = Candidate {
        namespace: config.default_namespace.clone(),
        lease: "split-example".to_owned(),
        identity: name.clone(),
        process: Process::new(name, std::env::var("POD_UID").ok()),
        timings: Timings::default(),
        admission_lag: Duration::ZERO,
    };
    let elector = Elector::new(config, client, candidate, Arc::new(()))?;
    let stop = CancellationToken::new();
    let asked = stop.clone();
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        asked.cancel();
    });
    // Returns once the Lease is given back; the server has answered until here.
    let lead = |term: &mut Term| term.spawn("reconciler", reconcile(term.client(), term.token()));
    elector.run(stop, lead).await?;
    server.abort();
    Ok(())
}
