//! The environment variables that the operator gives environmentd.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

use super::Fault;
use super::leader::Timings;
use super::version::ImageVersion;
use crate::flags::{duration, require_file, url};

/// What the environment says.
#[derive(Debug)]
pub(crate) struct Environment {
    /// The password of `mz_system`, if it may log in with one.
    pub(crate) password: Option<String>,
    /// What the stand-in was told to do beyond imitating.
    pub(crate) settings: Settings,
}

/// Settings of the stand-in itself, all named `MZ_STANDIN_…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) timings: Timings,
    pub(crate) fault: Fault,
    pub(crate) catalog: CatalogKind,
}

/// Where the record of the leading generation is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CatalogKind {
    /// A Secret beside the pod.
    Kubernetes,
    /// In this process, which then always leads; no clusterd is made. For trying it by hand.
    Memory,
}

impl Environment {
    /// Reads the variables; errors name the variable and never show a value that may be secret.
    pub(crate) fn read(
        variables: impl IntoIterator<Item = (String, String)>,
        version: &ImageVersion,
    ) -> Result<Self> {
        let mut variables: BTreeMap<_, _> = variables.into_iter().collect();
        for name in ["MZ_METADATA_BACKEND_URL", "MZ_PERSIST_BLOB_URL"] {
            url(&required(&mut variables, name)?).map_err(|err| anyhow!("{name} {err}"))?;
        }
        required(&mut variables, "AWS_REGION")?;
        match variables.remove("MZ_LICENSE_KEY") {
            Some(path) => require_file("MZ_LICENSE_KEY", &PathBuf::from(path))?,
            None if version.needs_license_key() => bail!("the environment lacks MZ_LICENSE_KEY"),
            None => {}
        }
        let password = variables.remove("MZ_EXTERNAL_LOGIN_PASSWORD_MZ_SYSTEM");
        variables.remove("MZ_STANDIN_VERSION");
        let settings = Settings::take(&mut variables)?;
        match variables.keys().find(|name| name.starts_with("MZ_")) {
            Some(name) => bail!("unknown environment variable {name}"),
            None => Ok(Self { password, settings }),
        }
    }
}

impl Settings {
    fn take(variables: &mut BTreeMap<String, String>) -> Result<Self> {
        let defaults = Timings::default();
        Ok(Self {
            timings: Timings {
                startup: delay(variables, "MZ_STANDIN_STARTUP_DELAY", defaults.startup)?,
                catchup: delay(variables, "MZ_STANDIN_CATCHUP", defaults.catchup)?,
                promote: delay(variables, "MZ_STANDIN_PROMOTE_DELAY", defaults.promote)?,
            },
            fault: match variables.remove("MZ_STANDIN_FAULT") {
                None => Fault::None,
                Some(name) => Fault::parse(&name)?,
            },
            catalog: match variables.remove("MZ_STANDIN_CATALOG").as_deref() {
                None | Some("kubernetes") => CatalogKind::Kubernetes,
                Some("memory") => CatalogKind::Memory,
                Some(other) => {
                    bail!("MZ_STANDIN_CATALOG is {other:?}: must be kubernetes or memory")
                }
            },
        })
    }
}

fn required(variables: &mut BTreeMap<String, String>, name: &str) -> Result<String> {
    match variables.remove(name) {
        None => bail!("the environment lacks {name}"),
        Some(value) if value.is_empty() => bail!("{name} is empty"),
        Some(value) => Ok(value),
    }
}

fn delay(
    variables: &mut BTreeMap<String, String>,
    name: &str,
    default: Duration,
) -> Result<Duration> {
    match variables.remove(name) {
        None => Ok(default),
        Some(text) => duration(&text).map_err(|err| anyhow!("{name} is {text:?}: {err}")),
    }
}
