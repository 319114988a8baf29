//! The StatefulSet of one generation of environmentd.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{
    Container, PodSpec, PodTemplateSpec, Probe, TCPSocketAction, Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Environment, arguments, environment as variables, force_value, volumes};
use crate::controller::rendering::owner::{Component, Labels, NAME, labels};
use crate::controller::rendering::pod::{
    container_port, node_selector, pod_security_context, scrape_annotations, security_context,
};
use crate::controller::rendering::{Generation, RenderError};

/// Annotation: the generation that an object belongs to.
pub const GENERATION: &str = "materialize.cloud/generation";

/// Annotation: see [`force_value`].
const FORCE: &str = "materialize.cloud/force";

/// How long a pod stays on a node that does not answer, in seconds.
const LOST_NODE_TOLERATION: i64 = 30;

pub(super) fn render(
    environment: &Environment<'_>,
    generation: Generation,
) -> Result<StatefulSet, RenderError> {
    let owner = &environment.owner;
    let name = owner.resource_id.environmentd(generation);
    let selector = labels([(NAME, &name)]);
    let mut metadata = owner.child(name, Component::Environmentd);
    metadata.annotations = Some(labels([
        (GENERATION, &generation.to_string()),
        (FORCE, &force_value(environment.materialize)),
    ]));
    Ok(StatefulSet {
        metadata,
        spec: Some(StatefulSetSpec {
            replicas: Some(1),
            service_name: Some(owner.resource_id.environmentd_public()),
            selector: LabelSelector {
                match_labels: Some(selector.clone()),
                match_expressions: None,
            },
            template: pod_template(environment, generation, selector)?,
            ..StatefulSetSpec::default()
        }),
        status: None,
    })
}

fn pod_template(
    environment: &Environment<'_>,
    generation: Generation,
    selector: Labels,
) -> Result<PodTemplateSpec, RenderError> {
    let user = environment.spec.pod_labels.as_ref();
    let labels = environment
        .owner
        .pod_labels(Component::Environmentd, user, selector);
    Ok(PodTemplateSpec {
        metadata: Some(ObjectMeta {
            annotations: Some(pod_annotations(environment, generation)),
            labels: Some(labels),
            ..ObjectMeta::default()
        }),
        spec: Some(pod_spec(environment, generation)?),
    })
}

fn pod_annotations(environment: &Environment<'_>, generation: Generation) -> Labels {
    let options = environment.inputs.environment;
    let mut annotations = labels([
        ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
        ("karpenter.sh/do-not-evict", "true"),
        ("karpenter.sh/do-not-disrupt", "true"),
        (GENERATION, &generation.to_string()),
    ]);
    if options.enable_prometheus_scrape_annotations {
        let port = options.environmentd_internal_http_port;
        annotations.extend(scrape_annotations(environment.inputs, port));
        for kind in ["usage", "frontier", "compute", "storage"] {
            annotations.insert(
                format!("materialize.prometheus.io/mz_{kind}_path"),
                format!("/metrics/mz_{kind}"),
            );
        }
    }
    annotations.extend(environment.spec.pod_annotations.clone().unwrap_or_default());
    annotations
}

fn pod_spec(environment: &Environment<'_>, generation: Generation) -> Result<PodSpec, RenderError> {
    let options = environment.inputs.environment;
    let components = &options.components;
    let (volumes, mounts): (Vec<_>, Vec<_>) =
        volumes::render(environment, generation).into_iter().unzip();
    let container = Container {
        volume_mounts: (!mounts.is_empty()).then_some(mounts),
        ..container(environment, generation)?
    };
    Ok(PodSpec {
        affinity: components.environmentd_affinity.clone(),
        containers: vec![container],
        node_selector: node_selector(&components.environmentd_node_selector),
        priority_class_name: components.environmentd_priority_class_name.clone(),
        scheduler_name: options.scheduler_name.clone(),
        security_context: Some(pod_security_context()),
        service_account_name: Some(environment.service_account_name().to_owned()),
        termination_grace_period_seconds: Some(0),
        tolerations: Some(tolerations(&components.environmentd_toleration)),
        volumes: (!volumes.is_empty()).then_some(volumes),
        ..PodSpec::default()
    })
}

fn container(
    environment: &Environment<'_>,
    generation: Generation,
) -> Result<Container, RenderError> {
    let options = environment.inputs.environment;
    let own = environment.spec.environmentd_resource_requirements.clone();
    Ok(Container {
        name: Component::Environmentd.as_str().to_owned(),
        image: Some(environment.spec.environmentd_image_ref.clone()),
        image_pull_policy: Some(options.image_pull_policy.as_kubernetes().to_owned()),
        args: Some(arguments::render(environment, generation)?),
        env: Some(variables::render(environment)),
        liveness_probe: Some(sql_probe(options.environmentd_sql_port)),
        readiness_probe: Some(sql_probe(options.environmentd_sql_port)),
        ports: Some(vec![
            container_port("sql", options.environmentd_sql_port),
            container_port("internal-sql", options.environmentd_internal_sql_port),
            container_port("http", options.environmentd_http_port),
            container_port("internal-http", options.environmentd_internal_http_port),
            container_port(
                "persist-pubsub",
                options.environmentd_internal_persist_pubsub_port,
            ),
        ]),
        resources: own.or_else(|| options.components.environmentd_default_resources.clone()),
        security_context: security_context(environment.inputs),
        ..Container::default()
    })
}

fn sql_probe(port: u16) -> Probe {
    Probe {
        failure_threshold: Some(12),
        initial_delay_seconds: Some(1),
        tcp_socket: Some(TCPSocketAction {
            host: None,
            port: IntOrString::Int(i32::from(port)),
        }),
        ..Probe::default()
    }
}

fn tolerations(configured: &[Toleration]) -> Vec<Toleration> {
    ["not-ready", "unreachable"]
        .map(|condition| Toleration {
            key: Some(format!("node.kubernetes.io/{condition}")),
            operator: Some("Exists".to_owned()),
            effect: Some("NoExecute".to_owned()),
            toleration_seconds: Some(LOST_NODE_TOLERATION),
            value: None,
        })
        .into_iter()
        .chain(configured.iter().cloned())
        .collect()
}
