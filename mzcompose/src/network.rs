//! The machines' network: a namespace each, cabled to one bridge, with routes to the workers' pods.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use futures::future::try_join_all;

use crate::command::short;
use crate::state::{Instance, Machine};

/// Where iproute2 keeps network namespaces.
const NETNS_DIR: &str = "/run/netns";

/// Path by which a machine's network namespace is entered.
pub(crate) fn netns_path(instance: &Instance, machine: Machine) -> PathBuf {
    PathBuf::from(NETNS_DIR).join(instance.machine_name(machine))
}

/// Fails if the instance's subnet is in use by anything else.
pub(crate) async fn ensure_subnet_free(instance: &Instance) -> Result<()> {
    let addresses = short("ip", &["-oneline", "-4", "address", "show"]).await?;
    match foreign_interface(&addresses, &instance.subnet_prefix(), &instance.bridge()) {
        Some(interface) => bail!(
            "the subnet {}0/24 is in use by interface {interface}: remove it, or use another instance",
            instance.subnet_prefix()
        ),
        None => Ok(()),
    }
}

/// Finds an interface other than `own` with an address in the subnet, in `ip -oneline` output.
fn foreign_interface<'a>(addresses: &'a str, subnet: &str, own: &str) -> Option<&'a str> {
    addresses.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (interface, _, address) = (words.next()?, words.next()?, words.next()?);
        (address.starts_with(subnet) && interface != own).then_some(interface)
    })
}

/// Makes what is missing; returns the machines that got a new namespace.
pub(crate) async fn ensure(instance: &Instance) -> Result<Vec<Machine>> {
    ensure_bridge(instance).await?;
    let renewed =
        try_join_all(Machine::ALL.map(|machine| ensure_machine(instance, machine))).await?;
    Ok(renewed.into_iter().flatten().collect())
}

async fn ensure_bridge(instance: &Instance) -> Result<()> {
    let bridge = instance.bridge();
    if short("ip", &["link", "show", &bridge]).await.is_err() {
        ip(&["link", "add", &bridge, "type", "bridge"]).await?;
    }
    ip(&[
        "address",
        "replace",
        &format!("{}/24", instance.gateway()),
        "dev",
        &bridge,
    ])
    .await?;
    ip(&["link", "set", &bridge, "up"]).await
}

async fn ensure_machine(instance: &Instance, machine: Machine) -> Result<Option<Machine>> {
    if cabled(instance, machine).await {
        return Ok(None);
    }
    remove_machine(instance, machine).await?;
    let netns = instance.machine_name(machine);
    let veth = instance.veth(machine);
    ip(&["netns", "add", &netns]).await?;
    ip(&[
        "link", "add", &veth, "type", "veth", "peer", "name", "eth0", "netns", &netns,
    ])
    .await?;
    ip(&["-n", &netns, "link", "set", "lo", "up"]).await?;
    ip(&[
        "-n",
        &netns,
        "address",
        "add",
        &format!("{}/24", instance.address(machine)),
        "dev",
        "eth0",
    ])
    .await?;
    ip(&["-n", &netns, "link", "set", "eth0", "up"]).await?;
    ip(&[
        "-n",
        &netns,
        "route",
        "add",
        "default",
        "via",
        &instance.gateway(),
    ])
    .await?;
    for worker in Machine::WORKERS
        .into_iter()
        .filter(|&worker| worker != machine)
    {
        if let Some(pods) = worker.pod_cidr() {
            ip(&[
                "-n",
                &netns,
                "route",
                "add",
                pods,
                "via",
                &instance.address(worker),
            ])
            .await?;
        }
    }
    forward(instance, machine).await?;
    // Last, so that a machine that hangs on the bridge is whole.
    ip(&["link", "set", &veth, "master", &instance.bridge(), "up"]).await?;
    Ok(Some(machine))
}

/// Whether a machine's cable hangs on the bridge and its namespace has its address.
async fn cabled(instance: &Instance, machine: Machine) -> bool {
    let (veth, bridge) = (instance.veth(machine), instance.bridge());
    let on_bridge = short(
        "ip",
        &["-oneline", "link", "show", "dev", &veth, "master", &bridge],
    )
    .await;
    let inside = short(
        "ip",
        &[
            "-n",
            &instance.machine_name(machine),
            "-oneline",
            "-4",
            "address",
        ],
    )
    .await;
    let address = format!(" {}/", instance.address(machine));
    on_bridge.is_ok_and(|shown| !shown.is_empty())
        && inside.is_ok_and(|shown| shown.contains(&address))
}

/// Lets a machine pass its pods' packets on, and a node port answer on loopback.
async fn forward(instance: &Instance, machine: Machine) -> Result<()> {
    let net = format!("--net={}", netns_path(instance, machine).display());
    let script = "cd /proc/sys/net/ipv4 && echo 1 >ip_forward && echo 1 >conf/all/route_localnet";
    short("nsenter", &[&net, "sh", "-c", script])
        .await
        .with_context(|| format!("cannot make {} forward packets", machine.name()))?;
    Ok(())
}

async fn remove_machine(instance: &Instance, machine: Machine) -> Result<bool> {
    let veth = instance.veth(machine);
    let netns = instance.machine_name(machine);
    let link = short("ip", &["link", "show", &veth]).await.is_ok();
    if link {
        ip(&["link", "delete", &veth]).await?;
    }
    let namespace = netns_path(instance, machine).exists();
    if namespace {
        ip(&["netns", "delete", &netns]).await?;
    }
    Ok(link || namespace)
}

/// Removes all of it; returns the names of what was there.
pub(crate) async fn remove(instance: &Instance) -> Result<Vec<String>> {
    let mut removed = vec![];
    for machine in Machine::ALL {
        if remove_machine(instance, machine).await? {
            removed.push(instance.machine_name(machine));
        }
    }
    let bridge = instance.bridge();
    if short("ip", &["link", "show", &bridge]).await.is_ok() {
        ip(&["link", "delete", &bridge]).await?;
        removed.push(bridge);
    }
    Ok(removed)
}

async fn ip(args: &[&str]) -> Result<()> {
    short("ip", args).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_foreign_interface_in_the_subnet_is_in_the_way() {
        let addresses = "1: lo    inet 127.0.0.1/8 scope host lo\n\
                         7: mzbr0    inet 172.30.0.1/24 scope global mzbr0\n\
                         9: docker0    inet 172.30.1.1/16 brd 172.30.255.255 scope global docker0\n";
        assert_eq!(foreign_interface(addresses, "172.30.0.", "mzbr0"), None);
        assert_eq!(
            foreign_interface(addresses, "172.30.1.", "mzbr1"),
            Some("docker0")
        );
        assert_eq!(foreign_interface("", "172.30.0.", "mzbr0"), None);
    }
}
