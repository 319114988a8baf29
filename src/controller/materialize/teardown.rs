//! Teardown: a generation's objects go.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{Resource, ResourceExt};
use tracing::warn;

use super::environment::Environment;
use super::error::{Error, Stop};
use crate::controller::outcome::Outcome;
use crate::controller::pass::Object;
use crate::controller::rendering::Generation;

/// Deletions trigger; this is only the safety net.
const SAFETY_NET: Duration = Duration::from_secs(5);

/// An object that is still there so long after its deletion is left to the garbage collector:
/// a lost node must not hold up an environment for ever.
const DELETION_BOUND: SignedDuration = SignedDuration::from_secs(120);

/// Deletes a generation's objects, and ends the pass until they are gone. There never is a
/// generation 0: before the first rollout, none is active.
pub async fn teardown(environment: &Environment<'_>, generation: Generation) -> Result<(), Stop> {
    if generation == Generation(0) {
        return Ok(());
    }
    environment.confirm_newest().await?;
    let id = environment.resource_id();
    let remain = [
        remains::<StatefulSet>(environment, &id.environmentd(generation)).await?,
        remains::<Service>(environment, &id.persist_pubsub(generation)).await?,
        remains::<Service>(environment, &id.environmentd(generation)).await?,
        remains::<ConfigMap>(environment, &id.listeners(generation)).await?,
    ];
    if remain.contains(&true) {
        return Err(Stop::Early(Outcome::Wait(SAFETY_NET)));
    }
    Ok(())
}

/// Asks for an object to be deleted; whether it is worth waiting for what remains of it.
async fn remains<K: Object>(environment: &Environment<'_>, name: &str) -> Result<bool, Error> {
    let remaining = environment
        .pass
        .delete::<K>(&environment.namespace(), name)
        .await?;
    let Some(object) = remaining else {
        return Ok(false);
    };
    let is_late = is_late(&object, Timestamp::now());
    if is_late {
        let kind = K::kind(&());
        warn!(%kind, name = object.name_any(), bound = %DELETION_BOUND, "still being deleted; it is not waited for");
    }
    Ok(!is_late)
}

fn is_late<K: Resource>(object: &K, now: Timestamp) -> bool {
    let deleted = object.meta().deletion_timestamp.as_ref();
    deleted.is_some_and(|deleted| now.duration_since(deleted.0) > DELETION_BOUND)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn only_a_deletion_that_hangs_is_not_waited_for() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let mut service = Service::default();
        assert!(
            !is_late(&service, at(5000)),
            "deletion was only just asked for"
        );
        service.metadata.deletion_timestamp = Some(Time(at(1000)));
        assert!(!is_late(&service, at(1120)));
        assert!(is_late(&service, at(1121)));
    }
}
