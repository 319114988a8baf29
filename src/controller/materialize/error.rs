//! Why a pass over an environment fails.

use thiserror::Error;
use uuid::Uuid;

use super::leader_api::LeaderApiError;
use super::license::LicenseError;
use super::status::BadGeneration;
use crate::controller::outcome;
use crate::controller::pass::ObjectError;
use crate::controller::rendering::RenderError;

/// Why a pass over an environment fails.
#[derive(Debug, Error)]
pub enum Error {
    /// An object could not be read, applied or deleted.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// An object could not be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// environmentd refused, or made no sense.
    #[error(transparent)]
    LeaderApi(#[from] LeaderApiError),
    /// The licence key is not one.
    #[error(transparent)]
    License(#[from] LicenseError),
    /// The annotation with the first generation is wrong.
    #[error(transparent)]
    BadGeneration(#[from] BadGeneration),
    /// The status could not be written.
    #[error("cannot write the status of Materialize {object}")]
    WriteStatus {
        /// Namespace and name.
        object: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// The spec could not be completed.
    #[error("cannot fill in spec.requestRollout and spec.environmentId of Materialize {object}")]
    WriteSpec {
        /// Namespace and name.
        object: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// The object could not be read again before something was deleted.
    #[error("cannot read Materialize {object} again before deleting a generation")]
    ReadAgain {
        /// Namespace and name.
        object: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// The finalizer could not be added or removed.
    #[error("cannot {verb} the finalizer of Materialize {object}")]
    Finalizer {
        /// `add` or `remove`.
        verb: &'static str,
        /// Namespace and name.
        object: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// The object is none that an API server gave.
    #[error(
        "Materialize {0} has no name or an impossible finalizer; it did not come from an API server"
    )]
    NotFromApiServer(String),
    /// The v1 form, which the rollout hash is made of, could not be made.
    #[error("cannot convert Materialize {object} to v1 for its rollout hash")]
    RolloutHash {
        /// Namespace and name.
        object: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The Secret could not be read.
    #[error("cannot read Secret {secret} of spec.backendSecretName")]
    ReadSecret {
        /// Namespace and name.
        secret: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// There is no such Secret.
    #[error("Secret {0} of spec.backendSecretName not found; create it")]
    NoSecret(String),
    /// The Secret has no licence key.
    #[error(
        "Secret {secret} has no license_key, which {image} needs; put a licence key from Materialize into it"
    )]
    NoLicenseKey {
        /// Namespace and name.
        secret: String,
        /// The environmentd image.
        image: String,
    },
    /// The licence key is not text.
    #[error("license_key in Secret {0} is not UTF-8 text; put in the key as Materialize gave it")]
    LicenseKeyNotText(String),
    /// The licence key is for another environment.
    #[error(
        "the licence key is for environment {licensed}, but spec.environmentId is {actual}; use a licence key for this \
         environment"
    )]
    OtherEnvironment {
        /// The environment of the key.
        licensed: Uuid,
        /// The environment that is there.
        actual: Uuid,
    },
    /// Two objects claim to be the same environment.
    #[error(
        "Materialize {object} and Materialize {other} both have spec.environmentId {environment_id}; delete one of them, \
         or give the newer one another id before its first rollout"
    )]
    SameEnvironment {
        /// Namespace and name of this one.
        object: String,
        /// Namespace and name of the other.
        other: String,
        /// The id.
        environment_id: Uuid,
    },
}

/// Why a pass over an environment takes no further steps.
pub type Stop = outcome::Stop<Error>;

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}
