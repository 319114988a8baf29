//! Pieces of pod templates.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
    KeyToPath, PodSecurityContext, Probe, SeccompProfile, SecretKeySelector, SecretVolumeSource,
    SecurityContext, ServicePort, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Inputs;
use super::owner::{Labels, labels};
use crate::cli::KeyValue;

/// User and group of environmentd, clusterd and balancerd.
pub const MATERIALIZE_UID: i64 = 999;

/// Readable by the owner only; the kubelet adds the pod's group.
const OWNER_READ: i32 = 0o400;

/// The pod security context of Materialize's own images.
pub fn pod_security_context() -> PodSecurityContext {
    PodSecurityContext {
        fs_group: Some(MATERIALIZE_UID),
        run_as_group: Some(MATERIALIZE_UID),
        run_as_user: Some(MATERIALIZE_UID),
        ..PodSecurityContext::default()
    }
}

/// The restricted container security context, if it is enabled.
pub fn security_context(inputs: Inputs<'_>) -> Option<SecurityContext> {
    inputs
        .environment
        .enable_security_context
        .then(|| SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                add: None,
                drop: Some(vec!["ALL".to_owned()]),
            }),
            run_as_non_root: Some(true),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..SecurityContext::default()
        })
}

/// Annotations that make Prometheus scrape a pod, if they are enabled.
pub fn scrape_annotations(inputs: Inputs<'_>, port: u16) -> Labels {
    if !inputs.environment.enable_prometheus_scrape_annotations {
        return Labels::new();
    }
    labels([
        ("prometheus.io/scrape", "true"),
        ("prometheus.io/port", &port.to_string()),
        ("prometheus.io/path", "/metrics"),
        ("prometheus.io/scheme", "http"),
    ])
}

/// A node selector, if there is any label in it.
pub fn node_selector(labels: &[KeyValue]) -> Option<BTreeMap<String, String>> {
    let selector: BTreeMap<_, _> = labels
        .iter()
        .map(|label| (label.key.clone(), label.value.clone()))
        .collect();
    (!selector.is_empty()).then_some(selector)
}

/// A list, if there is anything in it.
pub fn non_empty<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}

/// A TCP port of a container.
pub fn container_port(name: &str, port: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(port),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

/// A TCP port of a Service, the same on its pods.
pub fn service_port(name: &str, port: u16) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: i32::from(port),
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(i32::from(port))),
        ..ServicePort::default()
    }
}

/// A probe by HTTP (`scheme` `HTTP` or `HTTPS`); its timing is the caller's.
pub fn http_probe(path: &str, port: u16, scheme: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::Int(i32::from(port)),
            scheme: Some(scheme.to_owned()),
            ..HTTPGetAction::default()
        }),
        ..Probe::default()
    }
}

/// An environment variable with a plain value.
pub fn env(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    }
}

/// An environment variable from a key of a Secret, without which the pod does not start.
pub fn secret_env(name: &str, secret: &str, key: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: secret.to_owned(),
                key: key.to_owned(),
                optional: Some(false),
            }),
            ..EnvVarSource::default()
        }),
    }
}

/// A Secret, or one key of it, as files, without which the pod does not start.
pub fn secret_volume(name: &str, secret: &str, key: Option<&str>) -> Volume {
    Volume {
        name: name.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            default_mode: Some(OWNER_READ),
            items: key.map(|key| vec![item(key)]),
            optional: Some(false),
        }),
        ..Volume::default()
    }
}

/// A ConfigMap, or one key of it, as files.
pub fn config_map_volume(
    name: &str,
    config_map: &str,
    key: Option<&str>,
    optional: bool,
) -> Volume {
    Volume {
        name: name.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: config_map.to_owned(),
            default_mode: Some(OWNER_READ),
            items: key.map(|key| vec![item(key)]),
            optional: Some(optional),
        }),
        ..Volume::default()
    }
}

/// Where a container finds a volume.
pub fn mount(volume: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

fn item(key: &str) -> KeyToPath {
    KeyToPath {
        key: key.to_owned(),
        path: key.to_owned(),
        mode: None,
    }
}
