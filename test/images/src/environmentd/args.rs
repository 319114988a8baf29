//! The command line that the operator gives environmentd.
//!
//! Some members are only checked: what they ask for is not imitated.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as Group, Parser, ValueEnum};
use k8s_openapi::api::core::v1::{Affinity, Toleration};
use serde_json::Value;

use crate::flags::{
    duration, environment_id, image, json, key_value, non_empty, replica_sizes, url,
};
use crate::process::LogFormat;

/// Everything environmentd may be told.
#[derive(Debug, Parser)]
#[command(name = "environmentd", disable_help_flag = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) identity: Identity,
    #[command(flatten)]
    pub(crate) sizes: Sizes,
    #[command(flatten)]
    pub(crate) orchestrator: Orchestrator,
    #[command(flatten)]
    pub(crate) cloud: Cloud,
    #[command(flatten)]
    pub(crate) telemetry: Telemetry,
    #[command(flatten)]
    pub(crate) parameters: ParameterFlags,
    #[command(flatten)]
    pub(crate) network: Network,
}

/// What this process is.
#[derive(Debug, Group)]
pub(crate) struct Identity {
    #[arg(long, value_parser = non_empty)]
    pub(crate) helm_chart_version: Option<String>,
    #[arg(long, value_parser = environment_id)]
    pub(crate) environment_id: String,
    #[arg(long)]
    pub(crate) deploy_generation: u64,
    #[arg(long)]
    pub(crate) disable_license_key_checks: bool,
}

/// Sizes of clusters.
#[derive(Debug, Group)]
pub(crate) struct Sizes {
    #[arg(long, value_parser = replica_sizes)]
    pub(crate) cluster_replica_sizes: Option<Value>,
    #[arg(long, value_parser = non_empty)]
    pub(crate) bootstrap_default_cluster_replica_size: Option<String>,
    #[arg(long, value_parser = non_empty)]
    pub(crate) bootstrap_builtin_system_cluster_replica_size: Option<String>,
    #[arg(long, value_parser = non_empty)]
    pub(crate) bootstrap_builtin_probe_cluster_replica_size: Option<String>,
    #[arg(long, value_parser = non_empty)]
    pub(crate) bootstrap_builtin_support_cluster_replica_size: Option<String>,
    #[arg(long, value_parser = non_empty)]
    pub(crate) bootstrap_builtin_catalog_server_cluster_replica_size: Option<String>,
    #[arg(long, value_parser = non_empty)]
    pub(crate) bootstrap_builtin_analytics_cluster_replica_size: Option<String>,
    #[arg(long)]
    bootstrap_builtin_system_cluster_replication_factor: Option<u32>,
    #[arg(long)]
    bootstrap_builtin_probe_cluster_replication_factor: Option<u32>,
    #[arg(long)]
    bootstrap_builtin_support_cluster_replication_factor: Option<u32>,
    #[arg(long)]
    bootstrap_builtin_analytics_cluster_replication_factor: Option<u32>,
}

impl Sizes {
    /// Each `--bootstrap-…-size` that was given: its flag and the name of the size.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            (
                "--bootstrap-default-cluster-replica-size",
                &self.bootstrap_default_cluster_replica_size,
            ),
            (
                "--bootstrap-builtin-system-cluster-replica-size",
                &self.bootstrap_builtin_system_cluster_replica_size,
            ),
            (
                "--bootstrap-builtin-probe-cluster-replica-size",
                &self.bootstrap_builtin_probe_cluster_replica_size,
            ),
            (
                "--bootstrap-builtin-support-cluster-replica-size",
                &self.bootstrap_builtin_support_cluster_replica_size,
            ),
            (
                "--bootstrap-builtin-catalog-server-cluster-replica-size",
                &self.bootstrap_builtin_catalog_server_cluster_replica_size,
            ),
            (
                "--bootstrap-builtin-analytics-cluster-replica-size",
                &self.bootstrap_builtin_analytics_cluster_replica_size,
            ),
        ]
        .into_iter()
        .filter_map(|(flag, size)| Some((flag, size.as_deref()?)))
    }
}

/// How clusterd is run.
#[derive(Debug, Group)]
pub(crate) struct Orchestrator {
    #[arg(long)]
    orchestrator: OrchestratorKind,
    #[arg(long)]
    secrets_controller: SecretsController,
    #[arg(long, value_parser = image)]
    pub(crate) clusterd_image: String,
    #[arg(long, value_parser = non_empty)]
    pub(crate) orchestrator_kubernetes_service_account: String,
    #[arg(long)]
    pub(crate) orchestrator_kubernetes_image_pull_policy: PullPolicy,
    #[arg(long, value_parser = key_value)]
    pub(crate) orchestrator_kubernetes_service_node_selector: Vec<(String, String)>,
    #[arg(long, value_parser = json::<Affinity>)]
    pub(crate) orchestrator_kubernetes_service_affinity: Option<Affinity>,
    #[arg(long, value_parser = |text: &str| json::<Vec<Toleration>>(text).map(Tolerations))]
    pub(crate) orchestrator_kubernetes_service_tolerations: Option<Tolerations>,
    #[arg(long, value_parser = non_empty)]
    pub(crate) orchestrator_kubernetes_scheduler_name: Option<String>,
    #[arg(long, value_parser = key_value)]
    pub(crate) orchestrator_kubernetes_service_annotation: Vec<(String, String)>,
    #[arg(long, value_parser = key_value)]
    pub(crate) orchestrator_kubernetes_service_label: Vec<(String, String)>,
    #[arg(long, value_parser = non_empty)]
    pub(crate) orchestrator_kubernetes_name_prefix: String,
    #[arg(long, value_parser = non_empty)]
    orchestrator_kubernetes_ephemeral_volume_class: Option<String>,
    #[arg(long)]
    pub(crate) orchestrator_kubernetes_service_fs_group: i64,
    #[arg(long)]
    orchestrator_kubernetes_disable_pod_metrics_collection: bool,
    #[arg(long)]
    pub(crate) orchestrator_kubernetes_enable_prometheus_scrape_annotations: bool,
    #[arg(long, value_parser = non_empty)]
    pub(crate) orchestrator_kubernetes_priority_class_name: Option<String>,
}

/// A JSON array of tolerations, given at once.
#[derive(Clone, Debug)]
pub(crate) struct Tolerations(pub(crate) Vec<Toleration>);

/// Where clusterd runs.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OrchestratorKind {
    Kubernetes,
}

/// Where user secrets are kept.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SecretsController {
    Kubernetes,
    AwsSecretsManager,
}

/// When a node pulls clusterd's image.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl PullPolicy {
    /// The name in a pod.
    pub(crate) fn kubernetes(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// Only with the provider `aws`.
#[derive(Debug, Group)]
pub(crate) struct Cloud {
    #[arg(long, value_parser = non_empty)]
    availability_zone: Vec<String>,
    #[arg(long, value_parser = non_empty)]
    aws_connection_role_arn: Option<String>,
    #[arg(long, value_parser = non_empty)]
    aws_account_id: Option<String>,
    #[arg(long, value_parser = key_value)]
    aws_secrets_controller_tags: Vec<(String, String)>,
}

/// Logs, traces and reports.
#[derive(Debug, Group)]
pub(crate) struct Telemetry {
    #[arg(long)]
    pub(crate) log_format: LogFormat,
    #[arg(long, value_parser = url)]
    opentelemetry_endpoint: Option<String>,
    #[arg(long, value_parser = key_value, required = true)]
    opentelemetry_resource: Vec<(String, String)>,
    #[arg(long, value_parser = non_empty)]
    segment_api_key: Option<String>,
    #[arg(long, requires = "segment_api_key")]
    segment_client_side: bool,
    #[arg(long, value_parser = url)]
    sentry_dsn: Option<String>,
    #[arg(long, value_parser = non_empty)]
    sentry_environment: Option<String>,
    #[arg(long, value_parser = key_value)]
    sentry_tag: Vec<(String, String)>,
}

/// System parameters, and where later values come from.
#[derive(Debug, Group)]
pub(crate) struct ParameterFlags {
    #[arg(long, value_parser = key_value)]
    pub(crate) system_parameter_default: Vec<(String, String)>,
    #[arg(long)]
    pub(crate) config_sync_file_path: Option<PathBuf>,
    #[arg(long, value_parser = duration, requires = "config_sync_file_path")]
    pub(crate) config_sync_loop_interval: Option<Duration>,
    #[arg(long, allow_negative_numbers = true)]
    persist_isolated_runtime_threads: i64,
}

/// Addresses, TLS and links.
#[derive(Debug, Group)]
pub(crate) struct Network {
    #[arg(long, value_parser = non_empty)]
    cors_allowed_origin: Vec<String>,
    #[arg(long)]
    pub(crate) tls_mode: TlsMode,
    #[arg(long)]
    pub(crate) tls_cert: Option<PathBuf>,
    #[arg(long)]
    pub(crate) tls_key: Option<PathBuf>,
    #[arg(long, value_parser = url)]
    pub(crate) persist_pubsub_url: String,
    #[arg(long)]
    pub(crate) internal_persist_pubsub_listen_addr: SocketAddr,
    #[arg(long, value_parser = url)]
    internal_console_redirect_url: String,
    #[arg(long)]
    pub(crate) listeners_config_path: Option<PathBuf>,
    #[arg(long)]
    pub(crate) sql_listen_addr: Option<SocketAddr>,
    #[arg(long)]
    pub(crate) http_listen_addr: Option<SocketAddr>,
    #[arg(long)]
    pub(crate) internal_sql_listen_addr: Option<SocketAddr>,
    #[arg(long)]
    pub(crate) internal_http_listen_addr: Option<SocketAddr>,
}

/// Whether ports that may speak TLS do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsMode {
    Disable,
    Require,
}
