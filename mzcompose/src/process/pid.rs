//! Who a process is: a number alone may be given to another, a number with a start time may not.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process that can't be mistaken for a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since the machine did.
    pub started: u64,
}

impl Identity {
    /// The process that has this number now, unless it is dead or a zombie.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        started_of_living(&stat).map(|started| Self { pid, started })
    }

    /// Whether it leads a session, as every [`super::Process`] does and nothing that one of them starts.
    pub fn leads_session(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        fields(&stat)
            .nth(3)
            .is_some_and(|session| session == self.pid.to_string())
    }

    /// Whether it still runs.
    pub fn alive(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }

    /// Kills it, if it still is the same.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL)
    }

    /// Sends a signal to it, if it still is the same.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(());
        };
        let outcome = pidfd_open(pid, PidfdFlags::empty()).and_then(|pidfd| {
            // Only a check made while the number is held tells who will get the signal.
            if self.alive() {
                pidfd_send_signal(pidfd, signal)
            } else {
                Ok(())
            }
        });
        match outcome {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot signal process {}", self.pid)),
        }
    }
}

/// Field 22 of `/proc/PID/stat` (proc(5)), unless field 3 says that the process is dead.
fn started_of_living(stat: &str) -> Option<u64> {
    let mut fields = fields(stat);
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The fields from the third on. The name in the second may hold anything, so they are counted from its closing
/// parenthesis.
fn fields(stat: &str) -> impl Iterator<Item = &str> {
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    fields.split_ascii_whitespace()
}

/// What is kept of a started process: who it is, and a digest of how it was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PidFile {
    /// The process.
    pub identity: Identity,
    /// Digest of its command line and environment.
    pub command: String,
}

impl PidFile {
    /// Reads a file; none when it is missing or not whole, as after a crash while it was written.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, self.to_string())
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_suffix('\n')?.split(' ');
        let pid = words.next()?.parse().ok()?;
        let started = words.next()?.parse().ok()?;
        let command = words.next()?.to_owned();
        words.next().is_none().then_some(Self {
            identity: Identity { pid, started },
            command,
        })
    }
}

impl fmt::Display for PidFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} {} {}",
            self.identity.pid, self.identity.started, self.command
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_file_reads_back_and_half_a_one_does_not() {
        let file = PidFile {
            identity: Identity {
                pid: 42,
                started: 7_000,
            },
            command: "ab12".into(),
        };
        let text = file.to_string();
        assert_eq!(PidFile::parse(&text), Some(file));
        for end in 0..text.len() {
            assert_eq!(PidFile::parse(&text[..end]), None, "{:?}", &text[..end]);
        }
        assert_eq!(PidFile::parse("42 7000 ab12 more\n"), None);
    }

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(started_of_living(&format!("9 (sleep) {rest}")), Some(4711));
        assert_eq!(
            started_of_living(&format!("9 (a) b) Z (c) {rest}")),
            Some(4711)
        );
        assert_eq!(
            started_of_living(&format!("9 (sleep) {}", rest.replacen('S', "Z", 1))),
            None
        );
    }

    #[test]
    fn another_process_with_the_same_number_is_not_signalled() {
        let own = Identity::of(std::process::id()).unwrap();
        let earlier = Identity {
            started: own.started - 1,
            ..own
        };
        assert!(own.alive() && !earlier.alive());
        earlier.kill().unwrap();
    }
}
