//! `run`: workflows, their figures, and what there is to see when one fails.

use std::num::NonZeroU32;
use std::process::ExitCode;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use mzcompose::progress::Progress;

use crate::cli::Target;
use crate::kubernetes::{LEASE, leases, operator_logs};
use crate::output::say;
use crate::target::{self, Ready};
use crate::workflow::leader_failover;
use crate::workflow::report::{Report, Run};

/// Runs `leader-failover` `repeat` times in a row; the first failure ends it.
pub async fn leader_failover(
    target: &Target,
    repeat: NonZeroU32,
    json: bool,
    progress: &Progress,
) -> Result<ExitCode> {
    let report = target::with(target, progress, async |ready| {
        Ok(repeated(ready, repeat, progress).await)
    })
    .await?;
    if json {
        say(serde_json::to_string_pretty(&report).context("writing the report")?)?;
    }
    let passed = report.runs.iter().all(|run| run.passed);
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The runs of `leader-failover` on a cluster that is ready.
pub async fn repeated(ready: &Ready, repeat: NonZeroU32, progress: &Progress) -> Report {
    let mut report = Report {
        workflow: "leader-failover",
        runs: Vec::new(),
    };
    for number in 1..=repeat.get() {
        progress.note(&format!("leader-failover, run {number} of {repeat}"));
        let run = leader_failover::run(
            &ready.installation,
            &ready.archives.operator.digest,
            progress,
        )
        .await;
        let passed = run.passed;
        if !passed {
            progress.note(&explanation(&run, &ready.installation.client).await);
        }
        report.runs.push(run);
        if !passed {
            break;
        }
    }
    report
}

async fn explanation(run: &Run, client: &Client) -> String {
    let mut text = String::new();
    if let Some(failure) = &run.failure {
        text += &format!(
            "expected: {}\nfound:    {}\n\n",
            failure.expected, failure.found
        );
    }
    text += &operator_logs(client)
        .await
        .unwrap_or_else(|error| format!("no logs of the operator: {error:#}\n"));
    text + &format!(
        "\n--- lease {LEASE}\n{}",
        described(leases(client).get(LEASE).await)
    )
}

fn described(lease: Result<Lease, kube::Error>) -> String {
    match lease {
        Ok(lease) => serde_json::to_string_pretty(&lease.spec).unwrap_or_default(),
        Err(error) => format!("cannot be read: {error}"),
    }
}
