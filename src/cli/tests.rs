use std::path::PathBuf;

use rstest::rstest;

use super::{Args, Invocation, parse};

const REQUIRED: [&str; 4] = [
    "orchestratord",
    "--cloud-provider=local",
    "--region=kind",
    "--console-image-tag-default=v26.40.0",
];

fn error(arguments: &[&str]) -> String {
    parse(arguments).expect_err("must be refused").to_string()
}

fn error_with(arguments: &[&str]) -> String {
    error(&[&REQUIRED, arguments].concat())
}

fn accepted(arguments: &[&str]) -> Box<Args> {
    match parse([&REQUIRED, arguments].concat()) {
        Ok(Invocation::Run(args)) => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_three_flags_are_required() {
    let args = accepted(&[]);
    assert_eq!(args.process.metrics_listen_address.port(), 3100);
    assert_eq!(args.webhook.tls_ca, PathBuf::from("/etc/tls/ca.crt"));
    assert_eq!(args.environment.environmentd_allowed_origins.len(), 4);
}

#[rstest]
#[case(&["orchestratord", "--region=x", "--console-image-tag-default=y"], "--cloud-provider")]
#[case(&["orchestratord", "--cloud-provider=local", "--console-image-tag-default=y"], "--region")]
#[case(&["orchestratord", "--cloud-provider=local", "--region=x"], "--console-image-tag-default")]
fn a_missing_flag_is_named_in_one_line(#[case] arguments: &[&str], #[case] flag: &str) {
    let error = error(arguments);
    assert!(error.contains(flag), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[rstest]
#[case(&["--no-such-flag"], "--no-such-flag")]
#[case(&["--image-pull-policy=sometimes"], "--image-pull-policy")]
#[case(&["--statement-logging-max-sample-rate=1.5"], "from 0 to 1")]
#[case(&["--statement-logging-target-data-rate=0"], "--statement-logging-target-data-rate")]
#[case(&["--environmentd-node-selector=novalue"], "KEY=VALUE")]
#[case(&["--environmentd-affinity=[]"], "--environmentd-affinity")]
#[case(&["--environmentd-toleration={\"key\":1}"], "--environmentd-toleration")]
#[case(&["--environmentd-cluster-replica-sizes=[]"], "--environmentd-cluster-replica-sizes")]
#[case(&["--default-certificate-specs={\"inner\":{}}"], "inner")]
#[case(&["--webhook-cert-reload-interval=5"], "--webhook-cert-reload-interval")]
#[case(&["--metrics-listen-address=nowhere"], "--metrics-listen-address")]
#[case(&["--startup-log-filter=a=b=c"], "--startup-log-filter")]
#[case(&["--leader-election-lease-duration=2s"], "renew deadline")]
fn a_bad_value_names_its_flag(#[case] arguments: &[&str], #[case] told: &str) {
    let error = error_with(arguments);
    assert!(error.contains(told), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[rstest]
#[case(&["--install-v1-crd"], "--webhook-service-name")]
#[case(&["--install-v1-crd", "--webhook-service-name=s"], "--webhook-service-namespace")]
#[case(
    &["--install-v1-crd", "--webhook-service-name=s", "--webhook-service-namespace=n", "--tls-ca=/nonexistent"],
    "--tls-ca /nonexistent"
)]
#[case(&["--install-v1-crd", "--webhook-url=http://plain"], "https://")]
#[case(
    &["--install-v1-crd", "--webhook-url=https://x", "--webhook-service-name=s"],
    "one or the other"
)]
#[case(&["--enable-gcp-node-upgrade-rollout-trigger"], "--cloud-provider gcp")]
#[case(&["--webhook-linger=20s"], "--termination-grace-period 30s")]
#[case(&["--leader-election-join-timeout=1s", "--leader-election-release-timeout=25s"], "a stop can take 30s")]
#[case(&["--termination-grace-period=15s"], "which must be less than --termination-grace-period 15s")]
fn a_forbidden_combination_names_the_way_out(#[case] arguments: &[&str], #[case] told: &str) {
    let error = error_with(arguments);
    assert!(error.contains(told), "{error}");
}

#[test]
fn a_stop_takes_half_the_grace_period_at_most_by_default() {
    let args = accepted(&[]);
    assert_eq!(
        2 * args.stop_budget(),
        args.process.termination_grace_period
    );
    let args = accepted(&["--webhook-linger=20s", "--termination-grace-period=60s"]);
    assert_eq!(args.stop_budget().as_secs(), 30);
}

#[test]
fn aws_needs_an_account() {
    let error = error(&[
        "orchestratord",
        "--cloud-provider=AWS",
        "--region=us-east-1",
        "--console-image-tag-default=v26.40.0",
    ]);
    assert!(error.contains("--aws-account-id"), "{error}");
}

#[test]
fn help_and_version_are_printed() {
    assert!(matches!(
        parse(["orchestratord", "--version"]),
        Ok(Invocation::Print(_))
    ));
    assert!(matches!(
        parse(["orchestratord", "--help"]),
        Ok(Invocation::Print(_))
    ));
}
