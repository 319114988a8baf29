//! What every peer has in common: its arguments, how it is told to end, and what it prints.

use std::path::PathBuf;

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// One replica.
#[derive(clap::Parser)]
pub struct Candidate {
    /// How to reach the API server.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// Namespace of the Lease.
    #[arg(long)]
    pub namespace: String,
    /// Name of the Lease.
    #[arg(long)]
    pub lease: String,
    /// Name of this replica in the Lease.
    #[arg(long)]
    pub identity: String,
}

impl Candidate {
    /// Reads the arguments; a bad one ends the process.
    pub fn parse() -> Self {
        clap::Parser::parse()
    }
}

/// Hears SIGTERM from now on.
pub fn termination() -> Result<Signal> {
    signal(SignalKind::terminate()).context("cannot listen for SIGTERM")
}

/// Whether this replica leads; says so when that changes.
#[derive(Default)]
pub struct Leadership(bool);

impl Leadership {
    /// Tells what is so now.
    pub fn is(&mut self, leads: bool) {
        if leads != self.0 {
            self.0 = leads;
            println!("{}", if leads { "leading" } else { "stopped" });
        }
    }
}
