//! Conversion between the versions of `Materialize`, member by member over raw JSON.
//!
//! Server-side apply sends each field manager's part of an object through the conversion, so an
//! input may lack anything. Members keep their state (absent, null or a value), unknown members
//! and metadata pass untouched, and the members that one version derives from the others appear
//! only where the input is complete: a part must not gain members its manager never set.
//!
//! Complete is decided by presence, never by whether values decode, and for spec and status
//! apart: a stored null or a broken status must not cost the spec its derived `requestRollout`.
//!
//! v1alpha1 to v1 and back is the identity for complete objects: see [`remainder`].

mod remainder;

use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value};
use uuid::Uuid;

use self::remainder::Remainder;
use super::FORCE_ROLLOUT_ANNOTATION;
use super::rollout_hash::{RolloutHash, request_id};

const KIND: &str = "Materialize";
const ROLE_ARN_ANNOTATION: &str = "eks.amazonaws.com/role-arn";

const REQUEST_ROLLOUT: &str = "requestRollout";
const IN_PLACE_ROLLOUT: &str = "inPlaceRollout";
const FORCE_PROMOTE: &str = "forcePromote";
const IAM_ROLE_ARN: &str = "environmentdIamRoleArn";
const SERVICE_ACCOUNT_ANNOTATIONS: &str = "serviceAccountAnnotations";
const LAST_COMPLETED_ROLLOUT_REQUEST: &str = "lastCompletedRolloutRequest";
const LAST_COMPLETED_ROLLOUT_HASH: &str = "lastCompletedRolloutHash";
const REQUESTED_ROLLOUT_HASH: &str = "requestedRolloutHash";
const RESOURCES_HASH: &str = "resourcesHash";

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
    let derived = spec.and_then(|spec| {
        let left = spec_to_v1(spec);
        is_complete_spec(spec).then(|| (left, RolloutHash::of_members(spec, annotation)))
    });
    if let Some(status) = status {
        status_to_v1(status, derived);
    }
}

/// Moves a spec to v1; returns what v1 has no place for.
fn spec_to_v1(spec: &mut Members) -> Members {
    let mut left = Members::new();
    for name in [REQUEST_ROLLOUT, IN_PLACE_ROLLOUT] {
        move_member(spec, name, &mut left);
    }
    if spec.get(FORCE_PROMOTE).is_some_and(is_unset_promotion) {
        move_member(spec, FORCE_PROMOTE, &mut left);
    }
    if is_set(spec, IAM_ROLE_ARN) {
        fold_iam_role_arn(spec, &mut left);
    }
    move_member(spec, IAM_ROLE_ARN, &mut left);
    left
}

/// Neither an empty text nor the nil UUID ever named a rollout.
fn is_unset_promotion(value: &Value) -> bool {
    value.as_str().is_some_and(|text| {
        text.is_empty() || Uuid::parse_str(text).is_ok_and(|uuid| uuid.is_nil())
    })
}

/// The deprecated role becomes the annotation that has its effect, unless that is already there.
/// What the annotations were is left over.
fn fold_iam_role_arn(spec: &mut Members, left: &mut Members) {
    let arn = spec.get(IAM_ROLE_ARN).cloned().unwrap_or_default();
    if let Some(annotations) = spec.get(SERVICE_ACCOUNT_ANNOTATIONS) {
        left.insert(SERVICE_ACCOUNT_ANNOTATIONS.to_owned(), annotations.clone());
    }
    let annotations = spec
        .entry(SERVICE_ACCOUNT_ANNOTATIONS)
        .or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = Members::new().into();
    }
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.entry(ROLE_ARN_ANNOTATION).or_insert(arn);
    }
}

fn status_to_v1(status: &mut Members, derived: Option<(Members, RolloutHash)>) {
    let is_complete = V1ALPHA1_STATUS.iter().all(|name| is_set(status, name));
    let mut left = Members::new();
    for name in [LAST_COMPLETED_ROLLOUT_REQUEST, RESOURCES_HASH] {
        move_member(status, name, &mut left);
    }
    let (true, Some((left_of_spec, hash))) = (is_complete, derived) else {
        return;
    };
    move_member(status, LAST_COMPLETED_ROLLOUT_HASH, &mut left);
    let remainder = Remainder::new(&hash, left_of_spec, left);
    if let Some(completed) = remainder.completed_hash() {
        status.insert(LAST_COMPLETED_ROLLOUT_HASH.to_owned(), completed);
    }
    if is_promoting(status) {
        status.shift_remove(REQUESTED_ROLLOUT_HASH);
    } else {
        set_text(status, REQUESTED_ROLLOUT_HASH, hash.to_string());
    }
    remainder.put(status);
}

fn to_v1alpha1(
    spec: Option<&mut Members>,
    mut status: Option<&mut Members>,
    annotation: Option<&str>,
) {
    let remainder = status.as_deref_mut().and_then(|status| {
        status.shift_remove(REQUESTED_ROLLOUT_HASH);
        Remainder::take(status)
    });
    let Some(spec) = spec.filter(|spec| is_complete_spec(spec)) else {
        return;
    };
    let hash = RolloutHash::of_members(spec, annotation);
    let status = status.filter(|status| V1_STATUS.iter().all(|name| is_set(status, name)));
    match (status, remainder) {
        (Some(status), Some(remainder)) => remainder.restore(spec, status, &hash),
        (status, _) => {
            set_text(spec, REQUEST_ROLLOUT, hash.request_id().to_string());
            if let Some(status) = status {
                derive_status(status);
            }
        }
    }
}

/// What a v1 status without a remainder tells of the last completed rollout.
fn derive_status(status: &mut Members) {
    let completed = text(status, LAST_COMPLETED_ROLLOUT_HASH).map_or(Uuid::nil(), request_id);
    set_text(
        status,
        LAST_COMPLETED_ROLLOUT_REQUEST,
        completed.to_string(),
    );
    set_text(status, RESOURCES_HASH, String::new());
}

/// Required members of a v1 status.
const V1_STATUS: [&str; 3] = ["resourceId", "activeGeneration", "conditions"];
/// Required members of a v1alpha1 status.
const V1ALPHA1_STATUS: [&str; 5] = [
    "resourceId",
    "activeGeneration",
    "conditions",
    LAST_COMPLETED_ROLLOUT_REQUEST,
    RESOURCES_HASH,
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

fn move_member(from: &mut Members, name: &str, to: &mut Members) {
    if let Some(value) = from.shift_remove(name) {
        to.insert(name.to_owned(), value);
    }
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
