//! Command lines of the control plane's programs, shared by the whole cluster and the light form.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::pki::Pki;
use crate::tools::Tools;

/// The API server's address among Services.
pub(crate) const SERVICE_IP: &str = "10.96.0.1";
const SERVICE_CIDR: &str = "10.96.0.0/16";

/// What differs between control planes.
pub(crate) struct ControlPlane<'a> {
    pub tools: &'a Tools,
    pub pki: &'a Pki,
    /// Where etcd keeps its data.
    pub data: PathBuf,
    /// etcd's ports for clients and peers, on loopback.
    pub etcd_ports: (u16, u16),
    /// The API server's address and port.
    pub address: &'a str,
    pub port: u16,
}

impl ControlPlane<'_> {
    /// etcd without the safety of fsync, which a throw-away cluster does not need.
    pub fn etcd(&self) -> Result<Vec<OsString>> {
        let (_, peer) = self.etcd_ports;
        let peer = format!("http://127.0.0.1:{peer}");
        command(
            &self.tools.etcd()?,
            vec![
                flag("data-dir", self.data.display()),
                flag("listen-client-urls", self.etcd_url()),
                flag("advertise-client-urls", self.etcd_url()),
                flag("listen-peer-urls", &peer),
                flag("initial-advertise-peer-urls", &peer),
                flag("initial-cluster", format!("default={peer}")),
                flag("log-level", "warn"),
                flag("unsafe-no-fsync", true),
            ],
        )
    }

    /// The API server; `extra` flags come last.
    pub fn api_server(&self, extra: Vec<String>) -> Result<Vec<OsString>> {
        let pki = |file: &str| self.pki.path(file).display().to_string();
        let mut flags = vec![
            flag("etcd-servers", self.etcd_url()),
            flag("bind-address", self.address),
            flag("advertise-address", self.address),
            flag("secure-port", self.port),
            flag("tls-cert-file", pki("apiserver.crt")),
            flag("tls-private-key-file", pki("apiserver.key")),
            flag("client-ca-file", pki("ca.crt")),
            flag("service-account-issuer", "https://kubernetes.default.svc"),
            flag("service-account-key-file", pki("sa.pub")),
            flag("service-account-signing-key-file", pki("sa.key")),
            flag("service-cluster-ip-range", SERVICE_CIDR),
            flag("authorization-mode", "Node,RBAC"),
            flag("enable-admission-plugins", "NodeRestriction"),
            flag("allow-privileged", true),
        ];
        flags.extend(extra);
        command(&self.tools.kubernetes("kube-apiserver")?, flags)
    }

    /// The controller manager, alone and so without election; making a service account for each controller would double
    /// its start, so it acts as one user, who may do anything.
    pub fn controller_manager(
        &self,
        kubeconfig: &Path,
        extra: Vec<String>,
    ) -> Result<Vec<OsString>> {
        let pki = |file: &str| self.pki.path(file).display().to_string();
        let mut flags = client(kubeconfig);
        flags.extend([
            flag("service-account-private-key-file", pki("sa.key")),
            flag("root-ca-file", pki("ca.crt")),
            flag("cluster-signing-cert-file", pki("ca.crt")),
            flag("cluster-signing-key-file", pki("ca.key")),
            flag("kube-api-qps", 500),
            flag("kube-api-burst", 1000),
        ]);
        flags.extend(extra);
        command(&self.tools.kubernetes("kube-controller-manager")?, flags)
    }

    /// The scheduler, alone and so without election.
    pub fn scheduler(&self, kubeconfig: &Path) -> Result<Vec<OsString>> {
        command(
            &self.tools.kubernetes("kube-scheduler")?,
            client(kubeconfig),
        )
    }

    /// The API server's URL.
    pub fn url(&self) -> String {
        format!("https://{}:{}", self.address, self.port)
    }

    fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd_ports.0)
    }
}

/// `--name=value`.
pub(crate) fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

fn client(kubeconfig: &Path) -> Vec<String> {
    let path = kubeconfig.display();
    [
        "kubeconfig",
        "authentication-kubeconfig",
        "authorization-kubeconfig",
    ]
    .map(|name| flag(name, &path))
    .into_iter()
    .chain([flag("leader-elect", false)])
    .collect()
}

fn command(program: &Path, flags: Vec<String>) -> Result<Vec<OsString>> {
    let words = flags.into_iter().map(OsString::from);
    Ok(std::iter::once(program.into()).chain(words).collect())
}
