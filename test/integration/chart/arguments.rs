//! The operator's command line as the chart writes it.

use clap::Parser;
use rstest::rstest;
use serde_json::{Value, json};

use super::{AWS, DEFAULT, EVERYTHING, GCP, V1_SECRET, arguments, render};

/// Argument names with the chart's own values; tests of users address the sizes as `args[13]`.
const DEFAULT_ORDER: &[&str] = &[
    "--helm-chart-version",
    "--startup-log-filter",
    "--cloud-provider",
    "--region",
    "--secrets-controller",
    "--statement-logging-max-sample-rate",
    "--orchestratord-pod-selector-labels",
    "--orchestratord-pod-selector-labels",
    "--enable-internal-statement-logging",
    "--disable-license-key-checks",
    "--create-balancers",
    "--create-console",
    "--console-image-tag-default",
    "--environmentd-cluster-replica-sizes",
    "--bootstrap-default-cluster-replica-size",
    "--bootstrap-builtin-system-cluster-replica-size",
    "--bootstrap-builtin-probe-cluster-replica-size",
    "--bootstrap-builtin-support-cluster-replica-size",
    "--bootstrap-builtin-catalog-server-cluster-replica-size",
    "--bootstrap-builtin-analytics-cluster-replica-size",
    "--bootstrap-builtin-system-cluster-replication-factor",
    "--bootstrap-builtin-probe-cluster-replication-factor",
    "--bootstrap-builtin-support-cluster-replication-factor",
    "--bootstrap-builtin-analytics-cluster-replication-factor",
    "--image-pull-policy",
    "--environmentd-default-resources",
    "--balancerd-default-resources",
    "--console-default-resources",
    "--enable-prometheus-scrape-annotations",
    "--segment-client-side",
    "--enable-security-context",
];

fn names(arguments: &[String]) -> Vec<&str> {
    arguments
        .iter()
        .map(|argument| argument.split('=').next().unwrap())
        .collect()
}

/// The value of the one argument of this name.
fn argument(rendered: &str, name: &str) -> String {
    let prefix = format!("{name}=");
    let arguments = arguments(rendered);
    let mut found = arguments
        .iter()
        .filter_map(|argument| argument.strip_prefix(&prefix));
    let value = found
        .next()
        .unwrap_or_else(|| panic!("{name} in {arguments:#?}"))
        .to_owned();
    assert_eq!(found.next(), None, "one {name}");
    value
}

fn sizes(rendered: &str) -> Value {
    serde_json::from_str(&argument(rendered, "--environmentd-cluster-replica-sizes")).unwrap()
}

#[test]
fn orders_default_arguments_as_upstream() {
    let arguments = arguments(&DEFAULT);
    assert_eq!(names(&arguments), DEFAULT_ORDER);
    assert!(arguments[13].starts_with("--environmentd-cluster-replica-sizes={"));
    assert_eq!(
        arguments[6],
        "--orchestratord-pod-selector-labels=app.kubernetes.io/instance=operator"
    );
    assert_eq!(
        arguments[7],
        "--orchestratord-pod-selector-labels=app.kubernetes.io/name=materialize-operator"
    );
}

/// Chart, image and operator are released as one.
#[test]
fn carries_the_version_of_the_operator() {
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    assert_eq!(argument(&DEFAULT, "--helm-chart-version"), version);
    assert_eq!(argument(&DEFAULT, "--console-image-tag-default"), version);
}

/// Optional arguments have their slots too: the defaults stay in order around them.
#[rstest]
#[case::v1(V1_SECRET, "--disable-license-key-checks", &["--install-v1-crd"], "--create-balancers")]
#[case::reload(
    "operator: {args: {installV1CRD: true, webhookCertReloadInterval: 10m}}",
    "--disable-license-key-checks",
    &["--install-v1-crd", "--webhook-cert-reload-interval"],
    "--create-balancers"
)]
#[case::data_rate(
    "operator: {args: {statementLoggingTargetDataRate: 1}}",
    "--statement-logging-max-sample-rate",
    &["--statement-logging-target-data-rate"],
    "--orchestratord-pod-selector-labels"
)]
#[case::aws(
    AWS,
    "--disable-license-key-checks",
    &["--aws-account-id", "--environmentd-iam-role-arn", "--environmentd-connection-role-arn"],
    "--create-balancers"
)]
#[case::gcp(
    GCP,
    "--install-v1-crd",
    &[
        "--enable-gcp-node-upgrade-rollout-trigger",
        "--gcp-node-upgrade-notification-subscription",
        "--gcp-cluster-name",
        "--gcp-cluster-location",
        "--gcp-node-upgrade-watched-node-pool",
        "--gcp-node-upgrade-watched-node-pool",
    ],
    "--create-balancers"
)]
#[case::console_tags(
    "console: {imageTagMapOverride: {v26.1.0: v26.1.1}}",
    "--console-image-tag-default",
    &["--console-image-tag-map"],
    "--environmentd-cluster-replica-sizes"
)]
fn puts_optional_arguments_in_their_slots(
    #[case] values: &str,
    #[case] before: &str,
    #[case] added: &[&str],
    #[case] after: &str,
) {
    let arguments = arguments(&render(values));
    let names = names(&arguments);
    let first = names.iter().position(|name| *name == added[0]).unwrap();
    assert_eq!(names[first - 1], before);
    assert_eq!(&names[first..first + added.len()], added);
    assert_eq!(names[first + added.len()], after);
}

/// The webhook's Service is named by two pairs of arguments, last of all.
#[test]
fn ends_with_the_webhook_service() {
    let arguments = arguments(&render(V1_SECRET));
    assert_eq!(
        arguments[arguments.len() - 4..],
        [
            "--webhook-service-name",
            "operator-materialize-operator",
            "--webhook-service-namespace",
            "materialize"
        ]
    );
}

#[rstest]
#[case::defaults("{}")]
#[case::v1_secret(V1_SECRET)]
#[case::aws(AWS)]
#[case::gcp(GCP)]
#[case::everything(EVERYTHING)]
fn passes_only_arguments_the_operator_knows(#[case] values: &str) {
    let arguments = arguments(&render(values));
    let command = std::iter::once("orchestratord".to_owned()).chain(arguments);
    if let Err(error) = orchestratord::cli::Args::try_parse_from(command) {
        panic!("{error}");
    }
}

/// Large integers reach Helm's templates as floats; `5e+07` would not parse as an integer.
#[test]
fn never_writes_integers_with_an_exponent() {
    let rendered = render(EVERYTHING);
    assert_eq!(
        argument(&rendered, "--statement-logging-target-data-rate"),
        "50000000"
    );
    assert_eq!(argument(&rendered, "--aws-account-id"), "123456789012");
    assert_eq!(sizes(&rendered)["big"]["workers"], json!(1_000_000));
}

/// Zero is a value, null is none.
#[test]
fn tells_zero_from_null() {
    let zero = render("operator: {args: {statementLoggingMaxSampleRate: 0}}");
    assert_eq!(argument(&zero, "--statement-logging-max-sample-rate"), "0");
    let none = render(
        "operator: {args: {statementLoggingMaxSampleRate: null}, clusters: {defaultReplicationFactor: {probe: null}}}",
    );
    let arguments = arguments(&none);
    let left_out = [
        "--statement-logging-max-sample-rate",
        "--bootstrap-builtin-probe-cluster-replication-factor",
    ];
    let mut expected = DEFAULT_ORDER.to_vec();
    expected.retain(|name| !left_out.contains(name));
    assert_eq!(names(&arguments), expected);
}

#[test]
fn passes_no_sizes_without_clusters() {
    let arguments = arguments(&render("operator: {clusters: null}"));
    assert!(
        !names(&arguments)
            .iter()
            .any(|name| name.contains("cluster")),
        "{arguments:#?}"
    );
}

/// Tests of users compare the text, so it is compact and its keys are sorted.
#[test]
fn writes_sizes_as_compact_sorted_json() {
    let text = argument(&DEFAULT, "--environmentd-cluster-replica-sizes");
    let start = r#"{"100cc":{"cpu_exclusive":true,"cpu_limit":2,"credits_per_hour":"1","disk_limit":"0","is_cc":true,"memory_limit":"15525MiB","scale":1,"selectors":{"materialize.cloud/swap":"true"},"swap_enabled":true,"workers":2},"1200cc":{"#;
    assert!(text.starts_with(start), "{text}");
    assert_eq!(sizes(&DEFAULT).as_object().unwrap().len(), 13);
}

#[rstest]
#[case::swap(true, "", "0", json!({"materialize.cloud/swap": "true"}))]
#[case::swap_and_disk(true, "fast", "0", json!({"materialize.cloud/swap": "true"}))]
#[case::disk(false, "fast", "7762MiB", json!({"materialize.cloud/scratch-fs": "true"}))]
#[case::neither(false, "", "0", json!({}))]
fn writes_swap_and_disk_into_sizes(
    #[case] swap: bool,
    #[case] storage_class: &str,
    #[case] disk_limit: &str,
    #[case] selectors: Value,
) {
    let rendered = render(&format!(
        "{{operator: {{clusters: {{swap_enabled: {swap}}}}}, storage: {{storageClass: {{name: '{storage_class}'}}}}}}"
    ));
    let size = &sizes(&rendered)["25cc"];
    assert_eq!(size["swap_enabled"], swap);
    assert_eq!(size["disk_limit"], disk_limit);
    assert_eq!(size["selectors"], selectors);
    assert_eq!(size["is_cc"], true);
}

/// A size's own swap switch decides its selectors, the global one its disk; its own selectors win.
#[test]
fn keeps_what_a_size_says_itself() {
    let rendered = render(
        "
operator:
  clusters:
    swap_enabled: false
    sizes:
      25cc: {swap_enabled: true, cpu_request: 0.25, is_cc: false, selectors: {materialize.cloud/swap: mine, a: b}}
storage: {storageClass: {name: fast}}
",
    );
    assert_eq!(
        sizes(&rendered)["25cc"],
        json!({
            "cpu_exclusive": false, "cpu_limit": 0.5, "cpu_request": 0.25, "credits_per_hour": "0.25",
            "disk_limit": "7762MiB", "is_cc": true, "memory_limit": "3881MiB", "scale": 1,
            "selectors": {"a": "b", "materialize.cloud/swap": "mine"}, "swap_enabled": true, "workers": 1,
        })
    );
}
