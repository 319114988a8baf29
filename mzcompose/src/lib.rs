//! Runs a real Kubernetes cluster, the operator on it, and the project's tests.
