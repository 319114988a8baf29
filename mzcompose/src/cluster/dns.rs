//! CoreDNS, by the manifest in `test/fixtures`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::process::Command;

use crate::command;
use crate::state::Instance;
use crate::tools::{Tools, repository};

const APPLY_LIMIT: Duration = Duration::from_secs(60);

/// Applies the manifest, unless this very one has been applied before.
pub(crate) async fn apply(instance: &Instance, tools: &Tools, kubeconfig: &Path) -> Result<()> {
    let manifest = repository()?.join("test/fixtures/coredns.yaml");
    let wanted =
        fs::read(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    let record = instance.dir().join("coredns.applied.yaml");
    if fs::read(&record).is_ok_and(|applied| applied == wanted) {
        return Ok(());
    }
    let mut kubectl = Command::new(tools.kubectl()?);
    kubectl.arg("--kubeconfig").arg(kubeconfig).args([
        "--request-timeout=20s",
        "apply",
        "--server-side",
    ]);
    kubectl
        .arg("--force-conflicts")
        .arg("--filename")
        .arg(&manifest);
    command::run(&mut kubectl, APPLY_LIMIT).await?;
    fs::write(&record, wanted).with_context(|| format!("cannot write {}", record.display()))
}
