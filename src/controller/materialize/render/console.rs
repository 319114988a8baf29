//! The Console of an environment.

use super::Environment;
use super::balancer::DEFAULT_REPLICAS;
use crate::api::Console;
use crate::api::console::{BalancerdRef, ConsoleSpec, HttpScheme};
use crate::controller::rendering::certificate::Choice;
use crate::controller::rendering::owner::Component;
use crate::image::ImageRef;

pub(super) fn render(environment: &Environment<'_>, active_image: &ImageRef) -> Console {
    let owner = &environment.owner;
    let spec = environment.spec;
    let options = environment.inputs.environment;
    let tag = active_image.console_tag(
        &options.console_image_tag_map,
        &options.console_image_tag_default,
    );
    let image = active_image.sibling_with_tag(Component::Console.as_str(), tag);
    let console = ConsoleSpec {
        console_image_ref: image.to_string(),
        resource_requirements: spec.console_resource_requirements.clone(),
        replicas: Some(spec.console_replicas.unwrap_or(DEFAULT_REPLICAS)),
        external_certificate_spec: spec.console_external_certificate_spec.clone(),
        pod_annotations: spec.pod_annotations.clone(),
        pod_labels: spec.pod_labels.clone(),
        balancerd: balancerd(environment),
        authenticator_kind: spec.authenticator_kind,
        resource_id: Some(owner.resource_id.to_string()),
    };
    Console {
        metadata: owner.child(owner.name.clone(), Component::Console),
        spec: console,
        status: None,
    }
}

fn balancerd(environment: &Environment<'_>) -> BalancerdRef {
    let options = environment.inputs.environment;
    let certificate = Choice::new(
        environment
            .spec
            .balancerd_external_certificate_spec
            .as_ref(),
        options
            .default_certificate_specs
            .balancerd_external
            .as_ref(),
    );
    BalancerdRef {
        service_name: environment.owner.resource_id.balancerd(),
        namespace: environment.owner.namespace.clone(),
        scheme: if certificate.has_issuer() {
            HttpScheme::Https
        } else {
            HttpScheme::Http
        },
        dns_names: certificate.dns_names().map(<[String]>::to_vec),
    }
}
