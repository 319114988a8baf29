//! One environment during a pass: the newest object that is known, and the ways to change it.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Resource, ResourceExt};

use super::error::{Error, Stop};
use super::generation;
use super::leader_api::LeaderApi;
use super::render::{self, GenerationObjects, LOGIN_PASSWORD_KEY, LeaderEndpoint};
use super::rollout::{self, Situation};
use super::status::{self, Transition};
use crate::api::FIELD_MANAGER;
use crate::api::materialize::rollout_hash::RolloutHash;
use crate::api::materialize::v1alpha1::{Materialize, MaterializeSpec, MaterializeStatus};
use crate::api::materialize::{FORCE_ROLLOUT_ANNOTATION, convert};
use crate::controller::context::Context;
use crate::controller::outcome::Outcome;
use crate::controller::pass::Pass;
use crate::controller::rendering::{Generation, Inputs, RenderError, ResourceId};
use crate::events::Publisher;

/// A pass over an object that turned out to be old waits this long for the newer one.
const STALE_WAIT: Duration = Duration::from_secs(1);

/// One environment during a pass.
pub struct Environment<'a> {
    /// What the term's passes share.
    pub context: &'a Context,
    /// This pass.
    pub pass: &'a Pass,
    /// Tells of transitions.
    pub publisher: &'a Publisher,
    /// The newest object that this pass knows.
    pub materialize: Materialize,
    /// Its status.
    pub status: MaterializeStatus,
}

impl Environment<'_> {
    /// The wanted state.
    pub fn spec(&self) -> &MaterializeSpec {
        &self.materialize.spec
    }

    /// Namespace of the environment.
    pub fn namespace(&self) -> String {
        self.materialize.namespace().unwrap_or_default()
    }

    /// Namespace and name, for people.
    pub fn object(&self) -> String {
        object(&self.materialize)
    }

    /// The generation that serves.
    pub fn active(&self) -> Generation {
        Generation(self.status.active_generation)
    }

    /// Prefix of the children's names.
    pub fn resource_id(&self) -> ResourceId {
        ResourceId(self.status.resource_id.clone())
    }

    /// What rendering needs besides the object.
    pub fn inputs(&self) -> Inputs<'_> {
        self.context.inputs()
    }

    /// The objects of a generation, as the spec wants them now.
    ///
    /// # Errors
    /// [`RenderError`] for a spec that cannot be rendered.
    pub fn render(&self, generation: Generation) -> Result<GenerationObjects, RenderError> {
        render::generation(
            self.inputs(),
            &self.materialize,
            &self.resource_id(),
            generation,
        )
    }

    /// What decisions about generations depend on.
    ///
    /// # Errors
    /// [`Error::RolloutHash`] if the spec has no v1 form.
    pub fn situation(&self, has_changes: bool) -> Result<Situation<'_>, Error> {
        let recorded = self.status.last_completed_rollout_hash.as_deref();
        Ok(Situation {
            condition: self.status.conditions.first(),
            observed_generation: self.materialize.metadata.generation.unwrap_or_default(),
            has_changes,
            is_requested: self.spec().request_rollout != self.status.last_completed_rollout_request,
            is_recorded: recorded == Some(self.rollout_hash()?.as_str()),
        })
    }

    /// The v1 rollout hash of the object.
    ///
    /// # Errors
    /// [`Error::RolloutHash`] if the spec has no v1 form.
    pub fn rollout_hash(&self) -> Result<RolloutHash, Error> {
        rollout_hash(&self.materialize).map_err(|source| Error::RolloutHash {
            object: self.object(),
            source,
        })
    }

    /// Whether the rollout is to be promoted without waiting for it to catch up.
    ///
    /// # Errors
    /// [`Error::RolloutHash`] if the spec has no v1 form.
    pub fn is_forced(&self) -> Result<bool, Error> {
        Ok(rollout::is_forced(
            self.spec(),
            self.rollout_hash()?.as_str(),
        ))
    }

    /// Writes a change of the status, and tells of it; nothing if only times would change.
    ///
    /// # Errors
    /// [`Error::WriteStatus`], also if somebody else has changed the object meanwhile.
    pub async fn transition(&mut self, transition: &Transition) -> Result<(), Error> {
        let after = transition.apply(&self.materialize, &self.status, Timestamp::now());
        if !status::differs(Some(&self.status), &after) {
            return Ok(());
        }
        self.materialize = write_status(&self.api(), &self.materialize, after).await?;
        self.status = self.materialize.status.clone().unwrap_or_default();
        if let Some(condition) = self.status.conditions.first() {
            let regarding = self.materialize.object_ref(&());
            self.publisher
                .publish(&regarding, status::event(condition))
                .await;
        }
        Ok(())
    }

    /// Ends the pass if the object was changed meanwhile: something that can't be undone is about to
    /// be done, and memory may lag behind what another leader did.
    ///
    /// # Errors
    /// [`Stop`] if the object is not the newest, or cannot be read.
    pub async fn confirm_newest(&self) -> Result<(), Stop> {
        let newest = self
            .api()
            .get_metadata(&self.materialize.name_any())
            .await
            .map_err(|source| Error::ReadAgain {
                object: self.object(),
                source: source.into(),
            })?;
        if newest.resource_version() == self.materialize.resource_version() {
            return Ok(());
        }
        Err(Stop::Early(Outcome::Wait(STALE_WAIT)))
    }

    /// A value of the backend Secret; `None` if the Secret is there but the key is not.
    ///
    /// # Errors
    /// [`Error::NoSecret`] and [`Error::ReadSecret`].
    pub async fn secret_value(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let name = &self.spec().backend_secret_name;
        let secrets: Api<Secret> = self.pass.api(&self.namespace());
        let found = secrets
            .get_opt(name)
            .await
            .map_err(|source| Error::ReadSecret {
                secret: self.secret(),
                source: source.into(),
            })?;
        let secret = found.ok_or_else(|| Error::NoSecret(self.secret()))?;
        Ok(secret
            .data
            .and_then(|mut data| data.remove(key))
            .map(|ByteString(value)| value))
    }

    /// Namespace and name of the backend Secret, for people.
    pub fn secret(&self) -> String {
        format!("{}/{}", self.namespace(), self.spec().backend_secret_name)
    }

    /// A client of a generation's leader API, logged in where that is needed.
    ///
    /// # Errors
    /// [`Stop`], also if that is not possible yet.
    pub async fn leader_api(&self, endpoint: &LeaderEndpoint) -> Result<LeaderApi, Stop> {
        let mut api = self.context.leader_api(endpoint);
        if endpoint.login_secret_name.is_none() {
            return Ok(api);
        }
        let password = match self.secret_value(LOGIN_PASSWORD_KEY).await {
            Ok(Some(password)) => password,
            Ok(None) => return Ok(api),
            Err(error) => {
                self.pass.tell_wait(&error);
                return Err(Stop::Early(Outcome::Poll));
            }
        };
        let opened = api.login(&String::from_utf8_lossy(&password)).await;
        generation::not_yet(self.pass, opened)?;
        Ok(api)
    }

    fn api(&self) -> Api<Materialize> {
        self.pass.api(&self.namespace())
    }
}

/// The v1 rollout hash, of the spec itself: while promoting, the status of v1 does not tell it.
fn rollout_hash(
    materialize: &Materialize,
) -> Result<RolloutHash, Box<dyn std::error::Error + Send + Sync>> {
    let mut object = convert::convert(serde_json::to_value(materialize)?, convert::Version::V1)?;
    let spec = object.pointer_mut("/spec").map(serde_json::Value::take);
    let spec = serde_json::from_value(spec.unwrap_or_default())?;
    let annotation = materialize.annotations().get(FORCE_ROLLOUT_ANNOTATION);
    Ok(RolloutHash::of(&spec, annotation.map(String::as_str)))
}

/// Namespace and name, for people.
pub fn object(materialize: &Materialize) -> String {
    format!(
        "{}/{}",
        materialize.namespace().unwrap_or_default(),
        materialize.name_any()
    )
}

/// Writes a whole status, compared with the version that was read.
///
/// # Errors
/// [`Error::WriteStatus`], also if somebody else has changed the object meanwhile.
pub async fn write_status(
    api: &Api<Materialize>,
    materialize: &Materialize,
    status: MaterializeStatus,
) -> Result<Materialize, Error> {
    let mut wanted = materialize.clone();
    wanted.status = Some(status);
    api.replace_status(&materialize.name_any(), &replace_parameters(), &wanted)
        .await
        .map_err(|source| Error::WriteStatus {
            object: object(materialize),
            source: source.into(),
        })
}

/// Parameters of a whole-object write.
pub fn replace_parameters() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn materialize(reason: &str) -> Materialize {
        serde_json::from_value(json!({
            "apiVersion": "materialize.cloud/v1alpha1",
            "kind": "Materialize",
            "metadata": {
                "name": "env",
                "namespace": "ns",
                "annotations": { FORCE_ROLLOUT_ANNOTATION: "again" },
            },
            "spec": {
                "environmentdImageRef": "materialize/environmentd:v26.40.0",
                "backendSecretName": "backend",
                "environmentdExtraArgs": ["--changed"],
                "environmentdIamRoleArn": "arn:aws:iam::1:role/r",
                "requestRollout": "a0000000-0000-4000-8000-00000000000a",
            },
            "status": {
                "resourceId": "abc",
                "activeGeneration": 1,
                "lastCompletedRolloutRequest": "a0000000-0000-4000-8000-00000000000b",
                "resourcesHash": "",
                "conditions": [{
                    "type": "UpToDate",
                    "status": "Unknown",
                    "reason": reason,
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        }))
        .unwrap()
    }

    #[test]
    fn the_rollout_hash_is_what_v1_shows_and_known_while_promoting() {
        let ready = materialize("ReadyToPromote");
        let v1 = convert::convert(serde_json::to_value(&ready).unwrap(), convert::Version::V1);
        let shown = &v1.unwrap()["status"]["requestedRolloutHash"];
        let hash = rollout_hash(&ready).unwrap();
        assert_eq!(shown, hash.as_str());
        assert_eq!(rollout_hash(&materialize("Promoting")).unwrap(), hash);
    }
}
