//! A Kubernetes operator for Materialize environments.
//!
//! Every replica serves the conversion webhook, metrics and health; the one that holds the
//! Lease also runs the controllers. [`operator`] tells the whole life of a process.

pub mod api;
pub mod cli;
pub mod connection;
pub mod controller;
pub mod election;
pub mod errors;
pub mod events;
pub mod health;
pub mod image;
pub mod leadership;
pub mod logging;
pub mod metrics;
pub mod operator;
pub mod pod;
pub mod signals;
pub mod webhook;
