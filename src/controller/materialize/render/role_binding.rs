//! Binds environmentd's Role to its service account, also to one that the user brings.

use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};

use super::Environment;
use crate::controller::rendering::owner::Component;

pub(super) fn render(environment: &Environment<'_>) -> RoleBinding {
    let owner = &environment.owner;
    RoleBinding {
        metadata: owner.child(owner.name.clone(), Component::Environmentd),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "Role".to_owned(),
            name: owner.name.clone(),
        },
        subjects: Some(vec![Subject {
            api_group: None,
            kind: "ServiceAccount".to_owned(),
            name: environment.service_account_name().to_owned(),
            namespace: Some(owner.namespace.clone()),
        }]),
    }
}
