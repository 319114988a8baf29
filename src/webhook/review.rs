//! The ConversionReview protocol: the bytes of a request in, the review to answer with out.
//!
//! Whoever could be given a uid gets one: HTTP 200 with `Failure` and a message, which the API
//! server passes on to the user; of any other answer it only says "error on the server".

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::Value;

use crate::api::materialize::convert::{ConvertError, Version, convert};

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "ConversionReview";

/// A request without a uid to answer to.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The body is not JSON.
    #[error("the body is not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    /// No `request.uid`.
    #[error("the body is no ConversionReview: request.uid is missing or not a string")]
    NoUid,
}

impl Unreadable {
    /// HTTP status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NotJson(_) => StatusCode::BAD_REQUEST,
            Self::NoUid => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}

/// Why a review as a whole fails. Names objects, never their values.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// Another API version or kind of review.
    #[error("not a ConversionReview of apiextensions.k8s.io/v1")]
    NotAReview,
    /// The wanted version is absent or unknown.
    #[error("request.desiredAPIVersion: {0}")]
    Desired(ConvertError),
    /// No list of objects.
    #[error("request.objects is missing or not a list")]
    NoObjects,
    /// One object cannot be converted, and so none is.
    #[error("object {index} ({name}): {source}")]
    Object {
        /// Its place in the request.
        index: usize,
        /// `namespace/name`, as far as it has them.
        name: String,
        /// Why.
        source: ConvertError,
    },
    /// The conversion of one object panicked.
    #[error(
        "object {index} ({name}): the conversion panicked, which is a fault of the operator: its log says where"
    )]
    Panic {
        /// Its place in the request.
        index: usize,
        /// `namespace/name`, as far as it has them.
        name: String,
    },
}

/// A review that can be answered.
#[derive(Debug, PartialEq)]
pub struct Review {
    /// uid of the request.
    pub uid: String,
    /// The wanted version, if it is known.
    pub to: Option<Version>,
    /// Number of objects in the request, by the version they came in.
    pub objects: BTreeMap<&'static str, u64>,
    /// The converted objects, in the order of the request.
    pub result: Result<Vec<Value>, ReviewError>,
}

/// Converts what the body of a request asks for.
///
/// # Errors
/// No uid can be read.
pub fn review(body: &[u8]) -> Result<Review, Unreadable> {
    review_with(body, convert)
}

fn review_with(body: &[u8], convert: impl Convert) -> Result<Review, Unreadable> {
    let mut review: Value = serde_json::from_slice(body)?;
    let Some(uid) = review.pointer("/request/uid").and_then(Value::as_str) else {
        return Err(Unreadable::NoUid);
    };
    let uid = uid.to_owned();
    let to = desired(&review);
    let objects = match review.pointer_mut("/request/objects").map(Value::take) {
        Some(Value::Array(objects)) => Ok(objects),
        _ => Err(ReviewError::NoObjects),
    };
    Ok(Review {
        uid,
        to: to.as_ref().ok().copied(),
        objects: objects
            .as_deref()
            .map_or_else(|_| BTreeMap::new(), by_version),
        result: is_review(&review).and_then(|()| convert_all(objects?, to?, convert)),
    })
}

/// How one object is converted.
trait Convert: Fn(Value, Version) -> Result<Value, ConvertError> {}

impl<F: Fn(Value, Version) -> Result<Value, ConvertError>> Convert for F {}

fn by_version(objects: &[Value]) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for object in objects {
        let version = object.get("apiVersion").and_then(Value::as_str);
        let version: Option<Version> = version.and_then(|version| version.parse().ok());
        *counts.entry(version_label(version)).or_default() += 1;
    }
    counts
}

/// A version as metrics name it.
pub fn version_label(version: Option<Version>) -> &'static str {
    version.map_or("unknown", Version::name)
}

fn is_review(review: &Value) -> Result<(), ReviewError> {
    let text = |name| review.get(name).and_then(Value::as_str);
    if text("apiVersion") == Some(API_VERSION) && text("kind") == Some(KIND) {
        Ok(())
    } else {
        Err(ReviewError::NotAReview)
    }
}

fn desired(review: &Value) -> Result<Version, ReviewError> {
    review
        .pointer("/request/desiredAPIVersion")
        .and_then(Value::as_str)
        .ok_or(ConvertError::NoVersion)
        .and_then(str::parse)
        .map_err(ReviewError::Desired)
}

fn convert_all(
    objects: Vec<Value>,
    to: Version,
    convert: impl Convert,
) -> Result<Vec<Value>, ReviewError> {
    objects
        .into_iter()
        .enumerate()
        .map(|(index, object)| {
            let name = name(&object);
            // What a panic leaves half converted goes with it.
            match catch_unwind(AssertUnwindSafe(|| convert(object, to))) {
                Ok(Ok(converted)) => Ok(converted),
                Ok(Err(source)) => Err(ReviewError::Object {
                    index,
                    name,
                    source,
                }),
                Err(_) => Err(ReviewError::Panic { index, name }),
            }
        })
        .collect()
}

fn name(object: &Value) -> String {
    ["/metadata/namespace", "/metadata/name"]
        .iter()
        .filter_map(|path| object.pointer(path).and_then(Value::as_str))
        .collect::<Vec<_>>()
        .join("/")
}

/// The review in the form it is sent.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    api_version: &'a str,
    kind: &'a str,
    response: Response<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    result: Outcome,
    converted_objects: &'a [Value],
}

#[derive(Debug, Serialize)]
struct Outcome {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

impl Review {
    /// The body of the answer.
    ///
    /// # Errors
    /// None that is known: everything in it came from JSON.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        let (outcome, objects) = match &self.result {
            Ok(objects) => (Outcome::success(), objects.as_slice()),
            Err(error) => (Outcome::failure(error), Default::default()),
        };
        serde_json::to_vec(&Wire {
            api_version: API_VERSION,
            kind: KIND,
            response: Response {
                uid: &self.uid,
                result: outcome,
                converted_objects: objects,
            },
        })
    }
}

impl Outcome {
    fn success() -> Self {
        Self {
            status: "Success",
            message: None,
            reason: None,
        }
    }

    fn failure(error: &ReviewError) -> Self {
        Self {
            status: "Failure",
            message: Some(error.to_string()),
            reason: match error {
                ReviewError::Object { .. } => None,
                ReviewError::Panic { .. } => Some("InternalError"),
                _ => Some("BadRequest"),
            },
        }
    }
}

#[cfg(test)]
mod tests;
