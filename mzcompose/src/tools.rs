//! The Go programs that make up a cluster: built once from the modules in `test/tools`, kept by the hash of what pins them.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use tokio::process::Command;

use crate::command;
use crate::process::{hex, wait_until};
use crate::progress::Progress;
use crate::state;

/// The largest module takes six minutes on two idle cores.
const BUILD_LIMIT: Duration = Duration::from_secs(45 * 60);
/// Another run may be building all modules.
const LOCK_LIMIT: Duration = Duration::from_secs(60 * 60);

/// A Go module under `test/tools` that pins some programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// etcd, the control plane, kubelet, kube-proxy and kubectl.
    Kubernetes,
    /// containerd, runc and the CNI plugins.
    Node,
    /// The cluster's DNS server, static, for an image.
    CoreDns,
    /// The chart installer.
    Helm,
}

impl Module {
    /// Every module.
    pub const ALL: [Self; 4] = [Self::Kubernetes, Self::Node, Self::CoreDns, Self::Helm];

    fn name(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::Node => "node",
            Self::CoreDns => "coredns",
            Self::Helm => "helm",
        }
    }

    /// Every program of the module, as `go build` names it.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Kubernetes => &[
                "kube-apiserver",
                "kube-controller-manager",
                "kube-proxy",
                "kube-scheduler",
                "kubectl",
                "kubelet",
                "server",
            ],
            Self::Node => &[
                "bridge",
                "containerd",
                "containerd-shim-runc-v2",
                "ctr",
                "host-local",
                "loopback",
                "portmap",
                "runc",
            ],
            Self::CoreDns => &["coredns"],
            Self::Helm => &["helm"],
        }
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Kubernetes => &[
                "-ldflags",
                "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3",
            ],
            Self::Node => &[
                "-ldflags",
                "-s -w",
                "-tags",
                "seccomp no_btrfs no_devmapper no_zfs",
            ],
            Self::CoreDns | Self::Helm => &["-ldflags", "-s -w"],
        }
    }

    /// runc needs libseccomp through cgo; CoreDNS must be static for its image.
    fn cgo(self) -> &'static str {
        match self {
            Self::Kubernetes | Self::Node => "1",
            Self::CoreDns | Self::Helm => "0",
        }
    }

    /// The directory's name in the cache: it changes with all that decides about the programs.
    fn key(self, go_mod: &[u8], go_sum: &[u8]) -> String {
        let mut digest = Sha256::new();
        for part in [go_mod, go_sum, self.cgo().as_bytes()] {
            digest.update(part.len().to_le_bytes());
            digest.update(part);
        }
        for flag in self.flags() {
            digest.update(flag.len().to_le_bytes());
            digest.update(flag);
        }
        let hash = hex(&digest.finalize());
        format!("{}-{hash:.16}", self.name())
    }
}

/// Where the built programs are.
#[derive(Clone, Debug)]
pub struct Tools {
    cache: PathBuf,
    source: PathBuf,
}

impl Tools {
    /// Builds those of the modules that the cache lacks.
    pub async fn ensure(modules: &[Module], progress: &Progress) -> Result<Self> {
        let tools = Self::at(state::cache()?)?;
        for &module in modules {
            tools.build(module, progress).await?;
        }
        Ok(tools)
    }

    /// Finds modules in the cache; fails when one has not been built.
    pub fn locate(modules: &[Module]) -> Result<Self> {
        let tools = Self::at(state::cache()?)?;
        for &module in modules {
            let dir = tools.dir(module)?;
            if !dir.is_dir() {
                bail!(
                    "{} is not built: run `cargo mzcompose test` or `cargo mzcompose up`",
                    dir.display()
                );
            }
        }
        Ok(tools)
    }

    fn at(cache: PathBuf) -> Result<Self> {
        Ok(Self {
            cache: cache.join("tools"),
            source: repository()?.join("test/tools"),
        })
    }

    /// Path of a program of the Kubernetes module, like `kube-apiserver`.
    pub fn kubernetes(&self, program: &str) -> Result<PathBuf> {
        self.program(Module::Kubernetes, program)
    }

    /// etcd's server.
    pub fn etcd(&self) -> Result<PathBuf> {
        self.program(Module::Kubernetes, "server")
    }

    /// The Kubernetes client.
    pub fn kubectl(&self) -> Result<PathBuf> {
        self.program(Module::Kubernetes, "kubectl")
    }

    /// Path of a program of the node module, like `runc`.
    pub fn node(&self, program: &str) -> Result<PathBuf> {
        self.program(Module::Node, program)
    }

    /// Directory of the node module's programs.
    pub fn node_dir(&self) -> Result<PathBuf> {
        self.dir(Module::Node)
    }

    /// The DNS server.
    pub fn coredns(&self) -> Result<PathBuf> {
        self.program(Module::CoreDns, "coredns")
    }

    /// The chart installer.
    pub fn helm(&self) -> Result<PathBuf> {
        self.program(Module::Helm, "helm")
    }

    fn program(&self, module: Module, program: &str) -> Result<PathBuf> {
        let path = self.dir(module)?.join(program);
        if !path.is_file() {
            bail!(
                "{} is missing: run `cargo mzcompose up` to build it",
                path.display()
            );
        }
        Ok(path)
    }

    fn dir(&self, module: Module) -> Result<PathBuf> {
        let source = self.source.join(module.name());
        let read = |file: &str| {
            let path = source.join(file);
            fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        Ok(self
            .cache
            .join(module.key(&read("go.mod")?, &read("go.sum")?)))
    }

    async fn build(&self, module: Module, progress: &Progress) -> Result<()> {
        let dir = self.dir(module)?;
        if dir.is_dir() {
            return Ok(());
        }
        let step = progress.step(format!("build {} tools", module.name()));
        fs::create_dir_all(&self.cache)
            .with_context(|| format!("cannot create {}", self.cache.display()))?;
        step.at("waiting for another run that builds them");
        let _lock = lock(
            &self.cache.join(format!("{}.lock", module.name())),
            LOCK_LIMIT,
        )
        .await?;
        if dir.is_dir() {
            step.done_with("by another run");
            return Ok(());
        }
        step.at("go build");
        let partial = tempfile::Builder::new()
            .prefix(&format!("{}.partial-", module.name()))
            .tempdir_in(&self.cache)
            .context("cannot make a directory in the cache")?;
        self.go_build(module, partial.path()).await?;
        for program in module.programs() {
            if !partial.path().join(program).is_file() {
                bail!("go build of test/tools/{} made no {program}", module.name());
            }
        }
        fs::rename(partial.keep(), &dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        step.done();
        Ok(())
    }

    async fn go_build(&self, module: Module, into: &Path) -> Result<()> {
        let mut out = into.as_os_str().to_owned();
        out.push("/");
        let args = [OsStr::new("build"), OsStr::new("-o"), &out];
        let mut go = Command::new("go");
        go.args(args)
            .args(module.flags())
            .arg("tool")
            .current_dir(self.source.join(module.name()))
            .env("CGO_ENABLED", module.cgo())
            .env("GOWORK", "off")
            .env_remove("GOFLAGS");
        command::run(&mut go, BUILD_LIMIT).await?;
        Ok(())
    }
}

/// Takes a lock that ends with the returned file or with this process.
pub(crate) async fn lock(path: &Path, limit: Duration) -> Result<File> {
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let what = format!("another run that holds {}", path.display());
    wait_until(&what, limit, &[], async || match file.try_lock() {
        Ok(()) => Ok(true),
        Err(fs::TryLockError::WouldBlock) => Ok(false),
        Err(fs::TryLockError::Error(error)) => Err(error).context("cannot lock a file"),
    })
    .await?;
    Ok(file)
}

/// The repository: where this crate was compiled, or else a directory above the current one.
pub fn repository() -> Result<PathBuf> {
    let compiled = Path::new(env!("CARGO_MANIFEST_DIR"));
    let current = env::current_dir().context("no current directory")?;
    let candidates = compiled
        .ancestors()
        .skip(1)
        .take(1)
        .chain(current.ancestors());
    for candidate in candidates {
        if candidate.join("test/tools/kubernetes/go.mod").is_file() {
            return Ok(candidate.into());
        }
    }
    bail!(
        "no repository at or above {}: run inside the repository",
        current.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_changes_with_each_input() {
        let key = Module::Node.key(b"module a", b"sum");
        assert!(
            key.starts_with("node-") && key.len() == "node-".len() + 16,
            "{key}"
        );
        assert_eq!(key, Module::Node.key(b"module a", b"sum"));
        assert_ne!(key, Module::Node.key(b"module b", b"sum"));
        assert_ne!(key, Module::Node.key(b"module a", b"mus"));
        assert_ne!(key, Module::Node.key(b"module as", b"um"));
        let same_inputs = Module::ALL.map(|module| module.key(b"m", b"s"));
        let flags_only: Vec<_> = same_inputs
            .iter()
            .filter_map(|key| key.split('-').nth(1))
            .collect();
        assert_ne!(flags_only[0], flags_only[1]);
        assert_ne!(flags_only[1], flags_only[2]);
    }

    #[test]
    fn every_program_is_a_tool_of_its_module() {
        for module in Module::ALL {
            let path = repository()
                .unwrap()
                .join("test/tools")
                .join(module.name())
                .join("go.mod");
            let go_mod = fs::read_to_string(path).unwrap();
            let tools = go_mod.split("require").next().unwrap();
            for program in module.programs() {
                let package = if *program == "server" {
                    "etcd/server/v3"
                } else {
                    program
                };
                assert!(
                    tools
                        .lines()
                        .any(|line| line.ends_with(&format!("/{package}"))),
                    "{program}"
                );
            }
        }
    }

    #[tokio::test]
    async fn a_held_lock_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = lock(&path, Duration::ZERO).await.unwrap();
        let error = lock(&path, Duration::from_millis(50)).await.unwrap_err();
        assert!(error.to_string().contains("another run"), "{error}");
        drop(held);
        lock(&path, Duration::ZERO).await.unwrap();
    }
}
