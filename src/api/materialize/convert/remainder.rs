//! What a stored object knows that v1 has no member for, carried in the status of v1.
//!
//! Every write at v1 converts the stored object to v1 and back. Without the remainder it would
//! forget which rollout was requested, which one was completed and what the active generation is
//! made of. The remainder names the rollout hash of the spec that it was taken from: a spec with
//! another hash has been edited meanwhile, and asks for another rollout.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::{
    FORCE_PROMOTE, IAM_ROLE_ARN, IN_PLACE_ROLLOUT, LAST_COMPLETED_ROLLOUT_HASH,
    LAST_COMPLETED_ROLLOUT_REQUEST, Members, REQUEST_ROLLOUT, RESOURCES_HASH,
    SERVICE_ACCOUNT_ANNOTATIONS, is_unset_promotion, set_text, text, uuid,
};
use crate::api::materialize::rollout_hash::{RolloutHash, request_id};

/// Member of the v1 status.
const MEMBER: &str = "v1alpha1";

/// Whether a value may stand in a stored object. Anybody who may write the status at v1 can write
/// a remainder, and the API server does not check what the conversion returns.
type Check = fn(&Value) -> bool;

const SPEC: [(&str, Check); 5] = [
    (REQUEST_ROLLOUT, is::<Option<Uuid>>),
    (IN_PLACE_ROLLOUT, is::<Option<bool>>),
    (FORCE_PROMOTE, is_unset_promotion),
    (IAM_ROLE_ARN, is::<Option<String>>),
    (
        SERVICE_ACCOUNT_ANNOTATIONS,
        is::<Option<BTreeMap<String, String>>>,
    ),
];
const STATUS: [(&str, Check); 3] = [
    (LAST_COMPLETED_ROLLOUT_REQUEST, is::<Uuid>),
    (RESOURCES_HASH, is::<String>),
    (LAST_COMPLETED_ROLLOUT_HASH, is::<Option<String>>),
];

fn is<T: DeserializeOwned>(value: &Value) -> bool {
    T::deserialize(value).is_ok()
}

/// The members that v1 has no place for, and the rollout hash of the spec they belong to.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Remainder {
    rollout_hash: String,
    spec: Members,
    status: Members,
}

impl Remainder {
    /// What is left of an object whose v1 spec has this hash.
    pub fn new(hash: &RolloutHash, spec: Members, status: Members) -> Self {
        let rollout_hash = hash.to_string();
        Self {
            rollout_hash,
            spec,
            status,
        }
    }

    /// Takes the remainder out of a v1 status, unless it is none or does not belong to this status.
    pub fn take(status: &mut Members) -> Option<Self> {
        let value = status.shift_remove(MEMBER)?;
        let remainder: Self = serde_json::from_value(value).ok()?;
        let completed = status
            .get(LAST_COMPLETED_ROLLOUT_HASH)
            .filter(|value| !value.is_null());
        let is_sound = fits(&remainder.spec, &SPEC)
            && fits(&remainder.status, &STATUS)
            && remainder
                .status
                .contains_key(LAST_COMPLETED_ROLLOUT_REQUEST)
            && remainder.status.contains_key(RESOURCES_HASH)
            && remainder.completed_hash().as_ref() == completed;
        is_sound.then_some(remainder)
    }

    /// Puts the remainder into a v1 status.
    pub fn put(self, status: &mut Members) {
        // Texts and maps with text keys always have a JSON form.
        let value = serde_json::to_value(self).unwrap_or_default();
        status.insert(MEMBER.to_owned(), value);
    }

    /// The rollout hash of the last finished rollout: the recorded one, or that of the spec if its
    /// request is completed.
    pub fn completed_hash(&self) -> Option<Value> {
        let recorded = self.status.get(LAST_COMPLETED_ROLLOUT_HASH);
        if let Some(recorded) = recorded.filter(|value| !value.is_null()) {
            return Some(recorded.clone());
        }
        let completed = self.completed_request();
        let is_settled = !completed.is_nil() && completed == uuid(self.spec.get(REQUEST_ROLLOUT));
        is_settled.then(|| Value::from(self.rollout_hash.clone()))
    }

    /// Gives an object its stored form; `hash` is that of its spec as it is now.
    pub fn restore(self, spec: &mut Members, status: &mut Members, hash: &RolloutHash) {
        if self.rollout_hash == hash.as_str() {
            self.put_back(spec, status);
        } else {
            self.ask_for(hash, spec, status);
        }
    }

    /// The spec asks for what it asked for when the remainder was taken: all is as it was.
    fn put_back(mut self, spec: &mut Members, status: &mut Members) {
        if self
            .spec
            .get(IAM_ROLE_ARN)
            .is_some_and(|arn| !arn.is_null())
        {
            spec.shift_remove(SERVICE_ACCOUNT_ANNOTATIONS);
        }
        if spec.contains_key(FORCE_PROMOTE) {
            self.spec.shift_remove(FORCE_PROMOTE);
        }
        spec.shift_remove(REQUEST_ROLLOUT);
        spec.append(&mut self.spec);
        status.shift_remove(LAST_COMPLETED_ROLLOUT_HASH);
        status.append(&mut self.status);
    }

    /// The spec was edited. Going back to what the last finished rollout made cancels the one under
    /// way; anything else is a new request, also if it was recorded as completed when it timed out.
    fn ask_for(mut self, hash: &RolloutHash, spec: &mut Members, status: &mut Members) {
        let completed_hash = text(status, LAST_COMPLETED_ROLLOUT_HASH);
        let is_undone = completed_hash == Some(hash.as_str());
        let recorded = self.completed_request();
        let derived = hash.request_id();
        let (request, completed) = if !is_undone && derived == recorded {
            (derived, completed_hash.map_or(Uuid::nil(), request_id))
        } else if is_undone && recorded.is_nil() {
            (derived, derived)
        } else if is_undone {
            (recorded, recorded)
        } else {
            (derived, recorded)
        };
        set_text(spec, REQUEST_ROLLOUT, request.to_string());
        self.status.shift_remove(LAST_COMPLETED_ROLLOUT_HASH);
        status.append(&mut self.status);
        set_text(
            status,
            LAST_COMPLETED_ROLLOUT_REQUEST,
            completed.to_string(),
        );
    }

    fn completed_request(&self) -> Uuid {
        uuid(self.status.get(LAST_COMPLETED_ROLLOUT_REQUEST))
    }
}

/// Whether all members are known ones, with values that may be stored.
fn fits(members: &Members, known: &[(&str, Check)]) -> bool {
    members.iter().all(|(name, value)| {
        known
            .iter()
            .any(|(known, check)| known == name && check(value))
    })
}
