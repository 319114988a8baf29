//! cert-manager `Certificate`s: what the resource asks for, else the operator's default, else built in.

use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::RenderError;
use super::owner::{Component, Labels, Owner};
use crate::api::MaterializeCertSpec;
use crate::api::certificate_spec::{CertificateIssuerRef, CertificatePrivateKeyAlgorithm};

/// The resource that certificates are applied as.
pub fn api_resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(
        "cert-manager.io",
        "v1",
        "Certificate",
    ))
}

/// A resource's certificate spec over the operator's default one.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    own: Option<&'a MaterializeCertSpec>,
    default: Option<&'a MaterializeCertSpec>,
}

/// Names, algorithm and extra DNS names that a certificate's place in an environment decides.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The component that presents the certificate.
    pub component: Component,
    /// Name of the certificate.
    pub name: String,
    /// Name of its Secret.
    pub secret_name: String,
    /// DNS names that it has whatever the specs say.
    pub extra_dns_names: &'a [String],
    /// The private key algorithm where neither spec has one.
    pub algorithm: CertificatePrivateKeyAlgorithm,
}

impl<'a> Choice<'a> {
    /// Chooses member by member.
    pub fn new(
        own: Option<&'a MaterializeCertSpec>,
        default: Option<&'a MaterializeCertSpec>,
    ) -> Self {
        Self { own, default }
    }

    /// Whether there is an issuer, and so a certificate at all.
    pub fn has_issuer(self) -> bool {
        self.issuer().is_some()
    }

    /// The DNS names, without those that the place adds.
    pub fn dns_names(self) -> Option<&'a [String]> {
        self.pick(|spec| spec.dns_names.as_deref())
    }

    /// The certificate, if there is an issuer.
    ///
    /// # Errors
    /// [`RenderError::PrivateKeySize`] for a size that cert-manager would refuse.
    pub fn certificate(
        self,
        owner: &Owner,
        place: Place<'_>,
    ) -> Result<Option<DynamicObject>, RenderError> {
        let Some(issuer) = self.issuer() else {
            return Ok(None);
        };
        let dns_names: Vec<&String> = self
            .dns_names()
            .unwrap_or_default()
            .iter()
            .chain(place.extra_dns_names)
            .collect();
        let mut spec = json!({
            "dnsNames": dns_names,
            "issuerRef": issuer,
            "privateKey": self.private_key(&place)?,
            "secretName": place.secret_name,
            "secretTemplate": self.secret_template(owner),
        });
        for (member, value) in [
            ("duration", self.pick(|spec| spec.duration.as_ref())),
            ("renewBefore", self.pick(|spec| spec.renew_before.as_ref())),
        ] {
            if let (Some(members), Some(value)) = (spec.as_object_mut(), value) {
                members.insert(member.to_owned(), json!(value));
            }
        }
        let mut certificate =
            DynamicObject::new(&place.name, &api_resource()).data(json!({ "spec": spec }));
        certificate.metadata = owner.child(place.name, place.component);
        Ok(Some(certificate))
    }

    fn issuer(self) -> Option<&'a CertificateIssuerRef> {
        self.pick(|spec| spec.issuer_ref.as_ref())
    }

    fn pick<T>(self, member: impl Fn(&'a MaterializeCertSpec) -> Option<T>) -> Option<T> {
        self.own
            .and_then(&member)
            .or_else(|| self.default.and_then(&member))
    }

    fn secret_template(self, owner: &Owner) -> Value {
        let template = self.pick(|spec| spec.secret_template.as_ref());
        let mut labels: Labels = template
            .and_then(|template| template.labels.clone())
            .unwrap_or_default();
        labels.extend(owner.identity());
        match template.and_then(|template| template.annotations.as_ref()) {
            Some(annotations) => json!({ "annotations": annotations, "labels": labels }),
            None => json!({ "labels": labels }),
        }
    }

    fn private_key(self, place: &Place<'_>) -> Result<Value, RenderError> {
        use CertificatePrivateKeyAlgorithm::{Ecdsa, Ed25519, Rsa};
        let algorithm = self
            .pick(|spec| spec.private_key_algorithm)
            .unwrap_or(place.algorithm);
        let asked = self.private_key_size();
        let (name, size, fits, way_out) = match (algorithm, asked) {
            (Rsa, None) => ("RSA", Some(4096), true, ""),
            (Rsa, Some(size)) => ("RSA", asked, size >= 2048, "2048 or more"),
            (Ecdsa, None) => ("ECDSA", Some(256), true, ""),
            (Ecdsa, Some(size)) => {
                let fits = matches!(size, 256 | 384 | 521);
                ("ECDSA", asked, fits, "256, 384 or 521")
            }
            (Ed25519, _) => ("Ed25519", None, true, ""),
        };
        match (size, fits) {
            (Some(size), false) => Err(RenderError::PrivateKeySize {
                certificate: place.name.clone(),
                algorithm: name,
                size,
                way_out,
            }),
            (Some(size), true) => Ok(json!({
                "algorithm": name, "encoding": "PKCS8", "rotationPolicy": "Always", "size": size,
            })),
            (None, _) => Ok(json!({
                "algorithm": name, "encoding": "PKCS8", "rotationPolicy": "Always",
            })),
        }
    }

    /// The default's size goes with the default's algorithm: it says nothing about the resource's own.
    fn private_key_size(self) -> Option<i64> {
        let own = self.own.and_then(|spec| spec.private_key_algorithm);
        let default = self.default.and_then(|spec| spec.private_key_algorithm);
        self.own.and_then(|spec| spec.private_key_size).or_else(|| {
            self.default
                .filter(|_| own.is_none() || own == default)
                .and_then(|spec| spec.private_key_size)
        })
    }
}

#[cfg(test)]
mod tests;
