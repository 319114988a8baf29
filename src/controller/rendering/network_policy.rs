//! Pieces of network policies.

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::owner::Labels;

/// Selects by labels.
pub fn selector(labels: Labels) -> LabelSelector {
    LabelSelector {
        match_labels: Some(labels),
        match_expressions: None,
    }
}

/// A TCP port.
pub fn port(port: u16) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(i32::from(port))),
        protocol: Some("TCP".to_owned()),
        end_port: None,
    }
}

/// One peer a CIDR; none without any, where an empty list in a rule would mean everybody.
pub fn peers(cidrs: &[String]) -> Option<Vec<NetworkPolicyPeer>> {
    let peers: Vec<_> = cidrs
        .iter()
        .map(|cidr| NetworkPolicyPeer {
            ip_block: Some(IPBlock {
                cidr: cidr.clone(),
                except: None,
            }),
            ..NetworkPolicyPeer::default()
        })
        .collect();
    (!peers.is_empty()).then_some(peers)
}

/// Lets the CIDRs in to these TCP ports of the pods.
pub fn ingress_from_cidrs(pods: Labels, cidrs: &[String], ports: &[u16]) -> NetworkPolicySpec {
    let rule = peers(cidrs).map(|from| NetworkPolicyIngressRule {
        from: Some(from),
        ports: Some(ports.iter().copied().map(port).collect()),
    });
    NetworkPolicySpec {
        ingress: Some(rule.into_iter().collect()),
        pod_selector: Some(selector(pods)),
        policy_types: Some(vec!["Ingress".to_owned()]),
        egress: None,
    }
}
