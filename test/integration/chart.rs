//! The Helm chart, rendered by the real Helm.

mod arguments;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    storage::v1::StorageClass,
};
use rstest::rstest;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use similar::TextDiff;

const V1_CERT_MANAGER: &str = "operator: {args: {installV1CRD: true}}";
const V1_SECRET: &str = "
operator:
  args: {installV1CRD: true}
  certificate: {source: secret, secretName: webhook-pair}
";
const REPLICAS_1: &str = "operator: {replicas: 1}";
const GCP: &str = "
operator:
  args: {installV1CRD: true}
  cloudProvider:
    type: gcp
    region: us-central1
    providers:
      gcp:
        nodeUpgradeRolloutTrigger:
          enabled: true
          notificationSubscription: projects/p/subscriptions/s
          clusterName: prod
          clusterLocation: us-central1
          watchedNodePools: [blue, green]
";
const AWS: &str = "
operator:
  secretsController: aws-secrets-manager
  cloudProvider:
    type: aws
    region: us-east-1
    providers:
      aws:
        accountID: 123456789012
        iam: {roles: {environment: 'arn:aws:iam::1:role/env', connection: 'arn:aws:iam::1:role/con'}}
";
const LEADER_ELECTION: &str = "
operator:
  leaderElection: {leaseDurationSeconds: 30, renewDeadlineSeconds: 18, joinTimeoutSeconds: 4, releaseTimeoutSeconds: 5, serverFence: true, flowSchema: true}
  webhook: {lingerSeconds: 10, drainSeconds: 15}
";
const EVERYTHING: &str = include_str!("chart/everything.yaml");

static DEFAULT: LazyLock<String> = LazyLock::new(|| render("{}"));

fn helm() -> PathBuf {
    std::env::var_os("MZCOMPOSE_HELM")
        .map(PathBuf::from)
        .expect("MZCOMPOSE_HELM names no Helm binary: run `cargo mzcompose test`, which builds one")
}

/// What `helm template` prints for these values, or what it complains about.
fn try_render_in(namespace: &str, release: &str, values: &str) -> Result<String, String> {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/materialize-operator");
    let mut helm = Command::new(helm())
        .args(["template", release])
        .arg(chart)
        .args(["--namespace", namespace, "--values", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start Helm");
    helm.stdin
        .take()
        .unwrap()
        .write_all(values.as_bytes())
        .expect("hand Helm the values");
    let output = helm.wait_with_output().expect("wait for Helm");
    let stderr = String::from_utf8(output.stderr).unwrap();
    if !output.status.success() {
        return Err(stderr);
    }
    assert_eq!(stderr, "", "Helm warns");
    Ok(String::from_utf8(output.stdout).unwrap())
}

/// The objects of a release in this namespace.
pub fn render_in(namespace: &str, values: &str) -> Vec<Value> {
    objects(&try_render_in(namespace, "operator", values).expect("render the chart"))
}

fn try_render_as(release: &str, values: &str) -> Result<String, String> {
    try_render_in("materialize", release, values)
}

fn render(values: &str) -> String {
    try_render_as("operator", values).expect("render the chart")
}

fn objects(rendered: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(rendered).expect("parse what Helm printed")
}

fn object<T: DeserializeOwned>(rendered: &str, kind: &str) -> T {
    let mut found = objects(rendered)
        .into_iter()
        .filter(|object| object["kind"] == kind);
    let object = found.next().unwrap_or_else(|| panic!("a {kind}"));
    assert_eq!(found.next(), None, "one {kind}");
    serde_json::from_value(object).unwrap()
}

fn kinds(rendered: &str) -> Vec<String> {
    objects(rendered)
        .iter()
        .map(|object| object["kind"].as_str().unwrap().to_owned())
        .collect()
}

fn arguments(rendered: &str) -> Vec<String> {
    let deployment: Deployment = object(rendered, "Deployment");
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    pod.containers[0].args.clone().unwrap()
}

/// The operator refuses a grace period that its stop does not fit into.
#[rstest]
#[case::default("{}", 30)]
#[case::drain("operator: {webhook: {lingerSeconds: 10, drainSeconds: 15}}", 60)]
#[case::join(
    "operator: {leaderElection: {joinTimeoutSeconds: 5, releaseTimeoutSeconds: 12, leaseDurationSeconds: 30}}",
    34
)]
#[case::zero("operator: {webhook: {lingerSeconds: 0, drainSeconds: 1}}", 14)]
fn the_grace_period_follows_from_the_bounds_of_the_stop(
    #[case] values: &str,
    #[case] seconds: i64,
) {
    let rendered = render(values);
    let deployment: Deployment = object(&rendered, "Deployment");
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.termination_grace_period_seconds, Some(seconds));
    let told = format!("--termination-grace-period={seconds}s");
    let is_told = arguments(&rendered).contains(&told);
    assert_eq!(
        is_told,
        values != "{}",
        "only what differs from the default is told"
    );
    let given: Vec<_> = std::iter::once("orchestratord".to_owned())
        .chain(arguments(&rendered))
        .collect();
    orchestratord::cli::parse(given).expect("the operator takes what the chart gives");
}

#[rstest]
#[case("leaseDurationSeconds: 1.5", "leaseDurationSeconds")]
#[case("leaseDurationSeconds: 301", "leaseDurationSeconds")]
#[case("joinTimeoutSeconds: 0", "joinTimeoutSeconds")]
#[case("retryPeriodSeconds: two", "retryPeriodSeconds")]
#[case("leaseDurationSecnds: 20", "leaseDurationSecnds")]
#[case(
    "leaseDurationSeconds: 12",
    "must stay below leaseDurationSeconds (12)"
)]
#[case("renewDeadlineSeconds: 12", "with a tenth more for clocks that differ")]
#[case("releaseTimeoutSeconds: 1", "must exceed joinTimeoutSeconds")]
#[case("retryPeriodSeconds: 7", "1.5 times retryPeriodSeconds")]
#[case("callTimeoutSeconds: 4", "callTimeoutSeconds must be at most a third")]
fn bounds_that_do_not_fit_are_refused(#[case] value: &str, #[case] told: &str) {
    let values = format!("operator: {{leaderElection: {{{value}}}}}");
    let error = try_render_as("operator", &values).unwrap_err();
    assert!(error.contains(told), "{error}");
}

#[test]
fn renders_the_defaults() {
    insta::assert_snapshot!(*DEFAULT);
}

/// What the values change in the default rendering.
#[rstest]
#[case("v1_secret", V1_SECRET)]
#[case("v1_cert_manager", V1_CERT_MANAGER)]
#[case("replicas_1", REPLICAS_1)]
#[case("aws", AWS)]
#[case("gcp", GCP)]
#[case("leader_election", LEADER_ELECTION)]
#[case("everything", EVERYTHING)]
fn renders_the_difference(#[case] name: &str, #[case] values: &str) {
    let rendered = render(values);
    let diff = TextDiff::from_lines(&*DEFAULT, &rendered);
    insta::assert_snapshot!(name, diff.unified_diff().to_string());
}

#[test]
fn renders_the_same_each_time() {
    assert_eq!(render(EVERYTHING), render(EVERYTHING));
}

/// Unknown fields would be lost on the way through the type, so nothing is misspelt or misplaced.
#[rstest]
#[case::v1_cert_manager(V1_CERT_MANAGER)]
#[case::gcp(GCP)]
#[case::everything(EVERYTHING)]
fn renders_objects_of_their_kind(#[case] values: &str) {
    for object in objects(&DEFAULT)
        .into_iter()
        .chain(objects(&render(values)))
    {
        let kind = object["kind"].as_str().unwrap();
        let typed = match kind {
            "ClusterRole" => through::<ClusterRole>(&object),
            "ClusterRoleBinding" => through::<ClusterRoleBinding>(&object),
            "Deployment" => through::<Deployment>(&object),
            "NetworkPolicy" => through::<NetworkPolicy>(&object),
            "PodDisruptionBudget" => through::<PodDisruptionBudget>(&object),
            "Role" => through::<Role>(&object),
            "RoleBinding" => through::<RoleBinding>(&object),
            "Service" => through::<Service>(&object),
            "ServiceAccount" => through::<ServiceAccount>(&object),
            "StorageClass" => through::<StorageClass>(&object),
            "Certificate" | "Issuer" => object.clone(),
            other => panic!("unexpected {other}"),
        };
        assert_eq!(typed, object);
        let cluster_wide = ["ClusterRole", "ClusterRoleBinding", "StorageClass"].contains(&kind);
        let namespace = if cluster_wide {
            Value::Null
        } else {
            json!("materialize")
        };
        assert_eq!(object["metadata"]["namespace"], namespace, "{kind}");
    }
}

fn through<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(object.clone()).unwrap()).unwrap()
}

#[rstest]
#[case::no_secret_name(
    "operator: {args: {installV1CRD: true}, certificate: {source: secret}}",
    "operator.certificate.secretName is required"
)]
#[case::unknown_source(
    "operator: {args: {installV1CRD: true}, certificate: {source: vault}}",
    "operator.certificate.source must be cert-manager or secret, not \"vault\""
)]
#[case::no_subscription(
    "operator: {cloudProvider: {type: gcp, providers: {gcp: {nodeUpgradeRolloutTrigger: {enabled: true, clusterName: c, clusterLocation: l}}}}}",
    "nodeUpgradeRolloutTrigger.notificationSubscription is required"
)]
#[case::no_cluster_name(
    "operator: {cloudProvider: {type: gcp, providers: {gcp: {nodeUpgradeRolloutTrigger: {enabled: true, notificationSubscription: s, clusterLocation: l}}}}}",
    "nodeUpgradeRolloutTrigger.clusterName is required"
)]
#[case::no_cluster_location(
    "operator: {cloudProvider: {type: gcp, providers: {gcp: {nodeUpgradeRolloutTrigger: {enabled: true, notificationSubscription: s, clusterName: c}}}}}",
    "nodeUpgradeRolloutTrigger.clusterLocation is required"
)]
fn refuses_incomplete_values(#[case] values: &str, #[case] message: &str) {
    let complaint = try_render_as("operator", values).unwrap_err();
    assert!(complaint.contains(message), "{complaint}");
}

/// Values of a feature that is off are not looked at.
#[rstest]
#[case("operator: {certificate: {source: secret}}")]
#[case(
    "operator: {cloudProvider: {providers: {gcp: {nodeUpgradeRolloutTrigger: {enabled: true}}}}}"
)]
#[case("telemetry: {enabled: true, segmentApiKey: ''}")]
#[case("storage: {storageClass: {create: true}}")]
#[case("networkPolicies: {internal: {enabled: true}, egress: {enabled: true}}")]
fn ignores_values_of_what_is_off(#[case] values: &str) {
    assert_eq!(render(values), *DEFAULT);
}

#[rstest]
#[case("operator", "{}", "operator-materialize-operator")]
#[case("my-materialize-operator", "{}", "my-materialize-operator")]
#[case("operator", "nameOverride: mz", "operator-mz")]
#[case("operator", "fullnameOverride: mz", "mz")]
#[case("123", "{}", "123-materialize-operator")]
fn names_objects_after_the_release(
    #[case] release: &str,
    #[case] values: &str,
    #[case] name: &str,
) {
    let deployment: Deployment = object(&try_render_as(release, values).unwrap(), "Deployment");
    assert_eq!(deployment.metadata.name.as_deref(), Some(name));
    let instance = &deployment.metadata.labels.unwrap()["app.kubernetes.io/instance"];
    assert_eq!(instance, release);
}

#[rstest]
#[case("operator: {replicas: 1}", "PodDisruptionBudget")]
#[case(
    "operator: {podDisruptionBudget: {enabled: false}}",
    "PodDisruptionBudget"
)]
#[case("rbac: {create: false}", "ClusterRole")]
#[case("rbac: {create: false}", "RoleBinding")]
#[case("serviceAccount: {create: false}", "ServiceAccount")]
fn leaves_out_what_is_switched_off(#[case] values: &str, #[case] kind: &str) {
    assert!(kinds(&DEFAULT).contains(&kind.to_owned()));
    assert!(!kinds(&render(values)).contains(&kind.to_owned()));
}

#[rstest]
#[case(V1_CERT_MANAGER, "operator-materialize-operator-cert")]
#[case(V1_SECRET, "webhook-pair")]
fn mounts_the_certificate(#[case] values: &str, #[case] secret: &str) {
    let rendered = render(values);
    let deployment: Deployment = object(&rendered, "Deployment");
    let volumes = deployment
        .spec
        .unwrap()
        .template
        .spec
        .unwrap()
        .volumes
        .unwrap();
    assert_eq!(
        volumes[0].secret.as_ref().unwrap().secret_name.as_deref(),
        Some(secret)
    );
    let made = kinds(&rendered)
        .iter()
        .filter(|kind| *kind == "Certificate")
        .count();
    assert_eq!(made, if values == V1_CERT_MANAGER { 2 } else { 0 });
}
