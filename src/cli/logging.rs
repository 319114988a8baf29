//! Flags of logging, tracing and error reporting.

use std::time::Duration;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use super::parse::{KeyValue, duration};

/// Logging, tracing and error reporting.
#[derive(Args, Clone, Debug)]
pub struct LoggingArgs {
    /// Which log lines are written
    #[arg(long, env = "ORCHESTRATORD_STARTUP_LOG_FILTER", default_value = "info", value_parser = filter)]
    pub startup_log_filter: String,
    /// Form of the log lines
    #[arg(
        long,
        env = "ORCHESTRATORD_LOG_FORMAT",
        value_enum,
        default_value = "text",
        ignore_case = true
    )]
    pub log_format: LogFormat,
    /// Text before every log line
    #[arg(long, env = "ORCHESTRATORD_LOG_PREFIX")]
    pub log_prefix: Option<String>,
    /// OpenTelemetry collector, forwarded to environmentd; the operator itself exports nothing
    #[arg(long, env = "ORCHESTRATORD_OPENTELEMETRY_ENDPOINT")]
    pub opentelemetry_endpoint: Option<String>,
    /// Accepted for compatibility, NAME=VALUE; has no effect
    #[arg(
        long,
        env = "ORCHESTRATORD_OPENTELEMETRY_HEADER",
        value_delimiter = ','
    )]
    pub opentelemetry_header: Vec<KeyValue>,
    /// Accepted for compatibility; has no effect
    #[arg(long, env = "ORCHESTRATORD_STARTUP_OPENTELEMETRY_FILTER", default_value = "info", value_parser = filter)]
    pub startup_opentelemetry_filter: String,
    /// Accepted for compatibility, NAME=VALUE; has no effect
    #[arg(
        long,
        env = "ORCHESTRATORD_OPENTELEMETRY_RESOURCE",
        value_delimiter = ','
    )]
    pub opentelemetry_resource: Vec<KeyValue>,
    /// Accepted for compatibility; has no effect
    #[arg(
        long,
        env = "ORCHESTRATORD_OPENTELEMETRY_MAX_BATCH_QUEUE_SIZE",
        default_value_t = 2048
    )]
    pub opentelemetry_max_batch_queue_size: usize,
    /// Accepted for compatibility; has no effect
    #[arg(
        long,
        env = "ORCHESTRATORD_OPENTELEMETRY_MAX_EXPORT_BATCH_SIZE",
        default_value_t = 512
    )]
    pub opentelemetry_max_export_batch_size: usize,
    /// Accepted for compatibility; has no effect
    #[arg(
        long,
        env = "ORCHESTRATORD_OPENTELEMETRY_MAX_CONCURRENT_EXPORTS",
        default_value_t = 1
    )]
    pub opentelemetry_max_concurrent_exports: usize,
    /// Accepted for compatibility; has no effect
    #[arg(long, env = "ORCHESTRATORD_OPENTELEMETRY_SCHED_DELAY", default_value = "5000ms", value_parser = duration)]
    pub opentelemetry_sched_delay: Duration,
    /// Accepted for compatibility; has no effect
    #[arg(long, env = "ORCHESTRATORD_OPENTELEMETRY_MAX_EXPORT_TIMEOUT", default_value = "30s", value_parser = duration)]
    pub opentelemetry_max_export_timeout: Duration,
    /// Sentry project, forwarded to environmentd
    #[arg(long, env = "ORCHESTRATORD_SENTRY_DSN")]
    pub sentry_dsn: Option<String>,
    /// Sentry environment, forwarded to environmentd
    #[arg(long, env = "ORCHESTRATORD_SENTRY_ENVIRONMENT")]
    pub sentry_environment: Option<String>,
    /// Sentry tag, NAME=VALUE
    #[arg(long, env = "ORCHESTRATORD_SENTRY_TAG", value_delimiter = ',')]
    pub sentry_tag: Vec<KeyValue>,
}

/// Form of the log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs: one JSON object a line.
    Json,
}

fn filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text)
        .map(|_| text.to_owned())
        .map_err(|error| format!("not a log filter: {error}"))
}
