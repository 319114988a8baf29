//! The ConfigMap that tells environmentd where to listen; made for old images too, which do not mount it.

use k8s_openapi::api::core::v1::ConfigMap;

use super::{Environment, gates, stateful_set, to_json, volumes};
use crate::controller::materialize::listeners::{Ports, Schema, config};
use crate::controller::rendering::owner::{Component, labels};
use crate::controller::rendering::{Generation, RenderError};

pub(super) fn render(
    environment: &Environment<'_>,
    generation: Generation,
) -> Result<ConfigMap, RenderError> {
    let options = environment.inputs.environment;
    let schema = if environment.image.meets_minimum(gates::ROUTE_ROLES) {
        Schema::RolesPerRoute
    } else {
        Schema::RolesPerListener
    };
    let listeners = config(
        schema,
        environment.spec.authenticator_kind,
        environment.internal_certificate().has_issuer(),
        Ports {
            sql: options.environmentd_sql_port,
            http: options.environmentd_http_port,
            internal_sql: options.environmentd_internal_sql_port,
            internal_http: options.environmentd_internal_http_port,
        },
    );
    let name = environment.owner.resource_id.listeners(generation);
    let mut metadata = environment.owner.child(name, Component::Environmentd);
    metadata.annotations = Some(labels([(
        stateful_set::GENERATION,
        &generation.to_string(),
    )]));
    Ok(ConfigMap {
        metadata,
        data: Some(labels([(
            volumes::LISTENERS_KEY,
            &to_json("the listeners", &listeners)?,
        )])),
        ..ConfigMap::default()
    })
}
