//! The Role of environmentd: it makes clusterd's objects itself.

use k8s_openapi::api::rbac::v1::{PolicyRule, Role};

use super::Environment;
use crate::controller::rendering::owner::Component;

const ALL: &[&str] = &[
    "get", "list", "watch", "create", "update", "patch", "delete",
];

pub(super) fn render(environment: &Environment<'_>) -> Role {
    let name = environment.owner.name.clone();
    Role {
        metadata: environment.owner.child(name, Component::Environmentd),
        rules: Some(vec![
            rule("apps", &["statefulsets"], ALL),
            rule(
                "",
                &["persistentvolumeclaims", "pods", "secrets", "services"],
                ALL,
            ),
            rule("", &["configmaps"], &["get"]),
            rule("materialize.cloud", &["vpcendpoints"], ALL),
            rule("metrics.k8s.io", &["pods"], &["get", "list"]),
            rule(
                "custom.metrics.k8s.io",
                &[
                    "persistentvolumeclaims/kubelet_volume_stats_used_bytes",
                    "persistentvolumeclaims/kubelet_volume_stats_capacity_bytes",
                ],
                &["get"],
            ),
        ]),
    }
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}
