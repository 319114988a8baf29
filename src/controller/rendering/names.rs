//! Names of children: `mz<resource id>-<suffix>`.

use std::fmt;

/// `status.resourceId`: ten random characters of `a-z0-9`, fixed for life.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId(pub String);

/// One environmentd and its objects; a rollout makes the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct Generation(pub u64);

impl Generation {
    /// The generation that the next rollout makes.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ResourceId {
    /// Any child: `mz<resource id>-<suffix>`.
    pub fn child(&self, suffix: &str) -> String {
        format!("mz{self}-{suffix}")
    }

    /// StatefulSet and Service of one generation of environmentd.
    pub fn environmentd(&self, generation: Generation) -> String {
        self.child(&format!("environmentd-{generation}"))
    }

    /// Service of the generation that serves.
    pub fn environmentd_public(&self) -> String {
        self.child("environmentd")
    }

    /// Service over which clusterd and environmentd of one generation exchange persist updates.
    pub fn persist_pubsub(&self, generation: Generation) -> String {
        self.child(&format!("persist-pubsub-{generation}"))
    }

    /// ConfigMap of one generation's listeners.
    pub fn listeners(&self, generation: Generation) -> String {
        self.child(&format!("listeners-{generation}"))
    }

    /// Secret of environmentd's certificate.
    pub fn environmentd_tls_secret(&self) -> String {
        self.child("environmentd-tls")
    }

    /// Deployment and Service of balancerd.
    pub fn balancerd(&self) -> String {
        self.child("balancerd")
    }

    /// Secret of balancerd's certificate towards clients.
    pub fn balancerd_tls_secret(&self) -> String {
        self.child("balancerd-external-tls")
    }

    /// Deployment, Service and ConfigMap of the console.
    pub fn console(&self) -> String {
        self.child("console")
    }

    /// Secret of the console's certificate.
    pub fn console_tls_secret(&self) -> String {
        self.child("console-external-tls")
    }
}

/// The name of a Service inside the cluster.
pub fn service_fqdn(service: &str, namespace: &str) -> String {
    format!("{service}.{namespace}.svc.cluster.local")
}
