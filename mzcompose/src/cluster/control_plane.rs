//! The machine `cp`: etcd, API server, controllers, and a kube-proxy through which the API server reaches Services.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use kube::Client;

use super::machine::{in_netns, kube_proxy};
use crate::client::{connect, wait_api_server};
use crate::components::{self, flag};
use crate::pki::{Pki, Subject, write_private};
use crate::process::Process;
use crate::state::{Instance, Machine};
use crate::tools::Tools;

const READY_LIMIT: Duration = Duration::from_secs(120);
const PORT: u16 = 6443;
const ETCD_PORTS: (u16, u16) = (2379, 2380);

/// The processes of the control plane's machine.
pub(crate) struct ControlPlane {
    kubeconfig: PathBuf,
    pki: Pki,
    etcd: Process,
    api_server: Process,
    controller_manager: Process,
    scheduler: Process,
    kube_proxy: Process,
}

impl ControlPlane {
    /// Makes certificates and kubeconfigs unless they are there, and plans the processes.
    pub fn new(instance: &Instance, tools: &Tools) -> Result<Self> {
        let address = instance.address(Machine::ControlPlane);
        let pki = create_pki(instance)?;
        let components = components::ControlPlane {
            tools,
            pki: &pki,
            data: instance.machine_dir(Machine::ControlPlane).join("etcd"),
            etcd_ports: ETCD_PORTS,
            address: &address,
            port: PORT,
        };
        let config = |user: &str| pki.path(&format!("{user}.kubeconfig"));
        for user in USERS {
            write_private(&config(user), &pki.kubeconfig(user, &components.url())?)?;
        }
        let kubeconfig = instance.dir().join("kubeconfig");
        write_private(&kubeconfig, &pki.kubeconfig("admin", &components.url())?)?;
        let process =
            |name: &str, argv: Vec<OsString>| in_netns(instance, Machine::ControlPlane, name, argv);
        Ok(Self {
            kubeconfig,
            etcd: process("etcd", components.etcd()?),
            api_server: process(
                "kube-apiserver",
                components.api_server(aggregation_flags(&pki))?,
            ),
            controller_manager: process(
                "kube-controller-manager",
                components.controller_manager(&config("controller-manager"), vec![])?,
            ),
            scheduler: process(
                "kube-scheduler",
                components.scheduler(&config("scheduler"))?,
            ),
            // kube-proxy waits 30 s for the node that it is told it runs on, and `cp` is none.
            kube_proxy: kube_proxy(instance, Machine::ControlPlane, Machine::Worker1, tools)?,
            pki,
        })
    }

    /// Starts what does not run; the API server is ready afterwards.
    pub async fn start(&self) -> Result<()> {
        self.etcd.ensure().await?;
        self.api_server.ensure().await?;
        wait_api_server(
            &self.kubeconfig,
            READY_LIMIT,
            &[&self.etcd, &self.api_server],
        )
        .await?;
        for process in [&self.controller_manager, &self.scheduler, &self.kube_proxy] {
            process.ensure().await?;
        }
        Ok(())
    }

    pub fn processes(&self) -> Vec<&Process> {
        vec![
            &self.etcd,
            &self.api_server,
            &self.controller_manager,
            &self.scheduler,
            &self.kube_proxy,
        ]
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone()
    }

    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    pub async fn client(&self) -> Result<Client> {
        connect(&self.kubeconfig).await
    }
}

/// Path of the kubeconfig that a component uses.
pub(crate) fn component_kubeconfig(instance: &Instance, user: &str) -> PathBuf {
    pki_dir(instance).join(format!("{user}.kubeconfig"))
}

/// Certificates that get a kubeconfig.
const USERS: [&str; 5] = ["controller-manager", "scheduler", "proxy", "w1", "w2"];

fn pki_dir(instance: &Instance) -> PathBuf {
    instance.dir().join("pki")
}

fn create_pki(instance: &Instance) -> Result<Pki> {
    let address = instance.address(Machine::ControlPlane);
    let api_server = [
        "localhost",
        "127.0.0.1",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        components::SERVICE_IP,
        &address,
    ];
    let (address1, address2) = (
        instance.address(Machine::Worker1),
        instance.address(Machine::Worker2),
    );
    let subjects = [
        (
            "apiserver",
            Subject::user("kube-apiserver").serving(&api_server),
        ),
        ("admin", Subject::user("admin").in_group("system:masters")),
        (
            "controller-manager",
            Subject::user("system:kube-controller-manager").in_group("system:masters"),
        ),
        ("scheduler", Subject::user("system:kube-scheduler")),
        ("proxy", Subject::user("system:kube-proxy")),
        (
            "kubelet-client",
            Subject::user("apiserver-kubelet-client").in_group("system:masters"),
        ),
        ("front-proxy", Subject::user("front-proxy")),
        (
            "w1",
            Subject::user("system:node:w1")
                .in_group("system:nodes")
                .serving(&["w1", &address1]),
        ),
        (
            "w2",
            Subject::user("system:node:w2")
                .in_group("system:nodes")
                .serving(&["w2", &address2]),
        ),
    ];
    Pki::ensure(pki_dir(instance), &subjects)
}

/// Reaching kubelets and aggregated APIs.
fn aggregation_flags(pki: &Pki) -> Vec<String> {
    let path = |file: &str| pki.path(file);
    let file = |name: &str, path: &Path| flag(name, path.display());
    vec![
        file("kubelet-client-certificate", &path("kubelet-client.crt")),
        file("kubelet-client-key", &path("kubelet-client.key")),
        file("kubelet-certificate-authority", &path("ca.crt")),
        flag("kubelet-preferred-address-types", "InternalIP"),
        file("proxy-client-cert-file", &path("front-proxy.crt")),
        file("proxy-client-key-file", &path("front-proxy.key")),
        file("requestheader-client-ca-file", &path("ca.crt")),
        // One authority serves both kinds of clients, so only this name may speak for others.
        flag("requestheader-allowed-names", "front-proxy"),
        flag("requestheader-username-headers", "X-Remote-User"),
        flag("requestheader-group-headers", "X-Remote-Group"),
        flag("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
    ]
}
