//! Takes an instance down, whatever state it is in.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::machine::clear;
use super::{cgroup, worker};
use crate::command::short;
use crate::network;
use crate::process::marked;
use crate::state::{Instance, Machine};

/// A process that was being started while the others were killed shows up in the next round.
const ROUNDS: u32 = 10;

/// What was there and is no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Number of processes, those of containers included.
    pub processes: usize,
    /// Number of mounts.
    pub mounts: usize,
    /// Network namespaces and the bridge.
    pub networks: Vec<String>,
    /// Cgroups of workers.
    pub cgroups: Vec<String>,
    /// The state directory.
    pub state: Option<PathBuf>,
}

impl Removed {
    /// Whether there was nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("there is nothing to remove");
        }
        write!(
            f,
            "removed {} processes, {} mounts",
            self.processes, self.mounts
        )?;
        for name in &self.networks {
            write!(f, ", network {name}")?;
        }
        for name in &self.cgroups {
            write!(f, ", cgroup {name}")?;
        }
        self.state
            .iter()
            .try_for_each(|dir| write!(f, ", {}", dir.display()))
    }
}

/// Removes everything of the instance.
pub(crate) async fn remove(instance: &Instance) -> Result<Removed> {
    let mut removed = Removed {
        processes: end_processes(instance).await?,
        ..Removed::default()
    };
    removed.mounts = unmount_below(instance.dir()).await?;
    removed.networks = network::remove(instance).await?;
    for machine in Machine::WORKERS {
        let name = instance.machine_name(machine);
        if cgroup::remove(&name).await? {
            removed.cgroups.push(name);
        }
    }
    match fs::remove_dir_all(instance.dir()) {
        Ok(()) => removed.state = Some(instance.dir().into()),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            return Err(error)
                .with_context(|| format!("cannot remove {}", instance.dir().display()));
        }
    }
    remove_shared(instance);
    Ok(removed)
}

async fn end_processes(instance: &Instance) -> Result<usize> {
    let mut ended = 0;
    for _ in 0..ROUNDS {
        let mut round = 0;
        for machine in Machine::ALL {
            round += clear(instance, machine).await?;
        }
        ended += round;
        if round == 0 {
            return Ok(ended);
        }
    }
    let left = marked(instance.dir())?;
    let names: Vec<_> = left.iter().map(|marked| marked.process.as_str()).collect();
    bail!(
        "processes of {} keep coming back: {}",
        instance.name(),
        names.join(" ")
    )
}

/// Workers' mounts go with their namespace, so this only finds what came to be on the host by mistake.
async fn unmount_below(dir: &Path) -> Result<usize> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("cannot read the mounts")?;
    let below = mount_points(&table)
        .into_iter()
        .filter(|point| point.starts_with(dir));
    let points: Vec<_> = below.collect();
    for point in points.iter().rev() {
        short("umount", &["--lazy", "--", &point.to_string_lossy()]).await?;
    }
    Ok(points.len())
}

/// Field 5 of each line of `/proc/self/mountinfo` (proc(5)), in the order of mounting.
fn mount_points(table: &str) -> Vec<PathBuf> {
    table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescape)
        .collect()
}

/// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescape(field: &str) -> PathBuf {
    let mut parts = field.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..3).unwrap_or_default();
        bytes.extend(u8::from_str_radix(digits, 8));
        bytes.extend(part.bytes().skip(3));
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// Removes what instances share, once it is empty and no other instance is there to use it.
fn remove_shared(instance: &Instance) {
    if let Some(root) = instance.dir().parent()
        // Fails while another instance is there, as it should.
        && fs::remove_dir(root).is_ok()
    {
        for dir in worker::COVERED_DIRS {
            // Fails if something else put its data there, as it should.
            let _ = fs::remove_dir(dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_as_they_are() {
        let table = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
                     40 22 0:35 / /state/a\\040b/x rw shared:1 - tmpfs tmpfs rw\n\
                     41 22 0:36 / /state/back\\134slash rw - tmpfs tmpfs rw\n";
        let expected = ["/", "/state/a b/x", "/state/back\\slash"].map(PathBuf::from);
        assert_eq!(mount_points(table), expected);
    }

    #[test]
    fn nothing_is_told_from_something() {
        assert_eq!(Removed::default().to_string(), "there is nothing to remove");
        let removed = Removed {
            processes: 2,
            networks: vec!["mzbr0".into()],
            ..Removed::default()
        };
        assert_eq!(
            removed.to_string(),
            "removed 2 processes, 0 mounts, network mzbr0"
        );
    }
}
