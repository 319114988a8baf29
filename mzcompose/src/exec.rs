//! The work tree, and cargo run in it.

use std::process::ExitStatus;

use anyhow::{Context, Result};
use mzcompose::tools::repository;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

/// The cargo that this program was started with, in the root of the work tree.
pub fn cargo() -> Result<Command> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(repository()?);
    Ok(cargo)
}

/// A child in a process group of its own, which is killed whole when this is dropped before its end.
pub struct Group {
    child: Child,
    id: Option<Pid>,
}

impl Group {
    /// Starts `command`.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let name = command.as_std().get_program().to_owned();
        let child = command.process_group(0).spawn();
        let child = child.with_context(|| format!("cannot start {}", name.display()))?;
        let id = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        Ok(Self { child, id })
    }

    /// The child itself, to take its pipes from.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits for the child's end.
    pub async fn wait(mut self) -> Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.id = None;
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            // The group may have ended by itself in this moment, which is as good.
            let _ = kill_process_group(id, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;
    use std::time::Duration;

    use tokio::io::{AsyncBufReadExt, BufReader};

    use super::*;

    #[tokio::test]
    async fn a_dropped_group_takes_its_grandchildren_along() {
        let mut sleeper = Command::new("sh");
        sleeper
            .args(["-c", "sleep 600 & echo $!; wait"])
            .stdout(Stdio::piped());
        let mut group = Group::spawn(&mut sleeper).unwrap();
        let stdout = group.child().stdout.take().unwrap();
        let id = BufReader::new(stdout)
            .lines()
            .next_line()
            .await
            .unwrap()
            .unwrap();
        drop(group);
        let stat = || std::fs::read_to_string(format!("/proc/{id}/stat"));
        let wait = async {
            while stat().is_ok_and(|stat| !stat.contains(") Z ")) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), wait)
            .await
            .expect("the grandchild ends");
    }
}
