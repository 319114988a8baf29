//! Command lines: strict parsing, and the syntax of values.

use std::ffi::OsString;

use anyhow::{Result, anyhow, bail};
use clap::Parser;
use serde_json::Value;

/// Parses a command line; the error is one line that names what is unknown, missing or malformed.
pub(crate) fn parse<T: Parser>(
    args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<T> {
    T::try_parse_from(args).map_err(|err| {
        let text = err.to_string();
        let first = text.split("\n\n").next().unwrap_or(&text);
        let line = first.split_whitespace().collect::<Vec<_>>().join(" ");
        anyhow!("{}", line.strip_prefix("error: ").unwrap_or(&line))
    })
}

/// Any text but none.
pub(crate) fn non_empty(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("must not be empty".into());
    }
    Ok(text.into())
}

/// `KEY=VALUE`; the value may be empty and may hold further `=`.
pub(crate) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("must be KEY=VALUE".into()),
    }
}

/// `SCHEME://REST`.
pub(crate) fn url(text: &str) -> Result<String, String> {
    match text.split_once("://") {
        Some((scheme, rest)) if !scheme.is_empty() && !rest.is_empty() => Ok(text.into()),
        _ => Err("must be a URL".into()),
    }
}

/// `HOST:PORT`, the host a name or an address.
pub(crate) fn host_port(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.into()),
        _ => Err("must be HOST:PORT".into()),
    }
}

/// `<provider>-<region>-<uuid>-<ordinal>`.
pub(crate) fn environment_id(text: &str) -> Result<String, String> {
    let parts = || {
        let (rest, ordinal) = text.rsplit_once('-')?;
        ordinal.parse::<u32>().ok()?;
        let at = rest.len().checked_sub(36)?;
        uuid::Uuid::try_parse(rest.get(at..)?).ok()?;
        let (provider, region) = rest.get(..at)?.strip_suffix('-')?.split_once('-')?;
        (!provider.is_empty() && !region.is_empty()).then_some(())
    };
    match parts() {
        Some(()) => Ok(text.into()),
        None => Err("must be PROVIDER-REGION-UUID-ORDINAL".into()),
    }
}

/// `REPOSITORY:TAG`.
pub(crate) fn image(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((repository, tag))
            if !repository.is_empty() && !tag.is_empty() && !tag.contains('/') =>
        {
            Ok(text.into())
        }
        _ => Err("must be REPOSITORY:TAG".into()),
    }
}

/// A JSON object whose members are objects, one a cluster replica size.
pub(crate) fn replica_sizes(text: &str) -> Result<Value, String> {
    let sizes: Value = serde_json::from_str(text).map_err(|err| format!("not JSON: {err}"))?;
    match &sizes {
        Value::Object(members) if members.values().all(Value::is_object) => Ok(sizes),
        _ => Err("must be a JSON object of objects".into()),
    }
}

/// JSON text of a Kubernetes type.
pub(crate) fn json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|err| format!("not the JSON that is expected: {err}"))
}

/// A duration such as `1s` or `500ms`, or a plain number of seconds.
pub(crate) fn duration(text: &str) -> Result<std::time::Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return std::time::Duration::try_from_secs_f64(seconds).map_err(|err| err.to_string());
    }
    humantime::parse_duration(text).map_err(|err| err.to_string())
}

/// A file that exists and is not empty.
pub(crate) fn require_file(what: &str, path: &std::path::Path) -> Result<()> {
    let length = std::fs::metadata(path)
        .map_err(|err| {
            anyhow!(
                "{what} names {}, which cannot be read: {err}",
                path.display()
            )
        })?
        .len();
    if length == 0 {
        return Err(anyhow!("{what} names {}, which is empty", path.display()));
    }
    Ok(())
}

/// The environment variables that matter: `MZ_…` and `AWS_REGION`.
pub(crate) fn variables() -> Result<Vec<(String, String)>> {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
        .filter(|(name, _)| name.starts_with("MZ_") || name == "AWS_REGION")
        .map(|(name, value)| match value.into_string() {
            Ok(value) => Ok((name, value)),
            Err(_) => bail!("the environment variable {name} is not UTF-8"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("generic-kind-12345678-1234-1234-1234-123456789012-0", true)]
    #[case("aws-us-east-1-12345678-1234-1234-1234-123456789012-0", true)]
    #[case("generic-kind-12345678-1234-1234-1234-123456789012", false)]
    #[case("kind-12345678-1234-1234-1234-123456789012-0", false)]
    #[case("generic-kind-not-a-uuid-0", false)]
    fn environment_ids(#[case] text: &str, #[case] good: bool) {
        assert_eq!(environment_id(text).is_ok(), good);
    }

    #[rstest]
    #[case("2", Some(Duration::from_secs(2)))]
    #[case("0.25", Some(Duration::from_millis(250)))]
    #[case("750ms", Some(Duration::from_millis(750)))]
    #[case("-1", None)]
    #[case("soon", None)]
    fn durations(#[case] text: &str, #[case] expected: Option<Duration>) {
        assert_eq!(duration(text).ok(), expected);
    }

    #[rstest]
    #[case(image("materialize/clusterd:v26.40.0").is_ok(), true)]
    #[case(image("registry:5000/clusterd").is_ok(), false)]
    #[case(host_port("a.b.svc.cluster.local:6875").is_ok(), true)]
    #[case(host_port("a.b.svc.cluster.local").is_ok(), false)]
    #[case(key_value("a=b=c").is_ok(), true)]
    #[case(key_value("=b").is_ok(), false)]
    #[case(replica_sizes(r#"{"25cc":{"workers":1}}"#).is_ok(), true)]
    #[case(replica_sizes(r#"["25cc"]"#).is_ok(), false)]
    fn syntax(#[case] accepted: bool, #[case] expected: bool) {
        assert_eq!(accepted, expected);
    }
}
