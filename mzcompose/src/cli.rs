//! The command line, and which page of the program each command opens.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use mzcompose::progress::Progress;
use mzcompose::state::Instance;

use crate::bench;
use crate::output::say;
use crate::test_run::{self, Part};
use crate::workflow::WORKFLOWS;
use crate::{down, run, status, up};

/// Runs a real Kubernetes cluster, the operator on it, and the project's tests.
#[derive(Debug, Parser)]
#[command(
    name = "cargo mzcompose",
    bin_name = "cargo mzcompose",
    version,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a cluster with the operator and one Materialize environment; does only what is missing.
    Up {
        #[command(flatten)]
        target: Target,
    },
    /// Remove everything that `up` made.
    Down {
        #[command(flatten)]
        target: Target,
    },
    /// Say what runs.
    Status {
        /// Say it as one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Name the workflows that `run` knows.
    List,
    /// Run a workflow on a cluster, which is started if need be; replaces the operator and the environment there.
    Run {
        /// The workflow.
        #[arg(value_enum)]
        workflow: WorkflowName,
        /// Print the figures as one JSON object.
        #[arg(long)]
        json: bool,
        /// How many times in a row; the first failure ends it.
        #[arg(long, default_value = "1", value_name = "N")]
        repeat: NonZeroU32,
        #[command(flatten)]
        target: Target,
    },
    /// Measure something beside others who do the same.
    Bench {
        #[command(subcommand)]
        benchmark: Benchmark,
    },
    /// Run everything that CI runs: lints, unit and integration tests, workflows.
    Test {
        /// Only this part; may be repeated.
        #[arg(long, value_enum, value_name = "PART")]
        only: Vec<Part>,
        /// Arguments for `cargo test`.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// How leadership moves: the operator, other leader elections, and a bare script as the floor.
    Handover(bench::Handover),
}

/// Which cluster to work on.
#[derive(Debug, Clone, clap::Args)]
pub struct Target {
    /// Work on the cluster that this kubeconfig names, and create none.
    #[arg(long, value_name = "FILE", conflicts_with = "instance")]
    pub kubeconfig: Option<PathBuf>,
    /// The cluster of this machine to work on.
    #[arg(long, value_enum, default_value_t = Name::Dev)]
    pub instance: Name,
}

/// The clusters that can live on this machine side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// The one to play with.
    Dev,
    /// The one that `test` makes and removes.
    Test,
}

impl Name {
    /// Every cluster.
    pub const ALL: [Self; 2] = [Self::Dev, Self::Test];

    /// The cluster's place on this machine.
    pub fn instance(self) -> Result<Instance> {
        match self {
            Self::Dev => Instance::dev(),
            Self::Test => Instance::test(),
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum WorkflowName {
    LeaderFailover,
}

impl Cli {
    /// Does what was asked for.
    pub async fn run(self) -> Result<ExitCode> {
        let progress = Progress::new();
        match self.command {
            Command::Up { target } => up::up(&target, &progress).await.map(|()| ExitCode::SUCCESS),
            Command::Down { target } => down::down(&target, &progress)
                .await
                .map(|()| ExitCode::SUCCESS),
            Command::Status { json } => status::status(json).await.map(|()| ExitCode::SUCCESS),
            Command::List => list().map(|()| ExitCode::SUCCESS),
            Command::Run {
                workflow: WorkflowName::LeaderFailover,
                json,
                repeat,
                target,
            } => run::leader_failover(&target, repeat, json, &progress).await,
            Command::Bench {
                benchmark: Benchmark::Handover(options),
            } => bench::handover(&options, &progress).await,
            Command::Test { only, arguments } => test_run::test(&only, &arguments, &progress).await,
        }
    }
}

fn list() -> Result<()> {
    for (name, purpose) in WORKFLOWS {
        say(format!("{name:<20} {purpose}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn refused(arguments: &[&str]) -> String {
        let arguments = std::iter::once("mzcompose").chain(arguments.iter().copied());
        let error = Cli::try_parse_from(arguments).expect_err("must be refused");
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_listed_workflow_can_be_run() {
        for (name, _) in WORKFLOWS {
            Cli::try_parse_from(["mzcompose", "run", name]).unwrap();
        }
    }

    #[test]
    fn a_bad_flag_or_value_is_named() {
        assert!(refused(&["up", "--kubeconfg", "x"]).contains("--kubeconfg"));
        assert!(refused(&["run", "leader-fallover"]).contains("leader-failover"));
        assert!(refused(&["run", "leader-failover", "--repeat", "0"]).contains("--repeat"));
        assert!(refused(&["bench", "handover", "--only", "flor"]).contains("floor"));
        assert!(refused(&["up", "--kubeconfig", "x", "--instance", "test"]).contains("--instance"));
    }
}
