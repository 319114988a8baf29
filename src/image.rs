//! Image references: versions, siblings and the upgrade window.

mod upgrade;

pub use upgrade::{Refusal, upgrade_allowed};

use std::fmt;

use semver::Version;

use crate::cli::KeyValue;

/// What a runtime pulls where a reference has neither tag nor digest.
const DEFAULT_TAG: &str = "latest";

/// Where siblings of an image without any path are taken from.
const DEFAULT_REPOSITORY: &str = "materialize";

/// `[host[:port]/]path[:tag][@digest]`, taken apart; every text is one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageRef {
    name: String,
    tag: Option<String>,
    digest: Option<String>,
}

/// A version from which on something holds, as semver text; see [`ImageRef::meets_minimum`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinimumVersion(pub &'static str);

impl ImageRef {
    /// Takes a reference apart.
    pub fn parse(reference: &str) -> Self {
        let (rest, digest) = match reference.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.to_owned())),
            None => (reference, None),
        };
        // A colon before the last slash belongs to the registry's port.
        let (name, tag) = match rest.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag.to_owned())),
            _ => (rest, None),
        };
        Self {
            name: name.to_owned(),
            tag,
            digest,
        }
    }

    /// The tag, if the reference has one.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The version that the tag `v<semver>` names, where `--` stands for semver's `+`; none for any other tag.
    pub fn version(&self) -> Option<Version> {
        let version = self.tag()?.strip_prefix('v')?;
        Version::parse(&version.replacen("--", "+", 1)).ok()
    }

    /// Whether the version is at least this one; so for images whose version cannot be told, which are taken for new ones.
    pub fn meets_minimum(&self, minimum: MinimumVersion) -> bool {
        match (self.version(), Version::parse(minimum.0)) {
            (Some(version), Ok(minimum)) => version.cmp_precedence(&minimum).is_ge(),
            _ => true,
        }
    }

    /// The image of this name beside this one, with this one's tag.
    pub fn sibling(&self, name: &str) -> Self {
        self.sibling_with_tag(name, self.tag().unwrap_or(DEFAULT_TAG))
    }

    /// The image of this name beside this one, with another tag.
    pub fn sibling_with_tag(&self, name: &str, tag: &str) -> Self {
        let repository = match self.name.rsplit_once('/') {
            Some((repository, _)) => repository,
            None => DEFAULT_REPOSITORY,
        };
        Self {
            name: format!("{repository}/{name}"),
            tag: Some(tag.to_owned()),
            digest: None,
        }
    }

    /// The console's tag for this environmentd image: the first entry of the map for its tag, else the default.
    pub fn console_tag<'a>(&self, map: &'a [KeyValue], default: &'a str) -> &'a str {
        let tag = self.tag().unwrap_or(DEFAULT_TAG);
        map.iter()
            .find(|entry| entry.key == tag)
            .map_or(default, |entry| &entry.value)
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
