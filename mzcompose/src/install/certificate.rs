//! The webhook's certificate where no cert-manager makes one.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::ByteString;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::kubernetes::{OPERATOR, OPERATOR_NAMESPACE};

/// A CA and a leaf of it for the webhook's Service, under the names that the operator reads.
pub fn webhook_certificate() -> Result<BTreeMap<String, ByteString>> {
    let ca_key = KeyPair::generate()?;
    let mut ca = CertificateParams::default();
    ca.distinguished_name
        .push(DnType::CommonName, "operator-webhook-ca");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_certificate = ca.self_signed(&ca_key)?;
    let leaf_key = KeyPair::generate()?;
    let leaf = CertificateParams::new([format!("{OPERATOR}.{OPERATOR_NAMESPACE}.svc")])?;
    let leaf_certificate = leaf.signed_by(&leaf_key, &Issuer::new(ca, ca_key))?;
    let entries = [
        ("ca.crt", ca_certificate.pem()),
        ("tls.crt", leaf_certificate.pem()),
        ("tls.key", leaf_key.serialize_pem()),
    ];
    Ok(entries
        .into_iter()
        .map(|(name, pem)| (name.to_owned(), ByteString(pem.into_bytes())))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_has_the_three_files_of_the_webhook() {
        let files = webhook_certificate().unwrap();
        assert_eq!(
            files.keys().collect::<Vec<_>>(),
            ["ca.crt", "tls.crt", "tls.key"]
        );
    }
}
