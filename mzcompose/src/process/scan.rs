//! Finds an instance's processes by the marks in their environment.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::Identity;

/// Environment variable that holds the state directory of a process's instance.
pub const INSTANCE_MARK: &str = "MZCOMPOSE_INSTANCE";
/// Environment variable that holds a process's machine and name.
pub const PROCESS_MARK: &str = "MZCOMPOSE_PROCESS";

/// A process that carries an instance's mark; containerd's shims inherit containerd's.
#[derive(Clone, Debug)]
pub struct Marked {
    /// Who it is.
    pub identity: Identity,
    /// Its machine and name, like `w1/kubelet`.
    pub process: String,
}

/// All processes of an instance, by a look at every process of the machine that may be looked at.
pub fn marked(instance: &Path) -> Result<Vec<Marked>> {
    let entries = fs::read_dir("/proc").context("cannot list /proc")?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let others = pids.filter(|&pid| pid != std::process::id());
    Ok(others
        .filter_map(|pid| marked_process(instance, pid))
        .collect())
}

fn marked_process(instance: &Path, pid: u32) -> Option<Marked> {
    let identity = Identity::of(pid)?;
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    (variable(&environ, INSTANCE_MARK)? == instance.as_os_str()).then(|| Marked {
        identity,
        process: variable(&environ, PROCESS_MARK)
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
    })
}

fn variable<'a>(environ: &'a [u8], name: &str) -> Option<&'a OsStr> {
    let of_name = |entry: &'a [u8]| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=");
    environ
        .split(|&byte| byte == 0)
        .find_map(of_name)
        .map(OsStr::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let environ = b"XA=1\0A=two\0AB=3\0";
        assert_eq!(variable(environ, "A"), Some(OsStr::new("two")));
        assert_eq!(variable(environ, "B"), None);
    }
}
