//! The part of a cert-manager `Certificate` that users may set.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A certificate that cert-manager should issue; no certificate is made without an issuer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MaterializeCertSpec {
    /// Extra DNS names on the certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_names: Option<Vec<String>>,
    /// Requested lifetime, as a Go duration (`2160h`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// How long before expiry the certificate is renewed, as a Go duration (`360h`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_before: Option<String>,
    /// The cert-manager issuer that signs the certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer_ref: Option<CertificateIssuerRef>,
    /// Labels and annotations copied to the Secret that holds the certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_template: Option<CertificateSecretTemplate>,
    /// Private key algorithm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key_algorithm: Option<CertificatePrivateKeyAlgorithm>,
    /// Private key size in bits: RSA at least 2048, ECDSA 256, 384 or 521, none for Ed25519.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key_size: Option<i64>,
}

/// Reference to a cert-manager Issuer or ClusterIssuer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateIssuerRef {
    /// Name of the issuer.
    pub name: String,
    /// Kind of the issuer: `Issuer` or `ClusterIssuer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// API group of the issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// Metadata copied to the Secret that holds a certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateSecretTemplate {
    /// Annotations of the Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels of the Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// Private key algorithms that cert-manager accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CertificatePrivateKeyAlgorithm {
    /// RSA, 4096 bits unless a size is given.
    #[serde(rename = "RSA")]
    Rsa,
    /// ECDSA, 256 bits unless a size is given.
    #[serde(rename = "ECDSA")]
    Ecdsa,
    /// Ed25519, which has no size.
    Ed25519,
}
