//! The objects of a Console.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVar, PodSecurityContext, PodSpec, PodTemplateSpec, Probe, Service,
    ServiceSpec, Volume, VolumeMount,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::api::DynamicObject;
use serde::Serialize;

use crate::api::Console;
use crate::api::certificate_spec::CertificatePrivateKeyAlgorithm;
use crate::api::materialize::AuthenticatorKind;
use crate::controller::rendering::certificate::{Choice, Place};
use crate::controller::rendering::names::service_fqdn;
use crate::controller::rendering::network_policy::ingress_from_cidrs;
use crate::controller::rendering::owner::{Component, NAME, labels};
use crate::controller::rendering::pod::{
    config_map_volume, container_port, env, http_probe, mount, node_selector, non_empty,
    secret_volume, security_context, service_port,
};
use crate::controller::rendering::{Inputs, Owner, RenderError, ResourceId};
use crate::image::ImageRef;

/// Pods where the spec does not say.
const DEFAULT_REPLICAS: i32 = 2;

/// Group of nginx in the console image.
const NGINX_GROUP: i64 = 101;

/// Directory of the certificate towards browsers.
const CERTIFICATE_DIRECTORY: &str = "/nginx/tls";

/// What the console's front end reads from `app-config.json`.
#[derive(Serialize)]
struct AppConfig<'a> {
    version: &'a str,
    auth: Auth,
    #[serde(skip_serializing_if = "Option::is_none")]
    balancerd_dns_names: Option<&'a [String]>,
}

#[derive(Serialize)]
struct Auth {
    mode: AuthenticatorKind,
}

/// Renders the ConfigMap of the console's front end.
///
/// # Errors
/// [`RenderError`] for metadata that cannot be rendered.
pub fn config_map(console: &Console, resource_id: &ResourceId) -> Result<ConfigMap, RenderError> {
    let owner = Owner::of(console, resource_id)?;
    let spec = &console.spec;
    let image = ImageRef::parse(&spec.console_image_ref);
    let config = AppConfig {
        version: image.tag().unwrap_or(&spec.console_image_ref),
        auth: Auth {
            mode: spec.authenticator_kind,
        },
        balancerd_dns_names: spec.balancerd.dns_names.as_deref(),
    };
    let text = serde_json::to_string(&config).map_err(|source| RenderError::Json {
        what: "the console's app config",
        source,
    })?;
    Ok(ConfigMap {
        metadata: owner.child(resource_id.console(), Component::Console),
        data: Some(labels([("app-config.json", &text)])),
        ..ConfigMap::default()
    })
}

/// Renders the Deployment of the console.
///
/// # Errors
/// [`RenderError`] for metadata that cannot be rendered.
pub fn deployment(
    inputs: Inputs<'_>,
    console: &Console,
    resource_id: &ResourceId,
) -> Result<Deployment, RenderError> {
    let owner = Owner::of(console, resource_id)?;
    let spec = &console.spec;
    let name = resource_id.console();
    let selector = owner.selector(Component::Console, &name);
    let user_labels = spec.pod_labels.as_ref();
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            annotations: spec.pod_annotations.clone().filter(|all| !all.is_empty()),
            labels: Some(owner.pod_labels(Component::Console, user_labels, selector.clone())),
            ..ObjectMeta::default()
        }),
        spec: Some(pod_spec(inputs, console, resource_id)),
    };
    Ok(Deployment {
        metadata: owner.child(name, Component::Console),
        spec: Some(DeploymentSpec {
            replicas: Some(spec.replicas.unwrap_or(DEFAULT_REPLICAS)),
            selector: LabelSelector {
                match_labels: Some(selector),
                match_expressions: None,
            },
            template,
            ..DeploymentSpec::default()
        }),
        status: None,
    })
}

/// Renders the Service of the console.
///
/// # Errors
/// [`RenderError`] for metadata that cannot be rendered.
pub fn service(
    inputs: Inputs<'_>,
    console: &Console,
    resource_id: &ResourceId,
) -> Result<Service, RenderError> {
    let owner = Owner::of(console, resource_id)?;
    let name = resource_id.console();
    let selector = labels([(NAME, &name)]);
    Ok(Service {
        metadata: owner.child(name, Component::Console),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            ports: Some(vec![service_port(
                "http",
                inputs.environment.console_http_port,
            )]),
            selector: Some(selector),
            type_: Some("ClusterIP".to_owned()),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}

/// Renders the network policies of the console that are enabled.
///
/// # Errors
/// [`RenderError`] for metadata that cannot be rendered.
pub fn network_policies(
    inputs: Inputs<'_>,
    console: &Console,
    resource_id: &ResourceId,
) -> Result<Vec<NetworkPolicy>, RenderError> {
    let owner = Owner::of(console, resource_id)?;
    let options = &inputs.environment.network_policies;
    if !options.network_policies_ingress_enabled {
        return Ok(Vec::new());
    }
    let spec = ingress_from_cidrs(
        owner.identity_of(Component::Console),
        &options.network_policies_ingress_cidrs,
        &[inputs.environment.console_http_port],
    );
    Ok(vec![NetworkPolicy {
        metadata: owner.child(resource_id.child("console-ingress"), Component::Console),
        spec: Some(spec),
    }])
}

/// Renders the console's certificate, if there is an issuer.
///
/// # Errors
/// [`RenderError`] for metadata or a certificate spec that cannot be rendered.
pub fn certificate(
    inputs: Inputs<'_>,
    console: &Console,
    resource_id: &ResourceId,
) -> Result<Option<DynamicObject>, RenderError> {
    let owner = Owner::of(console, resource_id)?;
    let place = Place {
        component: Component::Console,
        name: resource_id.child("console-external"),
        secret_name: resource_id.console_tls_secret(),
        extra_dns_names: &[],
        algorithm: CertificatePrivateKeyAlgorithm::Ecdsa,
    };
    external_certificate(inputs, console).certificate(&owner, place)
}

fn external_certificate<'a>(inputs: Inputs<'a>, console: &'a Console) -> Choice<'a> {
    let defaults = &inputs.environment.default_certificate_specs;
    Choice::new(
        console.spec.external_certificate_spec.as_ref(),
        defaults.console_external.as_ref(),
    )
}

fn pod_spec(inputs: Inputs<'_>, console: &Console, resource_id: &ResourceId) -> PodSpec {
    let options = inputs.environment;
    let components = &options.components;
    let port = options.console_http_port;
    let tls = external_certificate(inputs, console).has_issuer();
    let scheme = if tls { "HTTPS" } else { "HTTP" };
    let (volumes, mounts): (Vec<_>, Vec<_>) = volumes(resource_id, tls).into_iter().unzip();
    let own = console.spec.resource_requirements.clone();
    let container = Container {
        name: Component::Console.as_str().to_owned(),
        image: Some(console.spec.console_image_ref.clone()),
        image_pull_policy: Some(options.image_pull_policy.as_kubernetes().to_owned()),
        env: Some(variables(inputs, console, tls)),
        ports: Some(vec![container_port("http", port)]),
        startup_probe: Some(Probe {
            failure_threshold: Some(10),
            period_seconds: Some(1),
            ..http_probe("/", port, scheme)
        }),
        readiness_probe: Some(Probe {
            failure_threshold: Some(1),
            period_seconds: Some(30),
            ..http_probe("/", port, scheme)
        }),
        liveness_probe: Some(Probe {
            period_seconds: Some(30),
            ..http_probe("/", port, scheme)
        }),
        resources: own.or_else(|| components.console_default_resources.clone()),
        security_context: security_context(inputs),
        volume_mounts: Some(mounts),
        ..Container::default()
    };
    PodSpec {
        affinity: components.console_affinity.clone(),
        containers: vec![container],
        node_selector: node_selector(&components.console_node_selector),
        scheduler_name: options.scheduler_name.clone(),
        security_context: Some(PodSecurityContext {
            fs_group: Some(NGINX_GROUP),
            ..PodSecurityContext::default()
        }),
        tolerations: non_empty(&components.console_toleration),
        volumes: Some(volumes),
        ..PodSpec::default()
    }
}

fn variables(inputs: Inputs<'_>, console: &Console, tls: bool) -> Vec<EnvVar> {
    let balancerd = &console.spec.balancerd;
    let scheme = balancerd.scheme.as_str();
    let host = service_fqdn(&balancerd.service_name, &balancerd.namespace);
    let endpoint = format!(
        "{scheme}://{host}:{}",
        inputs.environment.balancerd_http_port
    );
    let port = inputs.environment.console_http_port;
    let listener = if tls {
        format!(
            "listen {port} ssl;\n\
             ssl_certificate {CERTIFICATE_DIRECTORY}/tls.crt;\n\
             ssl_certificate_key {CERTIFICATE_DIRECTORY}/tls.key;"
        )
    } else {
        format!("listen {port};")
    };
    vec![
        env("MZ_ENDPOINT", &endpoint),
        env("MZ_NGINX_LISTENER_CONFIG", &listener),
    ]
}

fn volumes(resource_id: &ResourceId, tls: bool) -> Vec<(Volume, VolumeMount)> {
    let mut volumes = vec![(
        config_map_volume("app-config", &resource_id.console(), None, false),
        mount("app-config", "/usr/share/nginx/html/app-config", false),
    )];
    if tls {
        let secret = resource_id.console_tls_secret();
        volumes.push((
            secret_volume("external-certificate", &secret, None),
            mount("external-certificate", CERTIFICATE_DIRECTORY, true),
        ));
    }
    volumes
}

#[cfg(test)]
mod tests;
