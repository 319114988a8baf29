//! The objects of one generation: what is recorded of them, and bringing them up.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, ResourceExt};
use uuid::Uuid;

use super::environment::Environment;
use super::error::{Error, Stop};
use super::leader_api::{LeaderApi, LeaderApiError, LeaderStatus};
use super::render::GenerationObjects;
use super::status::Promoted;
use crate::api::materialize::rollout_hash::RolloutHash;
use crate::controller::outcome::Outcome;
use crate::controller::pass::{ObjectError, Pass};
use crate::controller::rendering::{Generation, RenderError};

/// StatefulSet annotation: the hash of its generation's objects. Not part of that hash.
const RESOURCES_HASH: &str = "materialize.cloud/resources-hash";
/// StatefulSet annotation: `requestRollout` that it was applied for. Not part of the hash.
const ROLLOUT_REQUEST: &str = "materialize.cloud/rollout-request";
/// StatefulSet annotation: v1 rollout hash that it was applied for. Not part of the hash.
const ROLLOUT_HASH: &str = "materialize.cloud/rollout-hash";
/// Name of environmentd's container.
const CONTAINER: &str = "environmentd";
/// What also triggers is looked at again after this at the latest.
pub const SAFETY_NET: Duration = Duration::from_secs(60);
/// For so long after the start of a rollout, environmentd may refuse to skip a catch-up that it
/// has not begun yet.
const SKIP_CATCHUP_GRACE: Duration = Duration::from_secs(60);

/// A generation's objects with their hash.
pub struct Wanted {
    /// The generation.
    pub generation: Generation,
    /// Its objects.
    pub objects: GenerationObjects,
    /// Their hash.
    pub hash: String,
}

impl Wanted {
    /// Renders a generation as the spec wants it now.
    ///
    /// # Errors
    /// [`RenderError`] for a spec that cannot be rendered.
    pub fn render(
        environment: &Environment<'_>,
        generation: Generation,
    ) -> Result<Self, RenderError> {
        let objects = environment.render(generation)?;
        let hash = objects.resources_hash()?;
        Ok(Self {
            generation,
            objects,
            hash,
        })
    }

    /// Whether this is not what the active generation was made of. The status records that only
    /// while nothing is under way; the StatefulSet remembers it always.
    ///
    /// # Errors
    /// If the StatefulSet cannot be read.
    pub async fn differs_from_active(&self, environment: &Environment<'_>) -> Result<bool, Error> {
        if environment.status.resources_hash == self.hash {
            return Ok(false);
        }
        let active = stateful_set(environment, self.generation).await?;
        let recorded = active
            .as_ref()
            .and_then(|active| active.annotations().get(RESOURCES_HASH));
        Ok(recorded != Some(&self.hash))
    }
}

/// Applies a generation and ends the pass until environmentd is ready to be promoted.
pub async fn bring_up(
    environment: &Environment<'_>,
    wanted: &Wanted,
    is_forced: bool,
) -> Result<(), Stop> {
    let pass = environment.pass;
    pass.ensure(&wanted.objects.service).await?;
    pass.ensure(&wanted.objects.persist_pubsub_service).await?;
    pass.ensure(wanted.objects.listeners()).await?;
    let mut marked = wanted.objects.stateful_set.clone();
    mark(
        &mut marked,
        &wanted.hash,
        environment.spec().request_rollout,
        &environment.rollout_hash()?,
    );
    let stateful_set = pass.ensure_and_get(&marked).await?;
    let ready = stateful_set.status.and_then(|status| status.ready_replicas);
    if ready.unwrap_or_default() < 1 {
        return Err(Stop::Early(Outcome::Wait(SAFETY_NET)));
    }
    let api = environment.leader_api(wanted.objects.leader()).await?;
    match not_yet(pass, api.status().await)? {
        LeaderStatus::Initializing if is_forced => skip_catchup(environment, &api).await,
        LeaderStatus::Initializing => Err(Stop::Early(Outcome::Poll)),
        LeaderStatus::ReadyToPromote | LeaderStatus::Promoting | LeaderStatus::IsLeader => Ok(()),
    }
}

/// Asks environmentd not to catch up. It refuses before it has begun to, so a young refusal only
/// means that it is too early.
async fn skip_catchup(environment: &Environment<'_>, api: &LeaderApi) -> Result<(), Stop> {
    let condition = environment.status.conditions.first();
    let since = condition.map_or(Timestamp::now(), |condition| {
        condition.last_transition_time.0
    });
    let is_young = Timestamp::now().duration_since(since).unsigned_abs() < SKIP_CATCHUP_GRACE;
    match api.skip_catchup().await {
        Ok(()) => Ok(()),
        Err(error) if error.is_not_yet() || (is_young && error.is_skip_refused()) => {
            environment.pass.tell_wait(&error);
            Err(Stop::Early(Outcome::Poll))
        }
        Err(error) => Err(error.into()),
    }
}

/// Ends the pass if environmentd gives no answer yet.
pub fn not_yet<T>(pass: &Pass, answer: Result<T, LeaderApiError>) -> Result<T, Stop> {
    answer.map_err(|error| {
        if error.is_not_yet() {
            pass.tell_wait(&error);
            Stop::Early(Outcome::Poll)
        } else {
            error.into()
        }
    })
}

/// What a generation really runs, whatever the spec has become since it was applied.
///
/// # Errors
/// If the StatefulSet cannot be read.
pub async fn running(
    environment: &Environment<'_>,
    generation: Generation,
) -> Result<Promoted, Error> {
    let stateful_set = stateful_set(environment, generation).await?;
    let spec = environment.spec();
    Ok(Promoted {
        generation,
        request: stateful_set
            .as_ref()
            .and_then(request)
            .unwrap_or(spec.request_rollout),
        image: stateful_set
            .as_ref()
            .and_then(image)
            .unwrap_or_else(|| spec.environmentd_image_ref.clone()),
        rollout_hash: stateful_set.as_ref().and_then(rollout_hash),
    })
}

async fn stateful_set(
    environment: &Environment<'_>,
    generation: Generation,
) -> Result<Option<StatefulSet>, Error> {
    let namespace = environment.namespace();
    let name = environment.resource_id().environmentd(generation);
    let api: Api<StatefulSet> = environment.pass.api(&namespace);
    api.get_opt(&name).await.map_err(|source| {
        let object = format!("StatefulSet {namespace}/{name}");
        ObjectError::Get {
            object,
            source: source.into(),
        }
        .into()
    })
}

fn mark(stateful_set: &mut StatefulSet, hash: &str, request: Uuid, rollout_hash: &RolloutHash) {
    let annotations = stateful_set.annotations_mut();
    annotations.insert(RESOURCES_HASH.to_owned(), hash.to_owned());
    annotations.insert(ROLLOUT_REQUEST.to_owned(), request.to_string());
    annotations.insert(ROLLOUT_HASH.to_owned(), rollout_hash.to_string());
}

fn request(stateful_set: &StatefulSet) -> Option<Uuid> {
    stateful_set
        .annotations()
        .get(ROLLOUT_REQUEST)?
        .parse()
        .ok()
}

fn rollout_hash(stateful_set: &StatefulSet) -> Option<String> {
    stateful_set.annotations().get(ROLLOUT_HASH).cloned()
}

fn image(stateful_set: &StatefulSet) -> Option<String> {
    let pod = stateful_set.spec.as_ref()?.template.spec.as_ref()?;
    let container = pod
        .containers
        .iter()
        .find(|container| container.name == CONTAINER)?;
    container.image.clone()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::materialize::v1::MaterializeSpec;

    #[test]
    fn a_stateful_set_remembers_what_it_was_applied_for() {
        let mut stateful_set: StatefulSet = serde_json::from_value(json!({
            "metadata": {"annotations": {"materialize.cloud/generation": "2"}},
            "spec": {"serviceName": "s", "selector": {}, "template": {"spec": {"containers": [
                {"name": "sidecar", "image": "other"},
                {"name": "environmentd", "image": "materialize/environmentd:v26.40.0"},
            ]}}},
        }))
        .unwrap();
        assert_eq!(request(&stateful_set), None);
        assert_eq!(rollout_hash(&stateful_set), None);
        let hash = RolloutHash::of(&MaterializeSpec::default(), None);
        mark(&mut stateful_set, "cafe", Uuid::from_u128(5), &hash);
        assert_eq!(request(&stateful_set), Some(Uuid::from_u128(5)));
        assert_eq!(rollout_hash(&stateful_set), Some(hash.to_string()));
        assert_eq!(stateful_set.annotations().len(), 4);
        assert_eq!(
            image(&stateful_set).as_deref(),
            Some("materialize/environmentd:v26.40.0")
        );
    }
}
