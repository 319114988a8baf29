use rstest::rstest;

use super::*;

#[rstest]
#[case(
    "materialize/environmentd:v26.0.0",
    "materialize/environmentd",
    Some("v26.0.0"),
    None
)]
#[case("environmentd", "environmentd", None, None)]
#[case(
    "localhost:5000/environmentd",
    "localhost:5000/environmentd",
    None,
    None
)]
#[case(
    "localhost:5000/m/environmentd:v1.2.3",
    "localhost:5000/m/environmentd",
    Some("v1.2.3"),
    None
)]
#[case("m/environmentd@sha256:ab", "m/environmentd", None, Some("sha256:ab"))]
#[case(
    "h:1/m/environmentd:v1.2.3@sha256:ab",
    "h:1/m/environmentd",
    Some("v1.2.3"),
    Some("sha256:ab")
)]
#[case("", "", None, None)]
fn takes_references_apart_and_together_again(
    #[case] reference: &str,
    #[case] name: &str,
    #[case] tag: Option<&str>,
    #[case] digest: Option<&str>,
) {
    let image = ImageRef::parse(reference);
    assert_eq!(image.name, name);
    assert_eq!(image.tag(), tag);
    assert_eq!(image.digest.as_deref(), digest);
    assert_eq!(image.to_string(), reference);
}

#[rstest]
#[case("m/e:v0.146.0-dev.0--pr.g5a05", Some("0.146.0-dev.0+pr.g5a05"))]
#[case("m/e:v26.1.0", Some("26.1.0"))]
#[case("h:1/e:v26.1.0@sha256:ab", Some("26.1.0"))]
#[case("m/e:26.1.0", None)]
#[case("m/e:latest", None)]
#[case("m/e:v26", None)]
#[case("h:5000/e", None)]
#[case("m/e@sha256:ab", None)]
fn reads_versions(#[case] reference: &str, #[case] expected: Option<&str>) {
    let version = ImageRef::parse(reference).version().map(|v| v.to_string());
    assert_eq!(version.as_deref(), expected);
}

#[rstest]
#[case("v0.34.0-dev", "0.34.0", false)]
#[case("v0.34.0", "0.34.0", true)]
#[case("v0.33.9", "0.34.0", false)]
#[case("v0.146.0-dev.0--pr.g5a05", "0.146.0-dev.0", true)]
#[case("v0.146.0-dev", "0.146.0-dev.0", false)]
#[case("latest", "26.0.0", true)]
fn meets_minimums(#[case] tag: &str, #[case] minimum: &'static str, #[case] expected: bool) {
    let image = ImageRef::parse(&format!("materialize/environmentd:{tag}"));
    assert_eq!(image.meets_minimum(MinimumVersion(minimum)), expected);
}

#[rstest]
#[case("materialize/environmentd:v26.0.0", "materialize/clusterd:v26.0.0")]
#[case("environmentd:v26.0.0", "materialize/clusterd:v26.0.0")]
#[case("localhost:5000/m/environmentd", "localhost:5000/m/clusterd:latest")]
#[case("h:1/m/environmentd:v1.2.3@sha256:ab", "h:1/m/clusterd:v1.2.3")]
fn siblings_share_path_and_tag_but_no_digest(#[case] reference: &str, #[case] expected: &str) {
    assert_eq!(
        ImageRef::parse(reference).sibling("clusterd").to_string(),
        expected
    );
}

#[rstest]
#[case("m/e:v26.0.0", "first")]
#[case("m/e:v26.1.0", "default")]
#[case("h:5000/m/e", "untagged")]
#[case("m/e:v26.0.0@sha256:ab", "first")]
fn chooses_the_console_by_environmentds_tag(#[case] reference: &str, #[case] expected: &str) {
    let map: Vec<KeyValue> = ["v26.0.0=first", "v26.0.0=second", "latest=untagged"]
        .map(|entry| entry.parse().unwrap())
        .to_vec();
    assert_eq!(
        ImageRef::parse(reference).console_tag(&map, "default"),
        expected
    );
}
