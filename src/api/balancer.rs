//! `Balancer`: the balancerd Deployment in front of one environment.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::certificate_spec::MaterializeCertSpec;

/// What a Balancer should look like.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "materialize.cloud",
    version = "v1alpha1",
    kind = "Balancer",
    doc = "balancerd in front of one environment.",
    namespaced,
    status = "BalancerStatus",
    printcolumn = r#"{"name": "ImageRef", "type": "string", "jsonPath": ".spec.balancerdImageRef", "priority": 1}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "priority": 1}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.staticRouting) != has(self.fronteggRouting)",
    "message": "exactly one of staticRouting and fronteggRouting must be set",
}]))]
pub struct BalancerSpec {
    /// The balancerd image to run.
    pub balancerd_image_ref: String,
    /// Resources of the balancerd container; the operator's default if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_requirements: Option<ResourceRequirements>,
    /// Number of balancerd pods; 2 if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// Certificate that balancerd presents to clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_certificate_spec: Option<MaterializeCertSpec>,
    /// Certificate that environmentd presents to balancerd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_certificate_spec: Option<MaterializeCertSpec>,
    /// Annotations of the balancerd pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_annotations: Option<BTreeMap<String, String>>,
    /// Labels of the balancerd pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_labels: Option<BTreeMap<String, String>>,
    /// Route everything to one environment; exactly one routing must be set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub static_routing: Option<StaticRouting>,
    /// Route by Frontegg tenant; not implemented.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frontegg_routing: Option<FronteggRouting>,
    /// ConfigMap in the same namespace whose key `config.json` balancerd reads as it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configmap_name: Option<String>,
    /// Fixes `status.resourceId`, the prefix of child names; random if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<String>,
}

/// Routing to one environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticRouting {
    /// Namespace of the environmentd Service.
    pub environmentd_namespace: String,
    /// Name of the environmentd Service.
    pub environmentd_service_name: String,
}

/// Placeholder for routing by Frontegg tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FronteggRouting {}

/// What the operator knows about a Balancer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BalancerStatus {
    /// Prefix of child names, without the leading `mz`.
    pub resource_id: String,
    /// One condition, `Ready`.
    pub conditions: Vec<Condition>,
}
