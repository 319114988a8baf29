//! The rollout hash of a v1 spec.
