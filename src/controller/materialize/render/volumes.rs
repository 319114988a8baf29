//! environmentd's volumes, and where they are mounted.

use k8s_openapi::api::core::v1::{Volume, VolumeMount};

use super::{Environment, gates};
use crate::controller::rendering::Generation;
use crate::controller::rendering::pod::{config_map_volume, mount, secret_volume};

/// Directory of environmentd's certificate.
pub const CERTIFICATE_DIRECTORY: &str = "/etc/materialized";
/// Key of the ConfigMap of system parameters.
pub const SYSTEM_PARAMETERS_KEY: &str = "system-params.json";
/// Directory of the system parameters.
pub const SYSTEM_PARAMETERS_DIRECTORY: &str = "/system-params";
/// File of the licence key.
pub const LICENSE_KEY_PATH: &str = "/license_key/license_key";
/// Key of the ConfigMap of listeners.
pub const LISTENERS_KEY: &str = "listeners.json";
/// Directory of the listeners.
pub const LISTENERS_DIRECTORY: &str = "/listeners";

pub(super) fn render(
    environment: &Environment<'_>,
    generation: Generation,
) -> Vec<(Volume, VolumeMount)> {
    let spec = environment.spec;
    let id = &environment.owner.resource_id;
    let mut volumes = Vec::new();
    if environment.internal_certificate().has_issuer() {
        volumes.push((
            secret_volume("certificate", &id.environmentd_tls_secret(), None),
            mount("certificate", CERTIFICATE_DIRECTORY, true),
        ));
    }
    if let Some(config_map) = system_parameters(environment) {
        volumes.push((
            config_map_volume("system-params", config_map, None, true),
            mount("system-params", SYSTEM_PARAMETERS_DIRECTORY, true),
        ));
    }
    if has_license_key(environment) {
        volumes.push((
            secret_volume(
                "license-key",
                &spec.backend_secret_name,
                Some("license_key"),
            ),
            mount("license-key", "/license_key", false),
        ));
    }
    if environment.has_listeners() {
        let config_map = id.listeners(generation);
        volumes.push((
            config_map_volume(
                "listeners-configmap",
                &config_map,
                Some(LISTENERS_KEY),
                false,
            ),
            mount("listeners-configmap", LISTENERS_DIRECTORY, false),
        ));
    }
    volumes
}

/// The ConfigMap of system parameters, if there is one and the image reads it.
pub(super) fn system_parameters<'a>(environment: &Environment<'a>) -> Option<&'a str> {
    let name = environment.spec.system_parameter_configmap_name.as_deref();
    name.filter(|_| environment.image.meets_minimum(gates::SYSTEM_PARAMETERS))
}

/// Whether the licence key is mounted.
pub(super) fn has_license_key(environment: &Environment<'_>) -> bool {
    let image = &environment.image;
    let checked = !environment.inputs.environment.disable_license_key_checks;
    image.meets_minimum(gates::LICENSE_KEY_ALWAYS)
        || (checked && image.meets_minimum(gates::LICENSE_KEY))
}
