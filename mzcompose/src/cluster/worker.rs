//! A worker: a process that holds its namespaces, and inside them containerd, kubelet and kube-proxy.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use tokio::net::UnixStream;
use tokio::process::Command;

use super::cgroup;
use super::control_plane::component_kubeconfig;
use super::machine::{clear, in_netns, kube_proxy};
use super::worker_config::{CNI_DIR, CONTAINERD_FILE, KUBELET_FILE, WorkerConfig};
use crate::command;
use crate::components::flag;
use crate::pki::Pki;
use crate::process::{Identity, Process, hex, wait_until};
use crate::state::{Instance, Machine};
use crate::tools::Tools;

const START_LIMIT: Duration = Duration::from_secs(60);
const IMPORT_LIMIT: Duration = Duration::from_secs(300);
/// Directories of kubelet and CNI, on the host empty ones that the workers' own are mounted on.
pub(crate) const COVERED_DIRS: [&str; 2] = ["/var/lib/kubelet", "/var/lib/cni"];

/// Gives the worker a name, and directories of its own in place of those that kubelet and containerd can't be told to
/// leave alone; then holds all that until it is killed.
const HOLD_NAMESPACES: &str = "set -e
echo \"$1\" >/proc/sys/kernel/hostname
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/log
mount -t tmpfs -o mode=755 tmpfs /var/lib/cni
mount --bind \"$2\" /var/lib/kubelet
mount --make-shared /var/lib/kubelet
touch /run/ready
exec sleep infinity";

/// One worker and its processes.
pub(crate) struct Worker {
    instance: Instance,
    machine: Machine,
    dir: PathBuf,
    tools: Tools,
    config: WorkerConfig,
    namespaces: Process,
    kube_proxy: Process,
}

impl Worker {
    /// Writes the worker's configuration and plans its processes.
    pub fn new(instance: &Instance, machine: Machine, tools: &Tools, pki: &Pki) -> Result<Self> {
        let dir = instance.machine_dir(machine);
        for sub in ["containerd", CNI_DIR, "images", "kubelet", "log", "pods"] {
            let path = dir.join(sub);
            fs::create_dir_all(&path)
                .with_context(|| format!("cannot create {}", path.display()))?;
        }
        for path in COVERED_DIRS {
            fs::create_dir_all(path).with_context(|| format!("cannot create {path}"))?;
        }
        let config = WorkerConfig::new(instance, machine, tools, pki)?;
        config.write(&dir)?;
        let hold = [
            "unshare",
            "--mount",
            "--uts",
            "--propagation",
            "slave",
            "--",
            "sh",
            "-c",
            HOLD_NAMESPACES,
        ];
        let hold = hold.map(OsString::from).into_iter();
        let arguments = [
            "sh".into(),
            machine.name().into(),
            dir.join("kubelet").into(),
        ];
        Ok(Self {
            namespaces: in_netns(
                instance,
                machine,
                "namespaces",
                hold.chain(arguments).collect(),
            ),
            kube_proxy: kube_proxy(instance, machine, machine, tools)?,
            instance: instance.clone(),
            machine,
            dir,
            tools: tools.clone(),
            config,
        })
    }

    /// Starts containerd unless it runs, and loads the images that kubelet needs at once.
    pub async fn prepare(&self, system_images: &[PathBuf]) -> Result<()> {
        let cgroup = self.instance.machine_name(self.machine);
        if self.namespaces.running()?.is_none() {
            // Whatever still runs does so in namespaces that are lost; a new kubelet is held up by old cgroups.
            clear(&self.instance, self.machine).await?;
            cgroup::remove(&cgroup).await?;
        }
        cgroup::create(&cgroup)?;
        self.namespaces.ensure().await?;
        let ready = self.root()?.join("run/ready");
        let what = format!("the namespaces of {}", self.machine.name());
        wait_until(&what, START_LIMIT, &[&self.namespaces], async || {
            Ok(ready.exists())
        })
        .await?;

        let containerd = self.containerd()?;
        containerd.ensure().await?;
        let socket = self.socket()?;
        let what = format!("containerd of {}", self.machine.name());
        // The file alone may be what an earlier containerd left.
        let answers = async || Ok(UnixStream::connect(&socket).await.is_ok());
        wait_until(&what, START_LIMIT, &[&containerd], answers).await?;
        self.load_images(system_images).await
    }

    /// Starts kubelet and kube-proxy unless they run; the API server must be ready.
    pub async fn start(&self) -> Result<()> {
        self.kubelet()?.ensure().await?;
        self.kube_proxy.ensure().await?;
        Ok(())
    }

    /// Loads docker archives, except those that have been loaded before.
    pub async fn load_images(&self, archives: &[PathBuf]) -> Result<()> {
        for archive in archives {
            let record = self.dir.join("images").join(fingerprint(archive)?);
            if record.exists() {
                continue;
            }
            let mut ctr = Command::new(self.tools.node("ctr")?);
            ctr.arg("--address").arg(self.socket()?).args([
                "--namespace",
                "k8s.io",
                "images",
                "import",
            ]);
            command::run(ctr.arg(archive), IMPORT_LIMIT)
                .await
                .with_context(|| {
                    format!(
                        "cannot load {} into {}",
                        archive.display(),
                        self.machine.name()
                    )
                })?;
            fs::write(&record, "").with_context(|| format!("cannot write {}", record.display()))?;
        }
        Ok(())
    }

    /// All processes of a worker that has been prepared.
    pub fn processes(&self) -> Result<Vec<Process>> {
        Ok(vec![
            self.namespaces.clone(),
            self.containerd()?,
            self.kubelet()?,
            self.kube_proxy.clone(),
        ])
    }

    fn containerd(&self) -> Result<Process> {
        let config = self.dir.join(CONTAINERD_FILE);
        self.inside(
            "containerd",
            &format!("{}{}", self.config.containerd, self.config.cni),
            vec![
                self.tools.node("containerd")?.into(),
                "--config".into(),
                config.into(),
            ],
        )
    }

    fn kubelet(&self) -> Result<Process> {
        let labels = self
            .machine
            .node_labels()
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        let kubeconfig = component_kubeconfig(&self.instance, self.machine.name());
        let flags = [
            flag("config", self.dir.join(KUBELET_FILE).display()),
            flag("kubeconfig", kubeconfig.display()),
            flag("hostname-override", self.machine.name()),
            flag("node-ip", self.instance.address(self.machine)),
            flag("node-labels", labels.collect::<Vec<_>>().join(",")),
        ];
        let program = self.tools.kubernetes("kubelet")?.into_os_string();
        self.inside(
            "kubelet",
            &self.config.kubelet,
            std::iter::once(program)
                .chain(flags.map(OsString::from))
                .collect(),
        )
    }

    /// A process in all of the worker's namespaces; its command line changes with them, so it is restarted with them.
    fn inside(&self, name: &str, config: &str, argv: Vec<OsString>) -> Result<Process> {
        let target = flag("target", self.holder()?.pid);
        let enter = ["nsenter", &target, "--mount", "--uts", "--net", "--"].map(OsString::from);
        let path = env::var_os("PATH").unwrap_or_default();
        let dirs = std::iter::once(self.tools.node_dir()?).chain(env::split_paths(&path));
        let path = env::join_paths(dirs).context("a directory of the tools can't be in PATH")?;
        Ok(Process {
            instance: self.instance.dir().into(),
            name: format!("{}/{name}", self.machine.name()),
            argv: enter.into_iter().chain(argv).collect(),
            env: vec![("PATH".into(), path)],
            config: config.into(),
            dies_with_parent: false,
        })
    }

    fn holder(&self) -> Result<Identity> {
        let Some(identity) = self.namespaces.running()? else {
            bail!(
                "the namespaces of {} are gone: {}",
                self.machine.name(),
                self.namespaces.log_tail()
            );
        };
        Ok(identity)
    }

    /// The worker's file system, seen from the host.
    fn root(&self) -> Result<PathBuf> {
        Ok(PathBuf::from(format!("/proc/{}/root", self.holder()?.pid)))
    }

    fn socket(&self) -> Result<PathBuf> {
        Ok(self.root()?.join("run/containerd/containerd.sock"))
    }
}

/// Tells one content of a file from another without reading it: an archive that is written anew gets a new one.
fn fingerprint(archive: &Path) -> Result<String> {
    let seen = || -> std::io::Result<_> { Ok((archive.canonicalize()?, archive.metadata()?)) };
    let (path, metadata) =
        seen().with_context(|| format!("cannot read image {}", archive.display()))?;
    let mut digest = Sha256::new();
    digest.update(path.as_os_str().as_encoded_bytes());
    digest.update(metadata.len().to_le_bytes());
    digest.update(metadata.mtime().to_le_bytes());
    digest.update(metadata.mtime_nsec().to_le_bytes());
    digest.update(metadata.ino().to_le_bytes());
    Ok(hex(&digest.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_changes_with_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let archive = dir.path().join("a.tar");
        fs::write(&archive, "one").unwrap();
        let one = fingerprint(&archive).unwrap();
        assert_eq!(fingerprint(&archive).unwrap(), one);
        fs::write(&archive, "three").unwrap();
        assert_ne!(fingerprint(&archive).unwrap(), one);
        let error = fingerprint(&dir.path().join("b.tar")).unwrap_err();
        assert!(error.to_string().contains("b.tar"));
    }
}
