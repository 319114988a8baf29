//! A real Kubernetes cluster on this machine, as root, without a container engine: a control plane and two workers, each
//! in its own network namespace.

mod cgroup;
mod control_plane;
mod dns;
mod machine;
mod status;
mod teardown;
mod worker;
mod worker_config;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::{try_join, try_join_all};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::client::answered;
use crate::process::wait_until;
use crate::progress::Progress;
use crate::state::{Instance, Machine};
use crate::tools::{self, Tools};
use crate::{network, prerequisites, state};

pub use status::{ProcessStatus, Status, status};
pub use teardown::Removed;

use control_plane::ControlPlane;
use worker::Worker;

/// Another run may be at work on the same instance.
const LOCK_LIMIT: Duration = Duration::from_secs(30);
const NODES_READY_LIMIT: Duration = Duration::from_secs(120);

/// A running cluster.
pub struct Cluster {
    instance: Instance,
    control_plane: ControlPlane,
    workers: Vec<Worker>,
}

impl Cluster {
    /// Brings the instance up, doing only what is missing, and waits until its nodes are Ready.
    ///
    /// `system_images` are docker archives of `local.test/pause:1` and `local.test/coredns:1`. When an instance that did
    /// not exist before fails to start, nothing of it is left.
    pub async fn up(
        instance: &Instance,
        tools: &Tools,
        system_images: &[PathBuf],
        progress: &Progress,
    ) -> Result<Self> {
        prerequisites::ensure(prerequisites::CLUSTER, progress).await?;
        let _lock = lock(instance).await?;
        let fresh = !instance.dir().exists();
        if fresh {
            prerequisites::ensure_disk_space(instance.dir(), state::STATE)?;
        }
        network::ensure_subnet_free(instance).await?;
        let step = progress.step(format!("start cluster {}", instance.name()));
        match Self::bring_up(instance, tools, system_images).await {
            Ok(cluster) => {
                step.done();
                Ok(cluster)
            }
            Err(error) if fresh => {
                teardown::remove(instance)
                    .await
                    .context(format!("{error:#}; and then"))?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    async fn bring_up(
        instance: &Instance,
        tools: &Tools,
        system_images: &[PathBuf],
    ) -> Result<Self> {
        create_private_dir(instance.dir())?;
        let control_plane = ControlPlane::new(instance, tools)?;
        let workers = Machine::WORKERS
            .into_iter()
            .map(|machine| Worker::new(instance, machine, tools, control_plane.pki()))
            .collect::<Result<Vec<_>>>()?;
        for machine in network::ensure(instance).await? {
            // What still runs in a lost namespace can't be reached any more.
            machine::clear(instance, machine).await?;
        }
        let prepared = workers.iter().map(|worker| worker.prepare(system_images));
        try_join(control_plane.start(), try_join_all(prepared)).await?;
        let started = workers.iter().map(Worker::start);
        let client = control_plane.client().await?;
        try_join(
            try_join_all(started),
            dns::apply(instance, tools, &control_plane.kubeconfig()),
        )
        .await?;
        let cluster = Self {
            instance: instance.clone(),
            control_plane,
            workers,
        };
        cluster.wait_nodes(&client, NODES_READY_LIMIT).await?;
        Ok(cluster)
    }

    /// Loads docker archives into both workers, except those that are there already.
    pub async fn load_images(&self, archives: &[PathBuf]) -> Result<()> {
        try_join_all(
            self.workers
                .iter()
                .map(|worker| worker.load_images(archives)),
        )
        .await?;
        Ok(())
    }

    /// The administrator's kubeconfig, usable from the host.
    pub fn kubeconfig(&self) -> PathBuf {
        self.control_plane.kubeconfig()
    }

    /// The instance that this is.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Waits until both nodes are Ready and the cluster's DNS answers.
    pub async fn wait_ready(&self, limit: Duration) -> Result<()> {
        let client = self.control_plane.client().await?;
        self.wait_nodes(&client, limit).await?;
        let deployments = Api::<Deployment>::namespaced(client, "kube-system");
        wait_until("CoreDNS to be available", limit, &[], async || {
            let coredns = answered(deployments.get_opt("coredns")).await.flatten();
            Ok(coredns.is_some_and(|deployment| available(&deployment)))
        })
        .await
    }

    async fn wait_nodes(&self, client: &Client, limit: Duration) -> Result<()> {
        let nodes = Api::<Node>::all(client.clone());
        let workers: Vec<_> = self
            .workers
            .iter()
            .map(Worker::processes)
            .collect::<Result<_>>()?;
        let needs: Vec<_> = self
            .control_plane
            .processes()
            .into_iter()
            .chain(workers.iter().flatten())
            .collect();
        wait_until("both nodes to be Ready", limit, &needs, async || {
            let nodes = answered(nodes.list(&ListParams::default())).await;
            Ok(nodes.is_some_and(|nodes| {
                nodes.iter().filter(|node| ready(node)).count() == self.workers.len()
            }))
        })
        .await
    }

    /// Removes everything of an instance, also what a crash left.
    pub async fn down(instance: &Instance, progress: &Progress) -> Result<Removed> {
        prerequisites::ensure(&[prerequisites::Requirement::Root], progress).await?;
        let _lock = lock(instance).await?;
        let step = progress.step(format!("remove cluster {}", instance.name()));
        let removed = teardown::remove(instance).await?;
        step.done();
        Ok(removed)
    }
}

fn ready(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn available(deployment: &Deployment) -> bool {
    let status = deployment.status.as_ref();
    status
        .and_then(|status| status.available_replicas)
        .is_some_and(|available| available > 0)
}

/// The lock lies in the cache, as all of the state goes away with the instance.
async fn lock(instance: &Instance) -> Result<File> {
    let cache = state::cache()?;
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    tools::lock(&cache.join(format!("{}.lock", instance.name())), LOCK_LIMIT).await
}

fn create_private_dir(dir: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot create {}", dir.display()))
}
