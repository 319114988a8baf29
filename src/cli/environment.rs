//! Flags that shape environments: cloud, features, scheduling, images, sizes, ports, certificates.

use clap::{Args, ValueEnum};
use k8s_openapi::api::core::v1::{Affinity, ResourceRequirements, Toleration};
use serde::Deserialize;

use super::parse::{KeyValue, json, json_object_text, non_empty, sample_rate};
use crate::api::MaterializeCertSpec;

/// Where the cluster runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum CloudProvider {
    Local,
    Docker,
    Mzcompose,
    Cloudtest,
    Aws,
    Gcp,
    Azure,
    Generic,
}

impl CloudProvider {
    /// Whether nodes are spread over zones as in a cloud.
    pub fn is_cloud(self) -> bool {
        matches!(self, Self::Aws | Self::Gcp | Self::Azure | Self::Generic)
    }

    /// The name as it stands in an environment id.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Docker => "docker",
            Self::Mzcompose => "mzcompose",
            Self::Cloudtest => "cloudtest",
            Self::Aws => "aws",
            Self::Gcp => "gcp",
            Self::Azure => "azure",
            Self::Generic => "generic",
        }
    }
}

/// When images of an environment are pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the names are Kubernetes' own")]
pub enum ImagePullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl ImagePullPolicy {
    /// As a container spec has it.
    pub fn as_kubernetes(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }

    /// As environmentd's arguments have it.
    pub fn as_kebab_case(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::IfNotPresent => "if-not-present",
            Self::Never => "never",
        }
    }
}

/// Everything that shapes an environment.
#[derive(Args, Clone, Debug)]
pub struct EnvironmentArgs {
    /// Where the cluster runs
    #[arg(long, value_enum, ignore_case = true)]
    pub cloud_provider: CloudProvider,
    /// Region of the cluster; part of environment ids
    #[arg(long, value_parser = non_empty)]
    pub region: String,
    /// Create a Balancer for each Materialize
    #[arg(long)]
    pub create_balancers: bool,
    /// Create a Console for each Materialize
    #[arg(long)]
    pub create_console: bool,
    /// Version of the Helm chart, forwarded to environmentd
    #[arg(long)]
    pub helm_chart_version: Option<String>,
    /// Where environmentd keeps user secrets
    #[arg(long, default_value = "kubernetes")]
    pub secrets_controller: String,
    /// Let environmentd collect pod metrics
    #[arg(long)]
    pub collect_pod_metrics: bool,
    /// Annotate pods for Prometheus
    #[arg(long)]
    pub enable_prometheus_scrape_annotations: bool,
    /// Accepted for compatibility; has no effect
    #[arg(long)]
    pub disable_authentication: bool,
    /// Segment write key, forwarded to environmentd
    #[arg(long)]
    pub segment_api_key: Option<String>,
    /// Let the console send to Segment from the browser
    #[arg(long)]
    pub segment_client_side: bool,
    /// Give all pods the restricted security context
    #[arg(long)]
    pub enable_security_context: bool,
    /// Log internal statements
    #[arg(long)]
    pub enable_internal_statement_logging: bool,
    /// Cap on the share of statements logged, 0 to 1
    #[arg(long, value_parser = sample_rate)]
    pub statement_logging_max_sample_rate: Option<f64>,
    /// Cap on logged statements in bytes per second
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub statement_logging_target_data_rate: Option<u64>,
    /// Tell environmentd (0.143 to 0.152) not to check licence keys
    #[arg(long, hide = true)]
    pub disable_license_key_checks: bool,
    /// Console tag where the map has no entry for environmentd's
    #[arg(long, value_parser = non_empty)]
    pub console_image_tag_default: String,
    /// ENVIRONMENTD_TAG=CONSOLE_TAG; repeatable
    #[arg(long)]
    pub console_image_tag_map: Vec<KeyValue>,
    /// AWS
    #[command(flatten)]
    pub aws: AwsArgs,
    /// Storage class of clusterd's scratch volumes
    #[arg(long)]
    pub ephemeral_volume_class: Option<String>,
    /// Scheduler of all pods
    #[arg(long)]
    pub scheduler_name: Option<String>,
    /// When images are pulled
    #[arg(long, value_enum, default_value = "always", ignore_case = true)]
    pub image_pull_policy: ImagePullPolicy,
    /// Label of the operator's own pods, for network policies; repeatable
    #[arg(long)]
    pub orchestratord_pod_selector_labels: Vec<KeyValue>,
    /// Scheduling and resources of each component
    #[command(flatten)]
    pub components: ComponentArgs,
    /// Network policies
    #[command(flatten)]
    pub network_policies: NetworkPolicyArgs,
    /// Cluster sizes and bootstrap
    #[command(flatten)]
    pub cluster_sizes: ClusterSizeArgs,
    /// Origin that environmentd answers to; repeatable
    #[arg(long, default_values = [
        "http://local.dev.materialize.com:3000",
        "http://local.mtrlz.com:3000",
        "http://localhost:3000",
        "https://staging.console.materialize.com",
    ])]
    pub environmentd_allowed_origins: Vec<String>,
    /// Where environmentd redirects requests for its internal console
    #[arg(long, default_value = "https://console.materialize.com")]
    pub internal_console_proxy_url: String,
    /// environmentd's SQL port
    #[arg(long, default_value_t = 6875)]
    pub environmentd_sql_port: u16,
    /// environmentd's HTTP port
    #[arg(long, default_value_t = 6876)]
    pub environmentd_http_port: u16,
    /// environmentd's internal SQL port
    #[arg(long, default_value_t = 6877)]
    pub environmentd_internal_sql_port: u16,
    /// environmentd's internal HTTP port
    #[arg(long, default_value_t = 6878)]
    pub environmentd_internal_http_port: u16,
    /// environmentd's persist pubsub port
    #[arg(long, default_value_t = 6879)]
    pub environmentd_internal_persist_pubsub_port: u16,
    /// balancerd's SQL port
    #[arg(long, default_value_t = 6875)]
    pub balancerd_sql_port: u16,
    /// balancerd's HTTP port
    #[arg(long, default_value_t = 6876)]
    pub balancerd_http_port: u16,
    /// balancerd's internal HTTP port
    #[arg(long, default_value_t = 8080)]
    pub balancerd_internal_http_port: u16,
    /// The console's HTTP port
    #[arg(long, default_value_t = 8080)]
    pub console_http_port: u16,
    /// JSON object of certificate specs: balancerdExternal, consoleExternal, internal
    #[arg(long, default_value = "{}", value_name = "JSON", value_parser = json::<DefaultCertificateSpecs>)]
    pub default_certificate_specs: DefaultCertificateSpecs,
}

/// AWS.
#[derive(Args, Clone, Debug)]
pub struct AwsArgs {
    /// AWS account of the cluster
    #[arg(long, value_parser = non_empty)]
    pub aws_account_id: Option<String>,
    /// Role of environmentd's service account
    #[arg(long)]
    pub environmentd_iam_role_arn: Option<String>,
    /// Role that CREATE CONNECTION assumes
    #[arg(long)]
    pub environmentd_connection_role_arn: Option<String>,
    /// Further argument of environmentd on AWS, as it stands; repeatable
    #[arg(long)]
    pub aws_secrets_controller_tags: Vec<String>,
    /// Availability zone of the cluster; repeatable
    #[arg(long)]
    pub environmentd_availability_zones: Vec<String>,
}

/// Scheduling and resources of each component.
#[derive(Args, Clone, Debug)]
pub struct ComponentArgs {
    /// Node label for environmentd, K=V; repeatable
    #[arg(long)]
    pub environmentd_node_selector: Vec<KeyValue>,
    /// JSON Affinity of environmentd
    #[arg(long, value_name = "JSON", value_parser = json::<Affinity>)]
    pub environmentd_affinity: Option<Affinity>,
    /// JSON Toleration of environmentd; repeatable
    #[arg(long, value_name = "JSON", value_parser = json::<Toleration>)]
    pub environmentd_toleration: Vec<Toleration>,
    /// JSON ResourceRequirements of environmentd where its own spec has none
    #[arg(long, value_name = "JSON", value_parser = json::<ResourceRequirements>)]
    pub environmentd_default_resources: Option<ResourceRequirements>,
    /// Priority class of environmentd pods
    #[arg(long)]
    pub environmentd_priority_class_name: Option<String>,
    /// Node label for clusterd, K=V; repeatable
    #[arg(long)]
    pub clusterd_node_selector: Vec<KeyValue>,
    /// JSON Affinity of clusterd
    #[arg(long, value_name = "JSON", value_parser = json::<Affinity>)]
    pub clusterd_affinity: Option<Affinity>,
    /// JSON Toleration of clusterd; repeatable
    #[arg(long, value_name = "JSON", value_parser = json::<Toleration>)]
    pub clusterd_toleration: Vec<Toleration>,
    /// Priority class of clusterd pods, forwarded to environmentd
    #[arg(long)]
    pub clusterd_priority_class_name: Option<String>,
    /// Node label for balancerd, K=V; repeatable
    #[arg(long)]
    pub balancerd_node_selector: Vec<KeyValue>,
    /// JSON Affinity of balancerd
    #[arg(long, value_name = "JSON", value_parser = json::<Affinity>)]
    pub balancerd_affinity: Option<Affinity>,
    /// JSON Toleration of balancerd; repeatable
    #[arg(long, value_name = "JSON", value_parser = json::<Toleration>)]
    pub balancerd_toleration: Vec<Toleration>,
    /// JSON ResourceRequirements of balancerd where its own spec has none
    #[arg(long, value_name = "JSON", value_parser = json::<ResourceRequirements>)]
    pub balancerd_default_resources: Option<ResourceRequirements>,
    /// Node label for the console, K=V; repeatable
    #[arg(long)]
    pub console_node_selector: Vec<KeyValue>,
    /// JSON Affinity of the console
    #[arg(long, value_name = "JSON", value_parser = json::<Affinity>)]
    pub console_affinity: Option<Affinity>,
    /// JSON Toleration of the console; repeatable
    #[arg(long, value_name = "JSON", value_parser = json::<Toleration>)]
    pub console_toleration: Vec<Toleration>,
    /// JSON ResourceRequirements of the console where its own spec has none
    #[arg(long, value_name = "JSON", value_parser = json::<ResourceRequirements>)]
    pub console_default_resources: Option<ResourceRequirements>,
}

/// Network policies.
#[derive(Args, Clone, Debug)]
pub struct NetworkPolicyArgs {
    /// Allow traffic inside an environment and from the operator
    #[arg(long)]
    pub network_policies_internal_enabled: bool,
    /// Allow traffic to balancerd and the console from the ingress CIDRs
    #[arg(long)]
    pub network_policies_ingress_enabled: bool,
    /// CIDR of clients; repeatable
    #[arg(long)]
    pub network_policies_ingress_cidrs: Vec<String>,
    /// Allow traffic of environments to the egress CIDRs
    #[arg(long)]
    pub network_policies_egress_enabled: bool,
    /// CIDR of sources and sinks; repeatable
    #[arg(long)]
    pub network_policies_egress_cidrs: Vec<String>,
}

/// Cluster sizes and bootstrap, all forwarded to environmentd.
#[derive(Args, Clone, Debug)]
#[allow(
    missing_docs,
    reason = "each is environmentd's argument of the same name"
)]
pub struct ClusterSizeArgs {
    /// JSON object of cluster sizes
    #[arg(long, value_name = "JSON", value_parser = json_object_text)]
    pub environmentd_cluster_replica_sizes: Option<String>,
    #[arg(long)]
    pub bootstrap_default_cluster_replica_size: Option<String>,
    #[arg(long)]
    pub bootstrap_builtin_system_cluster_replica_size: Option<String>,
    #[arg(long)]
    pub bootstrap_builtin_probe_cluster_replica_size: Option<String>,
    #[arg(long)]
    pub bootstrap_builtin_support_cluster_replica_size: Option<String>,
    #[arg(long)]
    pub bootstrap_builtin_catalog_server_cluster_replica_size: Option<String>,
    #[arg(long)]
    pub bootstrap_builtin_analytics_cluster_replica_size: Option<String>,
    #[arg(long)]
    pub bootstrap_builtin_system_cluster_replication_factor: Option<u32>,
    #[arg(long)]
    pub bootstrap_builtin_probe_cluster_replication_factor: Option<u32>,
    #[arg(long)]
    pub bootstrap_builtin_support_cluster_replication_factor: Option<u32>,
    #[arg(long)]
    pub bootstrap_builtin_analytics_cluster_replication_factor: Option<u32>,
}

/// Certificate specs used where a resource has none of its own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DefaultCertificateSpecs {
    /// Of balancerd towards clients.
    pub balancerd_external: Option<MaterializeCertSpec>,
    /// Of the console towards browsers.
    pub console_external: Option<MaterializeCertSpec>,
    /// Of environmentd inside the cluster.
    pub internal: Option<MaterializeCertSpec>,
}
