//! The container images: what is in them, and their archives in the cache.

mod archive;
mod compile;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use mzcompose::tools::repository;
use sha2::{Digest, Sha256};

pub use compile::Binaries;

/// The tag of the operator, of its chart and of this program.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
/// The tags of the stand-ins: the operator's own and two older ones to upgrade from.
const ENVIRONMENT_VERSIONS: [&str; 3] = ["v26.38.0", "v26.39.0", VERSION];
/// What the operator deploys.
const STAND_INS: [&str; 4] = ["environmentd", "clusterd", "balancerd", "console"];
/// Archives of one name that stay in the cache, so that neighbouring work trees do not evict each other's.
const ARCHIVES_KEPT: usize = 4;

/// One image: a binary, the Dockerfile that wraps it, and its reference.
#[derive(Debug)]
pub struct Image {
    binary: PathBuf,
    dockerfile: PathBuf,
    reference: String,
    /// The version that a stand-in claims to be: the Dockerfile's argument `VERSION`.
    version: Option<&'static str>,
}

/// A docker-archive of one or more images.
#[derive(Debug, Clone)]
pub struct Archive {
    /// The archive; its name holds the digest.
    pub path: PathBuf,
    /// Hash of everything that went in: binaries, Dockerfiles, references.
    pub digest: String,
}

/// The archives of the operator and of what it deploys.
#[derive(Debug, Clone)]
pub struct Archives {
    /// The operator.
    pub operator: Archive,
    /// environmentd, clusterd, balancerd and console.
    pub stand_ins: Archive,
}

impl Archives {
    /// Where they are.
    pub fn paths(&self) -> Vec<PathBuf> {
        vec![self.operator.path.clone(), self.stand_ins.path.clone()]
    }
}

/// The operator and what it deploys, wrapped into archives in `cache`, unless that was done before.
pub async fn workload(binaries: &Binaries, cache: &Path) -> Result<Archives> {
    let operator = Image {
        binary: binaries.path("orchestratord")?,
        dockerfile: repository()?.join("Dockerfile"),
        reference: reference("orchestratord", VERSION),
        version: None,
    };
    let mut stand_ins = Vec::new();
    for name in STAND_INS {
        for version in ENVIRONMENT_VERSIONS {
            stand_ins.push(Image {
                binary: binaries.path(name)?,
                dockerfile: dockerfile(name)?,
                reference: reference(name, version),
                version: Some(version),
            });
        }
    }
    Ok(Archives {
        operator: archive_of("orchestratord", &[operator], cache).await?,
        stand_ins: archive_of("stand-ins", &stand_ins, cache).await?,
    })
}

/// The pause image and CoreDNS, which a node needs before anything else, in an archive in `cache`.
pub async fn system(binaries: &Binaries, coredns: &Path, cache: &Path) -> Result<Archive> {
    let image = |name: &str, binary| -> Result<Image> {
        let reference = format!("local.test/{name}:1");
        Ok(Image {
            binary,
            dockerfile: dockerfile(name)?,
            reference,
            version: None,
        })
    };
    let images = [
        image("pause", binaries.path("pause")?)?,
        image("coredns", coredns.to_path_buf())?,
    ];
    archive_of("system", &images, cache).await
}

fn dockerfile(name: &str) -> Result<PathBuf> {
    Ok(repository()?
        .join("test/images")
        .join(name)
        .join("Dockerfile"))
}

fn reference(name: &str, version: &str) -> String {
    format!("docker.io/materialize/{name}:{version}")
}

async fn archive_of(name: &str, images: &[Image], cache: &Path) -> Result<Archive> {
    let folder = cache.join("images");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let digest = digest(images)?;
    let path = folder.join(format!(
        "{name}-{VERSION}-{}.tar",
        digest.get(..12).unwrap_or(&digest)
    ));
    if !path.exists() {
        archive::write(images, &path)
            .await
            .with_context(|| format!("building the image archive {}", path.display()))?;
        prune(&folder, &format!("{name}-"))?;
    }
    Ok(Archive { path, digest })
}

fn digest(images: &[Image]) -> Result<String> {
    let mut contents = BTreeMap::new();
    let mut hash = Sha256::new();
    for image in images {
        for file in [&image.binary, &image.dockerfile] {
            // Images share a binary.
            let content = match contents.entry(file) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(file_digest(file)?),
            };
            hash.update(content.as_slice());
        }
        hash.update(image.reference.len().to_le_bytes());
        hash.update(&image.reference);
    }
    Ok(hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

fn file_digest(file: &Path) -> Result<[u8; 32]> {
    let content = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(Sha256::digest(content).into())
}

fn prune(folder: &Path, prefix: &str) -> Result<()> {
    let mut archives = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            archives.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    archives.sort();
    for (_, path) in archives.iter().rev().skip(ARCHIVES_KEPT) {
        std::fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(folder: &Path, content: &str, reference: &str) -> Image {
        let binary = folder.join("binary");
        std::fs::write(&binary, content).unwrap();
        let dockerfile = folder.join("Dockerfile");
        std::fs::write(&dockerfile, "FROM scratch").unwrap();
        Image {
            binary,
            dockerfile,
            reference: reference.to_owned(),
            version: None,
        }
    }

    #[test]
    fn the_digest_depends_on_content_and_reference_alone() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let same = digest(&[image(one.path(), "a", "x:1")]).unwrap();
        assert_eq!(same, digest(&[image(two.path(), "a", "x:1")]).unwrap());
        assert_ne!(same, digest(&[image(two.path(), "b", "x:1")]).unwrap());
        assert_ne!(same, digest(&[image(two.path(), "a", "x:2")]).unwrap());
    }

    #[test]
    fn only_the_newest_archives_of_a_name_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let start = std::time::SystemTime::UNIX_EPOCH;
        for (age, name) in ["a-1", "a-2", "a-3", "a-4", "a-5", "b-1"]
            .iter()
            .enumerate()
        {
            let file = std::fs::File::create(folder.path().join(name)).unwrap();
            file.set_modified(start + std::time::Duration::from_secs(age as u64))
                .unwrap();
        }
        prune(folder.path(), "a-").unwrap();
        let mut left: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["a-2", "a-3", "a-4", "a-5", "b-1"]);
    }
}
