//! A control plane alone: etcd, API server and controller manager on loopback, without root, in seconds. Integration
//! tests use it: one shared by a whole run, or a private one for a test that breaks it.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::client::{answered, connect, server_of, wait_api_server};
use crate::components::{self, flag};
use crate::pki::{Pki, Subject, write_private};
use crate::process::{Identity, Process, kill_all, wait_until};
use crate::tools::{Module, Tools};

/// Environment variable with the kubeconfig of the control plane that a test run shares.
pub const SHARED: &str = "MZCOMPOSE_CONTROL_PLANE";
/// Environment variable with the audit log of the control plane that a test run shares.
pub const SHARED_AUDIT_LOG: &str = "MZCOMPOSE_AUDIT_LOG";
/// Takes 3 s on two idle cores.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// A port found free may be taken by another before it is used.
const ATTEMPTS: u32 = 4;
const DROP_LIMIT: Duration = Duration::from_secs(2);
const DROP_POLL: Duration = Duration::from_millis(5);
const LOOPBACK: &str = "127.0.0.1";

/// A way in to a control plane: its kubeconfig, and kubeconfigs for other users.
#[derive(Clone, Debug)]
pub struct Access {
    dir: PathBuf,
}

impl Access {
    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// A client with the administrator's rights.
    pub async fn client(&self) -> Result<Client> {
        connect(&self.kubeconfig()).await
    }

    /// Writes a kubeconfig for a user who has no rights but those bound to this name or group.
    pub fn kubeconfig_for(&self, user: &str, group: Option<&str>) -> Result<PathBuf> {
        let server = server_of(&self.kubeconfig())?;
        let pki = Pki::open(self.dir.join("pki"));
        let credential = pki.sign(&Subject {
            user,
            group,
            hosts: vec![],
        })?;
        let path = self
            .dir
            .join(format!("{}.kubeconfig", uuid::Uuid::new_v4()));
        write_private(&path, &pki.kubeconfig_with(user, &server, &credential)?)?;
        Ok(path)
    }
}

/// A control plane of one's own; it ends when dropped, or when the process that started it ends.
#[derive(Debug)]
pub struct ControlPlane {
    access: Access,
    etcd: Process,
    api_server: Process,
    controller_manager: Process,
    /// Holds the directory while it is in use, unless the caller named one.
    _temporary: Option<TempDir>,
}

/// What a control plane may be started with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where its files go; a temporary directory if none is named.
    pub dir: Option<PathBuf>,
    /// Log every request (who, verb, object, outcome; of Leases what was sent too) as a line of JSON in this file.
    pub audit_log: Option<PathBuf>,
    /// More flags for the API server, like `--feature-gates=…`.
    pub api_server_flags: Vec<String>,
}

impl ControlPlane {
    /// The control plane that all tests of a run share; a test works in a namespace of its own there.
    pub fn shared() -> Result<Access> {
        shared_at(env::var_os(SHARED).map(PathBuf::from))
    }

    /// Starts one for a single test, with tools that have been built before.
    pub async fn private() -> Result<Self> {
        Self::start(&Tools::locate(&[Module::Kubernetes])?, &Options::default()).await
    }

    /// Starts one and waits until it is ready, which takes about 3 s.
    pub async fn start(tools: &Tools, options: &Options) -> Result<Self> {
        let mut attempt = 1;
        loop {
            match Self::attempt(tools, options).await {
                Err(error) if attempt < ATTEMPTS && port_was_taken(&error) => attempt += 1,
                outcome => return outcome.context("cannot start a control plane"),
            }
        }
    }

    async fn attempt(tools: &Tools, options: &Options) -> Result<Self> {
        let control_plane = Self::prepare(tools, options)?;
        for process in [&control_plane.etcd, &control_plane.api_server] {
            process.ensure().await?;
        }
        control_plane.wait_ready().await?;
        control_plane.controller_manager.ensure().await?;
        control_plane.wait_controllers().await?;
        Ok(control_plane)
    }

    fn prepare(tools: &Tools, options: &Options) -> Result<Self> {
        let (dir, temporary) = directory(options)?;
        let pki = Pki::ensure(dir.join("pki"), &subjects())?;
        let [client_port, peer_port, port] = free_ports()?;
        let components = components::ControlPlane {
            tools,
            pki: &pki,
            data: dir.join("etcd"),
            etcd_ports: (client_port, peer_port),
            address: LOOPBACK,
            port,
        };
        let kubeconfig = |user: &str, path: &Path| {
            write_private(path, &pki.kubeconfig(user, &components.url())?)
        };
        let access = Access { dir: dir.clone() };
        kubeconfig("admin", &access.kubeconfig())?;
        let controllers = dir.join("controller-manager.kubeconfig");
        kubeconfig("controller-manager", &controllers)?;

        let mut flags = vec![flag("endpoint-reconciler-type", "none")];
        flags.extend(audit_flags(&dir, options)?);
        flags.extend(options.api_server_flags.iter().cloned());
        let process = |name: &str, argv| Process {
            instance: dir.clone(),
            name: name.into(),
            argv,
            env: vec![],
            config: String::new(),
            dies_with_parent: true,
        };
        let no_server = vec![flag("secure-port", 0)];
        Ok(Self {
            etcd: process("etcd", components.etcd()?),
            api_server: process("kube-apiserver", components.api_server(flags)?),
            controller_manager: process(
                "kube-controller-manager",
                components.controller_manager(&controllers, no_server)?,
            ),
            access,
            _temporary: temporary,
        })
    }

    /// The way in.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.access.kubeconfig()
    }

    /// Ends the API server at once, as a crash would.
    pub async fn stop_api_server(&self) -> Result<()> {
        self.api_server.kill().await
    }

    /// Starts the API server again, on the same port and data, and waits until it is ready.
    pub async fn start_api_server(&self) -> Result<()> {
        self.api_server.ensure().await?;
        self.wait_ready().await
    }

    /// Freezes the API server: connections open, nothing answers.
    pub fn pause(&self) -> Result<()> {
        self.signal_api_server(Signal::STOP)
    }

    /// Lets a frozen API server go on.
    pub fn resume(&self) -> Result<()> {
        self.signal_api_server(Signal::CONT)
    }

    fn signal_api_server(&self, signal: Signal) -> Result<()> {
        self.api_server.check()?;
        self.api_server
            .running()?
            .map_or(Ok(()), |identity| identity.signal(signal))
    }

    /// Ends all of it and waits until it is gone.
    pub async fn stop(self) -> Result<()> {
        kill_all(&self.identities()).await
    }

    fn identities(&self) -> Vec<Identity> {
        [&self.controller_manager, &self.api_server, &self.etcd]
            .into_iter()
            .filter_map(|process| process.running().ok().flatten())
            .collect()
    }

    async fn wait_ready(&self) -> Result<()> {
        let needs = [&self.etcd, &self.api_server];
        wait_api_server(&self.access.kubeconfig(), READY_LIMIT, &needs).await
    }

    /// Controllers work once they have given a namespace its service account.
    async fn wait_controllers(&self) -> Result<()> {
        let accounts = Api::<ServiceAccount>::namespaced(self.access.client().await?, "default");
        let needs = [&self.api_server, &self.controller_manager];
        wait_until(
            "the controller manager to work",
            READY_LIMIT,
            &needs,
            async || {
                Ok(answered(accounts.get_opt("default"))
                    .await
                    .flatten()
                    .is_some())
            },
        )
        .await
    }
}

fn shared_at(kubeconfig: Option<PathBuf>) -> Result<Access> {
    let Some(kubeconfig) = kubeconfig else {
        bail!("{SHARED} is not set: run the tests by `cargo mzcompose test`");
    };
    if !kubeconfig.is_file() {
        bail!(
            "{SHARED} names {}, which is no file: run `cargo mzcompose test`",
            kubeconfig.display()
        );
    }
    let dir = kubeconfig
        .parent()
        .with_context(|| format!("{SHARED} names no file"))?;
    Ok(Access { dir: dir.into() })
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let identities = self.identities();
        for identity in &identities {
            // Nothing can be done about a failure here; the parent-death signal still ends it.
            let _ = identity.kill();
        }
        // Their directory can only be removed once nothing writes to it.
        let deadline = Instant::now() + DROP_LIMIT;
        while identities.iter().any(Identity::alive) && Instant::now() < deadline {
            thread::sleep(DROP_POLL);
        }
    }
}

fn directory(options: &Options) -> Result<(PathBuf, Option<TempDir>)> {
    match &options.dir {
        Some(dir) => Ok((dir.clone(), None)),
        None => {
            let dir = tempfile::Builder::new()
                .prefix("mzcompose-")
                .tempdir()
                .context("cannot make a temporary directory")?;
            Ok((dir.path().into(), Some(dir)))
        }
    }
}

fn subjects() -> Vec<(&'static str, Subject<'static>)> {
    let serving = [
        "localhost",
        LOOPBACK,
        components::SERVICE_IP,
        "kubernetes.default.svc",
    ];
    vec![
        (
            "apiserver",
            Subject::user("kube-apiserver").serving(&serving),
        ),
        ("admin", Subject::user("admin").in_group("system:masters")),
        (
            "controller-manager",
            Subject::user("system:kube-controller-manager").in_group("system:masters"),
        ),
    ]
}

fn audit_flags(dir: &Path, options: &Options) -> Result<Vec<String>> {
    let Some(log) = &options.audit_log else {
        return Ok(vec![]);
    };
    let policy = dir.join("audit-policy.json");
    let content = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "Request", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
            {"level": "Metadata"},
        ],
    });
    fs::write(&policy, content.to_string())
        .with_context(|| format!("cannot write {}", policy.display()))?;
    Ok(vec![
        flag("audit-policy-file", policy.display()),
        flag("audit-log-path", log.display()),
        flag("audit-log-mode", "blocking"),
    ])
}

/// Ports that are free now: all are held while they are looked for, so they differ.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = vec![];
    let mut ports = [0; N];
    for port in &mut ports {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free on loopback")?;
        *port = listener
            .local_addr()
            .context("no port is free on loopback")?
            .port();
        held.push(listener);
    }
    Ok(ports)
}

fn port_was_taken(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("address already in use")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_shared_one_the_way_to_it_is_named() {
        for kubeconfig in [None, Some(PathBuf::from("/no/such/kubeconfig"))] {
            let error = shared_at(kubeconfig).unwrap_err().to_string();
            assert!(error.contains("cargo mzcompose test"), "{error}");
        }
    }

    #[test]
    fn another_user_gets_the_server_of_the_shared_one() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::ensure(dir.path().join("pki"), &subjects()).unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        write_private(
            &kubeconfig,
            &pki.kubeconfig("admin", "https://127.0.0.1:9").unwrap(),
        )
        .unwrap();
        let access = shared_at(Some(kubeconfig)).unwrap();
        let other = access.kubeconfig_for("jane", None).unwrap();
        assert_ne!(other, access.kubeconfig());
        assert_eq!(server_of(&other).unwrap(), "https://127.0.0.1:9");
    }

    #[test]
    fn free_ports_differ() {
        let [first, second, third] = free_ports().unwrap();
        assert!(first != second && second != third && first != third);
    }

    #[test]
    fn only_a_taken_port_is_worth_another_attempt() {
        let taken =
            anyhow::anyhow!("listen tcp 127.0.0.1:1: bind: address already in use").context("died");
        assert!(port_was_taken(&taken));
        assert!(!port_was_taken(&anyhow::anyhow!("no such file")));
    }
}
