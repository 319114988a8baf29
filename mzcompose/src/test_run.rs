//! `test`: everything that CI runs, in order; the first failure ends it, and nothing is left behind.

mod counts;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use mzcompose::cluster::Cluster;
use mzcompose::control_plane::{self, ControlPlane};
use mzcompose::prerequisites;
use mzcompose::progress::Progress;
use mzcompose::tools::{Module, Tools};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::cli::{Name, Target};
use crate::exec::{self, Group};
use crate::interrupt;
use crate::run;
use crate::target;

use counts::Counts;

/// What `test` is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// rustfmt and clippy.
    Lints,
    /// Unit, snapshot and integration tests, on a control plane without nodes.
    Tests,
    /// Workflows on a whole cluster.
    Workflows,
}

/// Runs the parts that `only` names, all if it names none; `arguments` go to `cargo test`.
pub async fn test(only: &[Part], arguments: &[String], progress: &Progress) -> Result<ExitCode> {
    let mut counts = Counts::default();
    let outcome = parts(only, arguments, &mut counts, progress).await;
    if let Err(error) = &outcome {
        eprintln!("error: {error:#}");
    }
    println!("{counts}");
    Ok(if outcome.is_ok() && counts.all_passed() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn parts(
    only: &[Part],
    arguments: &[String],
    counts: &mut Counts,
    progress: &Progress,
) -> Result<()> {
    let wanted = |part| only.is_empty() || only.contains(&part);
    if wanted(Part::Lints) {
        interrupt::interruptible(lints(progress)).await?;
    }
    if wanted(Part::Tests) {
        interrupt::interruptible(tests(arguments, counts, progress)).await?;
    }
    if wanted(Part::Workflows) {
        workflows(counts, progress).await?;
    }
    Ok(())
}

async fn lints(progress: &Progress) -> Result<()> {
    let lints: [&[&str]; 2] = [
        &["fmt", "--all", "--check"],
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
    ];
    for arguments in lints {
        let name = format!("cargo {}", arguments.join(" "));
        progress.note(&name);
        let status = Group::spawn(exec::cargo()?.args(arguments).stdin(Stdio::null()))?
            .wait()
            .await?;
        ensure!(status.success(), "`{name}` failed");
    }
    Ok(())
}

async fn tests(arguments: &[String], counts: &mut Counts, progress: &Progress) -> Result<()> {
    for requirements in [prerequisites::BUILD, prerequisites::CONTROL_PLANE] {
        prerequisites::ensure(requirements, progress).await?;
    }
    let tools = Tools::ensure(&[Module::Kubernetes, Module::Helm], progress).await?;
    let step = progress.step("start control plane");
    let audit = tempfile::tempdir().context("cannot make a temporary directory")?;
    let audit_log = audit.path().join("audit.log");
    let options = control_plane::Options {
        audit_log: Some(audit_log.clone()),
        ..control_plane::Options::default()
    };
    let control_plane = ControlPlane::start(&tools, &options).await?;
    step.done();
    let mut cargo = exec::cargo()?;
    cargo.args(["test", "--workspace"]).args(arguments);
    cargo
        .env(control_plane::SHARED, control_plane.kubeconfig())
        .env(control_plane::SHARED_AUDIT_LOG, audit_log)
        .env("MZCOMPOSE_HELM", tools.helm()?);
    cargo.env("INSTA_UPDATE", "no");
    let outcome = counted(&mut cargo, counts).await;
    control_plane.stop().await?;
    outcome
}

/// Runs `cargo test`, repeats what it prints, and adds up its results.
async fn counted(cargo: &mut Command, counts: &mut Counts) -> Result<()> {
    let mut group = Group::spawn(cargo.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    let stdout = group.child().stdout.take().context("cargo has no stdout")?;
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines
        .next_line()
        .await
        .context("reading what `cargo test` prints")?
    {
        println!("{line}");
        counts.add_line(&line);
    }
    if !group.wait().await?.success() {
        bail!("`cargo test` failed");
    }
    Ok(())
}

async fn workflows(counts: &mut Counts, progress: &Progress) -> Result<()> {
    let instance = Name::Test.instance()?;
    if instance.dir().exists() {
        Cluster::down(&instance, progress)
            .await
            .context("removing what an earlier run left")?;
    }
    let target = Target {
        kubeconfig: None::<PathBuf>,
        instance: Name::Test,
    };
    let once = NonZeroU32::MIN;
    let report = target::with(&target, progress, async |ready| {
        Ok(run::repeated(ready, once, progress).await)
    })
    .await?;
    Cluster::down(&instance, progress).await?;
    for run in &report.runs {
        counts.add(run.counts());
    }
    ensure!(
        report.runs.iter().all(|run| run.passed),
        "workflow {} failed",
        report.workflow
    );
    Ok(())
}
