//! Command lines as the operator writes them, and wrong ones.

use rstest::rstest;

use super::Fault;
use super::args::Args;
use super::env::{CatalogKind, Environment};
use super::leader::Timings;
use super::replica::Replica;
use super::version::{ImageVersion, check};
use crate::flags::parse;

/// What every image gets but for the listen arguments.
const ALWAYS: [&str; 18] = [
    "environmentd",
    "--environment-id=generic-kind-12345678-1234-1234-1234-123456789012-0",
    "--clusterd-image=materialize/clusterd:v26.40.0",
    "--secrets-controller=kubernetes",
    "--persist-isolated-runtime-threads=-1",
    "--orchestrator=kubernetes",
    "--orchestrator-kubernetes-service-account=env",
    "--orchestrator-kubernetes-image-pull-policy=if-not-present",
    "--orchestrator-kubernetes-service-label=materialize.cloud/mz-resource-id=abc",
    "--orchestrator-kubernetes-name-prefix=mzabc-",
    "--log-format=json",
    "--opentelemetry-resource=organization_id=12345678-1234-1234-1234-123456789012",
    "--opentelemetry-resource=environment_name=env",
    "--orchestrator-kubernetes-service-fs-group=999",
    "--persist-pubsub-url=http://mzabc-persist-pubsub-2:6879",
    "--internal-persist-pubsub-listen-addr=0.0.0.0:6879",
    "--deploy-generation=2",
    "--internal-console-redirect-url=https://console.materialize.com",
];
const NO_TLS: &str = "--tls-mode=disable";
const FILE: &str = "--listeners-config-path=/listeners/listeners.json";
const ADDRESSES: [&str; 4] = [
    "--sql-listen-addr=0.0.0.0:6875",
    "--http-listen-addr=0.0.0.0:6876",
    "--internal-sql-listen-addr=0.0.0.0:6877",
    "--internal-http-listen-addr=0.0.0.0:6878",
];

/// Every optional argument of an image `v26.42.0` on AWS.
const OPTIONAL: [&str; 42] = [
    "--helm-chart-version=v26.40.0",
    r#"--cluster-replica-sizes={"25cc":{"workers":1},"50cc":{"workers":2}}"#,
    "--bootstrap-default-cluster-replica-size=25cc",
    "--bootstrap-builtin-system-cluster-replica-size=25cc",
    "--bootstrap-builtin-probe-cluster-replica-size=25cc",
    "--bootstrap-builtin-support-cluster-replica-size=25cc",
    "--bootstrap-builtin-catalog-server-cluster-replica-size=50cc",
    "--bootstrap-builtin-analytics-cluster-replica-size=25cc",
    "--bootstrap-builtin-system-cluster-replication-factor=0",
    "--bootstrap-builtin-probe-cluster-replication-factor=0",
    "--bootstrap-builtin-support-cluster-replication-factor=0",
    "--bootstrap-builtin-analytics-cluster-replication-factor=0",
    "--cors-allowed-origin=http://localhost:3000",
    "--cors-allowed-origin=https://staging.console.materialize.com",
    "--system-parameter-default=allowed_cluster_replica_sizes='25cc', '50cc'",
    "--system-parameter-default=enable_rbac_checks=false",
    "--availability-zone=use1-az1",
    "--aws-connection-role-arn=arn:aws:iam::1:role/r",
    "--aws-account-id=1",
    "--aws-secrets-controller-tags=Environment=env",
    "--orchestrator-kubernetes-service-node-selector=workload=materialize-instance",
    r#"--orchestrator-kubernetes-service-affinity={"nodeAffinity":{}}"#,
    r#"--orchestrator-kubernetes-service-tolerations=[{"key":"a","operator":"Exists"}]"#,
    "--orchestrator-kubernetes-scheduler-name=other",
    "--orchestrator-kubernetes-service-annotation=a=b",
    "--opentelemetry-endpoint=http://otel:4317",
    "--segment-api-key=key",
    "--segment-client-side",
    "--tls-mode=require",
    "--tls-cert=/etc/materialized/tls.crt",
    "--tls-key=/etc/materialized/tls.key",
    "--orchestrator-kubernetes-ephemeral-volume-class=fast",
    "--config-sync-file-path=/system-params/system-params.json",
    "--config-sync-loop-interval=1s",
    "--sentry-dsn=https://sentry.example.com/1",
    "--sentry-environment=test",
    "--sentry-tag=region=us-east-1",
    "--orchestrator-kubernetes-disable-pod-metrics-collection",
    "--orchestrator-kubernetes-enable-prometheus-scrape-annotations",
    FILE,
    "--system-parameter-default=enable_password_auth=true",
    "--orchestrator-kubernetes-priority-class-name=important",
];

fn read(version: &str, args: &[&str]) -> anyhow::Result<Args> {
    let args: Args = parse(args.iter().copied())?;
    check(&args, &ImageVersion::parse(version)?)?;
    Ok(args)
}

fn with(extra: &[&'static str]) -> Vec<&'static str> {
    [&ALWAYS[..], extra].concat()
}

#[rstest]
#[case("v26.40.0", with(&[NO_TLS, FILE]))]
#[case("v0.147.0-dev.0--pr.g5a05", with(&[NO_TLS, FILE]))]
#[case("v0.130.0", with(&[&[NO_TLS], &ADDRESSES[..]].concat()))]
#[case("v0.145.0", with(&[&[NO_TLS, "--disable-license-key-checks"], &ADDRESSES[..]].concat()))]
#[case("v26.42.0", with(&OPTIONAL))]
fn accepts_what_the_operator_writes(#[case] version: &str, #[case] args: Vec<&str>) {
    read(version, &args).unwrap();
}

#[test]
fn each_argument_that_is_always_given_is_required() {
    for (at, left_out) in ALWAYS.iter().enumerate().skip(1) {
        let flag = left_out.split_once('=').unwrap().0;
        let repeated = [
            "--opentelemetry-resource",
            "--orchestrator-kubernetes-service-label",
        ];
        if repeated.contains(&flag) {
            continue;
        }
        let mut args = with(&[NO_TLS, FILE]);
        args.remove(at);
        let error = read("v26.40.0", &args).unwrap_err().to_string();
        assert!(
            error.contains(flag) && !error.contains('\n'),
            "{flag}: {error}"
        );
    }
}

#[rstest]
#[case("v26.40.0", with(&[NO_TLS]), "--listeners-config-path")]
#[case("v26.40.0", with(&[FILE]), "--tls-mode")]
#[case("v26.40.0", with(&[NO_TLS, FILE, "--frobnicate=1"]), "--frobnicate")]
#[case("v26.40.0", with(&[NO_TLS, FILE, "stray"]), "stray")]
#[case("v26.40.0", with(&[NO_TLS, FILE, "--deploy-generation=3"]), "--deploy-generation")]
#[case("v26.40.0", with(&[NO_TLS, FILE, ADDRESSES[0]]), "--sql-listen-addr")]
#[case("v0.130.0", with(&[NO_TLS, ADDRESSES[0], ADDRESSES[1], ADDRESSES[2]]), "--internal-http-listen-addr")]
#[case("v0.130.0", with(&[&[NO_TLS, FILE], &ADDRESSES[..]].concat()), "--listeners-config-path")]
#[case("v26.40.0", with(&[NO_TLS, FILE, "--disable-license-key-checks"]), "--disable-license-key-checks")]
#[case("v26.41.0", with(&[NO_TLS, FILE, OPTIONAL[41]]), "--orchestrator-kubernetes-priority-class-name")]
#[case("v26.0.0", with(&[NO_TLS, FILE, OPTIONAL[32]]), "--config-sync-file-path")]
#[case("v0.153.0", with(&[NO_TLS, FILE, OPTIONAL[24]]), "--orchestrator-kubernetes-service-annotation")]
#[case("v26.40.0", with(&[NO_TLS, FILE, OPTIONAL[33]]), "--config-sync-file-path")]
#[case("v26.40.0", with(&[NO_TLS, FILE, OPTIONAL[27]]), "--segment-api-key")]
#[case("v26.40.0", with(&["--tls-mode=require", FILE]), "--tls-cert")]
#[case("v26.40.0", with(&[NO_TLS, FILE, OPTIONAL[1], "--bootstrap-default-cluster-replica-size=9cc"]), "9cc")]
#[case("v26.40.0", with(&[NO_TLS, FILE, "--cluster-replica-sizes=[]"]), "--cluster-replica-sizes")]
#[case("v26.40.0", with(&[NO_TLS, FILE, "--orchestrator-kubernetes-service-tolerations={}"]), "tolerations")]
#[case("v26.40.0", with(&[NO_TLS, FILE, "--system-parameter-default=x"]), "--system-parameter-default")]
#[case("v26.40.0", with(&[NO_TLS, FILE, "--bootstrap-builtin-probe-cluster-replication-factor=-1"]), "factor")]
fn names_what_is_wrong(#[case] version: &str, #[case] args: Vec<&str>, #[case] named: &str) {
    let error = read(version, &args).unwrap_err().to_string();
    assert!(error.contains(named) && !error.contains('\n'), "{error}");
}

fn environment(
    version: &str,
    extra: &[(&str, &str)],
    without: &str,
) -> anyhow::Result<Environment> {
    let base = [
        (
            "MZ_METADATA_BACKEND_URL",
            "postgres://user:hunter2@postgres:5432/db",
        ),
        ("MZ_PERSIST_BLOB_URL", "s3://minio:hunter2@bucket/x"),
        ("AWS_REGION", "kind"),
        ("MZ_STANDIN_VERSION", version),
        ("PATH", "/bin"),
    ];
    let variables = base
        .iter()
        .chain(extra)
        .filter(|(name, _)| *name != without);
    let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Environment::read(variables, &ImageVersion::parse(version)?)
}

#[test]
fn the_environment_that_the_operator_writes() {
    let license = tempfile::NamedTempFile::new().unwrap();
    let path = license.path().to_str().unwrap();
    let empty = environment("v26.40.0", &[("MZ_LICENSE_KEY", path)], "")
        .unwrap_err()
        .to_string();
    assert!(
        empty.contains("MZ_LICENSE_KEY") && empty.contains("empty"),
        "{empty}"
    );
    std::fs::write(path, "key").unwrap();
    let read = environment(
        "v26.40.0",
        &[
            ("MZ_LICENSE_KEY", path),
            ("MZ_EXTERNAL_LOGIN_PASSWORD_MZ_SYSTEM", "secret"),
            ("MZ_STANDIN_CATCHUP", "3"),
            ("MZ_STANDIN_PROMOTE_DELAY", "10ms"),
            ("MZ_STANDIN_FAULT", "flap"),
            ("MZ_STANDIN_CATALOG", "memory"),
        ],
        "",
    )
    .unwrap();
    assert_eq!(read.password.as_deref(), Some("secret"));
    let millis = std::time::Duration::from_millis;
    let timings = Timings {
        catchup: millis(3000),
        promote: millis(10),
        ..Timings::default()
    };
    assert_eq!(
        (read.settings.timings, read.settings.fault),
        (timings, Fault::Flap)
    );
    assert_eq!(read.settings.catalog, CatalogKind::Memory);
}

#[rstest]
#[case("v0.150.0", &[], "MZ_METADATA_BACKEND_URL")]
#[case("v0.150.0", &[], "MZ_PERSIST_BLOB_URL")]
#[case("v0.150.0", &[], "AWS_REGION")]
#[case("v26.40.0", &[], "MZ_LICENSE_KEY")]
#[case("v26.40.0", &[("MZ_LICENSE_KEY", "/no/such/file")], "/no/such/file")]
#[case("v0.150.0", &[("MZ_UNKNOWN", "1")], "MZ_UNKNOWN")]
#[case("v0.150.0", &[("MZ_STANDIN_UNKNOWN", "1")], "MZ_STANDIN_UNKNOWN")]
#[case("v0.150.0", &[("MZ_STANDIN_FAULT", "rust")], "MZ_STANDIN_FAULT")]
#[case("v0.150.0", &[("MZ_STANDIN_CATCHUP", "soon")], "MZ_STANDIN_CATCHUP")]
#[case("v0.150.0", &[("MZ_PERSIST_BLOB_URL", "hunter2")], "MZ_PERSIST_BLOB_URL")]
fn environments_that_are_wrong(
    #[case] version: &str,
    #[case] extra: &[(&str, &str)],
    #[case] named: &str,
) {
    let without = if extra.is_empty() { named } else { "" };
    let error = format!("{:#}", environment(version, extra, without).unwrap_err());
    assert!(
        error.contains(named) && !error.contains("hunter2"),
        "{error}"
    );
}

#[test]
fn clusterd_is_rendered_as_the_arguments_ask() {
    let replica = Replica::new(&read("v26.42.0", &with(&OPTIONAL)).unwrap());
    let set: k8s_openapi::api::apps::v1::StatefulSet =
        serde_json::from_value(replica.stateful_set()).unwrap();
    let service: k8s_openapi::api::core::v1::Service =
        serde_json::from_value(replica.service()).unwrap();
    assert_eq!(
        set.metadata.name.as_deref(),
        Some("mzabc-cluster-s2-replica-s1-gen-2")
    );
    assert_eq!(service.metadata.name, set.metadata.name);
    let spec = set.spec.unwrap();
    let labels = spec
        .template
        .metadata
        .as_ref()
        .unwrap()
        .labels
        .clone()
        .unwrap();
    for (key, value) in [
        ("environmentd.materialize.cloud/namespace", "cluster"),
        ("cluster.environmentd.materialize.cloud/type", "cluster"),
        ("cluster.environmentd.materialize.cloud/cluster-id", "s2"),
        ("cluster.environmentd.materialize.cloud/replica-id", "s1"),
        ("cluster.environmentd.materialize.cloud/generation", "2"),
        ("materialize.cloud/mz-resource-id", "abc"),
    ] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert_eq!(spec.selector.match_labels.as_ref(), Some(&labels));
    assert_eq!(service.spec.unwrap().selector.as_ref(), Some(&labels));
    let annotations = spec.template.metadata.unwrap().annotations.unwrap();
    assert_eq!(
        (
            annotations["a"].as_str(),
            annotations["prometheus.io/port"].as_str()
        ),
        ("b", "6878")
    );
    let pod = spec.template.spec.unwrap();
    assert_eq!(
        pod.node_selector.unwrap()["workload"],
        "materialize-instance"
    );
    assert_eq!(pod.tolerations.unwrap()[0].key.as_deref(), Some("a"));
    assert!(pod.affinity.is_some());
    assert_eq!(pod.scheduler_name.as_deref(), Some("other"));
    assert_eq!(pod.priority_class_name.as_deref(), Some("important"));
    assert_eq!(pod.service_account_name.as_deref(), Some("env"));
    assert_eq!(pod.security_context.unwrap().fs_group, Some(999));
    assert_eq!(
        pod.containers[0].image.as_deref(),
        Some("materialize/clusterd:v26.40.0")
    );
    assert_eq!(
        pod.containers[0].image_pull_policy.as_deref(),
        Some("IfNotPresent")
    );
}
