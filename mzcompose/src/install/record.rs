//! What a release is made of, kept in its description.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// What a release's description records, so that a second run knows that there is nothing to do.
#[derive(Debug, PartialEq)]
pub struct Recorded {
    /// Hash of the chart's files and of the values.
    pub chart: String,
    /// Hash of the operator's image.
    pub image: String,
}

impl Recorded {
    /// Reads a description back; another release's says nothing.
    pub fn parse(description: &str) -> Option<Self> {
        let (chart, image) = description.strip_prefix("chart ")?.split_once(", image ")?;
        Some(Self {
            chart: chart.to_owned(),
            image: image.to_owned(),
        })
    }
}

impl std::fmt::Display for Recorded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "chart {}, image {}", self.chart, self.image)
    }
}

/// Hash of a chart's files and of a values file, wherever they lie.
pub fn chart_digest(chart: &Path, values: &Path) -> Result<String> {
    let mut files = BTreeMap::new();
    collect(chart, chart, &mut files)?;
    files.insert(
        PathBuf::from("values"),
        std::fs::read(values).with_context(|| format!("reading {}", values.display()))?,
    );
    let mut hash = Sha256::new();
    for (path, content) in files {
        hash.update(path.to_string_lossy().as_bytes());
        hash.update(content.len().to_le_bytes());
        hash.update(content);
    }
    Ok(hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    for entry in
        std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?
    {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
        } else {
            let content =
                std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            files.insert(path.strip_prefix(root)?.to_path_buf(), content);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_remembers_what_it_was_made_of() {
        let record = Recorded {
            chart: "a1".to_owned(),
            image: "b2".to_owned(),
        };
        assert_eq!(Recorded::parse(&record.to_string()), Some(record));
        assert_eq!(Recorded::parse("Install complete"), None);
    }

    #[test]
    fn a_changed_template_or_value_changes_the_digest() {
        let folder = tempfile::tempdir().unwrap();
        let (chart, values) = (
            folder.path().join("chart"),
            folder.path().join("values.yaml"),
        );
        std::fs::create_dir_all(chart.join("templates")).unwrap();
        std::fs::write(chart.join("templates/a.yaml"), "a").unwrap();
        std::fs::write(&values, "x").unwrap();
        let first = chart_digest(&chart, &values).unwrap();
        assert_eq!(first, chart_digest(&chart, &values).unwrap());
        std::fs::write(chart.join("templates/a.yaml"), "b").unwrap();
        let second = chart_digest(&chart, &values).unwrap();
        assert_ne!(first, second);
        std::fs::write(&values, "y").unwrap();
        assert_ne!(second, chart_digest(&chart, &values).unwrap());
    }
}
