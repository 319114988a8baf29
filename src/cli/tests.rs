use std::path::PathBuf;

use base64::Engine as _;
use clap::CommandFactory;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Args, Invocation, parse};
use crate::api::registration::crds;

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
    assert_eq!(args.definitions.tls_ca, PathBuf::from("/etc/tls/ca.crt"));
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
#[case(&["--install-v1-crd", "--webhook-url=https:///convert"], "must name a host")]
#[case(&["--install-v1-crd", "--webhook-service-name=a b", "--webhook-service-namespace=n"], "names of a Service")]
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

/// There is no running without an election.
#[test]
fn no_flag_of_the_election_is_a_switch() {
    let command = Args::command();
    let flags = command
        .get_arguments()
        .filter(|flag| flag.get_id().as_str().contains("election"));
    let values: Vec<_> = flags.map(|flag| flag.get_action().takes_values()).collect();
    assert_eq!(values, [true; 8]);
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

fn printed(arguments: &[&str]) -> String {
    match parse([&["orchestratord", "crds"], arguments].concat()) {
        Ok(Invocation::Print(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn definitions_are_printed_as_they_are_registered() {
    let registered = serde_json::to_value(crds(None, &[])).unwrap();
    let yaml: Vec<Value> = serde_saphyr::from_multiple(&printed(&[])).unwrap();
    assert_eq!(Value::Array(yaml), registered);
    let list: Value = serde_json::from_str(&printed(&["--format=json"])).unwrap();
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (
            &json!("CustomResourceDefinitionList"),
            &json!("apiextensions.k8s.io/v1")
        )
    );
    assert_eq!(list["items"], registered);
}

#[test]
fn definitions_with_v1_name_the_webhook_and_its_ca() {
    let ca = tempfile::NamedTempFile::new().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = rcgen::CertificateParams::new([])
        .unwrap()
        .self_signed(&key)
        .unwrap()
        .pem();
    std::fs::write(ca.path(), &pem).unwrap();
    let tls_ca = format!("--tls-ca={}", ca.path().display());
    let flags = [
        "--format=json",
        "--install-v1-crd",
        "--webhook-service-name=s",
        "--webhook-service-namespace=n",
        &tls_ca,
    ];
    let list: Value = serde_json::from_str(&printed(&flags)).unwrap();
    let client = &list["items"][0]["spec"]["conversion"]["webhook"]["clientConfig"];
    assert_eq!(
        client["service"],
        json!({"name": "s", "namespace": "n", "path": "/convert", "port": 8001})
    );
    assert_eq!(
        client["caBundle"],
        base64::prelude::BASE64_STANDARD.encode(pem)
    );
    std::fs::write(ca.path(), key.serialize_pem()).unwrap();
    let error = error(&[&["orchestratord", "crds"], &flags[..]].concat());
    assert!(error.contains("not a certificate"), "{error}");
}

#[rstest]
#[case(&["crds", "--install-v1-crd"], "--webhook-service-name")]
#[case(&["crds", "--install-v1-crd", "--webhook-url=https://x/convert", "--tls-ca=/nonexistent"], "--tls-ca /nonexistent")]
#[case(&["crds", "--format=toml"], "--format")]
#[case(&["crds", "--cloud-provider=local"], "--cloud-provider")]
#[case(&["crd"], "crd")]
fn what_cannot_be_printed_names_its_flag(#[case] arguments: &[&str], #[case] told: &str) {
    let error = error(&[&["orchestratord"], arguments].concat());
    assert!(error.contains(told), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}
