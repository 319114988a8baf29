//! The three Services of environmentd.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};

use super::Environment;
use crate::controller::rendering::Generation;
use crate::controller::rendering::owner::{Component, NAME, labels};
use crate::controller::rendering::pod::service_port;

/// What makes a Service headless: its name leads to the pods themselves.
pub const HEADLESS: &str = "None";

pub(super) fn public(environment: &Environment<'_>, generation: Generation) -> Service {
    let name = environment.owner.resource_id.environmentd_public();
    let ports = environmentd_ports(environment);
    service(environment, generation, name, ports, Some(HEADLESS))
}

pub(super) fn generation(environment: &Environment<'_>, generation: Generation) -> Service {
    let name = environment.owner.resource_id.environmentd(generation);
    let ports = environmentd_ports(environment);
    service(environment, generation, name, ports, None)
}

pub(super) fn persist_pubsub(environment: &Environment<'_>, generation: Generation) -> Service {
    let options = environment.inputs.environment;
    let name = environment.owner.resource_id.persist_pubsub(generation);
    let port = service_port("grpc", options.environmentd_internal_persist_pubsub_port);
    service(environment, generation, name, vec![port], Some(HEADLESS))
}

/// `https` is the HTTP port's name whether it speaks TLS or not.
fn environmentd_ports(environment: &Environment<'_>) -> Vec<ServicePort> {
    let options = environment.inputs.environment;
    vec![
        service_port("sql", options.environmentd_sql_port),
        service_port("https", options.environmentd_http_port),
        service_port("internal-sql", options.environmentd_internal_sql_port),
        service_port("internal-http", options.environmentd_internal_http_port),
    ]
}

fn service(
    environment: &Environment<'_>,
    generation: Generation,
    name: String,
    ports: Vec<ServicePort>,
    cluster_ip: Option<&str>,
) -> Service {
    let owner = &environment.owner;
    let workload = owner.resource_id.environmentd(generation);
    Service {
        metadata: owner.child(name, Component::Environmentd),
        spec: Some(ServiceSpec {
            cluster_ip: cluster_ip.map(str::to_owned),
            ports: Some(ports),
            selector: Some(labels([(NAME, &workload)])),
            type_: Some("ClusterIP".to_owned()),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}
