use insta::assert_yaml_snapshot;
use rstest::rstest;

use super::*;
use crate::api::certificate_spec::CertificateSecretTemplate;
use crate::api::{Console, console::ConsoleSpec};
use crate::controller::rendering::fixtures::{metadata, resource_id};
use crate::controller::rendering::owner::labels;

fn owner() -> Owner {
    let mut console = Console::new("c", ConsoleSpec::default());
    console.metadata = metadata("c");
    Owner::of(&console, &resource_id()).unwrap()
}

fn render(
    own: Option<&MaterializeCertSpec>,
    default: Option<&MaterializeCertSpec>,
) -> Result<Option<DynamicObject>, RenderError> {
    let place = Place {
        component: Component::Console,
        name: "name".to_owned(),
        secret_name: "secret".to_owned(),
        extra_dns_names: &["extra".to_owned()],
        algorithm: CertificatePrivateKeyAlgorithm::Ecdsa,
    };
    Choice::new(own, default).certificate(&owner(), place)
}

fn issued() -> MaterializeCertSpec {
    MaterializeCertSpec {
        issuer_ref: Some(CertificateIssuerRef {
            name: "issuer".to_owned(),
            ..CertificateIssuerRef::default()
        }),
        ..MaterializeCertSpec::default()
    }
}

fn full(of: &str) -> MaterializeCertSpec {
    MaterializeCertSpec {
        dns_names: Some(vec![format!("{of}.example.com")]),
        duration: Some(format!("{of}-duration")),
        renew_before: Some(format!("{of}-renew-before")),
        issuer_ref: Some(CertificateIssuerRef {
            name: format!("{of}-issuer"),
            kind: Some("ClusterIssuer".to_owned()),
            group: Some("cert-manager.io".to_owned()),
        }),
        secret_template: Some(CertificateSecretTemplate {
            annotations: Some(labels([("annotation", of)])),
            labels: Some(labels([
                ("label", of),
                ("materialize.cloud/organization-name", of),
            ])),
        }),
        private_key_algorithm: Some(CertificatePrivateKeyAlgorithm::Rsa),
        private_key_size: Some(3072),
    }
}

#[test]
fn without_an_issuer_there_is_no_certificate() {
    let own = MaterializeCertSpec {
        issuer_ref: None,
        ..full("own")
    };
    assert!(render(Some(&own), None).unwrap().is_none());
    assert!(render(None, None).unwrap().is_none());
    assert!(!Choice::new(Some(&own), Some(&own)).has_issuer());
    assert!(Choice::new(Some(&own), Some(&issued())).has_issuer());
}

#[test]
fn the_resource_goes_before_the_default() {
    assert_yaml_snapshot!(render(Some(&full("own")), Some(&full("default"))).unwrap());
}

#[test]
fn the_default_fills_in_member_by_member() {
    let own = MaterializeCertSpec {
        duration: Some("own-duration".to_owned()),
        ..MaterializeCertSpec::default()
    };
    assert_yaml_snapshot!(render(Some(&own), Some(&full("default"))).unwrap());
}

#[test]
fn the_rest_is_built_in() {
    assert_yaml_snapshot!(render(Some(&issued()), None).unwrap());
}

use CertificatePrivateKeyAlgorithm::{Ecdsa, Ed25519, Rsa};

#[rstest]
#[case::built_in(None, None, "ECDSA", Some(256))]
#[case::ecdsa_384(Some(Ecdsa), Some(384), "ECDSA", Some(384))]
#[case::ecdsa_521(None, Some(521), "ECDSA", Some(521))]
#[case::rsa(Some(Rsa), None, "RSA", Some(4096))]
#[case::rsa_least(Some(Rsa), Some(2048), "RSA", Some(2048))]
#[case::ed25519_has_no_size(Some(Ed25519), Some(256), "Ed25519", None)]
fn private_keys(
    #[case] algorithm: Option<CertificatePrivateKeyAlgorithm>,
    #[case] size: Option<i64>,
    #[case] expected: &str,
    #[case] expected_size: Option<i64>,
) {
    let own = MaterializeCertSpec {
        private_key_algorithm: algorithm,
        private_key_size: size,
        ..issued()
    };
    let certificate = render(Some(&own), None).unwrap().unwrap();
    let key = &certificate.data["spec"]["privateKey"];
    assert_eq!(key["algorithm"], expected);
    assert_eq!(key["size"].as_i64(), expected_size);
}

#[rstest]
#[case(Rsa, 2047, "2048 or more")]
#[case(Ecdsa, 255, "256, 384 or 521")]
#[case(Ecdsa, 4096, "256, 384 or 521")]
fn a_bad_size_is_an_error_with_a_way_out(
    #[case] algorithm: CertificatePrivateKeyAlgorithm,
    #[case] size: i64,
    #[case] way_out: &str,
) {
    let own = MaterializeCertSpec {
        private_key_algorithm: Some(algorithm),
        private_key_size: Some(size),
        ..issued()
    };
    let message = render(Some(&own), None).unwrap_err().to_string();
    assert!(message.contains("certificate name"), "{message}");
    assert!(message.contains(way_out), "{message}");
}

#[test]
fn the_defaults_size_does_not_go_with_another_algorithm() {
    let own = MaterializeCertSpec {
        private_key_algorithm: Some(Ecdsa),
        ..issued()
    };
    let certificate = render(Some(&own), Some(&full("default"))).unwrap().unwrap();
    assert_eq!(certificate.data["spec"]["privateKey"]["size"], 256);
}
