//! The rollout hash: what makes two v1 specs ask for the same rollout.
//!
//! SHA-256 of the spec's JSON in one fixed form, followed by the force-rollout annotation. It is
//! computed member by member over JSON, so that no value, however odd, is without a hash; for
//! valid specs the bytes are those of Materialize's own operator (`crds.md` §2.3), because stored
//! hashes outlive a change of operator.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{AuthenticatorKind, DEFAULT_ROLLOUT_REQUEST_TIMEOUT, RolloutStrategy, v1};

/// Rollout hash: 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct RolloutHash(String);

impl RolloutHash {
    /// The hash of a v1 spec and, where the object carries one, its force-rollout annotation.
    pub fn of(spec: &v1::MaterializeSpec, force_rollout_annotation: Option<&str>) -> Self {
        // Strings, numbers and maps with string keys always have a JSON form.
        let spec = serde_json::to_value(spec).unwrap_or_default();
        let members = spec.as_object().cloned().unwrap_or_default();
        Self::of_members(&members, force_rollout_annotation)
    }

    /// The hash of a v1 spec in JSON; null and absent members count alike.
    pub(super) fn of_members(
        spec: &Map<String, Value>,
        force_rollout_annotation: Option<&str>,
    ) -> Self {
        let mut hash = Sha256::new();
        hash.update(hashed_form(spec).to_string());
        hash.update(force_rollout_annotation.unwrap_or_default());
        Self(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
    }

    /// The hash as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The v1alpha1 `requestRollout` that asks for this rollout.
    pub fn request_id(&self) -> Uuid {
        request_id(&self.0)
    }
}

impl std::fmt::Display for RolloutHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The v1alpha1 `requestRollout` that stands for a rollout hash read from an object.
pub(super) fn request_id(hash: &str) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, hash.as_bytes())
}

/// How a member takes part in the hash; `None` is an absent or null member.
type Form = fn(Option<&Value>) -> Value;

/// Order and form of the hashed members. Members that came later are not hashed: one more would
/// change the hash of every stored spec, and so roll every environment.
const MEMBERS: [(&str, Form); 27] = [
    ("environmentdImageRef", optional::<String>),
    ("environmentdExtraArgs", optional::<Vec<String>>),
    ("environmentdExtraEnv", optional::<Vec<EnvVar>>),
    ("environmentdConnectionRoleArn", optional::<String>),
    (
        "environmentdResourceRequirements",
        optional::<ResourceRequirements>,
    ),
    (
        "environmentdScratchVolumeStorageRequirement",
        optional::<Quantity>,
    ),
    ("balancerdResourceRequirements", unhashed),
    ("consoleResourceRequirements", unhashed),
    ("balancerdReplicas", unhashed),
    ("consoleReplicas", unhashed),
    ("serviceAccountName", optional::<String>),
    (
        "serviceAccountAnnotations",
        optional::<BTreeMap<String, String>>,
    ),
    ("serviceAccountLabels", optional::<BTreeMap<String, String>>),
    ("podAnnotations", optional::<BTreeMap<String, String>>),
    ("podLabels", optional::<BTreeMap<String, String>>),
    ("forcePromote", unhashed),
    ("forceRollout", defaulted::<Uuid>),
    ("rolloutStrategy", defaulted::<RolloutStrategy>),
    ("rolloutRequestTimeout", defaulted::<RolloutRequestTimeout>),
    ("backendSecretName", optional::<String>),
    ("authenticatorKind", defaulted::<AuthenticatorKind>),
    ("enableRbac", defaulted::<bool>),
    ("environmentId", defaulted::<Uuid>),
    ("systemParameterConfigmapName", optional::<String>),
    ("balancerdExternalCertificateSpec", unhashed),
    ("consoleExternalCertificateSpec", unhashed),
    ("internalCertificateSpec", optional::<HashedCertSpec>),
];

fn hashed_form(spec: &Map<String, Value>) -> Value {
    MEMBERS
        .iter()
        .map(|(name, form)| {
            let value = spec.get(*name).filter(|value| !value.is_null());
            ((*name).to_owned(), form(value))
        })
        .collect::<Map<_, _>>()
        .into()
}

fn unhashed(_: Option<&Value>) -> Value {
    Value::Null
}

/// The value as its type writes it; an unset one is null.
fn optional<T: DeserializeOwned + Serialize>(value: Option<&Value>) -> Value {
    value.map_or(Value::Null, |value| {
        T::deserialize(value)
            .and_then(serde_json::to_value)
            .unwrap_or_else(|_| normalised(value))
    })
}

/// Like [`optional`], but an unset value counts as the default.
fn defaulted<T: Default + DeserializeOwned + Serialize>(value: Option<&Value>) -> Value {
    match value {
        Some(_) => optional::<T>(value),
        None => serde_json::to_value(T::default()).unwrap_or_default(),
    }
}

/// A value that its type does not know: sorted, without null members.
fn normalised(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, normalised(value)))
            .collect::<BTreeMap<_, _>>()
            .into_iter()
            .map(|(name, value)| (name.clone(), value))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(normalised).collect(),
        scalar => scalar.clone(),
    }
}

#[derive(Deserialize, Serialize)]
#[serde(transparent)]
struct RolloutRequestTimeout(String);

impl Default for RolloutRequestTimeout {
    fn default() -> Self {
        Self(DEFAULT_ROLLOUT_REQUEST_TIMEOUT.to_owned())
    }
}

/// A certificate spec in hashed form: the first five members are always written, later ones only
/// when set, so that specs without them keep the hash they had before there were any.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct HashedCertSpec {
    dns_names: Option<Vec<String>>,
    duration: Option<String>,
    renew_before: Option<String>,
    issuer_ref: Option<HashedIssuerRef>,
    secret_template: Option<HashedSecretTemplate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    private_key_algorithm: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    private_key_size: Option<i64>,
}

/// An issuer reference as Kubernetes types are hashed: alphabetical, unset members left out.
#[derive(Deserialize, Serialize)]
struct HashedIssuerRef {
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    name: String,
}

/// A secret template as Kubernetes types are hashed.
#[derive(Deserialize, Serialize)]
struct HashedSecretTemplate {
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<BTreeMap<String, String>>,
}

#[cfg(test)]
mod tests;
