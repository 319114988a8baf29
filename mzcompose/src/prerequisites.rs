//! What the machine must have before anything starts.

use std::env;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::command;
use crate::progress::Progress;

const INSTALL_LIMIT: Duration = Duration::from_secs(15 * 60);
const GO_MINIMUM: (u32, u32) = (1, 26);
/// A cluster with its images takes about half of it.
const FREE_BYTES_MINIMUM: u64 = 2 << 30;

/// Something the machine must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// A program on the `PATH`, and the Debian package that holds it.
    Program(&'static str, &'static str),
    /// A C library known to pkg-config, and the Debian package that holds it.
    Library(&'static str, &'static str),
    /// Go of at least version 1.26; Debian's own may be older, so it is never installed.
    Go,
    /// The right to make network namespaces, mounts and cgroups.
    Root,
    /// A file system that the kernel knows.
    FileSystem(&'static str),
    /// Packet filtering by nf_tables in the kernel.
    NfTables,
}

use Requirement::{FileSystem, Go, Library, NfTables, Program, Root};

/// To build the tools.
pub const BUILD: &[Requirement] = &[
    Go,
    Program("gcc", "gcc"),
    Program("pkg-config", "pkg-config"),
    Library("libseccomp", "libseccomp-dev"),
];
/// To build images.
pub const IMAGES: &[Requirement] = &[Program("buildah", "buildah")];
/// To run the light control plane.
pub const CONTROL_PLANE: &[Requirement] = &[
    Program("setsid", "util-linux"),
    Program("setpriv", "util-linux"),
];
/// To run a cluster.
pub const CLUSTER: &[Requirement] = &[
    Root,
    Program("ip", "iproute2"),
    Program("nft", "nftables"),
    Program("setsid", "util-linux"),
    Program("nsenter", "util-linux"),
    Program("unshare", "util-linux"),
    Program("mount", "mount"),
    FileSystem("overlay"),
    NfTables,
];

/// Installs the Debian packages that are missing, if that can be done, and fails with all that still is.
pub async fn ensure(requirements: &[Requirement], progress: &Progress) -> Result<()> {
    let mut missing = missing(requirements).await;
    let packages = packages(&missing);
    if !packages.is_empty() && is_root() && on_path("apt-get") {
        let step = progress.step(format!("install {}", packages.join(" ")));
        install(&packages).await?;
        step.done();
        missing = self::missing(requirements).await;
    }
    if missing.is_empty() {
        Ok(())
    } else {
        bail!(explain(&missing))
    }
}

/// Fails unless the file system that holds (or will hold) `path` has 2 GiB free; `variable` moves `path` elsewhere.
pub fn ensure_disk_space(path: &Path, variable: &str) -> Result<()> {
    let existing = path
        .ancestors()
        .find(|ancestor| ancestor.exists())
        .unwrap_or(Path::new("/"));
    let stat = rustix::fs::statvfs(existing)
        .with_context(|| format!("cannot examine {}", existing.display()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    check_free(path, variable, free)
}

fn check_free(path: &Path, variable: &str, free: u64) -> Result<()> {
    if free < FREE_BYTES_MINIMUM {
        bail!(
            "only {} MiB of disk are free for {}, {} MiB are needed: free some, or point {variable} at another disk",
            free >> 20,
            path.display(),
            FREE_BYTES_MINIMUM >> 20
        );
    }
    Ok(())
}

/// Whether this process may do anything.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

async fn missing(requirements: &[Requirement]) -> Vec<Requirement> {
    let mut missing = vec![];
    for &requirement in requirements {
        // Whether packet filtering works can only be seen with nft, as root: their absence is named already.
        let moot = requirement == NfTables && (!is_root() || !on_path("nft"));
        if !moot && !requirement.met().await {
            missing.push(requirement);
        }
    }
    missing
}

impl Requirement {
    async fn met(self) -> bool {
        match self {
            Program(name, _) => on_path(name),
            Library(name, _) => command::short("pkg-config", &["--exists", name])
                .await
                .is_ok(),
            Go => command::short("go", &["env", "GOVERSION"])
                .await
                .is_ok_and(|version| go_suffices(&version)),
            Root => is_root(),
            FileSystem(name) => file_system(name) || (modprobe(name).await && file_system(name)),
            NfTables => command::short("nft", &["list", "tables"]).await.is_ok(),
        }
    }

    fn package(self) -> Option<&'static str> {
        match self {
            Program(_, package) | Library(_, package) => Some(package),
            Go | Root | FileSystem(_) | NfTables => None,
        }
    }
}

async fn modprobe(module: &str) -> bool {
    command::short("modprobe", &[module]).await.is_ok()
}

fn file_system(name: &str) -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known
        .lines()
        .any(|line| line.split_whitespace().last() == Some(name))
}

fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Whether `go env GOVERSION` names a version that can build the tools, as in `go1.26.8`.
fn go_suffices(version: &str) -> bool {
    let numbers = version.trim().trim_start_matches("go");
    let mut parts = numbers
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse::<u32>().ok());
    matches!((parts.next(), parts.next()), (Some(Some(major)), Some(Some(minor))) if (major, minor) >= GO_MINIMUM)
}

fn packages(missing: &[Requirement]) -> Vec<&'static str> {
    let mut packages: Vec<_> = missing
        .iter()
        .filter_map(|requirement| requirement.package())
        .collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

async fn install(packages: &[&str]) -> Result<()> {
    let apt = async |args: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.args(args).env("DEBIAN_FRONTEND", "noninteractive");
        command::run(&mut apt, INSTALL_LIMIT).await
    };
    let arguments = [&["install", "--yes", "--no-install-recommends"], packages].concat();
    if apt(&arguments).await.is_err() {
        // The package lists of a fresh machine are empty or old.
        apt(&["update"]).await?;
        apt(&arguments).await?;
    }
    Ok(())
}

fn explain(missing: &[Requirement]) -> String {
    let mut lines = vec!["this machine lacks what is needed:".to_owned()];
    for requirement in missing {
        lines.push(match requirement {
            Program(name, _) => format!("  the program {name}"),
            Library(name, _) => format!("  the C library {name}"),
            Go => "  Go 1.26 or later: https://go.dev/dl".into(),
            Root => "  root: run with sudo".into(),
            FileSystem(name) => format!("  the file system {name} in the kernel: modprobe {name}"),
            NfTables => "  packet filtering by nf_tables in the kernel: modprobe nf_tables".into(),
        });
    }
    let packages = packages(missing);
    if !packages.is_empty() {
        lines.push(format!(
            "install with: apt-get install {}",
            packages.join(" ")
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_versions_are_compared_by_number() {
        for enough in [
            "go1.26.8\n",
            "go1.26",
            "go1.100.1",
            "go2.0",
            "go1.27rc1",
            "go1.26-custom",
        ] {
            assert!(go_suffices(enough), "{enough}");
        }
        for short in ["go1.19.8", "go1.9", "", "devel", "go1"] {
            assert!(!go_suffices(short), "{short}");
        }
    }

    #[test]
    fn one_error_names_all_and_the_command() {
        let text = explain(&[
            Root,
            Go,
            Program("nft", "nftables"),
            Library("libseccomp", "libseccomp-dev"),
        ]);
        for part in [
            "sudo",
            "go.dev",
            "nft",
            "apt-get install libseccomp-dev nftables",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn programs_of_one_package_install_it_once() {
        assert_eq!(
            packages(&[
                Program("nsenter", "util-linux"),
                Program("unshare", "util-linux"),
                Root
            ]),
            ["util-linux"]
        );
    }

    #[test]
    fn a_full_disk_is_refused() {
        check_free(Path::new("/s"), "A_STATE", FREE_BYTES_MINIMUM).unwrap();
        let error = check_free(Path::new("/s"), "A_STATE", FREE_BYTES_MINIMUM - 1)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("only 2047 MiB") && error.contains("A_STATE"),
            "{error}"
        );
    }
}
