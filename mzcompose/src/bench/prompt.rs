//! A client that does not wait for more to send.

use std::path::Path;

use anyhow::{Context, Result};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

/// A client for a kubeconfig file, with `TCP_NODELAY`: a request of two segments would wait for a delayed
/// acknowledgement otherwise, and the floor would not be one.
pub async fn prompt_client(kubeconfig: &Path) -> Result<Client> {
    let unusable = || format!("cannot use {}", kubeconfig.display());
    let read = Kubeconfig::read_from(kubeconfig).with_context(unusable)?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .with_context(unusable)?;
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    let connector = config
        .rustls_https_connector_with_connector(connector)
        .with_context(unusable)?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().with_context(unusable)?)
        .map_err(BoxError::from)
        .service(HttpClient::builder(TokioExecutor::new()).build(connector));
    Ok(Client::new(service, config.default_namespace))
}
