//! Who can be measured, and how each of them is started and understood.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use mzcompose::peers::{Peer, Peers};
use mzcompose::progress::Progress;
use tokio::process::Command;

use crate::images::Binaries;
use crate::kubernetes::LEASE;

/// Whose handover is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// A bare PUT, a watch event and another PUT: what no election can beat.
    // Before the operator, which leaves many environments behind.
    Floor,
    /// The operator of this repository.
    Orchestratord,
    /// client-go's leaderelection.
    ClientGo,
    /// A controller-runtime manager.
    ControllerRuntime,
    /// Materialize's k8s-controller.
    K8sController,
    /// kube-leader-election.
    KubeLeaderElection,
    /// kube-lease-manager.
    KubeLeaseManager,
    /// linkerd's kubert.
    Kubert,
}

impl Name {
    /// The peer's sources, if it is one.
    pub fn peer(self) -> Option<Peer> {
        match self {
            Self::Orchestratord | Self::Floor => None,
            Self::ClientGo => Some(Peer::ClientGo),
            Self::ControllerRuntime => Some(Peer::ControllerRuntime),
            Self::K8sController => Some(Peer::K8sController),
            Self::KubeLeaderElection => Some(Peer::KubeLeaderElection),
            Self::KubeLeaseManager => Some(Peer::KubeLeaseManager),
            Self::Kubert => Some(Peer::Kubert),
        }
    }

    /// As in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Orchestratord => "orchestratord",
            Self::Floor => "floor",
            _ => self.peer().map_or("", Peer::name),
        }
    }

    /// Whether a handover takes so many seconds that those of others beside it do not show.
    pub fn hands_over_slowly(self) -> bool {
        matches!(self, Self::KubeLeaseManager | Self::Kubert)
    }

    /// How long after its start a standby is not yet what it will be: one that sleeps until the Lease that it has
    /// seen expires wakes up later the first time, by the time that the leader renews ahead.
    pub fn settles_in(self) -> Duration {
        match self {
            Self::KubeLeaseManager => Duration::from_secs(5),
            Self::Kubert => Duration::from_secs(1),
            _ => Duration::ZERO,
        }
    }

    /// Time between two looks of a standby at the Lease: a signal may come at any moment of it.
    pub fn period(self) -> Duration {
        match self {
            Self::Orchestratord | Self::Floor => Duration::from_secs(2),
            // It waits 2.0 to 4.4 s.
            Self::ClientGo | Self::ControllerRuntime => Duration::from_millis(4400),
            // It waits 2 to 3 s.
            Self::K8sController => Duration::from_secs(3),
            Self::KubeLeaderElection => Duration::from_secs(5),
            // Duration less grace: so often the leader renews.
            Self::KubeLeaseManager => Duration::from_secs(25),
            Self::Kubert => Duration::from_secs(29),
        }
    }
}

/// What a replica says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It leads from now on.
    Leading,
    /// It leads no more.
    Stopped,
}

/// A program that campaigns for a Lease.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Who it is.
    pub name: Name,
    /// Its version, or its library's.
    pub version: String,
    /// Where it is.
    pub program: PathBuf,
}

/// One replica's part.
#[derive(Debug, Clone)]
pub struct Part<'a> {
    /// How it reaches the API server.
    pub kubeconfig: &'a Path,
    /// Where the Lease is.
    pub namespace: &'a str,
    /// Its name in the Lease.
    pub identity: &'a str,
    /// The uid of the pod that it would be.
    pub pod_uid: &'a str,
    /// A free port for its metrics.
    pub metrics_port: u16,
}

impl Candidate {
    /// Builds its program, unless that has been done.
    pub async fn build(name: Name, peers: &Peers, progress: &Progress) -> Result<Self> {
        if let Some(peer) = name.peer() {
            let version = peers.version(peer)?;
            let program = peers.ensure(peer, progress).await?;
            return Ok(Self {
                name,
                version,
                program,
            });
        }
        let step = progress.step("build orchestratord");
        let binaries = Binaries::compile(&["orchestratord"]).await?;
        step.done();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let program = binaries.path("orchestratord")?;
        Ok(Self {
            name,
            version,
            program,
        })
    }

    /// The Lease that it campaigns for.
    pub fn lease(&self) -> &'static str {
        match self.name {
            Name::Orchestratord => LEASE,
            _ => "handover",
        }
    }

    /// The request by which a standby shows that it campaigns; any for the Lease if there is none of its own.
    pub fn campaigns_by(&self) -> Option<&'static str> {
        (self.name == Name::Orchestratord).then_some("watch")
    }

    /// Starts it as one replica.
    pub fn command(&self, part: &Part<'_>) -> Command {
        // A replica must not outlive the benchmark, however that ends.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&self.program);
        command.env_remove("KUBERNETES_SERVICE_HOST");
        let Part {
            kubeconfig,
            namespace,
            identity,
            ..
        } = part;
        if self.name == Name::Orchestratord {
            let port = part.metrics_port;
            command
                .args(["--cloud-provider=local", "--region=bench"])
                .arg("--console-image-tag-default=bench")
                .arg("--kubernetes-context=mzcompose")
                .arg("--profiling-listen-address=127.0.0.1:0")
                .arg(format!("--metrics-listen-address=127.0.0.1:{port}"))
                .arg(format!("--leader-election-namespace={namespace}"))
                .arg(format!("--leader-election-identity={identity}"))
                .env("KUBECONFIG", kubeconfig)
                .env("POD_UID", part.pod_uid);
        } else {
            command
                .arg("--kubeconfig")
                .arg(kubeconfig)
                .args(["--namespace", namespace, "--lease", self.lease()])
                .args(["--identity", identity]);
        }
        command
    }

    /// What a line of its output says of its leadership.
    pub fn hear(&self, line: &str) -> Option<Said> {
        let (leading, stopped) = match self.name {
            Name::Orchestratord => (line.contains(" leading: "), line.contains(" term ended")),
            _ => (line == "leading", line == "stopped"),
        };
        match (leading, stopped) {
            (true, _) => Some(Said::Leading),
            (_, true) => Some(Said::Stopped),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: Name) -> Candidate {
        Candidate {
            name,
            version: "1".into(),
            program: PathBuf::from("/p"),
        }
    }

    #[test]
    fn a_name_in_the_table_can_be_given_to_only() {
        for name in Name::value_variants() {
            assert_eq!(Name::from_str(name.as_str(), false), Ok(*name));
        }
    }

    #[test]
    fn replicas_are_understood() {
        let ours = candidate(Name::Orchestratord);
        let log = "2026-12-01T16:00:00Z  INFO orchestratord::election::lease:";
        let hear = |line: &str| ours.hear(&format!("{log} {line}"));
        assert_eq!(
            hear("leading: the Lease was free term=1"),
            Some(Said::Leading)
        );
        assert_eq!(
            hear("term ended term=1 reason=stopped"),
            Some(Said::Stopped)
        );
        assert_eq!(hear("Lease request failed kind=\"x\" leading=true"), None);
        let peer = candidate(Name::Kubert);
        assert_eq!(peer.hear("leading"), Some(Said::Leading));
        assert_eq!(peer.hear("stopped"), Some(Said::Stopped));
        assert_eq!(peer.hear("I am leading: yes"), None);
    }
}
