//! Liveness and readiness.
