//! Bounded requests for the one Lease.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use tokio::time::timeout;

use super::decide::{Call, Claim};
use super::observer::CallError;
use super::process::Process;
use crate::errors::cause_chain;

/// What a call came to, with the Lease as it is now.
#[derive(Debug)]
pub(super) enum Outcome {
    Read(Option<Lease>),
    Written(Lease),
    Conflict,
    Gone,
    Failed(CallError, String),
}

/// What a holder writes into each Lease.
#[derive(Clone, Debug)]
pub(super) struct Signer {
    pub(super) process: Process,
    pub(super) lease_duration: Duration,
}

/// Sends `call` and waits at most `bound`. `base` is the Lease that a replace changes.
pub(super) async fn send(
    api: Api<Lease>,
    name: String,
    call: Call,
    base: Option<Lease>,
    signer: Signer,
    bound: Duration,
) -> Outcome {
    let answer = timeout(bound, request(&api, &name, call, base, &signer)).await;
    answer.unwrap_or_else(|_| {
        Outcome::Failed(CallError::Timeout, format!("no answer within {bound:?}"))
    })
}

async fn request(
    api: &Api<Lease>,
    name: &str,
    call: Call,
    base: Option<Lease>,
    signer: &Signer,
) -> Outcome {
    let params = PostParams::default();
    let result = match call {
        Call::Get => api.get_opt(name).await.map(Outcome::Read),
        Call::Create(claim) => {
            let metadata = ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            };
            let base = Lease {
                metadata,
                spec: None,
            };
            let lease = claimed(base, &claim, signer);
            api.create(&params, &lease).await.map(Outcome::Written)
        }
        Call::Replace { version, claim } => {
            let same = |lease: &Lease| lease.metadata.resource_version.as_ref() == Some(&version);
            // Without its version the write would not be compared: read again first.
            let Some(base) = base.filter(same).filter(|_| !version.is_empty()) else {
                return Outcome::Conflict;
            };
            let lease = claimed(base, &claim, signer);
            return replaced(api.replace(name, &params, &lease).await);
        }
    };
    result.unwrap_or_else(failed)
}

fn replaced(result: kube::Result<Lease>) -> Outcome {
    match result {
        Ok(lease) => Outcome::Written(lease),
        Err(kube::Error::Api(status)) if status.code == 404 => Outcome::Gone,
        Err(error) => failed(error),
    }
}

fn failed(error: kube::Error) -> Outcome {
    let kind = match &error {
        kube::Error::Api(status) => match status.code {
            409 => return Outcome::Conflict,
            401 => CallError::Unauthorized,
            403 => CallError::Forbidden,
            429 => CallError::Throttled,
            500.. => CallError::Server,
            _ => CallError::Refused,
        },
        kube::Error::SerdeError(_) => CallError::Refused,
        _ => CallError::Connection,
    };
    Outcome::Failed(kind, cause_chain(&error))
}

/// `lease` with `claim` written into it; everything else stays as it is.
pub(super) fn claimed(mut lease: Lease, claim: &Claim, signer: &Signer) -> Lease {
    let now = || MicroTime(Timestamp::now());
    let spec = lease.spec.get_or_insert_default();
    if claim.holder.is_none() {
        spec.acquire_time = None;
        spec.renew_time = None;
    } else {
        spec.acquire_time = spec
            .acquire_time
            .take()
            .filter(|_| claim.keep_acquire_time)
            .or_else(|| Some(now()));
        spec.renew_time = Some(now());
    }
    spec.holder_identity = claim.holder.clone();
    spec.lease_transitions = Some(claim.transitions);
    let seconds = signer.lease_duration.as_secs();
    spec.lease_duration_seconds = Some(i32::try_from(seconds).unwrap_or(i32::MAX));
    match claim.holder {
        Some(_) => signer.process.sign(&mut lease),
        None => Process::unsign(&mut lease),
    }
    lease
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::election::PROCESS_ANNOTATION;

    fn write(lease: Value, holder: Option<&str>, keep_acquire_time: bool) -> Value {
        let claim = Claim {
            holder: holder.map(str::to_owned),
            transitions: 4,
            keep_acquire_time,
        };
        let lease = serde_json::from_value(lease).unwrap();
        serde_json::to_value(claimed(lease, &claim, &signer())).unwrap()
    }

    fn signer() -> Signer {
        Signer {
            process: Process::new("pod", None),
            lease_duration: Duration::from_secs(15),
        }
    }

    fn annotations(lease: &Value) -> Value {
        let mut annotations = lease["metadata"]["annotations"].clone();
        let signature = annotations
            .as_object_mut()
            .unwrap()
            .remove(PROCESS_ANNOTATION);
        json!({"signed": signature.is_some(), "others": annotations})
    }

    fn held() -> Value {
        json!({
            "metadata": {"name": "l", "resourceVersion": "7", "annotations": {"a": "b"}},
            "spec": {
                "holderIdentity": "a",
                "acquireTime": "2020-01-01T00:00:00.000000Z",
                "renewTime": "2020-01-01T00:00:00.000000Z",
                "leaseDurationSeconds": 60,
                "leaseTransitions": 4,
            },
        })
    }

    #[test]
    fn a_renewal_keeps_the_acquire_time_and_the_metadata() {
        let lease = write(held(), Some("a"), true);
        assert_eq!(
            annotations(&lease),
            json!({"signed": true, "others": {"a": "b"}})
        );
        assert_eq!(lease["metadata"]["resourceVersion"], "7");
        assert_eq!(lease["spec"]["acquireTime"], held()["spec"]["acquireTime"]);
        assert_ne!(lease["spec"]["renewTime"], held()["spec"]["renewTime"]);
        assert_eq!(lease["spec"]["leaseDurationSeconds"], 15);
    }

    #[test]
    fn a_change_of_holder_sets_the_acquire_time() {
        let lease = write(held(), Some("b"), false);
        assert_ne!(lease["spec"]["acquireTime"], held()["spec"]["acquireTime"]);
        assert_eq!(lease["spec"]["acquireTime"].as_str().unwrap().len(), 27);
        assert_eq!(lease["spec"]["holderIdentity"], "b");
    }

    #[test]
    fn a_release_clears_holder_times_and_signature_only() {
        let lease = write(write(held(), Some("a"), true), None, false);
        let spec = json!({"leaseDurationSeconds": 15, "leaseTransitions": 4});
        assert_eq!(lease["spec"], spec);
        assert_eq!(lease["metadata"], held()["metadata"]);
    }

    #[test]
    fn a_resumption_without_acquire_time_sets_one() {
        let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}});
        assert!(write(lease, Some("a"), true)["spec"]["acquireTime"].is_string());
    }
}
