//! The custom resources as users see them, and how they reach the API server.

pub mod balancer;
pub mod certificate_spec;
pub mod console;
pub mod materialize;
pub mod registration;
pub mod vpc_endpoint;

pub use balancer::Balancer;
pub use certificate_spec::MaterializeCertSpec;
pub use console::Console;
pub use vpc_endpoint::VpcEndpoint;

/// API group of every custom resource.
pub const GROUP: &str = "materialize.cloud";

/// Field manager of every server-side apply, and prefix of the event reporter.
pub const FIELD_MANAGER: &str = "orchestratord.materialize.cloud";
