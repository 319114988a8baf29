//! The process: arguments and environment in, a running generation out.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use axum_server::tls_rustls::RustlsConfig;
use kube::Client;
use tracing::info;

use super::args::{Args, TlsMode};
use super::catalog::SecretCatalog;
use super::env::{CatalogKind, Environment};
use super::replica::{Replica, owner_labels};
use super::version::{ImageVersion, check};
use super::{Catalog, Environmentd, Listeners, MemoryCatalog, Options};
use crate::flags::{parse, require_file, variables};
use crate::http::bind;
use crate::process::{log, run};

/// Runs the stand-in as a process.
pub fn main() -> ExitCode {
    run("environmentd", serve())
}

async fn serve() -> Result<()> {
    let tag = std::env::var("MZ_STANDIN_VERSION")
        .map_err(|_| anyhow!("the environment lacks MZ_STANDIN_VERSION, which the image sets"))?;
    let version = ImageVersion::parse(&tag).context("MZ_STANDIN_VERSION")?;
    let args: Args = parse(std::env::args_os())?;
    check(&args, &version)?;
    let environment = Environment::read(variables()?, &version)?;
    log(args.telemetry.log_format);
    info!(
        "environmentd (stand-in) {tag}, generation {}",
        args.identity.deploy_generation
    );

    let pubsub = bind(
        "persist pubsub",
        args.network.internal_persist_pubsub_listen_addr,
    )?;
    let settings = environment.settings;
    let kubernetes = match settings.catalog {
        CatalogKind::Memory => None,
        CatalogKind::Kubernetes => Some(client().await?),
    };
    let catalog: Arc<dyn Catalog> = match &kubernetes {
        None => Arc::new(MemoryCatalog::default()),
        Some(client) => {
            let prefix = &args.orchestrator.orchestrator_kubernetes_name_prefix;
            Arc::new(SecretCatalog::new(
                client.clone(),
                prefix,
                owner_labels(&args),
            ))
        }
    };
    let mut environmentd = Environmentd::start(Options {
        generation: args.identity.deploy_generation,
        catalog: Arc::clone(&catalog),
        timings: settings.timings,
        fault: settings.fault,
        version: tag,
        password: environment.password,
        listeners: listeners(&args, &version)?,
        parameters: args
            .parameters
            .system_parameter_default
            .iter()
            .cloned()
            .collect(),
        parameters_file: args.parameters.config_sync_file_path.clone(),
        tls: tls(&args).await?,
    })
    .await?;
    if let Some(client) = kubernetes {
        let replica = Replica::new(&args);
        let status = environmentd.watch_status();
        environmentd.spawn(Box::pin(async move {
            replica.run(client, catalog.as_ref(), status).await
        }));
    }
    let outcome = environmentd.ended().await;
    drop(pubsub);
    outcome
}

async fn client() -> Result<Client> {
    let config = kube::Config::incluster().context("finding the API server from inside a pod")?;
    Client::try_from(config).context("building the client of the API server")
}

fn listeners(args: &Args, version: &ImageVersion) -> Result<Listeners> {
    let network = &args.network;
    if let Some(path) = &network.listeners_config_path {
        let named = || format!("--listeners-config-path {}", path.display());
        let text = std::fs::read_to_string(path).with_context(named)?;
        return Listeners::parse(&text, version.knows_listeners_schema()).with_context(named);
    }
    match (
        network.sql_listen_addr,
        network.http_listen_addr,
        network.internal_sql_listen_addr,
        network.internal_http_listen_addr,
    ) {
        (Some(sql), Some(http), Some(internal_sql), Some(internal_http)) => {
            let tls = network.tls_mode == TlsMode::Require;
            Ok(Listeners::from_addresses(
                sql,
                http,
                internal_sql,
                internal_http,
                tls,
            ))
        }
        _ => bail!("neither --listeners-config-path nor all listen addresses were given"),
    }
}

async fn tls(args: &Args) -> Result<Option<RustlsConfig>> {
    let (Some(cert), Some(key)) = (&args.network.tls_cert, &args.network.tls_key) else {
        return Ok(None);
    };
    require_file("--tls-cert", cert)?;
    require_file("--tls-key", key)?;
    let config = RustlsConfig::from_pem_file(cert, key)
        .await
        .context("--tls-cert and --tls-key")?;
    Ok(Some(config))
}
