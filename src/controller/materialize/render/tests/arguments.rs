use super::*;

fn arguments(options: &Args, materialize: &Materialize) -> Vec<String> {
    let pod = render(options, materialize)
        .stateful_set
        .spec
        .unwrap()
        .template
        .spec
        .unwrap();
    pod.containers[0].args.clone().unwrap()
}

#[test]
fn every_argument_in_order() {
    let mut materialize = full();
    materialize.spec.enable_rbac = false;
    let expected = [
        "--helm-chart-version=v26.40.0",
        "--environment-id=aws-us-east-1-12345678-1234-1234-1234-123456789012-0",
        "--clusterd-image=registry:5000/mz/clusterd:v26.42.0",
        r#"--cluster-replica-sizes={"b":{},"a":{}}"#,
        "--bootstrap-default-cluster-replica-size=a",
        "--bootstrap-builtin-system-cluster-replica-size=b",
        "--bootstrap-builtin-probe-cluster-replica-size=c",
        "--bootstrap-builtin-support-cluster-replica-size=d",
        "--bootstrap-builtin-catalog-server-cluster-replica-size=e",
        "--bootstrap-builtin-analytics-cluster-replica-size=f",
        "--bootstrap-builtin-system-cluster-replication-factor=1",
        "--bootstrap-builtin-probe-cluster-replication-factor=2",
        "--bootstrap-builtin-support-cluster-replication-factor=3",
        "--bootstrap-builtin-analytics-cluster-replication-factor=4",
        "--cors-allowed-origin=https://one",
        "--cors-allowed-origin=https://two",
        "--secrets-controller=aws-secrets-manager",
        "--system-parameter-default=allowed_cluster_replica_sizes='a', 'b'",
        "--system-parameter-default=enable_internal_statement_logging=true",
        "--system-parameter-default=statement_logging_max_sample_rate=0.99",
        "--system-parameter-default=statement_logging_target_data_rate=10000",
        "--system-parameter-default=enable_rbac_checks=false",
        "--persist-isolated-runtime-threads=-1",
        "--availability-zone=use1-az1",
        "--availability-zone=use1-az2",
        "--aws-connection-role-arn=arn:own-connection",
        "--aws-account-id=123456789012",
        "--aws-secrets-controller-tags=Environment=env",
        "--raw-tag=a",
        "--orchestrator=kubernetes",
        "--orchestrator-kubernetes-service-account=env",
        "--orchestrator-kubernetes-image-pull-policy=if-not-present",
        "--orchestrator-kubernetes-service-node-selector=workload=clusterd",
        r#"--orchestrator-kubernetes-service-affinity={"podAffinity":{}}"#,
        r#"--orchestrator-kubernetes-service-tolerations=[{"key":"clusterd","operator":"Exists"}]"#,
        "--orchestrator-kubernetes-scheduler-name=scheduler",
        "--orchestrator-kubernetes-service-annotation=note=pod",
        "--orchestrator-kubernetes-service-label=materialize.cloud/mz-resource-id=abc123def4",
        "--orchestrator-kubernetes-service-label=materialize.cloud/organization-name=env",
        "--orchestrator-kubernetes-service-label=materialize.cloud/organization-namespace=ns",
        "--orchestrator-kubernetes-service-label=app.kubernetes.io/name=mine",
        "--orchestrator-kubernetes-service-label=materialize.cloud/name=no",
        "--orchestrator-kubernetes-service-label=team=data",
        "--orchestrator-kubernetes-name-prefix=mzabc123def4-",
        "--log-format=json",
        "--opentelemetry-endpoint=http://otel",
        "--opentelemetry-resource=organization_id=12345678-1234-1234-1234-123456789012",
        "--opentelemetry-resource=environment_name=env",
        "--segment-api-key=segment",
        "--segment-client-side",
        "--tls-mode=require",
        "--tls-cert=/etc/materialized/tls.crt",
        "--tls-key=/etc/materialized/tls.key",
        "--orchestrator-kubernetes-ephemeral-volume-class=lvm",
        "--orchestrator-kubernetes-service-fs-group=999",
        "--config-sync-file-path=/system-params/system-params.json",
        "--config-sync-loop-interval=1s",
        "--sentry-dsn=https://sentry",
        "--sentry-environment=production",
        "--sentry-tag=region=us-east-1",
        "--persist-pubsub-url=http://mzabc123def4-persist-pubsub-7:6879",
        "--internal-persist-pubsub-listen-addr=0.0.0.0:6879",
        "--deploy-generation=7",
        "--internal-console-redirect-url=https://proxy",
        "--orchestrator-kubernetes-disable-pod-metrics-collection",
        "--orchestrator-kubernetes-enable-prometheus-scrape-annotations",
        "--extra=1",
        "--listeners-config-path=/listeners/listeners.json",
        "--system-parameter-default=enable_password_auth=true",
        "--orchestrator-kubernetes-priority-class-name=middle",
    ];
    assert_eq!(arguments(&options(FULL), &materialize), expected);
}

#[test]
fn a_minimal_list() {
    let found = arguments(&options(&["--collect-pod-metrics"]), &minimal());
    assert_yaml_snapshot!(found);
}

/// Whether the option makes the argument, and its absence does not.
#[rstest::rstest]
#[case("--segment-api-key=k", "--segment-api-key=k")]
#[case("--helm-chart-version=v1", "--helm-chart-version=v1")]
#[case(
    "--enable-internal-statement-logging",
    "--system-parameter-default=enable_internal_statement_logging=true"
)]
#[case(
    "--statement-logging-max-sample-rate=0",
    "--system-parameter-default=statement_logging_max_sample_rate=0"
)]
#[case(
    "--statement-logging-target-data-rate=5",
    "--system-parameter-default=statement_logging_target_data_rate=5"
)]
#[case("--scheduler-name=s", "--orchestrator-kubernetes-scheduler-name=s")]
#[case(
    "--ephemeral-volume-class=c",
    "--orchestrator-kubernetes-ephemeral-volume-class=c"
)]
#[case(
    "--enable-prometheus-scrape-annotations",
    "--orchestrator-kubernetes-enable-prometheus-scrape-annotations"
)]
#[case(
    "--opentelemetry-endpoint=http://o",
    "--opentelemetry-endpoint=http://o"
)]
#[case("--sentry-dsn=https://s", "--sentry-tag=region=r1")]
#[case(
    r#"--default-certificate-specs={"internal":{"issuerRef":{"name":"i"}}}"#,
    "--tls-mode=require"
)]
fn options_make_arguments(#[case] option: &str, #[case] argument: &str) {
    let has = |options: &[&str]| {
        let options = crate::controller::rendering::fixtures::options(options);
        arguments(&options, &minimal()).contains(&argument.to_owned())
    };
    assert!(has(&[option]));
    assert!(!has(&[]));
}

#[test]
fn the_segment_switch_needs_the_key() {
    let found = arguments(&options(&["--segment-client-side"]), &minimal());
    assert!(!found.contains(&"--segment-client-side".to_owned()));
}

#[rstest::rstest]
#[case("local", true)]
#[case("generic", false)]
fn clusters_spread_over_zones_in_clouds_only(#[case] provider: &str, #[case] expected: bool) {
    let options = options(&[&format!("--cloud-provider={provider}")]);
    let argument = "--system-parameter-default=cluster_enable_topology_spread=false".to_owned();
    assert_eq!(
        arguments(&options, &minimal()).contains(&argument),
        expected
    );
}
