//! From nothing to a cluster that can take the operator: tools, images, nodes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mzcompose::client::connect;
use mzcompose::cluster::Cluster;
use mzcompose::prerequisites;
use mzcompose::progress::Progress;
use mzcompose::state::{self, Instance};
use mzcompose::tools::{Module, Tools};

use crate::cli::Target;
use crate::images::{self, Archives, Binaries};
use crate::install::Installation;
use crate::interrupt;

/// How long a started cluster may take until its DNS answers.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// A cluster that is ready for the operator.
pub struct Ready {
    /// The operator's release there.
    pub installation: Installation,
    /// The images that it takes.
    pub archives: Archives,
    /// How to reach it.
    pub kubeconfig: PathBuf,
    /// kubectl, where it was built.
    pub kubectl: Option<PathBuf>,
}

/// Makes the target ready and does `work` on it; a cluster that this made does not survive a failure of either.
pub async fn with<T>(
    target: &Target,
    progress: &Progress,
    work: impl AsyncFnOnce(&Ready) -> Result<T>,
) -> Result<T> {
    match &target.kubeconfig {
        Some(kubeconfig) => {
            interrupt::interruptible(async { work(&foreign(kubeconfig, progress).await?).await })
                .await
        }
        None => {
            let instance = target.instance.instance()?;
            let everything = async { work(&own(&instance, progress).await?).await };
            interrupt::or_nothing(&instance, progress, everything).await
        }
    }
}

async fn foreign(kubeconfig: &Path, progress: &Progress) -> Result<Ready> {
    let client = connect(kubeconfig).await?;
    let version = client.apiserver_version().await;
    version.with_context(|| format!("the cluster of {} does not answer", kubeconfig.display()))?;
    let step = progress.step("check prerequisites");
    prerequisites::ensure(prerequisites::BUILD, progress).await?;
    prerequisites::ensure(prerequisites::IMAGES, progress).await?;
    step.done();
    let (tools, binaries) = build(&[Module::Helm], progress).await?;
    let archives = build_images(&binaries, progress).await?;
    progress.note("The cluster's nodes must have these images, or get them before the pods start:");
    for archive in archives.paths() {
        progress.note(&format!("  {}", archive.display()));
    }
    let installation = Installation::new(client, &tools.helm()?, kubeconfig);
    Ok(Ready {
        installation,
        archives,
        kubeconfig: kubeconfig.to_path_buf(),
        kubectl: None,
    })
}

async fn own(instance: &Instance, progress: &Progress) -> Result<Ready> {
    let step = progress.step("check prerequisites");
    for requirements in [
        prerequisites::CLUSTER,
        prerequisites::BUILD,
        prerequisites::IMAGES,
    ] {
        prerequisites::ensure(requirements, progress).await?;
    }
    prerequisites::ensure_disk_space(instance.dir(), state::STATE)?;
    prerequisites::ensure_disk_space(&state::cache()?, state::CACHE)?;
    step.done();
    let (tools, binaries) = build(&Module::ALL, progress).await?;
    let archives = build_images(&binaries, progress).await?;
    let system = images::system(&binaries, &tools.coredns()?, &state::cache()?).await?;
    let cluster = Cluster::up(instance, &tools, &[system.path], progress).await?;
    let step = progress.step("load images");
    cluster.load_images(&archives.paths()).await?;
    cluster.wait_ready(READY_LIMIT).await?;
    step.done();
    let kubeconfig = cluster.kubeconfig();
    let installation = Installation::new(connect(&kubeconfig).await?, &tools.helm()?, &kubeconfig);
    Ok(Ready {
        installation,
        archives,
        kubeconfig,
        kubectl: Some(tools.kubectl()?),
    })
}

/// The tools beside the binaries: each has long stretches that keep one processor busy at most.
async fn build(modules: &[Module], progress: &Progress) -> Result<(Tools, Binaries)> {
    let binaries = async {
        let step = progress.step("build operator and stand-ins");
        let binaries = Binaries::compile(&["orchestratord", "stand-ins"]).await?;
        step.done();
        Ok(binaries)
    };
    tokio::try_join!(Tools::ensure(modules, progress), binaries)
}

async fn build_images(binaries: &Binaries, progress: &Progress) -> Result<Archives> {
    let step = progress.step("build images");
    let archives = images::workload(binaries, &state::cache()?).await?;
    ensure!(
        archives.paths().iter().all(|path| path.exists()),
        "an image archive has vanished from the cache"
    );
    step.done();
    Ok(archives)
}
