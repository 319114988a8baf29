//! The status of an environment: what each transition writes, and the Event that tells of it. Pure.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::events::{Event, EventType};
use rand::RngExt;
use uuid::Uuid;

use super::rollout;
use crate::api::materialize::LAST_KNOWN_ACTIVE_GENERATION_ANNOTATION;
use crate::api::materialize::v1alpha1::{Materialize, MaterializeStatus};
use crate::controller::rendering::Generation;

/// Type of the one condition.
const UP_TO_DATE: &str = "UpToDate";
/// Characters of a resource id.
const RESOURCE_ID_ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
/// Length of a resource id.
const RESOURCE_ID_LENGTH: usize = 10;

/// Reason of the `UpToDate` condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Materialize's own")]
pub enum Reason {
    Applying,
    ReadyToPromote,
    Promoting,
    Applied,
    WaitingForApproval,
    FailedDeploy,
    RolloutTimeout,
}

impl Reason {
    /// As it stands in the condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applying => "Applying",
            Self::ReadyToPromote => "ReadyToPromote",
            Self::Promoting => "Promoting",
            Self::Applied => "Applied",
            Self::WaitingForApproval => "WaitingForApproval",
            Self::FailedDeploy => "FailedDeploy",
            Self::RolloutTimeout => "RolloutTimeout",
        }
    }

    /// Whether a condition has this reason.
    pub fn is_of(self, condition: &Condition) -> bool {
        condition.reason == self.as_str()
    }

    fn condition_status(self) -> &'static str {
        match self {
            Self::Applying | Self::ReadyToPromote | Self::Promoting => "Unknown",
            Self::Applied => "True",
            Self::WaitingForApproval | Self::FailedDeploy | Self::RolloutTimeout => "False",
        }
    }
}

/// What a finished promotion has brought up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promoted {
    /// The generation that serves now.
    pub generation: Generation,
    /// `requestRollout` that asked for it.
    pub request: Uuid,
    /// The environmentd image that it runs.
    pub image: String,
    /// v1 rollout hash that it was applied for; `None` if nobody recorded it.
    pub rollout_hash: Option<String>,
}

/// A change of the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    /// A generation's objects are being created.
    Applying(Generation),
    /// A generation has caught up and waits to be promoted.
    ReadyToPromote {
        /// The generation.
        generation: Generation,
        /// Hash of its objects.
        hash: String,
    },
    /// The point of no return is passed.
    Promoting {
        /// The generation.
        generation: Generation,
        /// Hash of its objects.
        hash: String,
    },
    /// A generation serves.
    Promoted(Promoted),
    /// The active generation is what is wanted.
    UpToDate {
        /// Hash of its objects.
        hash: String,
        /// v1 rollout hash of the object.
        rollout_hash: String,
    },
    /// Changes wait for a request; names the generation that they would make.
    WaitingForApproval(Generation),
    /// The upgrade window refused, or objects could not be applied; says why.
    FailedDeploy(String),
    /// A rollout was cancelled.
    TimedOut {
        /// The generation that it should have made.
        generation: Generation,
        /// How long it was allowed to take.
        timeout: Duration,
    },
}

impl Transition {
    fn reason(&self) -> Reason {
        match self {
            Self::Applying(_) => Reason::Applying,
            Self::ReadyToPromote { .. } => Reason::ReadyToPromote,
            Self::Promoting { .. } => Reason::Promoting,
            Self::Promoted(_) | Self::UpToDate { .. } => Reason::Applied,
            Self::WaitingForApproval(_) => Reason::WaitingForApproval,
            Self::FailedDeploy(_) => Reason::FailedDeploy,
            Self::TimedOut { .. } => Reason::RolloutTimeout,
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Applying(generation) => {
                format!("Applying the objects of generation {generation}")
            }
            Self::ReadyToPromote { generation, .. } => format!(
                "The new generation {generation} has caught up; to promote it, set spec.forcePromote to spec.requestRollout \
                 (v1alpha1) or to status.requestedRolloutHash (v1)"
            ),
            Self::Promoting { generation, .. } => format!("Promoting generation {generation}"),
            Self::Promoted(Promoted { generation, .. }) => {
                format!("Promoted generation {generation}, which serves now")
            }
            Self::UpToDate { .. } => "No differences from the active generation".to_owned(),
            Self::WaitingForApproval(generation) => format!(
                "Changes wait to be rolled out as generation {generation}; set spec.requestRollout (v1alpha1) or \
                 spec.forceRollout (v1) to a new UUID"
            ),
            Self::FailedDeploy(why) => why.clone(),
            Self::TimedOut {
                generation,
                timeout,
            } => format!(
                "The rollout to generation {generation} was cancelled after {}; to try again, set spec.requestRollout \
                 (v1alpha1) or spec.forceRollout (v1) to a new UUID",
                humantime::format_duration(*timeout)
            ),
        }
    }

    /// The status after this transition of `materialize`, whose status is `before`.
    pub fn apply(
        &self,
        materialize: &Materialize,
        before: &MaterializeStatus,
        now: Timestamp,
    ) -> MaterializeStatus {
        let request = materialize.spec.request_rollout;
        let mut after = before.clone();
        match self {
            // Half applied: what is recorded must not be taken for what is there.
            Self::Applying(_) => after.resources_hash.clear(),
            Self::ReadyToPromote { hash, .. } | Self::Promoting { hash, .. } => {
                after.resources_hash.clone_from(hash)
            }
            Self::Promoted(Promoted {
                generation,
                request,
                image,
                rollout_hash,
            }) => {
                after.active_generation = generation.0;
                after.last_completed_rollout_request = *request;
                after.last_completed_rollout_environmentd_image_ref = Some(image.clone());
                after.last_completed_rollout_hash.clone_from(rollout_hash);
            }
            Self::UpToDate { hash, rollout_hash } => {
                after.resources_hash.clone_from(hash);
                after.last_completed_rollout_hash = Some(rollout_hash.clone());
                after.last_completed_rollout_request = request;
            }
            Self::WaitingForApproval(_) | Self::TimedOut { .. } => {
                after.last_completed_rollout_request = request
            }
            Self::FailedDeploy(_) => {}
        }
        after.conditions = vec![self.condition(materialize, before, now)];
        after
    }

    fn condition(
        &self,
        materialize: &Materialize,
        before: &MaterializeStatus,
        now: Timestamp,
    ) -> Condition {
        let reason = self.reason();
        let observed_generation = materialize.metadata.generation;
        Condition {
            type_: UP_TO_DATE.to_owned(),
            status: reason.condition_status().to_owned(),
            reason: reason.as_str().to_owned(),
            message: self.message(),
            observed_generation,
            last_transition_time: Time(self.since(before, observed_generation, now).unwrap_or(now)),
        }
    }

    /// The clock of a rollout goes on while the rollout does, so that its timeout is reached.
    fn since(
        &self,
        before: &MaterializeStatus,
        observed_generation: Option<i64>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let condition = before.conditions.first()?;
        let started = rollout::started(condition, observed_generation.unwrap_or_default())?;
        match self {
            Self::ReadyToPromote { .. } => Some(started),
            Self::Applying(_) | Self::FailedDeploy(_)
                if condition.observed_generation == observed_generation =>
            {
                Some(started)
            }
            _ => Some(now),
        }
    }
}

/// The first status of an environment.
pub fn initial(materialize: &Materialize) -> Result<MaterializeStatus, BadGeneration> {
    let annotation = materialize
        .annotations()
        .get(LAST_KNOWN_ACTIVE_GENERATION_ANNOTATION);
    let active_generation = annotation.map_or(Ok(0), |text| {
        text.parse().map_err(|_| BadGeneration(text.clone()))
    })?;
    Ok(MaterializeStatus {
        resource_id: new_resource_id(),
        active_generation,
        last_completed_rollout_environmentd_image_ref: Some(
            materialize.spec.environmentd_image_ref.clone(),
        ),
        ..MaterializeStatus::default()
    })
}

/// The annotation with the last known active generation cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "the annotation {LAST_KNOWN_ACTIVE_GENERATION_ANNOTATION} is {0:?}, which is not a generation; set it to a whole \
     number or remove it"
)]
pub struct BadGeneration(String);

/// Ten random characters of `a-z0-9`.
pub fn new_resource_id() -> String {
    let mut rng = rand::rng();
    (0..RESOURCE_ID_LENGTH)
        .filter_map(|_| RESOURCE_ID_ALPHABET.get(rng.random_range(0..RESOURCE_ID_ALPHABET.len())))
        .map(|byte| char::from(*byte))
        .collect()
}

/// Whether two statuses differ in more than timestamps.
pub fn differs(before: Option<&MaterializeStatus>, after: &MaterializeStatus) -> bool {
    let without_times = |status: &MaterializeStatus| {
        let mut status = status.clone();
        for condition in &mut status.conditions {
            condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
        }
        status
    };
    before.map(without_times) != Some(without_times(after))
}

/// The Event that tells of a condition.
pub fn event(condition: &Condition) -> Event {
    let is_warning = condition.status == "False" && !Reason::WaitingForApproval.is_of(condition);
    Event {
        type_: if is_warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: condition.reason.clone(),
        note: Some(condition.message.clone()),
        action: "Reconcile".to_owned(),
        secondary: None,
    }
}

#[cfg(test)]
mod tests;
