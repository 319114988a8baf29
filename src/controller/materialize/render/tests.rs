mod arguments;
mod gates;
mod hash;

use insta::assert_yaml_snapshot;
use serde_json::json;

use super::*;
use crate::cli::Args;
use crate::controller::rendering::fixtures::{FULL, inputs, metadata, options, resource_id};

const GENERATION: Generation = Generation(7);

/// The least that a rendered Materialize has.
fn minimal() -> Materialize {
    let spec = json!({
        "environmentdImageRef": "materialize/environmentd:v26.40.0",
        "backendSecretName": "backend",
        "environmentId": "12345678-1234-1234-1234-123456789012",
    });
    materialize(spec)
}

/// Everything that a Materialize can have.
fn full() -> Materialize {
    let spec = json!({
        "environmentdImageRef": "registry:5000/mz/environmentd:v26.42.0",
        "environmentdExtraArgs": ["--extra=1"],
        "environmentdExtraEnv": [{ "name": "EXTRA", "value": "1" }],
        "environmentdIamRoleArn": "arn:own-iam",
        "environmentdConnectionRoleArn": "arn:own-connection",
        "environmentdResourceRequirements": { "requests": { "cpu": "1" } },
        "balancerdResourceRequirements": { "requests": { "cpu": "2" } },
        "consoleResourceRequirements": { "requests": { "cpu": "3" } },
        "balancerdReplicas": 3,
        "consoleReplicas": 1,
        "serviceAccountAnnotations": { "team": "data", "eks.amazonaws.com/role-arn": "arn:no" },
        "serviceAccountLabels": { "azure.workload.identity/use": "true" },
        "podAnnotations": { "note": "pod" },
        "podLabels": { "team": "data", "app.kubernetes.io/name": "mine", "materialize.cloud/name": "no" },
        "forceRollout": "00000000-0000-0000-0000-000000000001",
        "backendSecretName": "backend",
        "authenticatorKind": "Sasl",
        "enableRbac": true,
        "environmentId": "12345678-1234-1234-1234-123456789012",
        "systemParameterConfigmapName": "system",
        "balancerdConfigmapName": "balancer",
        "balancerdExternalCertificateSpec": { "dnsNames": ["own.example.com"] },
        "internalCertificateSpec": { "dnsNames": ["internal.example.com"] },
    });
    let mut materialize = materialize(spec);
    let force = (FORCE_ROLLOUT_ANNOTATION.to_owned(), "again".to_owned());
    materialize.metadata.annotations = Some([force].into());
    materialize
}

fn materialize(spec: serde_json::Value) -> Materialize {
    let mut materialize = Materialize::new("env", serde_json::from_value(spec).unwrap());
    materialize.metadata = metadata("env");
    materialize
}

fn render(options: &Args, materialize: &Materialize) -> GenerationObjects {
    generation(inputs(options), materialize, &resource_id(), GENERATION).unwrap()
}

/// One snapshot an object.
macro_rules! snapshots {
    ($suffix:literal, $objects:expr, [$($member:ident),*]) => {
        $(assert_yaml_snapshot!(concat!(stringify!($member), "_", $suffix), $objects.$member);)*
    };
}

macro_rules! environment {
    ($suffix:literal, $options:expr, $materialize:expr) => {
        let (options, materialize) = (&$options, &$materialize);
        let inputs = inputs(options);
        let shared = global(inputs, materialize, &resource_id()).unwrap();
        snapshots!(
            $suffix,
            shared,
            [
                service_account,
                role,
                role_binding,
                network_policies,
                certificate
            ]
        );
        let objects = render(options, materialize);
        snapshots!(
            $suffix,
            objects,
            [
                public_service,
                service,
                persist_pubsub_service,
                stateful_set
            ]
        );
        assert_yaml_snapshot!(concat!("leader_", $suffix), objects.leader());
        assert_yaml_snapshot!(concat!("listeners_", $suffix), objects.listeners());
        let image = ImageRef::parse(&materialize.spec.environmentd_image_ref);
        let child = balancer(inputs, materialize, &resource_id(), &image).unwrap();
        assert_yaml_snapshot!(concat!("balancer_", $suffix), child);
        let child = console(inputs, materialize, &resource_id(), &image).unwrap();
        assert_yaml_snapshot!(concat!("console_", $suffix), child);
    };
}

#[test]
fn a_minimal_environment() {
    environment!("minimal", options(&[]), minimal());
}

#[test]
fn a_full_environment() {
    environment!("full", options(FULL), full());
}

#[test]
fn children_follow_the_active_image() {
    let (options, active) = (
        options(FULL),
        ImageRef::parse("old:1/mz/environmentd:v26.41.0"),
    );
    let child = balancer(inputs(&options), &full(), &resource_id(), &active).unwrap();
    assert_eq!(
        child.spec.balancerd_image_ref,
        "old:1/mz/balancerd:v26.41.0"
    );
    let child = console(inputs(&options), &full(), &resource_id(), &active).unwrap();
    assert_eq!(child.spec.console_image_ref, "old:1/mz/console:v26.9.0");
}

#[test]
fn the_users_service_account_is_used_and_not_rendered() {
    let (options, mut materialize) = (options(&[]), minimal());
    materialize.spec.service_account_name = Some("mine".to_owned());
    let shared = global(inputs(&options), &materialize, &resource_id()).unwrap();
    assert!(shared.service_account.is_none());
    assert_eq!(shared.role_binding.subjects.unwrap()[0].name, "mine");
    let pod = render(&options, &materialize)
        .stateful_set
        .spec
        .unwrap()
        .template;
    assert_eq!(pod.spec.unwrap().service_account_name.unwrap(), "mine");
}

#[test]
fn a_policy_without_cidrs_allows_nobody() {
    let options = options(&[
        "--network-policies-ingress-enabled",
        "--network-policies-egress-enabled",
    ]);
    let shared = global(inputs(&options), &minimal(), &resource_id()).unwrap();
    let specs: Vec<_> = shared
        .network_policies
        .into_iter()
        .map(|p| p.spec.unwrap())
        .collect();
    assert_eq!(specs[0].ingress, Some(vec![]));
    assert_eq!(specs[1].egress, Some(vec![]));
}

#[test]
fn the_leader_url() {
    let leader = render(&options(&[]), &minimal()).leader().clone();
    assert_eq!(
        leader.url("/api/leader/status"),
        "http://mzabc123def4-environmentd-7.ns.svc.cluster.local:6878/api/leader/status"
    );
}

#[test]
fn what_cannot_be_rendered_is_an_error_with_a_way_out() {
    let options = options(&[]);
    let error = |change: fn(&mut Materialize)| {
        let mut materialize = minimal();
        change(&mut materialize);
        generation(inputs(&options), &materialize, &resource_id(), GENERATION)
            .unwrap_err()
            .to_string()
    };
    let message = error(|m| m.metadata.uid = None);
    assert!(message.contains("metadata.uid"), "{message}");
    let message = error(|m| m.metadata.name = Some("n".repeat(64)));
    assert!(message.contains("64 characters"), "{message}");
    let message = error(|m| m.spec.environment_id = uuid::Uuid::nil());
    assert!(message.contains("spec.environmentId"), "{message}");
}
