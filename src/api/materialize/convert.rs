//! Conversion between the versions of `Materialize`, member by member over raw JSON.
//!
//! Server-side apply sends each field manager's part of an object through the conversion, so an
//! input may lack anything. Members keep their state (absent, null or a value), unknown members
//! and metadata pass untouched, and the members that one version derives from the others appear
//! only where the input is complete: a part must not gain members its manager never set.
//!
//! Complete is decided by presence, never by whether values decode, and for spec and status
//! apart: a stored null or a broken status must not cost the spec its derived `requestRollout`.

use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::FORCE_ROLLOUT_ANNOTATION;
use super::rollout_hash::{RolloutHash, request_id};

const KIND: &str = "Materialize";
const ROLE_ARN_ANNOTATION: &str = "eks.amazonaws.com/role-arn";

type Members = Map<String, Value>;

/// A served version of `Materialize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// The stored version.
    V1alpha1,
    /// The version users are moving to.
    V1,
}

impl Version {
    /// The version without its group.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1alpha1 => "v1alpha1",
            Self::V1 => "v1",
        }
    }

    /// `apiVersion` of objects of this version.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1alpha1 => "materialize.cloud/v1alpha1",
            Self::V1 => "materialize.cloud/v1",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.api_version())
    }
}

impl FromStr for Version {
    type Err = ConvertError;

    fn from_str(api_version: &str) -> Result<Self, ConvertError> {
        [Self::V1alpha1, Self::V1]
            .into_iter()
            .find(|version| version.api_version() == api_version)
            .ok_or_else(|| ConvertError::UnknownVersion(api_version.to_owned()))
    }
}

/// Why an object cannot be converted: only its frame can be wrong, never a value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// The object is not a JSON object.
    #[error("the object is not a JSON object")]
    NotAnObject,
    /// `apiVersion` is absent or not a string.
    #[error("apiVersion is missing or not a string")]
    NoVersion,
    /// Another group or a version that is not served.
    #[error("version {0:?} is not known: use materialize.cloud/v1alpha1 or materialize.cloud/v1")]
    UnknownVersion(String),
    /// Another kind.
    #[error("kind is not Materialize")]
    Kind,
    /// `spec` or `status` is neither absent, null nor an object.
    #[error("{0} is not a JSON object")]
    PartNotAnObject(&'static str),
}

/// Converts a `Materialize` or any part of one; an object of the wanted version is returned as it is.
///
/// # Errors
/// An object without a frame to convert: see [`ConvertError`].
pub fn convert(object: Value, to: Version) -> Result<Value, ConvertError> {
    let Value::Object(mut object) = object else {
        return Err(ConvertError::NotAnObject);
    };
    let from: Version = match object.get("apiVersion") {
        Some(Value::String(version)) => version.parse()?,
        _ => return Err(ConvertError::NoVersion),
    };
    if from == to {
        return Ok(Value::Object(object));
    }
    if object.get("kind").and_then(Value::as_str) != Some(KIND) {
        return Err(ConvertError::Kind);
    }
    let mut spec = take_part(&mut object, "spec")?;
    let mut status = take_part(&mut object, "status")?;
    let annotation = force_rollout_annotation(&object);
    match to {
        Version::V1 => to_v1(spec.as_mut(), status.as_mut(), annotation),
        Version::V1alpha1 => to_v1alpha1(spec.as_mut(), status.as_mut(), annotation),
    }
    object.insert("apiVersion".to_owned(), to.api_version().into());
    put_part(&mut object, "spec", spec);
    put_part(&mut object, "status", status);
    Ok(Value::Object(object))
}

fn take_part(object: &mut Members, name: &'static str) -> Result<Option<Members>, ConvertError> {
    match object.get_mut(name).map(Value::take) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(members)) => Ok(Some(members)),
        Some(_) => Err(ConvertError::PartNotAnObject(name)),
    }
}

fn put_part(object: &mut Members, name: &str, part: Option<Members>) {
    match part {
        Some(members) => object.insert(name.to_owned(), members.into()),
        None => object.shift_remove(name),
    };
}

fn force_rollout_annotation(object: &Members) -> Option<&str> {
    object
        .get("metadata")?
        .get("annotations")?
        .get(FORCE_ROLLOUT_ANNOTATION)?
        .as_str()
}

fn to_v1(spec: Option<&mut Members>, status: Option<&mut Members>, annotation: Option<&str>) {
    let derived = spec.and_then(|spec| spec_to_v1(spec, annotation));
    if let Some(status) = status {
        status_to_v1(status, derived);
    }
}

/// The stored request and the rollout hash, if the spec is complete.
fn spec_to_v1(spec: &mut Members, annotation: Option<&str>) -> Option<(Uuid, RolloutHash)> {
    let request = uuid(spec.shift_remove("requestRollout").as_ref());
    spec.shift_remove("inPlaceRollout");
    drop_unset_force_promote(spec);
    fold_iam_role_arn(spec);
    is_complete_spec(spec).then(|| (request, RolloutHash::of_members(spec, annotation)))
}

fn status_to_v1(status: &mut Members, derived: Option<(Uuid, RolloutHash)>) {
    let complete = V1ALPHA1_STATUS.iter().all(|name| is_set(status, name));
    let completed = uuid(status.shift_remove("lastCompletedRolloutRequest").as_ref());
    status.shift_remove("resourcesHash");
    let (true, Some((request, hash))) = (complete, derived) else {
        return;
    };
    if is_promoting(status) {
        status.shift_remove("requestedRolloutHash");
    } else {
        set_text(status, "requestedRolloutHash", hash.to_string());
    }
    if !is_set(status, "lastCompletedRolloutHash") {
        if completed == request && !completed.is_nil() {
            set_text(status, "lastCompletedRolloutHash", hash.to_string());
        } else {
            status.shift_remove("lastCompletedRolloutHash");
        }
    }
}

/// Neither an empty text nor the nil UUID ever named a rollout.
fn drop_unset_force_promote(spec: &mut Members) {
    let unset = text(spec, "forcePromote").is_some_and(|value| {
        value.is_empty() || Uuid::parse_str(value).is_ok_and(|uuid| uuid.is_nil())
    });
    if unset {
        spec.shift_remove("forcePromote");
    }
}

/// The deprecated role becomes the annotation that has its effect, unless that is already there.
fn fold_iam_role_arn(spec: &mut Members) {
    let Some(arn) = spec.shift_remove("environmentdIamRoleArn") else {
        return;
    };
    if arn.is_null() {
        return;
    }
    let annotations = spec
        .entry("serviceAccountAnnotations")
        .or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = Members::new().into();
    }
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.entry(ROLE_ARN_ANNOTATION).or_insert(arn);
    }
}

fn to_v1alpha1(spec: Option<&mut Members>, status: Option<&mut Members>, annotation: Option<&str>) {
    let spec = spec.filter(|spec| is_complete_spec(spec));
    let complete_spec = spec.is_some();
    if let Some(spec) = spec {
        let request = RolloutHash::of_members(spec, annotation).request_id();
        set_text(spec, "requestRollout", request.to_string());
    }
    if let Some(status) = status {
        status_to_v1alpha1(status, complete_spec);
    }
}

fn status_to_v1alpha1(status: &mut Members, complete_spec: bool) {
    status.shift_remove("requestedRolloutHash");
    if complete_spec && V1_STATUS.iter().all(|name| is_set(status, name)) {
        let completed = text(status, "lastCompletedRolloutHash").map_or(Uuid::nil(), request_id);
        set_text(status, "lastCompletedRolloutRequest", completed.to_string());
        set_text(status, "resourcesHash", String::new());
    }
}

/// Required members of a v1 status.
const V1_STATUS: [&str; 3] = ["resourceId", "activeGeneration", "conditions"];
/// Required members of a v1alpha1 status.
const V1ALPHA1_STATUS: [&str; 5] = [
    "resourceId",
    "activeGeneration",
    "conditions",
    "lastCompletedRolloutRequest",
    "resourcesHash",
];

fn is_complete_spec(spec: &Members) -> bool {
    ["environmentdImageRef", "backendSecretName"]
        .iter()
        .all(|name| text(spec, name).is_some())
}

fn is_promoting(status: &Members) -> bool {
    status
        .get("conditions")
        .and_then(Value::as_array)
        .is_some_and(|conditions| {
            conditions
                .iter()
                .any(|condition| condition.get("reason").is_some_and(|r| r == "Promoting"))
        })
}

fn is_set(members: &Members, name: &str) -> bool {
    members.get(name).is_some_and(|value| !value.is_null())
}

fn text<'a>(members: &'a Members, name: &str) -> Option<&'a str> {
    members.get(name).and_then(Value::as_str)
}

fn set_text(members: &mut Members, name: &str, text: String) {
    members.insert(name.to_owned(), text.into());
}

/// The UUID in a value; whatever is none counts as unset.
fn uuid(value: Option<&Value>) -> Uuid {
    value
        .and_then(Value::as_str)
        .and_then(|text| Uuid::parse_str(text).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
