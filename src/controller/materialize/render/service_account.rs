//! The ServiceAccount of environmentd and clusterd.

use k8s_openapi::api::core::v1::ServiceAccount;

use super::Environment;
use crate::cli::CloudProvider;
use crate::controller::rendering::owner::Component;

/// Annotation by which EKS lends a role to pods.
const EKS_ROLE_ARN: &str = "eks.amazonaws.com/role-arn";

pub(super) fn render(environment: &Environment<'_>) -> Option<ServiceAccount> {
    let spec = environment.spec;
    if spec.service_account_name.is_some() {
        return None;
    }
    let name = environment.owner.name.clone();
    let mut metadata = environment.owner.child(name, Component::Environmentd);
    let mut annotations = spec.service_account_annotations.clone().unwrap_or_default();
    if let Some(role) = aws_role(environment) {
        annotations.insert(EKS_ROLE_ARN.to_owned(), role.clone());
    }
    metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    let mut labels = metadata.labels.take().unwrap_or_default();
    labels.extend(spec.service_account_labels.clone().unwrap_or_default());
    labels.extend(environment.owner.identity());
    metadata.labels = Some(labels);
    Some(ServiceAccount {
        metadata,
        ..ServiceAccount::default()
    })
}

fn aws_role<'a>(environment: &Environment<'a>) -> Option<&'a String> {
    let options = environment.inputs.environment;
    let own = environment.spec.environmentd_iam_role_arn.as_ref();
    own.or(options.aws.environmentd_iam_role_arn.as_ref())
        .filter(|_| options.cloud_provider == CloudProvider::Aws)
}
