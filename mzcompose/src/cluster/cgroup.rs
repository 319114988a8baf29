//! The cgroups that hold a worker's pods, in every hierarchy of version 1 or in the one of version 2.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::{Identity, wait_until};

const ROOT: &str = "/sys/fs/cgroup";
/// A cgroup can be removed shortly after the last process in it died.
const EMPTY_LIMIT: Duration = Duration::from_secs(20);

/// Makes a worker's cgroup in every hierarchy.
pub(crate) fn create(name: &str) -> Result<()> {
    for hierarchy in hierarchies(Path::new(ROOT))? {
        let dir = hierarchy.join(name);
        fs::create_dir_all(&dir)
            .with_context(|| format!("cannot create cgroup {}", dir.display()))?;
        // In version 1 a cpuset takes no process until both are set.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if hierarchy.join("cgroup.controllers").exists() || !hierarchy.join(file).exists() {
                continue;
            }
            let value =
                fs::read(hierarchy.join(file)).with_context(|| format!("cannot read {file}"))?;
            fs::write(dir.join(file), value)
                .with_context(|| format!("cannot write {file} of {}", dir.display()))?;
        }
    }
    Ok(())
}

/// The hierarchies to use: the root itself in version 2; in version 1 each directory, but once where names are links.
fn hierarchies(root: &Path) -> Result<Vec<PathBuf>> {
    if root.join("cgroup.controllers").exists() {
        return Ok(vec![root.into()]);
    }
    let entries = fs::read_dir(root).with_context(|| format!("cannot list {}", root.display()))?;
    let mut found = vec![];
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", root.display()))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && entry.path().join("cgroup.procs").exists()
        {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Kills every process in a worker's cgroups until none is left; returns how many there were.
pub(crate) async fn kill(name: &str) -> Result<usize> {
    let mut killed: Vec<Identity> = vec![];
    wait_until(
        &format!("the processes in cgroup {name} to end"),
        EMPTY_LIMIT,
        &[],
        async || {
            let living = processes(name)?;
            for identity in &living {
                identity.kill()?;
            }
            killed.extend(
                living
                    .iter()
                    .filter(|identity| !killed.contains(identity))
                    .collect::<Vec<_>>(),
            );
            Ok(living.is_empty())
        },
    )
    .await?;
    Ok(killed.len())
}

/// Removes a worker's cgroups; returns whether there were any.
pub(crate) async fn remove(name: &str) -> Result<bool> {
    let mut found = false;
    for hierarchy in hierarchies(Path::new(ROOT))? {
        let top = hierarchy.join(name);
        found |= top.exists();
        let what = format!("cgroup {} to be empty", top.display());
        wait_until(&what, EMPTY_LIMIT, &[], async || {
            // The kernel refuses while it still takes the last process apart.
            Ok(descendants(&top)
                .iter()
                .rev()
                .all(|dir| gone(fs::remove_dir(dir))))
        })
        .await?;
    }
    Ok(found)
}

fn gone(removal: std::io::Result<()>) -> bool {
    removal.map_or_else(|error| error.kind() == ErrorKind::NotFound, |()| true)
}

fn processes(name: &str) -> Result<Vec<Identity>> {
    let mut found: Vec<Identity> = vec![];
    for hierarchy in hierarchies(Path::new(ROOT))? {
        for dir in descendants(&hierarchy.join(name)) {
            let pids = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            found.extend(
                pids.lines()
                    .filter_map(|pid| Identity::of(pid.parse().ok()?)),
            );
        }
    }
    found.sort_unstable_by_key(|identity| identity.pid);
    found.dedup();
    Ok(found)
}

/// A directory and all below it, parents first; none if it is not there.
fn descendants(top: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(top) else {
        return vec![];
    };
    let below = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let below = below.flat_map(|entry| descendants(&entry.path()));
    std::iter::once(top.to_owned()).chain(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let dir = tempfile::tempdir().unwrap();
        for controller in ["cpu", "memory"] {
            fs::create_dir(dir.path().join(controller)).unwrap();
            fs::write(dir.path().join(controller).join("cgroup.procs"), "").unwrap();
        }
        fs::create_dir(dir.path().join("unrelated")).unwrap();
        std::os::unix::fs::symlink("cpu", dir.path().join("cpu,cpuacct")).unwrap();
        let mut found = hierarchies(dir.path()).unwrap();
        found.sort();
        assert_eq!(found, [dir.path().join("cpu"), dir.path().join("memory")]);

        fs::write(dir.path().join("cgroup.controllers"), "cpu memory").unwrap();
        assert_eq!(hierarchies(dir.path()).unwrap(), [dir.path()]);
    }

    #[test]
    fn parents_come_before_what_they_hold() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        fs::create_dir_all(top.join("a/b")).unwrap();
        assert_eq!(
            descendants(&top),
            [top.clone(), top.join("a"), top.join("a/b")]
        );
        assert_eq!(
            descendants(&dir.path().join("missing")),
            Vec::<PathBuf>::new()
        );
    }
}
