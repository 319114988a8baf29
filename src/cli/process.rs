//! Flags of the process itself: its servers and its cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::parse::{duration, non_empty};

/// Servers and Kubernetes context.
#[derive(Args, Clone, Debug)]
pub struct ProcessArgs {
    /// kubeconfig context to use outside a cluster; inside a pod its service account is used
    #[arg(
        long,
        env = "ORCHESTRATORD_KUBERNETES_CONTEXT",
        default_value = "minikube"
    )]
    pub kubernetes_context: String,
    /// Accepted for compatibility; there is no profiling server
    #[arg(long, default_value = "[::]:8004")]
    pub profiling_listen_address: SocketAddr,
    /// Address of the metrics and health server
    #[arg(long, default_value = "[::]:3100")]
    pub metrics_listen_address: SocketAddr,
    /// How long Kubernetes lets this pod stop before it is killed; the bounds of the stop must fit (ours)
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub termination_grace_period: Duration,
}

/// The conversion webhook.
#[derive(Args, Clone, Debug)]
pub struct WebhookArgs {
    /// Address of the webhook
    #[arg(long, default_value = "[::]:8001")]
    pub webhook_listen_address: SocketAddr,
    /// Certificate chain of the webhook
    #[arg(long, default_value = "/etc/tls/tls.crt")]
    pub tls_cert: PathBuf,
    /// Private key of the webhook
    #[arg(long, default_value = "/etc/tls/tls.key")]
    pub tls_key: PathBuf,
    /// How often certificate, key and CA are read again; at least every 2s in any case
    #[arg(long, default_value = "1h", value_parser = duration)]
    pub webhook_cert_reload_interval: Duration,
    /// How long the webhook goes on accepting after SIGTERM, while endpoints catch up (ours)
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub webhook_linger: Duration,
    /// How long requests in flight may take after that (ours)
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub webhook_drain: Duration,
}

/// The GCP node-upgrade watcher.
#[derive(Args, Clone, Debug)]
pub struct NodeUpgradeArgs {
    /// Roll environments off nodes that GKE is about to upgrade; checked, but without effect so far
    #[arg(long)]
    pub enable_gcp_node_upgrade_rollout_trigger: bool,
    /// Pub/Sub subscription: projects/{project}/subscriptions/{subscription}
    #[arg(long)]
    pub gcp_node_upgrade_notification_subscription: Option<String>,
    /// Name of the GKE cluster
    #[arg(long, value_parser = non_empty)]
    pub gcp_cluster_name: Option<String>,
    /// Location of the GKE cluster
    #[arg(long, value_parser = non_empty)]
    pub gcp_cluster_location: Option<String>,
    /// Only watch this node pool; repeatable, none = all
    #[arg(long)]
    pub gcp_node_upgrade_watched_node_pool: Vec<String>,
}
