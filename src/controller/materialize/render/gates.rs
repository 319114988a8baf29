//! From which environmentd image on what is rendered.

use crate::image::MinimumVersion;

/// The licence key is mounted unless its check is disabled.
pub const LICENSE_KEY: MinimumVersion = MinimumVersion("0.140.0-dev.0");
/// `--disable-license-key-checks` is known.
pub const DISABLE_LICENSE_KEY_CHECKS: MinimumVersion = MinimumVersion("0.143.0");
/// clusterd's affinity and tolerations are forwarded.
pub const CLUSTERD_SCHEDULING: MinimumVersion = MinimumVersion("0.144.0");
/// The listeners ConfigMap replaces the listen arguments; password logins.
pub const LISTENERS: MinimumVersion = MinimumVersion("0.147.0-dev.0");
/// The licence key is always mounted, and `--disable-license-key-checks` is gone.
pub const LICENSE_KEY_ALWAYS: MinimumVersion = MinimumVersion("0.153.0");
/// Pod annotations are forwarded to clusterd.
pub const CLUSTERD_ANNOTATIONS: MinimumVersion = MinimumVersion("0.154.0");
/// Environments cannot do without a licence key.
pub const LICENSE_KEY_MANDATORY: MinimumVersion = MinimumVersion("0.161.0");
/// The ConfigMap of system parameters is read.
pub const SYSTEM_PARAMETERS: MinimumVersion = MinimumVersion("26.1.0-dev.0");
/// Listeners have roles for each group of routes.
pub const ROUTE_ROLES: MinimumVersion = MinimumVersion("26.32.0");
/// clusterd's priority class is forwarded.
pub const PRIORITY_CLASS: MinimumVersion = MinimumVersion("26.42.0-dev.0");
