//! `down`: as if nothing had been there.

use std::path::Path;

use anyhow::Result;
use mzcompose::client::connect;
use mzcompose::cluster::Cluster;
use mzcompose::progress::Progress;
use mzcompose::tools::{Module, Tools};

use crate::cli::Target;
use crate::environment;
use crate::install::Installation;

/// Removes everything of a cluster, also what a crash left; from a foreign cluster only what `up` installed there.
pub async fn down(target: &Target, progress: &Progress) -> Result<()> {
    if let Some(kubeconfig) = &target.kubeconfig {
        return uninstall(kubeconfig, progress).await;
    }
    let removed = Cluster::down(&target.instance.instance()?, progress).await?;
    println!("{removed}");
    Ok(())
}

async fn uninstall(kubeconfig: &Path, progress: &Progress) -> Result<()> {
    let client = connect(kubeconfig).await?;
    let tools = Tools::ensure(&[Module::Helm], progress).await?;
    let installation = Installation::new(client.clone(), &tools.helm()?, kubeconfig);
    if environment::exists(&client).await? {
        let step = progress.step("remove environment");
        environment::delete(&client).await?;
        step.done();
    }
    let step = progress.step("uninstall chart");
    installation.uninstall().await?;
    installation.delete_certificate().await?;
    step.done();
    println!("The custom resource definitions and the operator's namespace are still there.");
    Ok(())
}
