//! Configuration files of containerd, CNI and kubelet.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use crate::pki::Pki;
use crate::process::write_changed;
use crate::state::{Instance, Machine};
use crate::tools::Tools;

/// Name of containerd's file in the worker's directory.
pub(crate) const CONTAINERD_FILE: &str = "containerd.toml";
/// Name of kubelet's file in the worker's directory.
pub(crate) const KUBELET_FILE: &str = "kubelet.json";
/// Name of the directory with CNI's files in the worker's directory.
pub(crate) const CNI_DIR: &str = "cni";
/// Address of the cluster's DNS Service, as in `test/fixtures/coredns.yaml`.
const DNS_IP: &str = "10.96.0.10";

/// What the files of a worker hold.
pub(crate) struct WorkerConfig {
    pub containerd: String,
    pub cni: String,
    pub kubelet: String,
}

impl WorkerConfig {
    /// The configuration of one worker.
    pub fn new(instance: &Instance, machine: Machine, tools: &Tools, pki: &Pki) -> Result<Self> {
        Ok(Self {
            containerd: containerd(instance, machine, tools)?,
            cni: format!("{:#}\n", cni(machine)),
            kubelet: format!("{:#}\n", kubelet(instance, machine, pki)),
        })
    }

    /// Writes the files into the worker's directory.
    pub fn write(&self, dir: &Path) -> Result<()> {
        write_changed(&dir.join(CONTAINERD_FILE), &self.containerd)?;
        write_changed(&dir.join(CNI_DIR).join("10-bridge.conflist"), &self.cni)?;
        write_changed(&dir.join(KUBELET_FILE), &self.kubelet)
    }
}

/// State and sockets are at containerd's usual place, below the worker's own `/run`.
fn containerd(instance: &Instance, machine: Machine, tools: &Tools) -> Result<String> {
    let dir = instance.machine_dir(machine);
    // A JSON string is a TOML string.
    let root = json!(dir.join("containerd"));
    let cni = json!(dir.join(CNI_DIR));
    let plugins = json!(tools.node_dir()?);
    let runc = json!(tools.node("runc")?);
    Ok(format!(
        r#"version = 3
root = {root}

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "local.test/pause:1"

[plugins."io.containerd.cri.v1.runtime"]
  # Lowering it needs CAP_SYS_RESOURCE, which root may lack.
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [{plugins}]
    conf_dir = {cni}
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = {runc}
      SystemdCgroup = false
"#
    ))
}

/// Addresses are booked below the worker's own `/run`, so none outlives its pods.
fn cni(machine: Machine) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni",
                    "ranges": [[{"subnet": machine.pod_cidr()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}},
        ],
    })
}

fn kubelet(instance: &Instance, machine: Machine, pki: &Pki) -> Value {
    let name = machine.name();
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "failSwapOn": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", instance.machine_name(machine)),
        "enforceNodeAllocatable": [],
        "oomScoreAdj": 0,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "podLogsDir": instance.machine_dir(machine).join("pods"),
        "clusterDNS": [DNS_IP],
        "clusterDomain": "cluster.local",
        "resolvConf": "/dev/null",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": pki.path("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": pki.path(&format!("{name}.crt")),
        "tlsPrivateKeyFile": pki.path(&format!("{name}.key")),
        // Images are loaded, never pulled: one that is collected is lost.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    })
}
