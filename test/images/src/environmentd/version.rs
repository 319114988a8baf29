//! Which arguments an image of which version knows.

use anyhow::{Context, Result, anyhow, bail};
use semver::{BuildMetadata, Version};

use super::args::{Args, TlsMode};

/// From this version on a listeners file replaces the listen-address arguments.
const LISTENERS_FILE: &str = "0.147.0-dev.0";
/// From this version on the listeners file may use the schema of the same name.
const LISTENERS_SCHEMA: &str = "26.32.0";
/// From this version on a licence key is mandatory.
const LICENSE_KEY: &str = "0.161.0";

/// The version an image claims to be, from its tag.
#[derive(Clone, Debug)]
pub(crate) struct ImageVersion {
    tag: String,
    version: Version,
}

impl ImageVersion {
    /// Reads a tag such as `v26.40.0` or `v26.40.0-dev.0--pr.g5a05`.
    pub(crate) fn parse(tag: &str) -> Result<Self> {
        let text = tag
            .strip_prefix('v')
            .ok_or_else(|| anyhow!("the version {tag:?} must start with v"))?;
        let mut version = Version::parse(&text.replacen("--", "+", 1))
            .with_context(|| format!("the version {tag:?}"))?;
        version.build = BuildMetadata::EMPTY;
        Ok(Self {
            tag: tag.into(),
            version,
        })
    }

    /// The tag it was read from.
    pub(crate) fn tag(&self) -> &str {
        &self.tag
    }

    /// Whether the listeners file may use the schema `26.32.0`.
    pub(crate) fn knows_listeners_schema(&self) -> bool {
        self.at_least(LISTENERS_SCHEMA)
    }

    /// Whether the process refuses to start without a licence key.
    pub(crate) fn needs_license_key(&self) -> bool {
        self.at_least(LICENSE_KEY)
    }

    /// Whether it reads a listeners file.
    pub(crate) fn has_listeners_file(&self) -> bool {
        self.at_least(LISTENERS_FILE)
    }

    fn at_least(&self, threshold: &str) -> bool {
        Version::parse(threshold).is_ok_and(|threshold| self.version >= threshold)
    }
}

/// An argument that only some versions know: from the first (inclusive) to the second (exclusive).
struct Gate {
    flag: &'static str,
    given: bool,
    from: &'static str,
    until: Option<&'static str>,
}

/// Refuses arguments that this version does not know, misses some it needs, or that contradict each other.
pub(crate) fn check(args: &Args, version: &ImageVersion) -> Result<()> {
    for gate in gates(args).into_iter().filter(|gate| gate.given) {
        let too_new = !version.at_least(gate.from);
        let too_old = gate.until.is_some_and(|until| version.at_least(until));
        if too_new || too_old {
            bail!(
                "unexpected argument '{}' found: {} does not know it",
                gate.flag,
                version.tag()
            );
        }
    }
    listen_arguments(args, version)?;
    let tls = &args.network;
    if (tls.tls_mode == TlsMode::Require) != (tls.tls_cert.is_some() && tls.tls_key.is_some()) {
        bail!(
            "--tls-mode=require needs --tls-cert and --tls-key, and they need --tls-mode=require"
        );
    }
    if let Some(sizes) = &args.sizes.cluster_replica_sizes {
        for (flag, size) in args.sizes.named() {
            if sizes.get(size).is_none() {
                bail!("{flag} names {size:?}, which --cluster-replica-sizes lacks");
            }
        }
    }
    Ok(())
}

fn gates(args: &Args) -> Vec<Gate> {
    let orchestrator = &args.orchestrator;
    let gate = |flag, given, from| Gate {
        flag,
        given,
        from,
        until: None,
    };
    vec![
        Gate {
            flag: "--disable-license-key-checks",
            given: args.identity.disable_license_key_checks,
            from: "0.143.0",
            until: Some("0.153.0"),
        },
        gate(
            "--orchestrator-kubernetes-service-affinity",
            orchestrator
                .orchestrator_kubernetes_service_affinity
                .is_some(),
            "0.144.0",
        ),
        gate(
            "--orchestrator-kubernetes-service-tolerations",
            orchestrator
                .orchestrator_kubernetes_service_tolerations
                .is_some(),
            "0.144.0",
        ),
        gate(
            "--listeners-config-path",
            args.network.listeners_config_path.is_some(),
            LISTENERS_FILE,
        ),
        gate(
            "--orchestrator-kubernetes-service-annotation",
            !orchestrator
                .orchestrator_kubernetes_service_annotation
                .is_empty(),
            "0.154.0",
        ),
        gate(
            "--config-sync-file-path",
            args.parameters.config_sync_file_path.is_some(),
            "26.1.0-dev.0",
        ),
        gate(
            "--orchestrator-kubernetes-priority-class-name",
            orchestrator
                .orchestrator_kubernetes_priority_class_name
                .is_some(),
            "26.42.0-dev.0",
        ),
    ]
}

fn listen_arguments(args: &Args, version: &ImageVersion) -> Result<()> {
    let network = &args.network;
    let addresses = [
        ("--sql-listen-addr", network.sql_listen_addr),
        ("--http-listen-addr", network.http_listen_addr),
        (
            "--internal-sql-listen-addr",
            network.internal_sql_listen_addr,
        ),
        (
            "--internal-http-listen-addr",
            network.internal_http_listen_addr,
        ),
    ];
    if version.has_listeners_file() {
        if network.listeners_config_path.is_none() {
            bail!("the following required arguments were not provided: --listeners-config-path");
        }
        if let Some((flag, _)) = addresses.iter().find(|(_, addr)| addr.is_some()) {
            bail!(
                "unexpected argument '{flag}' found: {} does not know it",
                version.tag()
            );
        }
    } else if let Some((flag, _)) = addresses.iter().find(|(_, addr)| addr.is_none()) {
        bail!("the following required arguments were not provided: {flag}");
    }
    Ok(())
}
