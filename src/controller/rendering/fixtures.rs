//! Operator options for tests.

use clap::Parser;

use super::{Inputs, ResourceId};
use crate::cli::Args;

/// Options as the command line gives them: the required ones and these.
pub fn options(further: &[&str]) -> Args {
    let required = [
        "orchestratord",
        "--cloud-provider=local",
        "--region=r1",
        "--console-image-tag-default=v26.9.0",
    ];
    let given = |flag: &str| further.iter().any(|other| other.starts_with(flag));
    let required = required
        .into_iter()
        .filter(|flag| !given(flag.split('=').next().unwrap()));
    Args::try_parse_from(required.chain(further.iter().copied())).unwrap()
}

/// What rendering takes from the options.
pub fn inputs(options: &Args) -> Inputs<'_> {
    Inputs {
        environment: &options.environment,
        logging: &options.logging,
        operator_namespace: "operators",
    }
}

/// The id of every resource in tests.
pub fn resource_id() -> ResourceId {
    ResourceId("abc123def4".to_owned())
}

/// Metadata as the API server gives it.
pub fn metadata(name: &str) -> kube::api::ObjectMeta {
    kube::api::ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("ns".to_owned()),
        uid: Some("00000000-0000-0000-0000-0000000000aa".to_owned()),
        ..Default::default()
    }
}

/// Every option that is rendered.
pub const FULL: &[&str] = &[
    "--cloud-provider=aws",
    "--region=us-east-1",
    "--helm-chart-version=v26.40.0",
    "--secrets-controller=aws-secrets-manager",
    "--enable-prometheus-scrape-annotations",
    "--segment-api-key=segment",
    "--segment-client-side",
    "--enable-security-context",
    "--enable-internal-statement-logging",
    "--statement-logging-max-sample-rate=0.99",
    "--statement-logging-target-data-rate=10000",
    "--aws-account-id=123456789012",
    "--environmentd-iam-role-arn=arn:iam",
    "--environmentd-connection-role-arn=arn:connection",
    "--aws-secrets-controller-tags=--raw-tag=a",
    "--environmentd-availability-zones=use1-az1",
    "--environmentd-availability-zones=use1-az2",
    "--ephemeral-volume-class=lvm",
    "--scheduler-name=scheduler",
    "--image-pull-policy=if-not-present",
    "--orchestratord-pod-selector-labels=app.kubernetes.io/name=materialize-operator",
    "--environmentd-node-selector=workload=environmentd",
    r#"--environmentd-affinity={"nodeAffinity":{}}"#,
    r#"--environmentd-toleration={"key":"environmentd","operator":"Exists"}"#,
    r#"--environmentd-default-resources={"limits":{"memory":"4Gi"}}"#,
    "--environmentd-priority-class-name=high",
    "--clusterd-node-selector=workload=clusterd",
    r#"--clusterd-affinity={"podAffinity":{}}"#,
    r#"--clusterd-toleration={"key":"clusterd","operator":"Exists"}"#,
    "--clusterd-priority-class-name=middle",
    "--balancerd-node-selector=workload=balancerd",
    r#"--balancerd-affinity={"nodeAffinity":{}}"#,
    r#"--balancerd-toleration={"key":"balancerd","operator":"Exists"}"#,
    r#"--balancerd-default-resources={"limits":{"memory":"256Mi"}}"#,
    "--console-node-selector=workload=console",
    r#"--console-affinity={"nodeAffinity":{}}"#,
    r#"--console-toleration={"key":"console","operator":"Exists"}"#,
    r#"--console-default-resources={"limits":{"memory":"256Mi"}}"#,
    "--console-image-tag-map=v26.42.0=v26.13.0",
    "--network-policies-internal-enabled",
    "--network-policies-ingress-enabled",
    "--network-policies-ingress-cidrs=10.0.0.0/8",
    "--network-policies-ingress-cidrs=192.168.0.0/16",
    "--network-policies-egress-enabled",
    "--network-policies-egress-cidrs=0.0.0.0/0",
    r#"--environmentd-cluster-replica-sizes={"b":{},"a":{}}"#,
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
    "--environmentd-allowed-origins=https://one",
    "--environmentd-allowed-origins=https://two",
    "--internal-console-proxy-url=https://proxy",
    "--balancerd-sql-port=7875",
    "--balancerd-http-port=7876",
    "--console-http-port=9080",
    r#"--default-certificate-specs={"balancerdExternal":{"issuerRef":{"name":"public","kind":"ClusterIssuer"},"dnsNames":["balancerd.example.com"]},"consoleExternal":{"issuerRef":{"name":"public","kind":"ClusterIssuer"},"dnsNames":["console.example.com"]},"internal":{"issuerRef":{"name":"private"},"duration":"2160h"}}"#,
    "--opentelemetry-endpoint=http://otel",
    "--sentry-dsn=https://sentry",
    "--sentry-environment=production",
];
