use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionStatus,
};
use kube::ResourceExt;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rstest::rstest;

use super::{Conversion, ConversionClient, VERSION_ANNOTATION, check_stored_versions, crds, stays};
use crate::webhook::CaBundle;

/// Fixed, so that the snapshot stays the same.
const CA: &str = include_str!("ca.crt");

fn conversion(client: ConversionClient) -> Conversion {
    Conversion::new(client, CaBundle::parse(CA.as_bytes()).unwrap())
}

fn service() -> Conversion {
    conversion(ConversionClient::Service {
        name: "operator-materialize-operator".to_owned(),
        namespace: "materialize".to_owned(),
        port: 8001,
    })
}

fn column(name: &str) -> CustomResourceColumnDefinition {
    serde_json::from_value(
        serde_json::json!({"name": name, "type": "string", "jsonPath": ".spec.environmentId"}),
    )
    .unwrap()
}

fn snapshot(crds: &[CustomResourceDefinition], suffix: &str) {
    for crd in crds {
        insta::assert_yaml_snapshot!(format!("{}{suffix}", crd.name_any()), crd);
    }
}

#[test]
fn definitions_without_v1() {
    snapshot(&crds(None, &[]), "");
}

#[test]
fn definitions_with_v1() {
    let with = crds(Some(&service()), &[]);
    snapshot(&with[..1], "-with-v1");
    assert_eq!(with[1..], crds(None, &[])[1..]);
}

#[test]
fn a_url_stands_instead_of_the_service() {
    let url = "https://127.0.0.1:8001/convert";
    let conversion = conversion(ConversionClient::Url(url.to_owned()));
    let spec = &crds(Some(&conversion), &[])[0].spec;
    let webhook = spec.conversion.clone().unwrap().webhook.unwrap();
    let config = webhook.client_config.unwrap();
    assert_eq!(config.url.as_deref(), Some(url));
    assert_eq!(config.service, None);
    assert_eq!(config.ca_bundle.unwrap().0, CA.as_bytes());
}

#[test]
fn additional_columns_come_first_in_every_version() {
    let materialize = crds(Some(&service()), &[column("Id")]).remove(0);
    assert_eq!(materialize.spec.versions.len(), 2);
    for version in materialize.spec.versions {
        let columns = version.additional_printer_columns.unwrap();
        let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "Id",
                "ImageRefRunning",
                "ImageRefToDeploy",
                "UpToDate",
                "Generation",
                "Reason",
                "Since",
                "Prefix",
                "Message",
                "Age"
            ]
        );
    }
}

#[rstest]
#[case(&[], true)]
#[case(&["v1alpha1"], true)]
#[case(&["v1alpha1", "v1alpha2"], false)]
#[case(&["v1"], false)]
fn stored_versions(#[case] stored: &[&str], #[case] accepted: bool) {
    let crd = crds(None, &[]).remove(0);
    let mut existing = crd.clone();
    existing.status = Some(CustomResourceDefinitionStatus {
        stored_versions: Some(stored.iter().map(ToString::to_string).collect()),
        ..Default::default()
    });
    let result = check_stored_versions(&crd, Some(&existing));
    assert_eq!(result.is_ok(), accepted);
    if let Err(error) = result {
        insta::assert_snapshot!(format!("stored-versions-{}", stored.join("-")), error);
    }
    assert!(check_stored_versions(&crd, None).is_ok());
}

#[rstest]
#[case::empty("", "no certificate")]
#[case::no_pem("not a certificate", "no certificate")]
#[case::no_der("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "")]
#[case::cut_off("-----BEGIN CERTIFICATE-----\nAAAA\n", "")]
#[case::key(concat!(include_str!("ca.crt"), "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), "PrivateKey")]
fn ca_bundles_are_certificates_only(#[case] pem: &str, #[case] reason: &str) {
    let error = CaBundle::parse(pem.as_bytes()).unwrap_err();
    assert!(error.contains(reason), "{error}");
}

fn ca_until(year: i32) -> String {
    let mut params = CertificateParams::new([]).unwrap();
    params.not_after = date_time_ymd(year, 1, 1);
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().pem()
}

#[test]
fn other_cas_are_kept_once_and_until_they_expire() {
    let bundle = |pem: &str| CaBundle::parse(pem.as_bytes()).unwrap();
    let (own, other, expired) = (ca_until(2060), ca_until(2061), ca_until(2020));
    let both = bundle(&own).and_still_valid(other.as_bytes());
    assert_eq!(both, bundle(&(own.clone() + &other)).and_still_valid(b""));
    let unchanged = [own.as_str(), &other, &expired, &own, "garbage\n"].concat();
    assert_eq!(bundle(&own).and_still_valid(unchanged.as_bytes()), both);
    let parsed = CaBundle::parse(both.as_bytes()).unwrap();
    assert_eq!(
        parsed.and_still_valid(own.as_bytes()),
        both,
        "readable, and complete"
    );
}

#[rstest]
#[case::ours(env!("CARGO_PKG_VERSION"), true, false)]
#[case::older("26.39.9", true, false)]
#[case::newer("99.0.0", true, true)]
#[case::newer_without_v1("99.0.0", false, false)]
#[case::unreadable("newest", true, false)]
fn what_a_newer_operator_registered_stays_if_it_serves(
    #[case] version: &str,
    #[case] with_v1: bool,
    #[case] expected: bool,
) {
    let wanted = crds(Some(&service()), &[]).remove(0);
    let conversion = with_v1.then(service);
    let mut existing = crds(conversion.as_ref(), &[]).remove(0);
    let annotations = existing.annotations_mut();
    annotations.insert(VERSION_ANNOTATION.to_owned(), version.to_owned());
    assert_eq!(stays(&wanted, &existing), expected);
    existing.annotations_mut().remove(VERSION_ANNOTATION);
    assert!(!stays(&wanted, &existing), "upstream's bears no version");
}
