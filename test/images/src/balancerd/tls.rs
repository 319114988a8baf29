//! TLS towards clients, and towards environmentd.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use pgwire::tokio::TlsAcceptor;
use pgwire::tokio::tokio_rustls::TlsConnector;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};

use super::args::Service;

/// The two sides; absent where plain TCP is spoken.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) clients: Option<TlsAcceptor>,
    pub(super) backend: Option<TlsConnector>,
}

impl Tls {
    pub(super) fn new(service: &Service) -> Result<Self> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let clients = match (&service.tls_cert, &service.tls_key) {
            (Some(cert), Some(key)) => Some(acceptor(&provider, cert, key)?),
            _ => None,
        };
        let backend = if service.internal_tls {
            Some(connector(&provider)?)
        } else {
            None
        };
        Ok(Self { clients, backend })
    }
}

fn acceptor(provider: &Arc<CryptoProvider>, cert: &Path, key: &Path) -> Result<TlsAcceptor> {
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect)
        .with_context(|| format!("--tls-cert {}", cert.display()))?;
    let key_der = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("--tls-key {}", key.display()))?;
    let config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key_der)
        .context("--tls-cert and --tls-key")?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn connector(provider: &Arc<CryptoProvider>) -> Result<TlsConnector> {
    let config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(Arc::clone(provider))))
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Trusts whoever answers: balancerd gets no certificate authority, only an address.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
