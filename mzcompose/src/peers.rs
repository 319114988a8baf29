//! Other leader elections to compare with: built from `test/peers` when a benchmark needs them, kept by the hash of
//! their sources.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::process::Command;

use crate::command;
use crate::process::hex;
use crate::progress::Progress;
use crate::state;
use crate::tools::{lock, repository};

/// The largest takes four minutes on two idle cores.
const BUILD_LIMIT: Duration = Duration::from_secs(45 * 60);
/// Another run may be building all peers.
const LOCK_LIMIT: Duration = Duration::from_secs(60 * 60);

/// A program that campaigns for a Lease with a library that others use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// `k8s.io/client-go`
    ClientGo,
    /// `sigs.k8s.io/controller-runtime`
    ControllerRuntime,
    /// `k8s-controller`, Materialize's own
    K8sController,
    /// `kube-leader-election`
    KubeLeaderElection,
    /// `kube-lease-manager`
    KubeLeaseManager,
    /// `kubert`, linkerd's
    Kubert,
}

impl Peer {
    /// Its name, which is also its library's and its program's.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClientGo => "client-go",
            Self::ControllerRuntime => "controller-runtime",
            Self::K8sController => "k8s-controller",
            Self::KubeLeaderElection => "kube-leader-election",
            Self::KubeLeaseManager => "kube-lease-manager",
            Self::Kubert => "kubert",
        }
    }

    /// The path that go.mod knows it by, if it is written in Go.
    fn go_module(self) -> Option<&'static str> {
        match self {
            Self::ClientGo => Some("k8s.io/client-go"),
            Self::ControllerRuntime => Some("sigs.k8s.io/controller-runtime"),
            _ => None,
        }
    }

    fn language(self) -> &'static str {
        if self.go_module().is_some() {
            "go"
        } else {
            "rust"
        }
    }
}

/// Where the peers' sources and programs are.
#[derive(Debug)]
pub struct Peers {
    cache: PathBuf,
    source: PathBuf,
    /// What cargo builds between two programs; they share most of it.
    target: TempDir,
}

impl Peers {
    /// Finds the sources.
    pub fn open() -> Result<Self> {
        let cache = state::cache()?.join("peers");
        fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
        let target = tempfile::Builder::new()
            .prefix("target-")
            .tempdir_in(&cache)
            .context("cannot make a directory in the cache")?;
        Ok(Self {
            cache,
            source: repository()?.join("test/peers"),
            target,
        })
    }

    /// The version of its library that a peer is pinned to.
    pub fn version(&self, peer: Peer) -> Result<String> {
        let (file, find): (_, fn(&str, Peer) -> Option<String>) = match peer.go_module() {
            Some(_) => ("go/go.mod", required_version),
            None => ("rust/Cargo.lock", locked_version),
        };
        let path = self.source.join(file);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        find(&text, peer).with_context(|| format!("{} pins no {}", path.display(), peer.name()))
    }

    /// The program of a peer, built unless the cache has it.
    pub async fn ensure(&self, peer: Peer, progress: &Progress) -> Result<PathBuf> {
        let source = self.source.join(peer.language());
        let program = self
            .cache
            .join(format!("{}-{:.16}", peer.name(), digest(&source)?));
        if program.is_file() {
            return Ok(program);
        }
        let step = progress.step(format!("build {}", peer.name()));
        step.at("waiting for another run that builds peers");
        let _lock = lock(&self.cache.join("lock"), LOCK_LIMIT).await?;
        if program.is_file() {
            step.done_with("by another run");
            return Ok(program);
        }
        step.at("compiling");
        let built = self.build(peer, &source).await?;
        fs::rename(&built, &program)
            .with_context(|| format!("cannot create {}", program.display()))?;
        step.done();
        Ok(program)
    }

    async fn build(&self, peer: Peer, source: &Path) -> Result<PathBuf> {
        let (mut build, built) = match peer.go_module() {
            Some(_) => self.go_build(peer),
            None => self.cargo_build(peer),
        };
        command::run(build.current_dir(source), BUILD_LIMIT).await?;
        if !built.is_file() {
            bail!("the build of {} made no {}", peer.name(), built.display());
        }
        Ok(built)
    }

    fn go_build(&self, peer: Peer) -> (Command, PathBuf) {
        let built = self.target.path().join(peer.name());
        let mut go = Command::new("go");
        go.args(["build", "-mod=readonly", "-ldflags", "-s -w", "-o"])
            .arg(&built)
            .arg(format!("./{}", peer.name()))
            .env("CGO_ENABLED", "0")
            .env("GOWORK", "off")
            .env_remove("GOFLAGS");
        (go, built)
    }

    fn cargo_build(&self, peer: Peer) -> (Command, PathBuf) {
        let package = format!("peer-{}", peer.name());
        let built = self.target.path().join("release").join(&package);
        let mut cargo =
            Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
        cargo
            .args(["build", "--release", "--locked", "--package", &package])
            .arg("--target-dir")
            .arg(self.target.path())
            .env_remove("CARGO_BUILD_TARGET")
            .env_remove("RUSTFLAGS");
        (cargo, built)
    }
}

/// Digest of all files below a directory, their names included.
fn digest(dir: &Path) -> Result<String> {
    let mut files = vec![];
    list(dir, &mut files)?;
    files.sort();
    let mut digest = Sha256::new();
    for file in files {
        let content = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.strip_prefix(dir).unwrap_or(&file).as_os_str();
        for part in [name.as_encoded_bytes(), &content] {
            digest.update(part.len().to_le_bytes());
            digest.update(part);
        }
    }
    Ok(hex(&digest.finalize()))
}

fn list(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let unreadable = || format!("cannot read {}", dir.display());
    for entry in fs::read_dir(dir).with_context(unreadable)? {
        let entry = entry.with_context(unreadable)?;
        if !entry.file_type().with_context(unreadable)?.is_dir() {
            files.push(entry.path());
        } else if entry.file_name() != "target" {
            list(&entry.path(), files)?;
        }
    }
    Ok(())
}

/// The version that a go.mod requires of a peer's module.
fn required_version(go_mod: &str, peer: Peer) -> Option<String> {
    let module = peer.go_module()?;
    let mut lines = go_mod.lines().map(str::split_whitespace);
    lines.find_map(|mut words| {
        let found = words.by_ref().find(|word| *word != "require")? == module;
        let version = words.next().filter(|_| found)?;
        Some(version.trim_start_matches('v').to_owned())
    })
}

/// The version that a Cargo.lock holds a peer's crate to.
fn locked_version(lock: &str, peer: Peer) -> Option<String> {
    let name = format!("name = \"{}\"", peer.name());
    let mut lines = lock.lines().skip_while(|line| *line != name).skip(1);
    let version = lines.next()?.strip_prefix("version = \"")?;
    Some(version.trim_end_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_is_pinned() {
        let source = repository().unwrap().join("test/peers");
        let go_mod = fs::read_to_string(source.join("go/go.mod")).unwrap();
        let lock = fs::read_to_string(source.join("rust/Cargo.lock")).unwrap();
        for peer in [Peer::ClientGo, Peer::ControllerRuntime] {
            let version = required_version(&go_mod, peer).unwrap();
            assert!(version.starts_with("0."), "{version}");
        }
        for peer in [
            Peer::K8sController,
            Peer::KubeLeaderElection,
            Peer::KubeLeaseManager,
            Peer::Kubert,
        ] {
            let version = locked_version(&lock, peer).unwrap();
            assert!(version.starts_with("0."), "{version}");
        }
    }

    #[test]
    fn a_version_is_not_taken_from_a_module_of_a_similar_name() {
        let go_mod =
            "require k8s.io/client-go-helpers v1.0.0\nrequire (\n\tk8s.io/client-go v0.36.3\n)\n";
        let version = required_version(go_mod, Peer::ClientGo);
        assert_eq!(version.as_deref(), Some("0.36.3"));
        assert_eq!(required_version(go_mod, Peer::ControllerRuntime), None);
        let lock = "name = \"peer-kubert\"\nversion = \"0.0.0\"\n\nname = \"kubert\"\nversion = \"0.25.0\"\n";
        assert_eq!(
            locked_version(lock, Peer::Kubert).as_deref(),
            Some("0.25.0")
        );
    }

    #[test]
    fn the_digest_changes_with_content_and_name_but_not_with_build_output() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("src")).unwrap();
        let file = dir.path().join("src/main.rs");
        fs::write(&file, "fn main() {}").unwrap();
        let first = digest(dir.path()).unwrap();
        fs::create_dir(dir.path().join("target")).unwrap();
        fs::write(dir.path().join("target/main"), "binary").unwrap();
        assert_eq!(digest(dir.path()).unwrap(), first);
        fs::rename(&file, dir.path().join("src/lib.rs")).unwrap();
        let renamed = digest(dir.path()).unwrap();
        assert_ne!(renamed, first);
        fs::write(dir.path().join("src/lib.rs"), "fn main() { }").unwrap();
        assert_ne!(digest(dir.path()).unwrap(), renamed);
    }
}
