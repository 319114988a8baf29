//! environmentd's certificate inside the cluster.

use kube::api::DynamicObject;

use super::Environment;
use crate::api::certificate_spec::CertificatePrivateKeyAlgorithm;
use crate::controller::rendering::RenderError;
use crate::controller::rendering::certificate::Place;
use crate::controller::rendering::names::service_fqdn;
use crate::controller::rendering::owner::Component;

pub(super) fn render(environment: &Environment<'_>) -> Result<Option<DynamicObject>, RenderError> {
    let owner = &environment.owner;
    let service = owner.resource_id.environmentd_public();
    let fqdn = service_fqdn(&service, &owner.namespace);
    let place = Place {
        component: Component::Environmentd,
        name: owner.resource_id.child("environmentd-external"),
        secret_name: owner.resource_id.environmentd_tls_secret(),
        extra_dns_names: &[service, fqdn],
        algorithm: CertificatePrivateKeyAlgorithm::Ed25519,
    };
    environment.internal_certificate().certificate(owner, place)
}
