//! Clients of an API server that may not be there yet.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::time::timeout;

use crate::process::{Process, wait_until};

const REQUEST_LIMIT: Duration = Duration::from_secs(2);

/// Waits until an API server says that it is ready.
pub(crate) async fn wait_api_server(
    kubeconfig: &Path,
    limit: Duration,
    needs: &[&Process],
) -> Result<()> {
    let client = connect(kubeconfig).await?;
    wait_until("the API server to be ready", limit, needs, async || {
        let request = http::Request::get("/readyz").body(vec![])?;
        Ok(answered(client.request_text(request)).await.is_some())
    })
    .await
}

/// The answer to a request, if a good one comes soon.
pub(crate) async fn answered<T>(request: impl Future<Output = kube::Result<T>>) -> Option<T> {
    timeout(REQUEST_LIMIT, request).await.ok()?.ok()
}

/// A client for a kubeconfig file.
pub async fn connect(kubeconfig: &Path) -> Result<Client> {
    let read = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("cannot read {}", kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("cannot use {}", kubeconfig.display()))?;
    Client::try_from(config).with_context(|| format!("cannot use {}", kubeconfig.display()))
}

/// URL of the server that a kubeconfig file names.
pub(crate) fn server_of(kubeconfig: &Path) -> Result<String> {
    let config = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("cannot read {}", kubeconfig.display()))?;
    let mut clusters = config
        .clusters
        .into_iter()
        .filter_map(|named| named.cluster?.server);
    clusters
        .next_back()
        .with_context(|| format!("{} names no server", kubeconfig.display()))
}
