//! Runs a real Kubernetes cluster, the operator on it, and the project's tests.

pub mod client;
pub mod cluster;
pub mod command;
mod components;
pub mod control_plane;
mod kubeconfig;
mod network;
pub mod peers;
mod pki;
pub mod prerequisites;
pub mod process;
pub mod progress;
pub mod state;
pub mod tools;
