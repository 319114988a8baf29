//! Kubernetes Events about custom resources.
