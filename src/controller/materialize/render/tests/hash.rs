use rstest::rstest;

use super::*;

fn hash(options: &Args, materialize: &Materialize, number: u64) -> String {
    let objects = generation(
        inputs(options),
        materialize,
        &resource_id(),
        Generation(number),
    );
    objects.unwrap().resources_hash().unwrap()
}

#[test]
fn is_lower_case_hexadecimal_and_repeatable() {
    let (options, materialize) = (options(FULL), full());
    let once = hash(&options, &materialize, 1);
    assert_eq!(once.len(), 64);
    assert!(
        once.bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    );
    assert_eq!(once, hash(&options, &materialize, 1));
}

#[test]
fn has_its_members_in_order() {
    let objects = render(&options(&[]), &minimal());
    let value = serde_json::to_value(&objects).unwrap();
    let members: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        members,
        [
            "generation",
            "public_service",
            "service",
            "persist_pubsub_service",
            "stateful_set",
            "connection"
        ]
    );
}

#[rstest]
#[case::image(|m: &mut Materialize| m.spec.environmentd_image_ref.push('1'))]
#[case::force(|m: &mut Materialize| m.spec.force_rollout = uuid::Uuid::max())]
#[case::force_annotation(|m: &mut Materialize| {
    m.metadata.annotations = Some([(FORCE_ROLLOUT_ANNOTATION.to_owned(), "x".to_owned())].into());
})]
#[case::secret(|m: &mut Materialize| m.spec.backend_secret_name.push('1'))]
#[case::authenticator(|m: &mut Materialize| {
    m.spec.authenticator_kind = crate::api::materialize::AuthenticatorKind::Frontegg;
})]
#[case::uid(|m: &mut Materialize| m.metadata.uid = Some("other".to_owned()))]
fn changes_with_what_is_rendered(#[case] change: fn(&mut Materialize)) {
    let (options, mut materialize) = (options(&[]), minimal());
    let before = hash(&options, &materialize, 1);
    change(&mut materialize);
    assert_ne!(before, hash(&options, &materialize, 1));
}

#[test]
fn changes_with_generation_and_options() {
    let before = hash(&options(&[]), &minimal(), 1);
    assert_ne!(before, hash(&options(&[]), &minimal(), 2));
    assert_ne!(before, hash(&options(&["--region=r2"]), &minimal(), 1));
}

#[rstest]
#[case::request(|m: &mut Materialize| m.spec.request_rollout = uuid::Uuid::max())]
#[case::promote(|m: &mut Materialize| m.spec.force_promote = "now".to_owned())]
#[case::timeout(|m: &mut Materialize| m.spec.rollout_request_timeout = "1h".to_owned())]
#[case::balancers(|m: &mut Materialize| m.spec.balancerd_replicas = Some(9))]
#[case::balancer_config(|m: &mut Materialize| m.spec.balancerd_configmap_name = Some("c".to_owned()))]
#[case::consoles(|m: &mut Materialize| m.spec.console_replicas = Some(9))]
#[case::version(|m: &mut Materialize| m.metadata.resource_version = Some("9".to_owned()))]
fn does_not_change_with_what_is_not(#[case] change: fn(&mut Materialize)) {
    let (options, mut materialize) = (options(&[]), minimal());
    let before = hash(&options, &materialize, 1);
    change(&mut materialize);
    assert_eq!(before, hash(&options, &materialize, 1));
}
