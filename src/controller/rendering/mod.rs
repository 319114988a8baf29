//! What the rendered objects of all three controllers share: names, metadata, pods, certificates.
//!
//! Rendering is pure: a resource and the operator's options in, Kubernetes objects out.

pub mod certificate;
#[cfg(test)]
pub mod fixtures;
pub mod names;
pub mod network_policy;
pub mod owner;
pub mod pod;

pub use names::{Generation, ResourceId};
pub use owner::Owner;

use crate::cli::{EnvironmentArgs, LoggingArgs};

/// Everything of the operator that shapes rendered objects.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The options that shape environments.
    pub environment: &'a EnvironmentArgs,
    /// The options of tracing and error reporting, some of which are forwarded.
    pub logging: &'a LoggingArgs,
    /// The namespace of the operator's own pods.
    pub operator_namespace: &'a str,
}

/// Why an object cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The resource was not read from an API server.
    #[error(
        "cannot render the objects of a {kind} without metadata.{field}: it must come from the API server"
    )]
    MissingMetadata {
        /// Kind of the resource.
        kind: String,
        /// The member that is missing.
        field: &'static str,
    },
    /// The name does not fit in a label.
    #[error(
        "the name of {kind} {name} has {} characters, but its objects carry it in a label, which has at most {}: create it anew with a shorter name",
        name.len(), owner::MAX_LABEL_LENGTH
    )]
    NameTooLong {
        /// Kind of the resource.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The environment has no identity yet.
    #[error("cannot render Materialize {name} before its spec.environmentId is filled in")]
    NoEnvironmentId {
        /// Name of the resource.
        name: String,
    },
    /// cert-manager would refuse the private key.
    #[error(
        "certificate {certificate}: privateKeySize {size} does not fit {algorithm}: use {way_out}"
    )]
    PrivateKeySize {
        /// Name of the certificate.
        certificate: String,
        /// The private key algorithm.
        algorithm: &'static str,
        /// The size in bits.
        size: i64,
        /// What fits.
        way_out: &'static str,
    },
    /// A Balancer must say where to route.
    #[error(
        "Balancer {name} must have exactly one of spec.staticRouting and spec.fronteggRouting: {way_out}"
    )]
    Routing {
        /// Name of the resource.
        name: String,
        /// What to set or remove.
        way_out: &'static str,
    },
    /// Frontegg routing is only a placeholder.
    #[error("Balancer {name}: spec.fronteggRouting is not implemented: use spec.staticRouting")]
    FronteggRouting {
        /// Name of the resource.
        name: String,
    },
    /// A value has no JSON form.
    #[error("cannot write {what} as JSON")]
    Json {
        /// What was to be written.
        what: &'static str,
        /// Why it failed.
        source: serde_json::Error,
    },
}
