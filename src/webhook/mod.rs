//! The CRD conversion webhook: TLS server, ConversionReview protocol, certificates, drain.
//!
//! Every replica serves it, from before the custom resource definitions name it until its last
//! connection has been closed politely.

pub mod certificate;
pub mod review;
mod server;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum_server::tls_rustls::RustlsAcceptor;
use axum_server::{Handle, Server};
use rustls::pki_types::ServerName;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

pub use certificate::{CaBundle, CertificateError, Validity};

use crate::metrics::Metrics;
use certificate::{Certificate, CertificatePaths};

/// What is left to the server's task after the drain has run out.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// How to serve the webhook.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// Address to listen on.
    pub address: SocketAddr,
    /// The name by which clients know it.
    pub name: ServerName<'static>,
    /// Certificate chain, leaf first, as PEM.
    pub cert: PathBuf,
    /// Private key of the leaf, as PEM.
    pub key: PathBuf,
    /// CA that signed the chain, as PEM.
    pub ca: PathBuf,
    /// How often the files are looked at; at least every 2 s in any case.
    pub reload_interval: Duration,
}

/// Why the webhook cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The certificate cannot be used.
    #[error("webhook certificate: {0}")]
    Certificate(#[from] CertificateError),
    /// The address cannot be listened on.
    #[error("webhook cannot listen on {address}: {source} (see --webhook-listen-address)")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// A webhook that serves. Dropping it ends it at once; [`Webhook::drain`] ends it politely.
#[derive(Debug)]
pub struct Webhook {
    local_addr: SocketAddr,
    ca: watch::Receiver<CaBundle>,
    validity: Validity,
    handle: Handle<SocketAddr>,
    leaving: CancellationToken,
    ended: CancellationToken,
    server: JoinHandle<()>,
    certificate: JoinHandle<()>,
}

impl Webhook {
    /// Reads the certificate, listens, and serves from then on.
    ///
    /// # Errors
    /// The certificate is unusable or the address is taken.
    pub async fn start(config: WebhookConfig, metrics: Metrics) -> Result<Self, WebhookError> {
        let WebhookConfig {
            address,
            name,
            cert,
            key,
            ca,
            reload_interval,
        } = config;
        let certificate = Certificate::load(CertificatePaths { cert, key, ca }).await?;
        let failed = |source| WebhookError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let local_addr = listener.local_addr().map_err(failed)?;
        let handle = Handle::new();
        let leaving = CancellationToken::new();
        let router = server::router(metrics.clone(), leaving.clone());
        let server = Server::<SocketAddr>::from_listener(listener)
            .acceptor(RustlsAcceptor::new(certificate.tls()))
            .handle(handle.clone())
            .serve(router.into_make_service());
        let ended = CancellationToken::new();
        let ending = ended.clone().drop_guard();
        Ok(Self {
            local_addr,
            ca: certificate.ca(),
            validity: certificate.validity(name),
            handle,
            leaving,
            ended,
            server: tokio::spawn(async move {
                let _ending = ending;
                if let Err(error) = server.await {
                    tracing::error!(%error, "webhook ended");
                }
            }),
            certificate: tokio::spawn(certificate.watch(reload_interval, metrics)),
        })
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Waits until it no longer serves, whatever the reason.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// The CA that clients must trust, now and whenever it changes.
    pub fn ca(&self) -> watch::Receiver<CaBundle> {
        self.ca.clone()
    }

    /// Whether clients accept the certificate that is served.
    pub fn validity(&self) -> Validity {
        self.validity.clone()
    }

    /// Goes on accepting for `linger`, while others learn that this replica is going, and asks
    /// clients to give up each connection that they use; then
    /// accepts no more, tells clients to close their connections, and waits for requests in
    /// flight for at most `drain`.
    pub async fn drain(&self, linger: Duration, drain: Duration) {
        self.leaving.cancel();
        sleep(linger).await;
        self.handle.graceful_shutdown(Some(drain));
        let limit = drain.saturating_add(CLOSE_LIMIT);
        if timeout(limit, self.ended.cancelled()).await.is_err() {
            tracing::warn!(?drain, "webhook did not drain in time");
        }
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.handle.shutdown();
        self.server.abort();
        self.certificate.abort();
    }
}

#[cfg(test)]
mod tests;
