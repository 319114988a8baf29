//! Images into one docker-archive, with buildah and tar.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use mzcompose::command;
use serde_json::Value;
use tokio::process::Command;

use super::Image;

/// How long one step of buildah or tar may take.
const STEP_LIMIT: Duration = Duration::from_secs(120);

/// Builds `images` and writes them into the docker-archive `path`, which appears whole or not at all.
pub async fn write(images: &[Image], path: &Path) -> Result<()> {
    let work = tempfile::tempdir().context("creating a folder for buildah")?;
    let merged = work.path().join("merged");
    std::fs::create_dir(&merged)?;
    let mut manifest = Vec::new();
    for image in images {
        manifest.extend(add(image, work.path(), &merged).await?);
    }
    std::fs::write(merged.join("manifest.json"), serde_json::to_vec(&manifest)?)?;
    let partial = path.with_extension(format!("partial-{}", std::process::id()));
    let mut tar = Command::new("tar");
    tar.arg("--create")
        .arg("--file")
        .arg(&partial)
        .arg("--directory")
        .arg(&merged)
        .arg(".");
    if let Err(error) = command::run(&mut tar, STEP_LIMIT).await {
        let _ = std::fs::remove_file(&partial);
        return Err(error);
    }
    std::fs::rename(&partial, path).with_context(|| format!("renaming {}", partial.display()))
}

/// Builds one image and unpacks its archive into `merged`; returns its entries in the manifest.
async fn add(image: &Image, work: &Path, merged: &Path) -> Result<Vec<Value>> {
    let context = image.binary.parent().context("the binary has no folder")?;
    let single = work.join("image.tar");
    let mut build = buildah(work);
    build.args([
        "bud",
        "--quiet",
        "--isolation",
        "chroot",
        "--timestamp",
        "0",
    ]);
    if let Some(version) = image.version {
        build.arg("--build-arg").arg(format!("VERSION={version}"));
    }
    build
        .args(["--tag", &image.reference])
        .arg("--file")
        .arg(&image.dockerfile)
        .arg(context);
    command::run(&mut build, STEP_LIMIT).await?;
    let target = format!("docker-archive:{}:{}", single.display(), image.reference);
    command::run(
        buildah(work).args(["push", "--quiet", &image.reference, &target]),
        STEP_LIMIT,
    )
    .await?;
    let mut tar = Command::new("tar");
    tar.arg("--extract")
        .arg("--file")
        .arg(&single)
        .arg("--directory")
        .arg(merged);
    command::run(&mut tar, STEP_LIMIT).await?;
    std::fs::remove_file(&single)?;
    let manifest =
        std::fs::read(merged.join("manifest.json")).context("buildah wrote no manifest.json")?;
    serde_json::from_slice(&manifest).context("parsing buildah's manifest.json")
}

fn buildah(work: &Path) -> Command {
    let mut buildah = Command::new("buildah");
    buildah
        .arg("--root")
        .arg(work.join("root"))
        .arg("--runroot")
        .arg(work.join("run"))
        .args(["--storage-driver", "vfs"]);
    buildah
}
