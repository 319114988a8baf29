//! `VpcEndpoint`: registered here, written by environmentd and reconciled elsewhere.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An AWS VPC endpoint that an environment asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "materialize.cloud",
    version = "v1",
    kind = "VpcEndpoint",
    singular = "vpcendpoint",
    plural = "vpcendpoints",
    shortname = "vpce",
    doc = "An AWS VPC endpoint that an environment asked for.",
    namespaced,
    status = "VpcEndpointStatus",
    printcolumn = r#"{"name": "AwsServiceName", "type": "string", "jsonPath": ".spec.awsServiceName", "priority": 1}"#,
    printcolumn = r#"{"name": "AvailabilityZoneIDs", "type": "string", "jsonPath": ".spec.availabilityZoneIds", "priority": 1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct VpcEndpointSpec {
    /// Name of the AWS endpoint service to connect to.
    pub aws_service_name: String,
    /// Ids of the availability zones in which the service is available.
    pub availability_zone_ids: Vec<String>,
    /// Suffix of the name of the role that the environment assumes.
    pub role_suffix: String,
}

/// What the VPC endpoint controller knows about a VpcEndpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VpcEndpointStatus {
    /// Id of the endpoint in AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpc_endpoint_id: Option<String>,
    /// State of the endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<VpcEndpointState>,
    /// Conditions of the endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// Availability zones that the controller chose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_assigned_azs: Option<Vec<String>>,
}

/// States of a VPC endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names are AWS's own")]
pub enum VpcEndpointState {
    PendingServiceDiscovery,
    CreatingEndpoint,
    RecreatingEndpoint,
    UpdatingEndpoint,
    Available,
    Deleted,
    Deleting,
    Expired,
    Failed,
    Pending,
    PendingAcceptance,
    Rejected,
    Unknown,
    MissingAvailabilityZones,
}
