//! What of an instance runs.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use crate::process::{PidFile, marked, pid_path};
use crate::state::{Instance, Machine};

/// Programs of the control plane's machine.
const CONTROL_PLANE: &[&str] = &[
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
];
/// Programs of a worker.
const WORKER: &[&str] = &["namespaces", "containerd", "kubelet", "kube-proxy"];

/// State of one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessStatus {
    /// The machine it belongs to.
    pub machine: &'static str,
    /// The program.
    pub name: &'static str,
    /// Its process, if it runs.
    pub pid: Option<u32>,
}

/// State of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The instance's name.
    pub instance: String,
    /// Whether there is anything of it, running or on disk.
    pub exists: bool,
    /// Every program that belongs to it.
    pub processes: Vec<ProcessStatus>,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
}

impl Status {
    /// Whether every program runs.
    pub fn running(&self) -> bool {
        self.processes.iter().all(|process| process.pid.is_some())
    }
}

/// Looks at an instance without changing it.
pub fn status(instance: &Instance) -> Result<Status> {
    let mut processes = vec![];
    for machine in Machine::ALL {
        let programs = if machine == Machine::ControlPlane {
            CONTROL_PLANE
        } else {
            WORKER
        };
        for &name in programs {
            let file = PidFile::read(&pid_path(
                instance.dir(),
                &format!("{}/{name}", machine.name()),
            ))?;
            let pid = file
                .map(|file| file.identity)
                .filter(|identity| identity.alive())
                .map(|identity| identity.pid);
            processes.push(ProcessStatus {
                machine: machine.name(),
                name,
                pid,
            });
        }
    }
    let exists = fs::exists(instance.dir())? || !marked(instance.dir())?.is_empty();
    Ok(Status {
        instance: instance.name().into(),
        exists,
        processes,
        kubeconfig: instance.dir().join("kubeconfig"),
    })
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.exists {
            return writeln!(f, "cluster {}: none", self.instance);
        }
        writeln!(
            f,
            "cluster {}: kubeconfig {}",
            self.instance,
            self.kubeconfig.display()
        )?;
        for ProcessStatus { machine, name, pid } in &self.processes {
            match pid {
                Some(pid) => writeln!(f, "  {machine}  {name:<24} running, process {pid}")?,
                None => writeln!(f, "  {machine}  {name:<24} not running")?,
            }
        }
        Ok(())
    }
}
