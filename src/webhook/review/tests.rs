use axum::http::StatusCode;
use rstest::rstest;
use serde_json::{Value, json};

use super::{ReviewError, review, review_with};

const V1: &str = "materialize.cloud/v1";
const V1ALPHA1: &str = "materialize.cloud/v1alpha1";

fn object(version: &str, name: &str) -> Value {
    json!({
        "apiVersion": version,
        "kind": "Materialize",
        "metadata": {"name": name, "namespace": "mz-demo"},
        "spec": {"environmentdExtraEnv": [{"name": "TOKEN", "value": "hunter2"}]},
    })
}

fn request(to: &str, objects: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": {"uid": "u-1", "desiredAPIVersion": to, "objects": objects},
    })
}

fn answer(request: &Value) -> Value {
    let answer = review(request.to_string().as_bytes()).unwrap();
    serde_json::from_slice(&answer.to_json().unwrap()).unwrap()
}

#[test]
fn success_keeps_order_and_uid() {
    let objects = json!([object(V1, "a"), object(V1ALPHA1, "b"), object(V1, "c")]);
    assert_eq!(
        answer(&request(V1ALPHA1, objects)),
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "ConversionReview",
            "response": {
                "uid": "u-1",
                "result": {"status": "Success"},
                "convertedObjects": [object(V1ALPHA1, "a"), object(V1ALPHA1, "b"), object(V1ALPHA1, "c")],
            },
        })
    );
}

#[rstest]
#[case::same_version(json!([object(V1, "a")]))]
#[case::empty(json!([]))]
fn nothing_to_convert(#[case] objects: Value) {
    let answer = answer(&request(V1, objects.clone()));
    assert_eq!(answer["response"]["convertedObjects"], objects);
    assert_eq!(answer["response"]["result"]["status"], "Success");
}

#[rstest]
#[case::unknown_version(
    request("materialize.cloud/v1alpha2", json!([])),
    r#"request.desiredAPIVersion: version "materialize.cloud/v1alpha2" is not known: use materialize.cloud/v1alpha1 or materialize.cloud/v1"#
)]
#[case::no_version(
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {"uid": "u-1", "objects": []}}),
    "request.desiredAPIVersion: apiVersion is missing or not a string"
)]
#[case::no_objects(
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {"uid": "u-1", "desiredAPIVersion": V1}}),
    "request.objects is missing or not a list"
)]
#[case::objects_of_another_type(request(V1, json!({})), "request.objects is missing or not a list")]
#[case::another_review(
    json!({"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "ConversionReview", "request": {"uid": "u-1", "desiredAPIVersion": V1, "objects": []}}),
    "not a ConversionReview of apiextensions.k8s.io/v1"
)]
#[case::only_a_uid(json!({"request": {"uid": "u-1"}}), "not a ConversionReview of apiextensions.k8s.io/v1")]
#[case::one_bad_object(
    request(V1, json!([object(V1ALPHA1, "a"), object("materialize.cloud/v2", "b")])),
    r#"object 1 (mz-demo/b): version "materialize.cloud/v2" is not known: use materialize.cloud/v1alpha1 or materialize.cloud/v1"#
)]
#[case::another_kind(
    request(V1, json!([{"apiVersion": V1ALPHA1, "kind": "Balancer", "metadata": {"name": "b"}}])),
    "object 0 (b): kind is not Materialize"
)]
#[case::no_object(request(V1, json!([5])), "object 0 (): the object is not a JSON object")]
fn failure_with_a_uid(#[case] request: Value, #[case] message: &str) {
    let answer = answer(&request);
    assert_eq!(answer["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(answer["kind"], "ConversionReview");
    assert_eq!(answer["response"]["uid"], "u-1");
    assert_eq!(answer["response"]["convertedObjects"], json!([]));
    assert_eq!(answer["response"]["result"]["status"], "Failure");
    assert_eq!(answer["response"]["result"]["message"], message);
}

#[rstest]
#[case::empty("", StatusCode::BAD_REQUEST)]
#[case::cut_off(r#"{"request": {"uid": "u-1""#, StatusCode::BAD_REQUEST)]
#[case::no_request("{}", StatusCode::UNPROCESSABLE_ENTITY)]
#[case::no_object("[]", StatusCode::UNPROCESSABLE_ENTITY)]
#[case::no_uid(r#"{"request": {}}"#, StatusCode::UNPROCESSABLE_ENTITY)]
#[case::odd_uid(r#"{"request": {"uid": 1}}"#, StatusCode::UNPROCESSABLE_ENTITY)]
fn failure_without_a_uid(#[case] body: &str, #[case] status: StatusCode) {
    assert_eq!(review(body.as_bytes()).unwrap_err().status(), status);
}

#[test]
fn messages_hold_no_values() {
    let mut broken = object(V1ALPHA1, "a");
    broken["status"] = json!("secret");
    let answer = answer(&request(V1, json!([broken]))).to_string();
    assert!(
        !answer.contains("hunter2") && !answer.contains("secret"),
        "{answer}"
    );
}

/// A fault of ours must not cost the API server its answer, nor leak what the object holds.
#[test]
fn a_panic_fails_the_review_and_nothing_else() {
    let objects = json!([object(V1, "a"), object(V1, "b")]);
    let request = request(V1ALPHA1, objects).to_string();
    let review = review_with(request.as_bytes(), |object, _| {
        assert_ne!(object["metadata"]["name"], "b", "a fault");
        Ok(object)
    })
    .unwrap();
    assert_eq!(
        review.result,
        Err(ReviewError::Panic {
            index: 1,
            name: "mz-demo/b".to_owned()
        })
    );
    let answer: Value = serde_json::from_slice(&review.to_json().unwrap()).unwrap();
    assert_eq!(answer["response"]["uid"], "u-1");
    assert_eq!(answer["response"]["result"]["status"], "Failure");
    assert_eq!(answer["response"]["result"]["reason"], "InternalError");
    assert_eq!(answer["response"]["convertedObjects"], json!([]));
    assert!(!answer.to_string().contains("hunter2"));
}
