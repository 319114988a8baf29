//! An end in good order on Ctrl-C and SIGTERM.

use anyhow::{Context, Result, bail};
use mzcompose::cluster::Cluster;
use mzcompose::progress::Progress;
use mzcompose::state::Instance;
use tokio::signal::unix::{SignalKind, signal};

/// Does `work` until its end or until a signal asks this program to end, which is an error.
pub async fn interruptible<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    tokio::select! {
        outcome = work => outcome,
        _ = interrupt.recv() => bail!("interrupted by SIGINT"),
        _ = terminate.recv() => bail!("interrupted by SIGTERM"),
    }
}

/// Does `work`, and when it fails or is interrupted removes the cluster, unless it was there before.
pub async fn or_nothing<T>(
    instance: &Instance,
    progress: &Progress,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let fresh = !instance.dir().exists();
    let outcome = interruptible(work).await;
    match &outcome {
        Err(error) if fresh && instance.dir().exists() => {
            let removed = Cluster::down(instance, progress).await;
            removed.with_context(|| {
                format!("after this failure the cluster could not be removed: {error:#}")
            })?;
        }
        _ => {}
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_ends_work_that_would_never_end() {
        let work = async {
            let this = rustix::process::getpid();
            rustix::process::kill_process(this, rustix::process::Signal::TERM)?;
            std::future::pending::<Result<()>>().await
        };
        let error = interruptible(work).await.unwrap_err();
        assert_eq!(error.to_string(), "interrupted by SIGTERM");
    }
}
