//! Static release builds of everything that goes into an image.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use mzcompose::command;
use tokio::process::Command;

use crate::exec;

/// How long a cold release build may take.
const BUILD_LIMIT: Duration = Duration::from_secs(30 * 60);

/// One line of cargo's `--message-format=json`, as far as it matters here.
#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// The binaries that go into images.
pub struct Binaries(BTreeMap<String, PathBuf>);

impl Binaries {
    /// Builds all binaries of `packages`, which cargo does only as far as something has changed.
    pub async fn compile(packages: &[&str]) -> Result<Self> {
        let version = command::run(Command::new("rustc").arg("-vV"), command::SHORT).await?;
        let mut cargo = exec::cargo()?;
        cargo
            .args(["build", "--release", "--target", &host_triple(&version)?])
            .args(packages.iter().flat_map(|name| ["--package", name]))
            .args(["--bins", "--message-format=json-render-diagnostics"])
            .env("RUSTFLAGS", "-C target-feature=+crt-static");
        Ok(Self(executables(
            &command::run(&mut cargo, BUILD_LIMIT).await?,
        )))
    }

    /// The binary called `name`.
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        self.0
            .get(name)
            .cloned()
            .with_context(|| format!("cargo built no `{name}`"))
    }
}

fn host_triple(version: &str) -> Result<String> {
    let triple = version.lines().find_map(|line| line.strip_prefix("host: "));
    triple
        .map(str::to_owned)
        .context("`rustc -vV` names no host")
}

fn executables(messages: &str) -> BTreeMap<String, PathBuf> {
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok());
    messages
        .filter_map(|message| Some((message.target?.name, message.executable?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_picked_out_of_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"libc"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"pause"},"executable":"/t/pause"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(
            executables(messages),
            BTreeMap::from([("pause".to_owned(), PathBuf::from("/t/pause"))])
        );
    }

    #[test]
    fn the_host_is_what_rustc_says() {
        assert_eq!(
            host_triple("rustc 1.95.0\nhost: aarch64-unknown-linux-gnu\n").unwrap(),
            "aarch64-unknown-linux-gnu"
        );
        assert!(host_triple("rustc 1.95.0").is_err());
    }
}
