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
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
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

/// Whether clients that trust the CA accept what is served; clones show the same.
#[derive(Clone, Debug)]
pub struct Validity {
    chain: watch::Receiver<Vec<CertificateDer<'static>>>,
    ca: watch::Receiver<CaBundle>,
    name: ServerName<'static>,
    paths: CertificatePaths,
}

impl Validity {
    /// Whether the certificate has not expired, bears the name of the webhook, and is signed by the
    /// CA. Nothing else is held against it: the API server may be less strict than this library.
    ///
    /// # Errors
    /// What is wrong, and with which file.
    pub fn check(&self) -> Result<(), String> {
        use rustls::CertificateError as Wrong;
        let what = match self.verify() {
            Err(rustls::Error::InvalidCertificate(wrong)) => match wrong {
                Wrong::Expired | Wrong::ExpiredContext { .. } => "has expired",
                Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                    "bears other names"
                }
                Wrong::UnknownIssuer | Wrong::BadSignature => "is not signed by the CA",
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        let (cert, ca) = (self.paths.cert.display(), self.paths.ca.display());
        let name = self.name.to_str();
        Err(format!(
            "the certificate {what}: renew {cert} for {name}, signed by {ca}"
        ))
    }

    fn verify(&self) -> Result<(), rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(self.ca.borrow().as_bytes()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let chain = self.chain.borrow();
        let Some((leaf, between)) = chain.split_first() else {
            return Ok(());
        };
        verifier.verify_server_cert(leaf, between, &self.name, &[], UnixTime::now())?;
        Ok(())
    }
}

/// What to serve.
struct Pair {
    config: Arc<ServerConfig>,
    chain: Vec<CertificateDer<'static>>,
    /// When the leaf expires, in seconds since 1970.
    not_after: i64,
}

/// What is served and announced, and the files it was made from.
pub(super) struct Certificate {
    paths: CertificatePaths,
    seen: Files,
    tls: RustlsConfig,
    chain: watch::Sender<Vec<CertificateDer<'static>>>,
    not_after: i64,
    ca: watch::Sender<CaBundle>,
}

impl Certificate {
    /// Reads all three files.
    ///
    /// # Errors
    /// Any of them is missing or unusable.
    pub(super) async fn load(paths: CertificatePaths) -> Result<Self, CertificateError> {
        let seen = paths.read().await?;
        let pair = paths.pair(&seen)?;
        let ca = watch::Sender::new(paths.ca_bundle(&seen)?);
        Ok(Self {
            paths,
            seen,
            tls: RustlsConfig::from_config(pair.config),
            chain: watch::Sender::new(pair.chain),
            not_after: pair.not_after,
            ca,
        })
    }

    pub(super) fn tls(&self) -> RustlsConfig {
        self.tls.clone()
    }

    pub(super) fn ca(&self) -> watch::Receiver<CaBundle> {
        self.ca.subscribe()
    }

    /// Whether clients accept it that know the webhook by `name`.
    pub(super) fn validity(&self, name: ServerName<'static>) -> Validity {
        Validity {
            chain: self.chain.subscribe(),
            ca: self.ca(),
            name,
            paths: self.paths.clone(),
        }
    }

    /// Watches the files for as long as it is polled.
    pub(super) async fn watch(mut self, reload_interval: Duration, metrics: Metrics) {
        let reloads = metrics.certificate_reloads;
        let mut ticks = interval(reload_interval.clamp(Duration::from_millis(1), POLL));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            metrics.certificate_not_after.set(self.not_after);
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
        let pair = self.paths.pair(&self.seen);
        let ca = self.paths.ca_bundle(&self.seen);
        if let Ok(ca) = &ca {
            self.ca.send_if_modified(|known| {
                let changed = known != ca;
                known.clone_from(ca);
                changed
            });
        }
        let pair = pair?;
        self.tls.reload_from_config(pair.config);
        self.chain.send_replace(pair.chain);
        self.not_after = pair.not_after;
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

    fn pair(&self, files: &Files) -> Result<Pair, CertificateError> {
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
        let unfit = |source| CertificateError::Pair {
            cert: self.cert.clone(),
            key: self.key.clone(),
            source,
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unfit)?
            .with_no_client_auth()
            .with_single_cert(chain.clone(), key)
            .map_err(unfit)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Pair {
            config: Arc::new(config),
            chain,
            not_after,
        })
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
