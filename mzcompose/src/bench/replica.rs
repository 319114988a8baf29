//! One running replica of a candidate, and what it says.

use std::collections::VecDeque;
use std::fs;
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::candidate::{Candidate, Part, Said};

/// How much of its output is kept to explain a failure.
const TAIL_LINES: usize = 8;
const METRICS_LIMIT: Duration = Duration::from_secs(5);

/// A running replica; killed when dropped.
pub struct Replica {
    /// Its name in the Lease.
    pub identity: String,
    /// The uid of the pod that it would be.
    pub pod_uid: String,
    /// When it was started.
    pub started: Instant,
    metrics_port: u16,
    child: Child,
    output: watch::Receiver<Output>,
}

/// What it has said.
#[derive(Debug, Default)]
struct Output {
    /// Every change of its leadership.
    said: Vec<(Said, Instant)>,
    tail: VecDeque<String>,
}

impl Output {
    fn hear(&mut self, said: Option<Said>, line: String, at: Instant) {
        self.said.extend(said.map(|said| (said, at)));
        self.tail.push_back(line);
        if self.tail.len() > TAIL_LINES {
            self.tail.pop_front();
        }
    }

    /// Since when it leads, if it does.
    fn leads_since(&self) -> Option<Instant> {
        match self.said.last() {
            Some((Said::Leading, at)) => Some(*at),
            _ => None,
        }
    }

    /// From when to when it led.
    fn terms(&self) -> Vec<(Instant, Option<Instant>)> {
        let mut terms: Vec<(Instant, Option<Instant>)> = vec![];
        for (said, at) in &self.said {
            match (said, terms.last_mut()) {
                (Said::Leading, Some((_, None))) => {}
                (Said::Leading, _) => terms.push((*at, None)),
                (Said::Stopped, Some((_, end @ None))) => *end = Some(*at),
                (Said::Stopped, _) => {}
            }
        }
        terms
    }
}

impl Replica {
    /// Starts one.
    pub fn start(candidate: &Candidate, part: &Part<'_>) -> Result<Self> {
        let mut command = candidate.command(part);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let started = Instant::now();
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {}", candidate.program.display()))?;
        let (sender, output) = watch::channel(Output::default());
        let sender = Arc::new(sender);
        let stdout = child.stdout.take().context("no stdout")?;
        let stderr = child.stderr.take().context("no stderr")?;
        tokio::spawn(listen(stdout, candidate.clone(), Arc::clone(&sender)));
        tokio::spawn(listen(stderr, candidate.clone(), sender));
        Ok(Self {
            identity: part.identity.to_owned(),
            pod_uid: part.pod_uid.to_owned(),
            started,
            metrics_port: part.metrics_port,
            child,
            output,
        })
    }

    /// Waits until it leads, and says since when.
    pub async fn leads(&self, limit: Duration) -> Result<Instant> {
        let mut output = self.output.clone();
        let leads = timeout(
            limit,
            output.wait_for(|output| output.leads_since().is_some()),
        )
        .await;
        match leads {
            Ok(Ok(output)) => output.leads_since().context("it leads no more"),
            Ok(Err(_)) => Err(self.explained("ended instead of leading")),
            Err(_) => Err(self.explained(&format!("did not lead within {limit:?}"))),
        }
    }

    /// Whether it leads as far as is known now.
    pub fn leads_now(&self) -> bool {
        self.output.borrow().leads_since().is_some()
    }

    /// From when to when it led.
    pub fn terms(&self) -> Vec<(Instant, Option<Instant>)> {
        self.output.borrow().terms()
    }

    /// Sends a signal, and says when.
    pub fn signal(&self, signal: Signal) -> Result<Instant> {
        let pid = self.pid().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| self.explained("ended by itself"))?;
        let at = Instant::now();
        kill_process(pid, signal).with_context(|| format!("cannot signal {}", self.identity))?;
        Ok(at)
    }

    fn pid(&self) -> Option<i32> {
        self.child.id().and_then(|id| i32::try_from(id).ok())
    }

    /// Waits until it has ended.
    pub async fn ended(mut self, limit: Duration) -> Result<()> {
        match timeout(limit, self.child.wait()).await {
            Ok(status) => status.map(|_| ()).context("cannot wait for a replica"),
            Err(_) => Err(self.explained(&format!("did not end within {limit:?}"))),
        }
    }

    /// Its resident memory, in bytes.
    pub fn resident_bytes(&self) -> Result<u64> {
        let pid = self
            .pid()
            .ok_or_else(|| self.explained("ended by itself"))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"));
        let status = status.context("cannot read a replica's status")?;
        resident_bytes(&status).context("a replica's status has no VmRSS")
    }

    /// Its page of metrics.
    pub async fn metrics(&self) -> Result<String> {
        let page = timeout(METRICS_LIMIT, get(self.metrics_port, "/metrics")).await;
        page.with_context(|| format!("no metrics within {METRICS_LIMIT:?}"))?
    }

    fn explained(&self, what: &str) -> anyhow::Error {
        let tail: Vec<_> = self.output.borrow().tail.iter().cloned().collect();
        anyhow!("{} {what}; it said: {}", self.identity, tail.join(" ⏎ "))
    }
}

/// A port that is free now.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port is free on loopback")?;
    Ok(listener.local_addr()?.port())
}

async fn listen(
    from: impl AsyncRead + Unpin,
    candidate: Candidate,
    output: Arc<watch::Sender<Output>>,
) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let at = Instant::now();
        let said = candidate.hear(&line);
        output.send_modify(|output| output.hear(said, line, at));
    }
}

async fn get(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.contains(" 200 ") => Ok(body.to_owned()),
        _ => bail!("no good answer from port {port}: {answer:.80}"),
    }
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes = line.trim().strip_suffix(" kB")?;
    kibibytes.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::super::candidate::Name;
    use super::*;

    /// A peer that is a shell script.
    fn scripted(dir: &Path, script: &str) -> Replica {
        let program = dir.join("peer");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(
            &program,
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        let candidate = Candidate {
            name: Name::Kubert,
            version: "1".into(),
            program,
        };
        let kubeconfig = PathBuf::from("/none");
        let part = Part {
            kubeconfig: &kubeconfig,
            namespace: "n",
            identity: "kubert-1",
            pod_uid: "u",
            metrics_port: 1,
        };
        Replica::start(&candidate, &part).unwrap()
    }

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_replica_leads_from_its_word_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let script = "trap 'echo stopped; exit' TERM; echo leading; while :; do sleep 0.01; done";
        let replica = scripted(dir.path(), script);
        let since = replica.leads(LIMIT).await.unwrap();
        assert!(since >= replica.started && replica.leads_now());
        assert!(replica.resident_bytes().unwrap() > 4096);
        let at = replica.signal(Signal::TERM).unwrap();
        let output = replica.output.clone();
        replica.ended(LIMIT).await.unwrap();
        let mut closed = output.clone();
        while closed.changed().await.is_ok() {}
        let terms = output.borrow().terms();
        assert!(matches!(terms[..], [(from, Some(until))] if from == since && until >= at));
    }

    #[tokio::test]
    async fn a_replica_that_ends_or_hangs_is_explained() {
        let dir = tempfile::tempdir().unwrap();
        let ended = scripted(dir.path(), "echo no such lease >&2; exit 1");
        let error = ended.leads(LIMIT).await.unwrap_err().to_string();
        assert!(
            error.contains("kubert-1 ended") && error.contains("no such lease"),
            "{error}"
        );
        let hangs = scripted(dir.path(), "exec sleep 600");
        let error = hangs.leads(Duration::from_millis(20)).await.unwrap_err();
        assert!(
            error.to_string().contains("did not lead within 20ms"),
            "{error}"
        );
        let error = hangs.ended(Duration::from_millis(20)).await.unwrap_err();
        assert!(
            error.to_string().contains("did not end within 20ms"),
            "{error}"
        );
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tp\nVmHWM:\t   9 kB\nVmRSS:\t    8432 kB\n";
        assert_eq!(resident_bytes(status), Some(8432 * 1024));
        assert_eq!(resident_bytes("Name:\tp\n"), None);
    }
}
