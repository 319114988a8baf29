//! Network policies of an environment.

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer,
    NetworkPolicySpec,
};

use super::Environment;
use crate::controller::rendering::network_policy::{ingress_from_cidrs, peers, port, selector};
use crate::controller::rendering::owner::{Component, Labels, RESOURCE_ID, labels};

pub(super) fn render(environment: &Environment<'_>) -> Vec<NetworkPolicy> {
    let options = &environment.inputs.environment.network_policies;
    let mut policies = Vec::new();
    if options.network_policies_internal_enabled {
        policies.push(within_environment(environment));
        policies.push(from_orchestratord(environment));
    }
    if options.network_policies_ingress_enabled {
        policies.push(sql_and_http_ingress(environment));
    }
    if options.network_policies_egress_enabled {
        policies.push(sources_and_sinks_egress(environment));
    }
    policies
}

fn within_environment(environment: &Environment<'_>) -> NetworkPolicy {
    let pods = labels([(RESOURCE_ID, &environment.owner.resource_id.0)]);
    let peer = NetworkPolicyPeer {
        pod_selector: Some(selector(pods.clone())),
        ..NetworkPolicyPeer::default()
    };
    let spec = NetworkPolicySpec {
        ingress: Some(vec![NetworkPolicyIngressRule {
            from: Some(vec![peer.clone()]),
            ports: None,
        }]),
        egress: Some(vec![NetworkPolicyEgressRule {
            to: Some(vec![peer]),
            ports: None,
        }]),
        pod_selector: Some(selector(pods)),
        policy_types: Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
    };
    policy(environment, "allow-all-within-environment", spec)
}

fn from_orchestratord(environment: &Environment<'_>) -> NetworkPolicy {
    let options = environment.inputs.environment;
    let namespace = [(
        "kubernetes.io/metadata.name",
        environment.inputs.operator_namespace,
    )];
    let operator: Labels = options
        .orchestratord_pod_selector_labels
        .iter()
        .map(|label| (label.key.clone(), label.value.clone()))
        .collect();
    let spec = NetworkPolicySpec {
        ingress: Some(vec![NetworkPolicyIngressRule {
            from: Some(vec![NetworkPolicyPeer {
                namespace_selector: Some(selector(labels(namespace))),
                pod_selector: Some(selector(operator)),
                ip_block: None,
            }]),
            ports: Some(vec![
                port(options.environmentd_http_port),
                port(options.environmentd_internal_http_port),
            ]),
        }]),
        pod_selector: Some(selector(
            environment.owner.identity_of(Component::Environmentd),
        )),
        policy_types: Some(vec!["Ingress".to_owned()]),
        egress: None,
    };
    policy(environment, "allow-orchestratord", spec)
}

/// Clients reach balancerd, so these are its ports and not environmentd's.
fn sql_and_http_ingress(environment: &Environment<'_>) -> NetworkPolicy {
    let options = environment.inputs.environment;
    let spec = ingress_from_cidrs(
        environment.owner.identity_of(Component::Balancerd),
        &options.network_policies.network_policies_ingress_cidrs,
        &[options.balancerd_http_port, options.balancerd_sql_port],
    );
    policy(environment, "sql-and-http-ingress", spec)
}

fn sources_and_sinks_egress(environment: &Environment<'_>) -> NetworkPolicy {
    let options = &environment.inputs.environment.network_policies;
    let rule = peers(&options.network_policies_egress_cidrs).map(|to| NetworkPolicyEgressRule {
        to: Some(to),
        ports: None,
    });
    let spec = NetworkPolicySpec {
        egress: Some(rule.into_iter().collect()),
        pod_selector: Some(selector(environment.owner.identity())),
        policy_types: Some(vec!["Egress".to_owned()]),
        ingress: None,
    };
    policy(environment, "sources-and-sinks-egress", spec)
}

fn policy(environment: &Environment<'_>, suffix: &str, spec: NetworkPolicySpec) -> NetworkPolicy {
    let owner = &environment.owner;
    let name = owner.resource_id.child(suffix);
    NetworkPolicy {
        metadata: owner.child(name, Component::Environmentd),
        spec: Some(spec),
    }
}
