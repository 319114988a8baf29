//! The webhook's certificate: read from files, watched, and swapped without dropping a connection.
//!
//! Files are compared by content, because mounted Secrets change through symbolic links. A pair
//! that does not fit together (written halfway, or plainly wrong) leaves the last good one serving.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum_server::tls_rustls::RustlsConfig;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::jiff::Timestamp;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use x509_parser::parse_x509_certificate;

use crate::metrics::Metrics;

/// Longest time between two looks at the files.
const POLL: Duration = Duration::from_secs(2);

/// Where certificate, key and CA lie, as PEM.
#[derive(Clone, Debug)]
pub(super) struct CertificatePaths {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
    pub(super) ca: PathBuf,
}

/// Why certificate, key or CA cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source} (see --tls-ca, --tls-cert and --tls-key)")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file holds something else.
    #[error("{path} holds no usable {what}: {reason}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What should be in it.
        what: &'static str,
        /// Why it is not.
        reason: String,
    },
    /// Certificate and key do not belong together.
    #[error("{cert} and {key} do not make a TLS server: {source}")]
    Pair {
        /// The certificate file.
        cert: PathBuf,
        /// The key file.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

/// PEM text of one or more CA certificates and nothing else: fit to be made public.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaBundle(Vec<u8>);

impl CaBundle {
    /// Takes the text if all of it is certificates.
    ///
    /// # Errors
    /// The reason: no certificate, an unreadable one, or another section, such as a private key.
    pub fn parse(pem: &[u8]) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
            let (kind, der) = section.map_err(|error| error.to_string())?;
            if kind != SectionKind::Certificate {
                return Err(format!("a section is {kind:?}, not a certificate"));
            }
            roots
                .add(CertificateDer::from(der))
                .map_err(|error| error.to_string())?;
        }
        if roots.is_empty() {
            return Err("no certificate in PEM form".to_owned());
        }
        Ok(Self(pem.to_vec()))
    }

    /// These, and after them those certificates of `other` that are not among them and have not
    /// expired; whatever else is in it is left out.
    #[must_use]
    pub fn and_still_valid(&self, other: &[u8]) -> Self {
        let mut known: Vec<_> = certificates(&self.0).collect();
        let mut pem = self.0.clone();
        for der in certificates(other) {
            let is_valid = parse_x509_certificate(&der)
                .is_ok_and(|(_, certificate)| certificate.validity().is_valid());
            if is_valid && !known.contains(&der) {
                if !pem.ends_with(b"\n") {
                    pem.push(b'\n');
                }
                pem.extend(to_pem(&der).into_bytes());
                known.push(der);
            }
        }
        Self(pem)
    }

    /// The PEM text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn certificates(pem: &[u8]) -> impl Iterator<Item = CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok)
}

fn to_pem(der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem + "-----END CERTIFICATE-----\n"
}

/// The files' bytes as they were last seen.
#[derive(Debug, PartialEq, Eq)]
struct Files {
    cert: Vec<u8>,
    key: Vec<u8>,
    ca: Vec<u8>,
}

/// Until when the certificate that is served is valid; clones show the same.
#[derive(Clone, Debug)]
pub struct Validity {
    not_after: watch::Receiver<i64>,
    cert: PathBuf,
}

impl Validity {
    /// Whether the certificate has not expired.
    ///
    /// # Errors
    /// When it expired, and the file to renew.
    pub fn check(&self) -> Result<(), String> {
        let expiry = Timestamp::from_second(*self.not_after.borrow()).unwrap_or(Timestamp::MAX);
        if Timestamp::now() < expiry {
            return Ok(());
        }
        let cert = self.cert.display();
        Err(format!("the certificate expired at {expiry}: renew {cert}"))
    }
}

/// What is served and announced, and the files it was made from.
pub(super) struct Certificate {
    paths: CertificatePaths,
    seen: Files,
    tls: RustlsConfig,
    not_after: watch::Sender<i64>,
    ca: watch::Sender<CaBundle>,
}

impl Certificate {
    /// Reads all three files.
    ///
    /// # Errors
    /// Any of them is missing or unusable.
    pub(super) async fn load(paths: CertificatePaths) -> Result<Self, CertificateError> {
        let seen = paths.read().await?;
        let (config, not_after) = paths.server_config(&seen)?;
        let ca = watch::Sender::new(paths.ca_bundle(&seen)?);
        Ok(Self {
            paths,
            seen,
            tls: RustlsConfig::from_config(config),
            not_after: watch::Sender::new(not_after),
            ca,
        })
    }

    pub(super) fn tls(&self) -> RustlsConfig {
        self.tls.clone()
    }

    pub(super) fn ca(&self) -> watch::Receiver<CaBundle> {
        self.ca.subscribe()
    }

    pub(super) fn validity(&self) -> Validity {
        Validity {
            not_after: self.not_after.subscribe(),
            cert: self.paths.cert.clone(),
        }
    }

    /// Watches the files for as long as it is polled.
    pub(super) async fn watch(mut self, reload_interval: Duration, metrics: Metrics) {
        let reloads = metrics.certificate_reloads;
        let mut ticks = interval(reload_interval.clamp(Duration::from_millis(1), POLL));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            metrics.certificate_not_after.set(*self.not_after.borrow());
            ticks.tick().await;
            match self.reload().await {
                Ok(false) => {}
                Ok(true) => {
                    reloads.with_label_values(&["success"]).inc();
                    tracing::info!(cert = %self.paths.cert.display(), "webhook certificate reloaded");
                }
                Err(error) => {
                    reloads.with_label_values(&["failure"]).inc();
                    tracing::warn!(%error, "webhook goes on with the last good certificate");
                }
            }
        }
    }

    /// Takes over what changed; false if nothing did. Each state of the files is tried once.
    async fn reload(&mut self) -> Result<bool, CertificateError> {
        let files = self.paths.read().await?;
        if files == self.seen {
            return Ok(false);
        }
        self.seen = files;
        let pair = self.paths.server_config(&self.seen);
        let ca = self.paths.ca_bundle(&self.seen);
        if let Ok(ca) = &ca {
            self.ca.send_if_modified(|known| {
                let changed = known != ca;
                known.clone_from(ca);
                changed
            });
        }
        let (config, not_after) = pair?;
        self.tls.reload_from_config(config);
        self.not_after.send_replace(not_after);
        ca.map(|_| true)
    }
}

impl CertificatePaths {
    async fn read(&self) -> Result<Files, CertificateError> {
        Ok(Files {
            cert: read(&self.cert).await?,
            key: read(&self.key).await?,
            ca: read(&self.ca).await?,
        })
    }

    /// What to serve, and when its certificate expires, in seconds since 1970.
    fn server_config(&self, files: &Files) -> Result<(Arc<ServerConfig>, i64), CertificateError> {
        let content = |path: &Path, what, reason: String| CertificateError::Content {
            path: path.to_owned(),
            what,
            reason,
        };
        let chain = CertificateDer::pem_slice_iter(&files.cert)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| content(&self.cert, "certificate", error.to_string()))?;
        let leaf = chain.first().map_or(&[][..], |leaf| leaf);
        let not_after = parse_x509_certificate(leaf)
            .map(|(_, leaf)| leaf.validity().not_after.timestamp())
            .map_err(|error| content(&self.cert, "certificate", error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(&files.key)
            .map_err(|error| content(&self.key, "private key", error.to_string()))?;
        let pair = |source| CertificateError::Pair {
            cert: self.cert.clone(),
            key: self.key.clone(),
            source,
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(pair)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(pair)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok((Arc::new(config), not_after))
    }

    fn ca_bundle(&self, files: &Files) -> Result<CaBundle, CertificateError> {
        CaBundle::parse(&files.ca).map_err(|reason| CertificateError::Content {
            path: self.ca.clone(),
            what: "CA certificate",
            reason,
        })
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    tokio::fs::read(path)
        .await
        .map_err(|source| CertificateError::Read {
            path: path.to_owned(),
            source,
        })
}
