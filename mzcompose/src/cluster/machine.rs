//! What all machines have in common.

use std::ffi::OsString;
use std::fs;

use anyhow::{Context, Result};
use serde_json::json;

use super::cgroup;
use super::control_plane::component_kubeconfig;
use crate::components::flag;
use crate::network::netns_path;
use crate::process::{Identity, Process, kill_all, marked, write_changed};
use crate::state::{Instance, Machine};
use crate::tools::Tools;

/// A process in a machine's network. `ip netns exec` would hide the cgroups.
pub(crate) fn in_netns(
    instance: &Instance,
    machine: Machine,
    name: &str,
    argv: Vec<OsString>,
) -> Process {
    let net = format!("--net={}", netns_path(instance, machine).display());
    let enter = ["nsenter".to_owned(), net, "--".to_owned()].map(OsString::from);
    Process {
        instance: instance.dir().into(),
        name: format!("{}/{name}", machine.name()),
        argv: enter.into_iter().chain(argv).collect(),
        env: vec![],
        config: String::new(),
        dies_with_parent: false,
    }
}

/// A kube-proxy in a machine's network, with the rules of node `node`.
pub(crate) fn kube_proxy(
    instance: &Instance,
    machine: Machine,
    node: Machine,
    tools: &Tools,
) -> Result<Process> {
    let dir = instance.machine_dir(machine);
    let path = dir.join("kube-proxy.json");
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": component_kubeconfig(instance, "proxy")},
        "clusterCIDR": "10.244.0.0/16",
        // Anything but zero is a sysctl that a network namespace may not write.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "nftables": {"minSyncPeriod": "50ms"},
    });
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let config = config.to_string();
    write_changed(&path, &config)?;
    let argv = vec![
        tools.kubernetes("kube-proxy")?.into(),
        flag("config", path.display()).into(),
        flag("hostname-override", node.name()).into(),
    ];
    Ok(Process {
        config,
        ..in_netns(instance, machine, "kube-proxy", argv)
    })
}

/// Ends all that runs on a machine, containers included; returns how many processes that were.
pub(crate) async fn clear(instance: &Instance, machine: Machine) -> Result<usize> {
    let prefix = format!("{}/", machine.name());
    let running: Vec<Identity> = marked(instance.dir())?
        .into_iter()
        .filter(|marked| marked.process.starts_with(&prefix))
        .map(|marked| marked.identity)
        .collect();
    kill_all(&running).await?;
    Ok(running.len() + cgroup::kill(&instance.machine_name(machine)).await?)
}
