//! environmentd's arguments, in upstream's order.

use super::{Environment, gates, to_json, volumes};
use crate::cli::{CloudProvider, KeyValue};
use crate::controller::rendering::pod::MATERIALIZE_UID;
use crate::controller::rendering::{Generation, RenderError};

/// Arguments, each `--name=value` or a bare switch.
#[derive(Default)]
struct Arguments(Vec<String>);

impl Arguments {
    fn switch(&mut self, name: &str, on: bool) {
        if on {
            self.0.push(format!("--{name}"));
        }
    }

    fn value(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.push(format!("--{name}={value}"));
    }

    fn option(&mut self, name: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.value(name, value);
        }
    }

    fn default_parameter(&mut self, name: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.value("system-parameter-default", format!("{name}={value}"));
        }
    }
}

pub(super) fn render(
    environment: &Environment<'_>,
    generation: Generation,
) -> Result<Vec<String>, RenderError> {
    let mut arguments = Arguments::default();
    identity(&mut arguments, environment)?;
    sizes(&mut arguments, environment);
    parameters(&mut arguments, environment);
    arguments.value("persist-isolated-runtime-threads", -1);
    aws(&mut arguments, environment);
    orchestrator(&mut arguments, environment)?;
    telemetry(&mut arguments, environment);
    tls(&mut arguments, environment);
    storage(&mut arguments, environment);
    sentry(&mut arguments, environment);
    deployment(&mut arguments, environment, generation);
    let extra = environment.spec.environmentd_extra_args.iter().flatten();
    arguments.0.extend(extra.cloned());
    listeners(&mut arguments, environment);
    if environment.image.meets_minimum(gates::PRIORITY_CLASS) {
        let components = &environment.inputs.environment.components;
        let class = components.clusterd_priority_class_name.as_ref();
        arguments.option("orchestrator-kubernetes-priority-class-name", class);
    }
    Ok(arguments.0)
}

fn identity(arguments: &mut Arguments, environment: &Environment<'_>) -> Result<(), RenderError> {
    let options = environment.inputs.environment;
    let id = environment.spec.environment_id;
    if id.is_nil() {
        return Err(RenderError::NoEnvironmentId {
            name: environment.owner.name.clone(),
        });
    }
    arguments.option("helm-chart-version", options.helm_chart_version.as_ref());
    let provider = options.cloud_provider.as_str();
    arguments.value(
        "environment-id",
        format!("{provider}-{}-{id}-0", options.region),
    );
    arguments.value("clusterd-image", environment.image.sibling("clusterd"));
    Ok(())
}

fn sizes(arguments: &mut Arguments, environment: &Environment<'_>) {
    let options = environment.inputs.environment;
    let sizes = &options.cluster_sizes;
    arguments.option(
        "cluster-replica-sizes",
        sizes.environmentd_cluster_replica_sizes.as_ref(),
    );
    arguments.option(
        "bootstrap-default-cluster-replica-size",
        sizes.bootstrap_default_cluster_replica_size.as_ref(),
    );
    for (cluster, size) in [
        (
            "system",
            &sizes.bootstrap_builtin_system_cluster_replica_size,
        ),
        ("probe", &sizes.bootstrap_builtin_probe_cluster_replica_size),
        (
            "support",
            &sizes.bootstrap_builtin_support_cluster_replica_size,
        ),
        (
            "catalog-server",
            &sizes.bootstrap_builtin_catalog_server_cluster_replica_size,
        ),
        (
            "analytics",
            &sizes.bootstrap_builtin_analytics_cluster_replica_size,
        ),
    ] {
        let name = format!("bootstrap-builtin-{cluster}-cluster-replica-size");
        arguments.option(&name, size.as_ref());
    }
    for (cluster, factor) in [
        (
            "system",
            sizes.bootstrap_builtin_system_cluster_replication_factor,
        ),
        (
            "probe",
            sizes.bootstrap_builtin_probe_cluster_replication_factor,
        ),
        (
            "support",
            sizes.bootstrap_builtin_support_cluster_replication_factor,
        ),
        (
            "analytics",
            sizes.bootstrap_builtin_analytics_cluster_replication_factor,
        ),
    ] {
        let name = format!("bootstrap-builtin-{cluster}-cluster-replication-factor");
        arguments.option(&name, factor);
    }
    for origin in &options.environmentd_allowed_origins {
        arguments.value("cors-allowed-origin", origin);
    }
    arguments.value("secrets-controller", &options.secrets_controller);
}

fn parameters(arguments: &mut Arguments, environment: &Environment<'_>) {
    let options = environment.inputs.environment;
    let sizes = options
        .cluster_sizes
        .environmentd_cluster_replica_sizes
        .as_deref();
    arguments.default_parameter("allowed_cluster_replica_sizes", sizes.and_then(size_names));
    arguments.default_parameter(
        "cluster_enable_topology_spread",
        (!options.cloud_provider.is_cloud()).then_some(false),
    );
    arguments.default_parameter(
        "enable_internal_statement_logging",
        options.enable_internal_statement_logging.then_some(true),
    );
    arguments.default_parameter(
        "statement_logging_max_sample_rate",
        options.statement_logging_max_sample_rate,
    );
    arguments.default_parameter(
        "statement_logging_target_data_rate",
        options.statement_logging_target_data_rate,
    );
    arguments.default_parameter(
        "enable_rbac_checks",
        (!environment.spec.enable_rbac).then_some(false),
    );
}

/// The names of the sizes as a list of SQL strings, sorted.
fn size_names(sizes: &str) -> Option<String> {
    let sizes: serde_json::Map<String, serde_json::Value> = serde_json::from_str(sizes).ok()?;
    let mut names: Vec<String> = sizes.keys().map(|name| format!("'{name}'")).collect();
    names.sort_unstable();
    Some(names.join(", "))
}

fn aws(arguments: &mut Arguments, environment: &Environment<'_>) {
    let options = environment.inputs.environment;
    if options.cloud_provider != CloudProvider::Aws {
        return;
    }
    let aws = &options.aws;
    for zone in &aws.environmentd_availability_zones {
        arguments.value("availability-zone", zone);
    }
    let own = environment.spec.environmentd_connection_role_arn.as_ref();
    arguments.option(
        "aws-connection-role-arn",
        own.or(aws.environmentd_connection_role_arn.as_ref()),
    );
    arguments.option("aws-account-id", aws.aws_account_id.as_ref());
    arguments.value(
        "aws-secrets-controller-tags",
        format!("Environment={}", environment.owner.name),
    );
    arguments
        .0
        .extend(aws.aws_secrets_controller_tags.iter().cloned());
}

fn orchestrator(
    arguments: &mut Arguments,
    environment: &Environment<'_>,
) -> Result<(), RenderError> {
    let options = environment.inputs.environment;
    let components = &options.components;
    let spec = environment.spec;
    arguments.value("orchestrator", "kubernetes");
    arguments.value(
        "orchestrator-kubernetes-service-account",
        environment.service_account_name(),
    );
    arguments.value(
        "orchestrator-kubernetes-image-pull-policy",
        options.image_pull_policy.as_kebab_case(),
    );
    for KeyValue { key, value } in &components.clusterd_node_selector {
        arguments.value(
            "orchestrator-kubernetes-service-node-selector",
            format!("{key}={value}"),
        );
    }
    if environment.image.meets_minimum(gates::CLUSTERD_SCHEDULING) {
        if let Some(affinity) = &components.clusterd_affinity {
            let affinity = to_json("clusterd's affinity", affinity)?;
            arguments.value("orchestrator-kubernetes-service-affinity", affinity);
        }
        if !components.clusterd_toleration.is_empty() {
            let tolerations = to_json("clusterd's tolerations", &components.clusterd_toleration)?;
            arguments.value("orchestrator-kubernetes-service-tolerations", tolerations);
        }
    }
    arguments.option(
        "orchestrator-kubernetes-scheduler-name",
        options.scheduler_name.as_ref(),
    );
    if environment.image.meets_minimum(gates::CLUSTERD_ANNOTATIONS) {
        for (key, value) in spec.pod_annotations.iter().flatten() {
            arguments.value(
                "orchestrator-kubernetes-service-annotation",
                format!("{key}={value}"),
            );
        }
    }
    let identity = environment.owner.identity();
    for (key, value) in identity.iter().chain(spec.pod_labels.iter().flatten()) {
        arguments.value(
            "orchestrator-kubernetes-service-label",
            format!("{key}={value}"),
        );
    }
    arguments.value(
        "orchestrator-kubernetes-name-prefix",
        environment.owner.resource_id.child(""),
    );
    Ok(())
}

fn telemetry(arguments: &mut Arguments, environment: &Environment<'_>) {
    let options = environment.inputs.environment;
    let logging = environment.inputs.logging;
    arguments.value("log-format", "json");
    arguments.option(
        "opentelemetry-endpoint",
        logging.opentelemetry_endpoint.as_ref(),
    );
    let id = environment.spec.environment_id;
    arguments.value("opentelemetry-resource", format!("organization_id={id}"));
    let name = &environment.owner.name;
    arguments.value("opentelemetry-resource", format!("environment_name={name}"));
    arguments.option("segment-api-key", options.segment_api_key.as_ref());
    arguments.switch(
        "segment-client-side",
        options.segment_api_key.is_some() && options.segment_client_side,
    );
}

fn tls(arguments: &mut Arguments, environment: &Environment<'_>) {
    if environment.internal_certificate().has_issuer() {
        let directory = volumes::CERTIFICATE_DIRECTORY;
        arguments.value("tls-mode", "require");
        arguments.value("tls-cert", format!("{directory}/tls.crt"));
        arguments.value("tls-key", format!("{directory}/tls.key"));
    } else {
        arguments.value("tls-mode", "disable");
    }
}

fn storage(arguments: &mut Arguments, environment: &Environment<'_>) {
    let options = environment.inputs.environment;
    arguments.option(
        "orchestrator-kubernetes-ephemeral-volume-class",
        options.ephemeral_volume_class.as_ref(),
    );
    arguments.value("orchestrator-kubernetes-service-fs-group", MATERIALIZE_UID);
    if volumes::system_parameters(environment).is_some() {
        let directory = volumes::SYSTEM_PARAMETERS_DIRECTORY;
        let key = volumes::SYSTEM_PARAMETERS_KEY;
        arguments.value("config-sync-file-path", format!("{directory}/{key}"));
        arguments.value("config-sync-loop-interval", "1s");
    }
}

fn sentry(arguments: &mut Arguments, environment: &Environment<'_>) {
    let logging = environment.inputs.logging;
    if let Some(dsn) = &logging.sentry_dsn {
        arguments.value("sentry-dsn", dsn);
        arguments.option("sentry-environment", logging.sentry_environment.as_ref());
        let region = &environment.inputs.environment.region;
        arguments.value("sentry-tag", format!("region={region}"));
    }
}

fn deployment(arguments: &mut Arguments, environment: &Environment<'_>, generation: Generation) {
    let options = environment.inputs.environment;
    let pubsub = environment.owner.resource_id.persist_pubsub(generation);
    let port = options.environmentd_internal_persist_pubsub_port;
    arguments.value("persist-pubsub-url", format!("http://{pubsub}:{port}"));
    arguments.value("internal-persist-pubsub-listen-addr", any_address(port));
    arguments.value("deploy-generation", generation);
    arguments.value(
        "internal-console-redirect-url",
        &options.internal_console_proxy_url,
    );
    arguments.switch(
        "orchestrator-kubernetes-disable-pod-metrics-collection",
        !options.collect_pod_metrics,
    );
    arguments.switch(
        "orchestrator-kubernetes-enable-prometheus-scrape-annotations",
        options.enable_prometheus_scrape_annotations,
    );
    let image = &environment.image;
    arguments.switch(
        "disable-license-key-checks",
        options.disable_license_key_checks
            && image.meets_minimum(gates::DISABLE_LICENSE_KEY_CHECKS)
            && !image.meets_minimum(gates::LICENSE_KEY_ALWAYS),
    );
}

fn listeners(arguments: &mut Arguments, environment: &Environment<'_>) {
    let options = environment.inputs.environment;
    if environment.has_listeners() {
        let (directory, key) = (volumes::LISTENERS_DIRECTORY, volumes::LISTENERS_KEY);
        arguments.value("listeners-config-path", format!("{directory}/{key}"));
        let password = environment.has_password_login();
        arguments.default_parameter("enable_password_auth", password.then_some(true));
        return;
    }
    for (name, port) in [
        ("sql", options.environmentd_sql_port),
        ("http", options.environmentd_http_port),
        ("internal-sql", options.environmentd_internal_sql_port),
        ("internal-http", options.environmentd_internal_http_port),
    ] {
        arguments.value(&format!("{name}-listen-addr"), any_address(port));
    }
}

fn any_address(port: u16) -> String {
    format!("0.0.0.0:{port}")
}
