use rstest::rstest;
use serde_json::json;

use super::*;

const AUDIENCE: &str = "12345678-1234-1234-1234-123456789012";
const SUBJECT: &str = "87654321-4321-4321-4321-210987654321";
const NIL: &str = "00000000-0000-0000-0000-000000000000";

fn header() -> Value {
    json!({ "alg": "PS256", "typ": "JWT" })
}

fn claims() -> Value {
    json!({
        "aud": AUDIENCE, "exp": 2_000_000_000, "iat": 1_700_000_000, "iss": "Materialize, Inc.",
        "nbf": 1_700_000_000, "sub": SUBJECT, "version": 1,
        "max_credit_consumption_rate": 24.0, "expiration_behavior": "Warn",
    })
}

fn key(header: &Value, claims: &Value) -> String {
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!(
        "{}.{}.{}",
        encode(&header.to_string()),
        encode(&claims.to_string()),
        encode("signature")
    )
}

/// The claims with one changed, or without it.
fn with(member: &str, value: Option<Value>) -> Value {
    let mut claims = claims();
    let members = claims.as_object_mut().unwrap();
    match value {
        Some(value) => members.insert(member.to_owned(), value),
        None => members.remove(member),
    };
    claims
}

#[rstest]
#[case::audience(json!(AUDIENCE), json!(SUBJECT), Some(AUDIENCE))]
#[case::list(json!(["any", AUDIENCE]), json!(SUBJECT), Some(AUDIENCE))]
#[case::subject(json!("environment"), json!(SUBJECT), Some(SUBJECT))]
#[case::neither(json!("environment"), json!("customer"), None)]
#[case::nil_is_any(json!(NIL), json!(SUBJECT), None)]
fn names_an_environment(#[case] aud: Value, #[case] sub: Value, #[case] expected: Option<&str>) {
    let mut claims = claims();
    claims["aud"] = aud;
    claims["sub"] = sub;
    let expected = expected.map(|id| Uuid::try_parse(id).unwrap());
    assert_eq!(environment_id(&key(&header(), &claims)), Ok(expected));
}

#[test]
fn space_around_a_key_is_nothing() {
    let key = format!("  {}\n", key(&header(), &claims()));
    assert!(environment_id(&key).unwrap().is_some());
}

#[test]
fn an_expired_key_is_allowed() {
    let claims = with("exp", Some(json!(1_700_000_001)));
    assert!(environment_id(&key(&header(), &claims)).unwrap().is_some());
}

#[rstest]
#[case::exp("exp", None, "a number")]
#[case::nbf("nbf", None, "a number")]
#[case::aud("aud", None, "there")]
#[case::iss("iss", None, "a text")]
#[case::sub("sub", None, "a text")]
#[case::iat("iat", None, "a number")]
#[case::version("version", None, "a number")]
#[case::another_issuer("iss", Some(json!("Somebody, Inc.")), "Materialize, Inc.")]
#[case::another_version("version", Some(json!(2)), "1")]
#[case::issued_too_early("iat", Some(json!(1_699_999_999)), "between nbf and exp")]
#[case::issued_too_late("iat", Some(json!(2_000_000_001)), "between nbf and exp")]
#[case::text_for_number("exp", Some(json!("2033")), "a number")]
fn refuses_claims(
    #[case] member: &'static str,
    #[case] value: Option<Value>,
    #[case] expected: &'static str,
) {
    let error = environment_id(&key(&header(), &with(member, value))).unwrap_err();
    assert_eq!(error, LicenseError::Member { member, expected });
}

#[rstest]
#[case::alg(json!({ "alg": "RS256", "typ": "JWT" }), "alg", "PS256")]
#[case::typ(json!({ "alg": "PS256", "typ": "JWE" }), "typ", "JWT")]
#[case::no_typ(json!({ "alg": "PS256" }), "typ", "a text")]
fn refuses_headers(
    #[case] header: Value,
    #[case] member: &'static str,
    #[case] expected: &'static str,
) {
    let error = environment_id(&key(&header, &claims())).unwrap_err();
    assert_eq!(error, LicenseError::Member { member, expected });
}

#[rstest]
#[case::no_token("foobar", "not a JSON web token")]
#[case::empty("", "not a JSON web token")]
#[case::two_parts("e30.e30", "not a JSON web token")]
#[case::no_base64("§.e30.e30", "the header is not base64url")]
#[case::no_object("WzFd.e30.e30", "the header is not a JSON object")]
fn refuses_what_is_no_token_with_a_way_out(#[case] key: &str, #[case] expected: &str) {
    let message = environment_id(key).unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
    assert!(
        message.contains("license_key of the backend Secret"),
        "{message}"
    );
}

#[test]
fn a_signature_must_be_there() {
    let whole = key(&header(), &claims());
    let cut = whole.rsplit_once('.').unwrap().0;
    let message = environment_id(&format!("{cut}.")).unwrap_err().to_string();
    assert!(message.contains("the signature is not there"), "{message}");
}

#[test]
fn errors_tell_nothing_of_the_key() {
    let claims = with("exp", Some(json!("hunter2")));
    let message = environment_id(&key(&header(), &claims))
        .unwrap_err()
        .to_string();
    assert!(!message.contains("hunter2"), "{message}");
}
