//! Instances of the cluster, the names of all they make on the machine, and where their state lies.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// The environment variable that says where the state of instances is kept.
pub const STATE: &str = "MZCOMPOSE_STATE";
/// The environment variable that says where tools and images are kept.
pub const CACHE: &str = "MZCOMPOSE_CACHE";

/// Longest name of a network interface that Linux takes (`IFNAMSIZ` less its end mark).
#[cfg(test)]
const INTERFACE_NAME_MAX: usize = 15;
/// Leaves room for `mzv-` and `-w1` in the name of an interface.
const INSTANCE_NAME_MAX: usize = 8;
/// Directories that a worker covers with its own file system.
const COVERED: [&str; 2] = ["/run", "/var/log"];

/// One cluster among those that may live side by side on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    name: String,
    index: u8,
    dir: PathBuf,
}

impl Instance {
    /// What `cargo mzcompose up` makes.
    pub fn dev() -> Result<Self> {
        Self::new("dev", 0)
    }

    /// What `cargo mzcompose test` makes.
    pub fn test() -> Result<Self> {
        Self::new("test", 1)
    }

    /// An instance of any name (1 to 8 of `a-z0-9`) on the subnet `172.30.<index>.0/24`.
    pub fn new(name: &str, index: u8) -> Result<Self> {
        Self::under(&root()?, name, index)
    }

    fn under(root: &Path, name: &str, index: u8) -> Result<Self> {
        let legal = name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        ensure!(
            legal && (1..=INSTANCE_NAME_MAX).contains(&name.len()),
            "instance name {name:?} must be 1 to {INSTANCE_NAME_MAX} of a-z and 0-9"
        );
        Ok(Self {
            name: name.into(),
            index,
            dir: root.join(name),
        })
    }

    /// The instance's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where everything the instance keeps on disk lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where one machine of the instance keeps its files.
    pub fn machine_dir(&self, machine: Machine) -> PathBuf {
        self.dir.join(machine.name())
    }

    /// The network namespace and the cgroup of a machine.
    pub fn machine_name(&self, machine: Machine) -> String {
        format!("mz-{}-{}", self.name, machine.name())
    }

    /// The host's end of a machine's cable.
    pub fn veth(&self, machine: Machine) -> String {
        format!("mzv-{}-{}", self.name, machine.name())
    }

    /// The bridge that joins the machines.
    pub fn bridge(&self) -> String {
        format!("mzbr{}", self.index)
    }

    /// First three octets of the machines' subnet.
    pub fn subnet_prefix(&self) -> String {
        format!("172.30.{}.", self.index)
    }

    /// The host's address on the bridge.
    pub fn gateway(&self) -> String {
        format!("{}1", self.subnet_prefix())
    }

    /// A machine's address.
    pub fn address(&self, machine: Machine) -> String {
        format!("{}{}", self.subnet_prefix(), machine.host_number())
    }
}

/// A machine of the cluster: a network namespace, and for workers a mount namespace and a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// Runs etcd, the API server and the controllers.
    ControlPlane,
    /// Runs pods, in zone 1.
    Worker1,
    /// Runs pods, in zone 2.
    Worker2,
}

impl Machine {
    /// Every machine.
    pub const ALL: [Self; 3] = [Self::ControlPlane, Self::Worker1, Self::Worker2];
    /// The machines that are Kubernetes nodes.
    pub const WORKERS: [Self; 2] = [Self::Worker1, Self::Worker2];

    /// Its host name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ControlPlane => "cp",
            Self::Worker1 => "w1",
            Self::Worker2 => "w2",
        }
    }

    fn host_number(self) -> u8 {
        match self {
            Self::ControlPlane => 10,
            Self::Worker1 => 11,
            Self::Worker2 => 12,
        }
    }

    /// The subnet of its pods; the control plane has none.
    pub fn pod_cidr(self) -> Option<&'static str> {
        match self {
            Self::ControlPlane => None,
            Self::Worker1 => Some("10.244.1.0/24"),
            Self::Worker2 => Some("10.244.2.0/24"),
        }
    }

    /// The labels that Materialize's node selectors and topology rules read.
    pub fn node_labels(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::ControlPlane => &[],
            Self::Worker1 => &[
                ("topology.kubernetes.io/zone", "1"),
                ("materialize.cloud/availability-zone", "1"),
                ("workload", "materialize-instance"),
                ("materialize.cloud/swap", "true"),
            ],
            Self::Worker2 => &[
                ("topology.kubernetes.io/zone", "2"),
                ("materialize.cloud/availability-zone", "2"),
                ("workload", "materialize-instance"),
                ("materialize.cloud/scratch-fs", "true"),
                ("materialize.cloud/disk", "true"),
            ],
        }
    }
}

/// `$MZCOMPOSE_STATE`, else `$XDG_STATE_HOME/mzcompose`, else `~/.local/state/mzcompose`.
pub fn root() -> Result<PathBuf> {
    let root = directory(STATE, "XDG_STATE_HOME", ".local/state")?;
    if let Some(covered) = COVERED.iter().find(|covered| root.starts_with(covered)) {
        bail!(
            "state directory {} must not lie under {covered}: set MZCOMPOSE_STATE",
            root.display()
        );
    }
    Ok(root)
}

/// `$MZCOMPOSE_CACHE`, else `$XDG_CACHE_HOME/mzcompose`, else `~/.cache/mzcompose`.
pub fn cache() -> Result<PathBuf> {
    directory(CACHE, "XDG_CACHE_HOME", ".cache")
}

fn directory(own: &str, xdg: &str, under_home: &str) -> Result<PathBuf> {
    let set = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let path = match (set(own), set(xdg)) {
        (Some(path), _) => path,
        (None, Some(xdg)) => xdg.join("mzcompose"),
        (None, None) => {
            let home = set("HOME").with_context(|| format!("neither {own} nor HOME is set"))?;
            home.join(under_home).join("mzcompose")
        }
    };
    std::path::absolute(&path).with_context(|| format!("cannot resolve {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(name: &str, index: u8) -> Result<Instance> {
        Instance::under(Path::new("/state"), name, index)
    }

    #[test]
    fn the_longest_names_still_fit_an_interface() {
        let longest = instance("abcdefgh", 255).unwrap();
        for machine in Machine::ALL {
            assert!(longest.veth(machine).len() <= INTERFACE_NAME_MAX);
        }
        assert!(longest.bridge().len() <= INTERFACE_NAME_MAX);
    }

    #[test]
    fn names_that_would_not_fit_or_escape_are_refused() {
        for name in ["", "abcdefghi", "Dev", "a-b", "../x", "ä"] {
            let error = instance(name, 0).unwrap_err().to_string();
            assert!(error.contains("must be 1 to 8"), "{name}: {error}");
        }
    }

    #[test]
    fn instances_share_no_name() {
        let (dev, test) = (instance("dev", 0).unwrap(), instance("test", 1).unwrap());
        assert_eq!(dev.machine_name(Machine::Worker1), "mz-dev-w1");
        assert_eq!(test.address(Machine::ControlPlane), "172.30.1.10");
        assert_ne!(dev.bridge(), test.bridge());
        assert_ne!(dev.veth(Machine::Worker2), test.veth(Machine::Worker2));
        assert_ne!(dev.dir(), test.dir());
    }
}
