//! `Console`: the web console Deployment of one environment.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::certificate_spec::MaterializeCertSpec;
use super::materialize::AuthenticatorKind;

/// What a Console should look like.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "materialize.cloud",
    version = "v1alpha1",
    kind = "Console",
    doc = "The web console of one environment.",
    namespaced,
    status = "ConsoleStatus",
    printcolumn = r#"{"name": "ImageRef", "type": "string", "jsonPath": ".spec.consoleImageRef", "priority": 1}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "priority": 1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ConsoleSpec {
    /// The console image to run.
    pub console_image_ref: String,
    /// Resources of the console container; the operator's default if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_requirements: Option<ResourceRequirements>,
    /// Number of console pods; 2 if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// Certificate that the console presents to browsers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_certificate_spec: Option<MaterializeCertSpec>,
    /// Annotations of the console pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_annotations: Option<BTreeMap<String, String>>,
    /// Labels of the console pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_labels: Option<BTreeMap<String, String>>,
    /// The balancerd that the console talks to.
    pub balancerd: BalancerdRef,
    /// How users log in.
    #[serde(default)]
    pub authenticator_kind: AuthenticatorKind,
    /// Fixes `status.resourceId`, the prefix of child names; random if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<String>,
}

/// Where the console finds balancerd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BalancerdRef {
    /// Name of the balancerd Service.
    pub service_name: String,
    /// Namespace of the balancerd Service.
    pub namespace: String,
    /// Scheme of balancerd's HTTP port.
    pub scheme: HttpScheme,
    /// External names that balancerd serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_names: Option<Vec<String>>,
}

/// Scheme of an HTTP port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HttpScheme {
    /// Plain HTTP.
    #[default]
    Http,
    /// HTTP over TLS.
    Https,
}

impl HttpScheme {
    /// The scheme as it stands in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// What the operator knows about a Console.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConsoleStatus {
    /// Prefix of child names, without the leading `mz`.
    pub resource_id: String,
    /// One condition, `Ready`.
    pub conditions: Vec<Condition>,
}
