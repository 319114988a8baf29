//! The command line that the operator gives balancerd.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand, ValueEnum};

use crate::flags::{duration, host_port, require_file};

/// Everything balancerd may be told.
#[derive(Debug, Parser)]
#[command(
    name = "balancerd",
    disable_help_flag = true,
    disable_help_subcommand = true,
    arg_required_else_help = false
)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Service(Service),
}

/// How to forward.
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
pub(super) struct Service {
    #[arg(long)]
    pub(super) pgwire_listen_addr: SocketAddr,
    #[arg(long)]
    pub(super) https_listen_addr: SocketAddr,
    #[arg(long)]
    pub(super) internal_http_listen_addr: SocketAddr,
    #[arg(long, value_parser = host_port)]
    pub(super) https_resolver_template: String,
    #[arg(long, value_parser = host_port)]
    pub(super) static_resolver_addr: String,
    #[arg(long)]
    pub(super) internal_tls: bool,
    #[arg(long)]
    pub(super) tls_mode: TlsMode,
    #[arg(long)]
    pub(super) tls_cert: Option<PathBuf>,
    #[arg(long)]
    pub(super) tls_key: Option<PathBuf>,
    #[arg(long)]
    pub(super) config_sync_file_path: Option<PathBuf>,
    #[arg(long, value_parser = duration, requires = "config_sync_file_path")]
    pub(super) config_sync_loop_interval: Option<Duration>,
}

/// Whether clients must speak TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TlsMode {
    Disable,
    Require,
}

impl Service {
    /// Refuses arguments that contradict each other, and files that are not there.
    pub(super) fn check(&self) -> Result<()> {
        match (self.tls_mode, &self.tls_cert, &self.tls_key) {
            (TlsMode::Disable, None, None) => Ok(()),
            (TlsMode::Require, Some(cert), Some(key)) => {
                require_file("--tls-cert", cert)?;
                require_file("--tls-key", key)
            }
            _ => bail!(
                "--tls-mode=require needs --tls-cert and --tls-key, and they need --tls-mode=require"
            ),
        }
    }
}
