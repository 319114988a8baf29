//! The Balancer in front of an environment.

use super::Environment;
use crate::api::Balancer;
use crate::api::balancer::{BalancerSpec, StaticRouting};
use crate::controller::rendering::owner::Component;
use crate::image::ImageRef;

/// Pods of balancerd and of the console where the spec does not say.
pub const DEFAULT_REPLICAS: i32 = 2;

pub(super) fn render(environment: &Environment<'_>, active_image: &ImageRef) -> Balancer {
    let owner = &environment.owner;
    let spec = environment.spec;
    let image = active_image.sibling(Component::Balancerd.as_str());
    let balancer = BalancerSpec {
        balancerd_image_ref: image.to_string(),
        resource_requirements: spec.balancerd_resource_requirements.clone(),
        replicas: Some(spec.balancerd_replicas.unwrap_or(DEFAULT_REPLICAS)),
        external_certificate_spec: spec.balancerd_external_certificate_spec.clone(),
        internal_certificate_spec: spec.internal_certificate_spec.clone(),
        pod_annotations: spec.pod_annotations.clone(),
        pod_labels: spec.pod_labels.clone(),
        static_routing: Some(StaticRouting {
            environmentd_namespace: owner.namespace.clone(),
            environmentd_service_name: owner.resource_id.environmentd_public(),
        }),
        frontegg_routing: None,
        configmap_name: spec.balancerd_configmap_name.clone(),
        resource_id: Some(owner.resource_id.to_string()),
    };
    Balancer {
        metadata: owner.child(owner.name.clone(), Component::Balancerd),
        spec: balancer,
        status: None,
    }
}
