//! Which process holds a Lease in the name of an identity.
//!
//! Two live processes with one identity would each take the other's Lease for its own. So a
//! holder also signs it: with a nonce, and with the pod it runs in. The signature is an
//! annotation and counts only together with the holder and the acquire time it was made for, so
//! that a Lease written by something that knows nothing of it is no riddle.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The annotation of a Lease that says which process holds it.
pub const PROCESS_ANNOTATION: &str = "materialize.cloud/lease-holder-process";

/// A process, told apart from any other that uses the same identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    nonce: String,
    pod: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_uid: Option<String>,
}

impl Process {
    /// This process, which runs in the pod `pod` or is otherwise known by that name. `pod_uid` is
    /// something that no two live processes have at once, like the uid of the pod: one that starts
    /// with it succeeds an earlier one that is gone, and need not wait for its Lease to expire.
    pub fn new(pod: impl Into<String>, pod_uid: Option<String>) -> Self {
        Self {
            nonce: Uuid::new_v4().simple().to_string(),
            pod: pod.into(),
            pod_uid: pod_uid.filter(|uid| !uid.is_empty()),
        }
    }

    /// The name of its pod.
    pub fn pod(&self) -> &str {
        &self.pod
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        self.nonce == other.nonce
    }

    /// Whether this is `other`, or can only live because `other` is gone.
    pub(super) fn succeeds(&self, other: &Self) -> bool {
        self.is(other) || (self.pod_uid.is_some() && self.pod_uid == other.pod_uid)
    }

    /// The process that signed a Lease as it is now.
    pub(super) fn of(lease: &Lease) -> Option<Self> {
        let annotations = lease.metadata.annotations.as_ref()?;
        let signature: Signature =
            serde_json::from_str(annotations.get(PROCESS_ANNOTATION)?).ok()?;
        let spec = lease.spec.as_ref()?;
        let valid =
            signature.holder == spec.holder_identity && signature.acquire_time == spec.acquire_time;
        valid.then_some(signature.process)
    }

    /// Signs a Lease whose holder and acquire time are set.
    pub(super) fn sign(&self, lease: &mut Lease) {
        let LeaseSpec {
            holder_identity,
            acquire_time,
            ..
        } = lease.spec.clone().unwrap_or_default();
        let signature = Signature {
            holder: holder_identity,
            acquire_time,
            process: self.clone(),
        };
        if let Ok(text) = serde_json::to_string(&signature) {
            let annotations = lease.metadata.annotations.get_or_insert_default();
            annotations.insert(PROCESS_ANNOTATION.to_owned(), text);
        }
    }

    /// Takes any signature off a Lease.
    pub(super) fn unsign(lease: &mut Lease) {
        if let Some(annotations) = &mut lease.metadata.annotations {
            annotations.remove(PROCESS_ANNOTATION);
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Signature {
    holder: Option<String>,
    acquire_time: Option<MicroTime>,
    #[serde(flatten)]
    process: Process,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn signed(process: &Process) -> Value {
        let lease = json!({
            "metadata": {"name": "l", "annotations": {"a": "b"}},
            "spec": {"holderIdentity": "x", "acquireTime": "2020-01-01T00:00:00.123456Z"},
        });
        let mut lease: Lease = serde_json::from_value(lease).unwrap();
        process.sign(&mut lease);
        serde_json::to_value(lease).unwrap()
    }

    fn of(lease: Value) -> Option<Process> {
        Process::of(&serde_json::from_value(lease).unwrap())
    }

    #[test]
    fn a_signature_is_read_back_and_taken_off() {
        let process = Process::new("pod-1", Some("uid".to_owned()));
        let lease = signed(&process);
        assert_eq!(of(lease.clone()), Some(process));
        let mut lease: Lease = serde_json::from_value(lease).unwrap();
        Process::unsign(&mut lease);
        let lease = serde_json::to_value(lease).unwrap();
        assert_eq!(lease["metadata"]["annotations"], json!({"a": "b"}));
    }

    #[rstest]
    #[case::other_holder("/spec/holderIdentity", json!("y"))]
    #[case::released("/spec/holderIdentity", json!(null))]
    #[case::taken_again("/spec/acquireTime", json!("2020-01-01T00:00:00.123457Z"))]
    #[case::no_acquire_time("/spec/acquireTime", json!(null))]
    #[case::no_json("/metadata/annotations", json!({PROCESS_ANNOTATION: "{"}))]
    #[case::half("/metadata/annotations", json!({PROCESS_ANNOTATION: "{\"holder\":\"x\"}"}))]
    #[case::none("/metadata/annotations", json!(null))]
    fn a_signature_counts_only_for_what_it_was_made_for(#[case] path: &str, #[case] value: Value) {
        let mut lease = signed(&Process::new("pod-1", None));
        *lease.pointer_mut(path).unwrap() = value;
        assert_eq!(of(lease), None);
    }

    #[test]
    fn only_the_same_pod_succeeds_another_process() {
        let process = |uid: Option<&str>| Process::new("pod", uid.map(str::to_owned));
        assert!(process(Some("1")).succeeds(&process(Some("1"))));
        assert!(!process(Some("1")).succeeds(&process(Some("2"))));
        assert!(!process(None).succeeds(&process(None)), "nothing is known");
        assert!(!process(Some("")).succeeds(&process(Some(""))));
        let same = process(None);
        assert!(same.succeeds(&same));
    }
}
