//! `Materialize`: one environment, in the stored version and the one users are moving to.

pub mod convert;
pub mod rollout_hash;
pub mod v1;
pub mod v1alpha1;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Annotation whose value takes part in the rollout hash and in the force value of the StatefulSet.
pub const FORCE_ROLLOUT_ANNOTATION: &str = "materialize.cloud/force-rollout";

/// Annotation from which the first status takes its active generation.
pub const LAST_KNOWN_ACTIVE_GENERATION_ANNOTATION: &str =
    "materialize.cloud/last-known-active-generation";

/// Timeout of a rollout where none (or an unreadable one) is given.
pub const DEFAULT_ROLLOUT_REQUEST_TIMEOUT: &str = "24h";

/// How users of an environment authenticate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AuthenticatorKind {
    /// By Frontegg.
    Frontegg,
    /// By password.
    Password,
    /// By SASL over SQL, by password over HTTP.
    Sasl,
    /// By OpenID Connect.
    Oidc,
    /// Not at all.
    #[default]
    None,
}

impl AuthenticatorKind {
    /// Whether `mz_system` logs in with a password, also the operator on the leader API.
    pub fn uses_password(self) -> bool {
        matches!(self, Self::Password | Self::Sasl | Self::Oidc)
    }
}

/// When a new generation takes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RolloutStrategy {
    /// As soon as the new generation has caught up.
    #[default]
    WaitUntilReady,
    /// When the new generation has caught up and `forcePromote` names the rollout.
    ManuallyPromote,
    /// The old generation is torn down first: downtime, but no second set of pods.
    ImmediatelyPromoteCausingDowntime,
}

fn default_rollout_request_timeout() -> String {
    DEFAULT_ROLLOUT_REQUEST_TIMEOUT.to_owned()
}
