//! `materialize.cloud/v1`: any change of the spec that concerns environmentd starts a rollout.
//!
//! Never stored: the webhook converts it to and from v1alpha1.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{AuthenticatorKind, RolloutStrategy, default_rollout_request_timeout};
use crate::api::certificate_spec::MaterializeCertSpec;

/// What an environment should look like.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "materialize.cloud",
    version = "v1",
    kind = "Materialize",
    singular = "materialize",
    plural = "materializes",
    shortname = "mzs",
    doc = "A Materialize environment.",
    namespaced,
    status = "MaterializeStatus",
    printcolumn = r#"{"name": "ImageRefRunning", "type": "string", "jsonPath": ".status.lastCompletedRolloutEnvironmentdImageRef", "priority": 1}"#,
    printcolumn = r#"{"name": "ImageRefToDeploy", "type": "string", "jsonPath": ".spec.environmentdImageRef", "priority": 1}"#,
    printcolumn = r#"{"name": "UpToDate", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"UpToDate\")].status", "priority": 1}"#,
    printcolumn = r#"{"name": "Generation", "type": "integer", "jsonPath": ".status.activeGeneration"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"UpToDate\")].reason"}"#,
    printcolumn = r#"{"name": "Since", "type": "date", "jsonPath": ".status.conditions[?(@.type==\"UpToDate\")].lastTransitionTime"}"#,
    printcolumn = r#"{"name": "Prefix", "type": "string", "jsonPath": ".status.resourceId", "priority": 1}"#,
    printcolumn = r#"{"name": "Message", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"UpToDate\")].message", "priority": 1}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct MaterializeSpec {
    /// The environmentd image to run; the images of balancerd, clusterd and console follow from it. Changing it starts a rollout.
    pub environmentd_image_ref: String,
    /// Extra arguments of environmentd, after the operator's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environmentd_extra_args: Option<Vec<String>>,
    /// Extra environment variables of environmentd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environmentd_extra_env: Option<Vec<EnvVar>>,
    /// AWS role that `CREATE CONNECTION` assumes; the operator's default if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environmentd_connection_role_arn: Option<String>,
    /// Resources of the environmentd container; the operator's default if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environmentd_resource_requirements: Option<ResourceRequirements>,
    /// Size of environmentd's scratch volume, where a storage class is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environmentd_scratch_volume_storage_requirement: Option<Quantity>,
    /// Resources of the balancerd containers; the operator's default if unset. Not part of the rollout hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balancerd_resource_requirements: Option<ResourceRequirements>,
    /// Resources of the console containers; the operator's default if unset. Not part of the rollout hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console_resource_requirements: Option<ResourceRequirements>,
    /// Number of balancerd pods; 2 if unset. Not part of the rollout hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub balancerd_replicas: Option<i32>,
    /// Number of console pods; 2 if unset. Not part of the rollout hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub console_replicas: Option<i32>,
    /// An existing service account for environmentd; one named like this object is created if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Annotations of the created service account, e.g. `eks.amazonaws.com/role-arn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_annotations: Option<BTreeMap<String, String>>,
    /// Labels of the created service account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_labels: Option<BTreeMap<String, String>>,
    /// Annotations of all pods of the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_annotations: Option<BTreeMap<String, String>>,
    /// Labels of all pods of the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_labels: Option<BTreeMap<String, String>>,
    /// Promote the rollout with this `status.requestedRolloutHash` without waiting for it to catch up. Not part of the rollout hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force_promote: Option<String>,
    /// A new value makes the next rollout happen even if nothing else changed.
    #[serde(default)]
    pub force_rollout: Uuid,
    /// When a new generation takes over.
    #[serde(default)]
    pub rollout_strategy: RolloutStrategy,
    /// How long a rollout may take before it is cancelled, e.g. `24h` or `1h 30m`; an unreadable value means 24h.
    #[serde(default = "default_rollout_request_timeout")]
    pub rollout_request_timeout: String,
    /// Secret in the same namespace with `metadata_backend_url`, `persist_backend_url`, `license_key` and, for password logins, `external_login_password_mz_system`.
    pub backend_secret_name: String,
    /// How users authenticate.
    #[serde(default)]
    pub authenticator_kind: AuthenticatorKind,
    /// Whether environmentd checks role-based access control.
    #[serde(default)]
    pub enable_rbac: bool,
    /// Identity of the environment; filled in from the licence key, or at random, if unset. Must never change.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "oldSelf == '00000000-0000-0000-0000-000000000000' || self == oldSelf",
        "message": "must never change: the environment's data is kept under it",
    }]))]
    pub environment_id: Uuid,
    /// ConfigMap in the same namespace whose key `system-params.json` sets system parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_parameter_configmap_name: Option<String>,
    /// Certificate that balancerd presents to clients. Not part of the rollout hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balancerd_external_certificate_spec: Option<MaterializeCertSpec>,
    /// Certificate that the console presents to browsers. Not part of the rollout hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console_external_certificate_spec: Option<MaterializeCertSpec>,
    /// Certificate that environmentd presents inside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_certificate_spec: Option<MaterializeCertSpec>,
    /// ConfigMap in the same namespace whose key `config.json` balancerd reads as it changes. Not part of the rollout hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balancerd_configmap_name: Option<String>,
}

/// What the operator knows about an environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MaterializeStatus {
    /// Prefix of child names, without the leading `mz`; fixed for life.
    pub resource_id: String,
    /// The generation that serves.
    pub active_generation: u64,
    /// Image of the last finished rollout; upgrades are judged against it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_completed_rollout_environmentd_image_ref: Option<String>,
    /// Rollout hash of the last finished rollout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_completed_rollout_hash: Option<String>,
    /// Rollout hash of the wanted spec; absent while promoting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_rollout_hash: Option<String>,
    /// One condition, `UpToDate`.
    pub conditions: Vec<Condition>,
    /// What v1alpha1 records and v1 has no member for, so that a write at v1 loses none of it. Not for users.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_members")]
    pub v1alpha1: Option<Map<String, Value>>,
}

/// An object whose members the API server neither checks nor prunes.
fn any_members(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true})
}
