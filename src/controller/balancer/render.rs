//! The objects of a Balancer.

use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment,
};
use k8s_openapi::api::core::v1::{
    Container, PodSpec, PodTemplateSpec, Probe, Service, ServiceSpec, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::DynamicObject;

use crate::api::Balancer;
use crate::api::balancer::StaticRouting;
use crate::api::certificate_spec::CertificatePrivateKeyAlgorithm;
use crate::controller::rendering::certificate::{Choice, Place};
use crate::controller::rendering::names::service_fqdn;
use crate::controller::rendering::owner::{Component, NAME, labels};
use crate::controller::rendering::pod::{
    config_map_volume, container_port, http_probe, mount, node_selector, non_empty,
    pod_security_context, scrape_annotations, secret_volume, security_context, service_port,
};
use crate::controller::rendering::{Inputs, Owner, RenderError, ResourceId};

/// Pods where the spec does not say.
const DEFAULT_REPLICAS: i32 = 2;

/// Directory of the certificate towards clients.
const CERTIFICATE_DIRECTORY: &str = "/etc/external_tls";

/// Directory of the user's ConfigMap, whose key is [`CONFIG_KEY`].
const CONFIG_DIRECTORY: &str = "/etc/balancerd";

/// The key of the user's ConfigMap that balancerd reads.
const CONFIG_KEY: &str = "config.json";

/// Renders the Deployment of balancerd.
///
/// # Errors
/// [`RenderError`] for metadata or a routing that cannot be rendered.
pub fn deployment(
    inputs: Inputs<'_>,
    balancer: &Balancer,
    resource_id: &ResourceId,
) -> Result<Deployment, RenderError> {
    let owner = Owner::of(balancer, resource_id)?;
    let routing = routing(balancer, &owner)?;
    let name = resource_id.balancerd();
    let selector = owner.selector(Component::Balancerd, &name);
    let user_labels = balancer.spec.pod_labels.as_ref();
    let port = inputs.environment.balancerd_internal_http_port;
    let mut annotations = scrape_annotations(inputs, port);
    annotations.extend(balancer.spec.pod_annotations.clone().unwrap_or_default());
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            annotations: (!annotations.is_empty()).then_some(annotations),
            labels: Some(owner.pod_labels(Component::Balancerd, user_labels, selector.clone())),
            ..ObjectMeta::default()
        }),
        spec: Some(pod_spec(inputs, balancer, resource_id, routing)),
    };
    Ok(Deployment {
        metadata: owner.child(name, Component::Balancerd),
        spec: Some(DeploymentSpec {
            replicas: Some(balancer.spec.replicas.unwrap_or(DEFAULT_REPLICAS)),
            selector: LabelSelector {
                match_labels: Some(selector),
                match_expressions: None,
            },
            strategy: Some(all_new_before_old()),
            template,
            ..DeploymentSpec::default()
        }),
        status: None,
    })
}

/// Renders the Service of balancerd.
///
/// # Errors
/// [`RenderError`] for metadata that cannot be rendered.
pub fn service(
    inputs: Inputs<'_>,
    balancer: &Balancer,
    resource_id: &ResourceId,
) -> Result<Service, RenderError> {
    let owner = Owner::of(balancer, resource_id)?;
    let options = inputs.environment;
    let name = resource_id.balancerd();
    let selector = labels([(NAME, &name)]);
    Ok(Service {
        metadata: owner.child(name, Component::Balancerd),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            ports: Some(vec![
                service_port("http", options.balancerd_http_port),
                service_port("pgwire", options.balancerd_sql_port),
            ]),
            selector: Some(selector),
            type_: Some("ClusterIP".to_owned()),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}

/// Renders balancerd's certificate towards clients, if there is an issuer.
///
/// # Errors
/// [`RenderError`] for metadata or a certificate spec that cannot be rendered.
pub fn certificate(
    inputs: Inputs<'_>,
    balancer: &Balancer,
    resource_id: &ResourceId,
) -> Result<Option<DynamicObject>, RenderError> {
    let owner = Owner::of(balancer, resource_id)?;
    let place = Place {
        component: Component::Balancerd,
        name: resource_id.child("balancerd-external"),
        secret_name: resource_id.balancerd_tls_secret(),
        extra_dns_names: &[],
        algorithm: CertificatePrivateKeyAlgorithm::Ecdsa,
    };
    external_certificate(inputs, balancer).certificate(&owner, place)
}

fn external_certificate<'a>(inputs: Inputs<'a>, balancer: &'a Balancer) -> Choice<'a> {
    let defaults = &inputs.environment.default_certificate_specs;
    Choice::new(
        balancer.spec.external_certificate_spec.as_ref(),
        defaults.balancerd_external.as_ref(),
    )
}

fn internal_certificate<'a>(inputs: Inputs<'a>, balancer: &'a Balancer) -> Choice<'a> {
    let defaults = &inputs.environment.default_certificate_specs;
    Choice::new(
        balancer.spec.internal_certificate_spec.as_ref(),
        defaults.internal.as_ref(),
    )
}

fn routing<'a>(balancer: &'a Balancer, owner: &Owner) -> Result<&'a StaticRouting, RenderError> {
    let spec = &balancer.spec;
    let name = owner.name.clone();
    match (&spec.static_routing, &spec.frontegg_routing) {
        (Some(routing), None) => Ok(routing),
        (None, Some(_)) => Err(RenderError::FronteggRouting { name }),
        (Some(_), Some(_)) => Err(RenderError::Routing {
            name,
            way_out: "remove spec.fronteggRouting",
        }),
        (None, None) => Err(RenderError::Routing {
            name,
            way_out: "set spec.staticRouting",
        }),
    }
}

/// A full new set comes up before the old one drains.
fn all_new_before_old() -> DeploymentStrategy {
    DeploymentStrategy {
        type_: Some("RollingUpdate".to_owned()),
        rolling_update: Some(RollingUpdateDeployment {
            max_surge: Some(IntOrString::String("100%".to_owned())),
            max_unavailable: None,
        }),
    }
}

fn pod_spec(
    inputs: Inputs<'_>,
    balancer: &Balancer,
    resource_id: &ResourceId,
    routing: &StaticRouting,
) -> PodSpec {
    let options = inputs.environment;
    let components = &options.components;
    let (volumes, mounts): (Vec<_>, Vec<_>) =
        volumes(inputs, balancer, resource_id).into_iter().unzip();
    let internal = options.balancerd_internal_http_port;
    let own = balancer.spec.resource_requirements.clone();
    let container = Container {
        name: Component::Balancerd.as_str().to_owned(),
        image: Some(balancer.spec.balancerd_image_ref.clone()),
        image_pull_policy: Some(options.image_pull_policy.as_kubernetes().to_owned()),
        args: Some(arguments(inputs, balancer, routing)),
        ports: Some(vec![
            container_port("pgwire", options.balancerd_sql_port),
            container_port("http", options.balancerd_http_port),
            container_port("internal-http", internal),
        ]),
        startup_probe: Some(probe("/api/readyz", internal, Some(3), 3, 20)),
        readiness_probe: Some(probe("/api/readyz", internal, None, 10, 3)),
        liveness_probe: Some(probe("/api/livez", internal, Some(8), 10, 3)),
        resources: own.or_else(|| components.balancerd_default_resources.clone()),
        security_context: security_context(inputs),
        volume_mounts: non_empty(&mounts),
        ..Container::default()
    };
    PodSpec {
        affinity: components.balancerd_affinity.clone(),
        containers: vec![container],
        node_selector: node_selector(&components.balancerd_node_selector),
        scheduler_name: options.scheduler_name.clone(),
        security_context: Some(pod_security_context()),
        tolerations: non_empty(&components.balancerd_toleration),
        volumes: non_empty(&volumes),
        ..PodSpec::default()
    }
}

fn arguments(inputs: Inputs<'_>, balancer: &Balancer, routing: &StaticRouting) -> Vec<String> {
    let options = inputs.environment;
    let upstream = service_fqdn(
        &routing.environmentd_service_name,
        &routing.environmentd_namespace,
    );
    let address = |port: u16| format!("0.0.0.0:{port}");
    let mut arguments = vec![
        "service".to_owned(),
        format!(
            "--pgwire-listen-addr={}",
            address(options.balancerd_sql_port)
        ),
        format!(
            "--https-listen-addr={}",
            address(options.balancerd_http_port)
        ),
        format!(
            "--internal-http-listen-addr={}",
            address(options.balancerd_internal_http_port)
        ),
        format!(
            "--https-resolver-template={upstream}:{}",
            options.environmentd_http_port
        ),
        format!(
            "--static-resolver-addr={upstream}:{}",
            options.environmentd_sql_port
        ),
    ];
    if internal_certificate(inputs, balancer).has_issuer() {
        arguments.push("--internal-tls".to_owned());
    }
    if external_certificate(inputs, balancer).has_issuer() {
        arguments.push("--tls-mode=require".to_owned());
        arguments.push(format!("--tls-cert={CERTIFICATE_DIRECTORY}/tls.crt"));
        arguments.push(format!("--tls-key={CERTIFICATE_DIRECTORY}/tls.key"));
    } else {
        arguments.push("--tls-mode=disable".to_owned());
    }
    if balancer.spec.configmap_name.is_some() {
        arguments.push(format!(
            "--config-sync-file-path={CONFIG_DIRECTORY}/{CONFIG_KEY}"
        ));
        arguments.push("--config-sync-loop-interval=1s".to_owned());
    }
    arguments
}

/// The ConfigMap is mounted as a directory and not by `subPath`, so that the kubelet keeps it current.
fn volumes(
    inputs: Inputs<'_>,
    balancer: &Balancer,
    resource_id: &ResourceId,
) -> Vec<(Volume, VolumeMount)> {
    let mut volumes = Vec::new();
    if external_certificate(inputs, balancer).has_issuer() {
        let secret = resource_id.balancerd_tls_secret();
        volumes.push((
            secret_volume("external-certificate", &secret, None),
            mount("external-certificate", CERTIFICATE_DIRECTORY, true),
        ));
    }
    if let Some(config_map) = &balancer.spec.configmap_name {
        volumes.push((
            config_map_volume("dynamic-config", config_map, None, true),
            mount("dynamic-config", CONFIG_DIRECTORY, true),
        ));
    }
    volumes
}

fn probe(path: &str, port: u16, delay: Option<i32>, period: i32, failures: i32) -> Probe {
    Probe {
        failure_threshold: Some(failures),
        initial_delay_seconds: delay,
        period_seconds: Some(period),
        timeout_seconds: Some(1),
        ..http_probe(path, port, "HTTP")
    }
}

#[cfg(test)]
mod tests;
