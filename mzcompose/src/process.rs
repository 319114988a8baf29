//! Processes that outlive the runner: started in a session of their own, their logs kept, and found again by a mark in
//! their environment even when every file about them is lost.

mod pid;
mod scan;

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

pub use pid::{Identity, PidFile};
pub use scan::{INSTANCE_MARK, Marked, PROCESS_MARK, marked};

use crate::command::tail;

/// How long a killed process may take to vanish.
const DEATH_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
const LOG_TAIL_LINES: usize = 15;

/// A process to keep running: how to start it, and where its traces lie.
#[derive(Clone, Debug)]
pub struct Process {
    /// State directory of the instance it belongs to.
    pub instance: PathBuf,
    /// Its machine and name, like `w1/kubelet`: the place of its traces in the state directory.
    pub name: String,
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Environment variables beyond the inherited ones.
    pub env: Vec<(String, OsString)>,
    /// What its configuration files hold: it is restarted when that changes.
    pub config: String,
    /// Whether the kernel ends it when the process that started it ends, however that happens.
    pub dies_with_parent: bool,
}

/// What [`Process::ensure`] found to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was running as wanted.
    Kept,
    /// It was not running, or not as wanted.
    Started,
}

impl Process {
    /// Leaves the process alone if it runs with the same command line and configuration, else (re)starts it.
    pub async fn ensure(&self) -> Result<Outcome> {
        match PidFile::read(&self.pid_path())? {
            Some(file) if file.identity.alive() && file.command == self.digest() => {
                return Ok(Outcome::Kept);
            }
            Some(file) => kill_all(&[file.identity]).await?,
            None => {}
        }
        self.kill_unrecorded().await?;
        self.spawn()?;
        Ok(Outcome::Started)
    }

    /// Ends what a runner started but did not live to write down.
    async fn kill_unrecorded(&self) -> Result<()> {
        let same = marked(&self.instance)?
            .into_iter()
            .filter(|marked| marked.process == self.name);
        // A shim carries the mark of containerd and must outlive it.
        let leaders: Vec<_> = same
            .map(|marked| marked.identity)
            .filter(Identity::leads_session)
            .collect();
        kill_all(&leaders).await
    }

    fn spawn(&self) -> Result<()> {
        let log_path = self.log_path();
        for path in [&log_path, &self.pid_path()] {
            if let Some(dir) = path.parent() {
                fs::create_dir_all(dir)
                    .with_context(|| format!("cannot create {}", dir.display()))?;
            }
        }
        let log = File::options()
            .append(true)
            .create(true)
            .open(&log_path)
            .with_context(|| format!("cannot write {}", log_path.display()))?;
        let mut command = Command::new("setsid");
        if self.dies_with_parent {
            command.args(["setpriv", "--pdeathsig", "KILL", "--"]);
        }
        command
            .args(&self.argv)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env(INSTANCE_MARK, &self.instance)
            .env(PROCESS_MARK, &self.name)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share a log file")?)
            .stderr(log);
        let pid = spawn_from_lasting_thread(command)
            .with_context(|| format!("cannot start {}", self.name))?;
        let identity = Identity::of(pid).ok_or_else(|| self.died())?;
        PidFile {
            identity,
            command: self.digest(),
        }
        .write(&self.pid_path())
    }

    /// Its identity, if it runs.
    pub fn running(&self) -> Result<Option<Identity>> {
        let file = PidFile::read(&self.pid_path())?;
        Ok(file.map(|file| file.identity).filter(Identity::alive))
    }

    /// Fails with the end of its log unless it runs.
    pub fn check(&self) -> Result<()> {
        match self.running()? {
            Some(_) => Ok(()),
            None => Err(self.died()),
        }
    }

    fn died(&self) -> Error {
        let (name, log) = (&self.name, self.log_path());
        let tail = self.log_tail();
        anyhow!("{name} died; the end of {}:\n{tail}", log.display())
    }

    /// Ends it at once and waits until it is gone.
    pub async fn kill(&self) -> Result<()> {
        match PidFile::read(&self.pid_path())? {
            Some(file) => kill_all(&[file.identity]).await,
            None => Ok(()),
        }
    }

    /// Where its output goes.
    pub fn log_path(&self) -> PathBuf {
        let (machine, name) = self.name.rsplit_once('/').unwrap_or(("", &self.name));
        self.instance
            .join(machine)
            .join("log")
            .join(format!("{name}.log"))
    }

    /// The last lines of its output.
    pub fn log_tail(&self) -> String {
        fs::read(self.log_path())
            .map(|log| tail(&String::from_utf8_lossy(&log), LOG_TAIL_LINES))
            .unwrap_or_default()
    }

    fn pid_path(&self) -> PathBuf {
        pid_path(&self.instance, &self.name)
    }

    fn digest(&self) -> String {
        let mut digest = Sha256::new();
        let env = self
            .env
            .iter()
            .flat_map(|(name, value)| [name.as_ref(), value.as_os_str()]);
        let config = [self.config.as_ref()];
        for word in self
            .argv
            .iter()
            .map(OsString::as_os_str)
            .chain(env)
            .chain(config)
        {
            digest.update(word.as_encoded_bytes());
            digest.update([0]);
        }
        hex(&digest.finalize())
    }
}

pub(crate) fn pid_path(instance: &Path, name: &str) -> PathBuf {
    instance.join(format!("{name}.pid"))
}

/// Writes a file unless it holds just that: some programs restart when theirs is touched.
pub(crate) fn write_changed(path: &Path, content: &str) -> Result<()> {
    if fs::read(path).is_ok_and(|written| written == content.as_bytes()) {
        return Ok(());
    }
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Kills each of them that still is what it was, and waits until all are gone.
pub async fn kill_all(identities: &[Identity]) -> Result<()> {
    for identity in identities {
        identity.kill()?;
    }
    wait_until("killed processes to end", DEATH_LIMIT, &[], async || {
        Ok(!identities.iter().any(Identity::alive))
    })
    .await
}

/// Polls a condition; fails when the time is up or one of the processes it depends on dies.
pub async fn wait_until(
    what: &str,
    limit: Duration,
    needs: &[&Process],
    mut condition: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + limit;
    loop {
        if condition().await? {
            return Ok(());
        }
        for process in needs {
            process.check()?;
        }
        if Instant::now() >= deadline {
            let logs: String = needs
                .iter()
                .map(|p| format!("\n{} said:\n{}", p.name, p.log_tail()))
                .collect();
            bail!("waited {limit:?} for {what}{logs}");
        }
        sleep(POLL).await;
    }
}

/// The kernel's parent-death signal fires when the *thread* that started a process ends, so all are started from one
/// that lasts as long as this process.
fn spawn_from_lasting_thread(command: Command) -> Result<u32> {
    type Request = (Command, mpsc::Sender<std::io::Result<u32>>);
    static SPAWNER: LazyLock<mpsc::Sender<Request>> = LazyLock::new(|| {
        let (requests, inbox) = mpsc::channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, reply) in inbox {
                // A receiver that is gone has no use for the answer.
                let _ = reply.send(command.spawn().map(|child| child.id()));
            }
        });
        requests
    });
    let (reply, answer) = mpsc::channel();
    SPAWNER
        .send((command, reply))
        .context("the spawning thread is gone")?;
    Ok(answer.recv().context("the spawning thread is gone")??)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(dir: &Path, script: &str) -> Process {
        Process {
            instance: dir.into(),
            name: "m/p".into(),
            argv: ["sh", "-c", script].map(OsString::from).into(),
            env: vec![],
            config: String::new(),
            dies_with_parent: true,
        }
    }

    #[tokio::test]
    async fn a_running_process_is_kept_and_another_command_line_replaces_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = process(dir.path(), "sleep 600; :");
        assert_eq!(first.ensure().await.unwrap(), Outcome::Started);
        let identity = first.running().unwrap().unwrap();
        assert_eq!(first.ensure().await.unwrap(), Outcome::Kept);
        assert_eq!(first.running().unwrap(), Some(identity));

        let second = process(dir.path(), "sleep 601; :");
        assert_eq!(second.ensure().await.unwrap(), Outcome::Started);
        assert!(!identity.alive());
        second.kill().await.unwrap();
        assert_eq!(second.running().unwrap(), None);
    }

    #[tokio::test]
    async fn a_death_at_the_start_or_during_a_wait_is_told_with_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let process = process(dir.path(), "echo port 1 is taken; exit 1");
        let limit = Duration::from_secs(60);
        let error = match process.ensure().await {
            Ok(_) => wait_until("it", limit, &[&process], async || Ok(false)).await,
            // So quick that it was gone before it was looked at.
            Err(error) => Err(error),
        };
        let error = error.unwrap_err();
        assert!(error.to_string().contains("port 1 is taken"), "{error}");
    }

    #[tokio::test]
    async fn a_process_is_found_by_its_mark_when_its_pid_file_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let process = process(dir.path(), "sleep 600; :");
        process.ensure().await.unwrap();
        fs::remove_file(process.pid_path()).unwrap();
        // The mark is in place once the program itself runs.
        wait_until("the mark", DEATH_LIMIT, &[], async || {
            Ok(!marked(dir.path())?.is_empty())
        })
        .await
        .unwrap();
        let found = marked(dir.path()).unwrap();
        assert!(found.iter().all(|marked| marked.process == "m/p"));
        let leader = found
            .iter()
            .find(|marked| marked.identity.leads_session())
            .unwrap();

        assert_eq!(process.ensure().await.unwrap(), Outcome::Started);
        assert!(!leader.identity.alive());
        let identities: Vec<_> = marked(dir.path())
            .unwrap()
            .iter()
            .map(|marked| marked.identity)
            .collect();
        kill_all(&identities).await.unwrap();
        assert_eq!(marked(Path::new("/no/such/instance")).unwrap().len(), 0);
    }
}
