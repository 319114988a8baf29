//! Readers of single values.

use std::str::FromStr;
use std::time::Duration;

use serde::de::DeserializeOwned;

/// A `KEY=VALUE` argument.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyValue {
    /// What stands before the first `=`.
    pub key: String,
    /// What stands after the first `=`.
    pub value: String,
}

impl FromStr for KeyValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok(Self {
                key: key.to_owned(),
                value: value.to_owned(),
            }),
            _ => Err("expected KEY=VALUE with a key".to_owned()),
        }
    }
}

/// A JSON value of the type the flag wants.
pub(super) fn json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("not the JSON this flag wants: {error}"))
}

/// A JSON object, kept as text: it is forwarded as it was given.
pub(super) fn json_object_text(text: &str) -> Result<String, String> {
    json::<serde_json::Map<String, serde_json::Value>>(text).map(|_| text.to_owned())
}

/// A duration with a unit, e.g. `15s`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("not a duration like 15s: {error}"))
}

/// A share in 0..=1.
pub(super) fn sample_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.0..=1.0).contains(&rate) => Ok(rate),
        _ => Err("must be a number from 0 to 1".to_owned()),
    }
}

/// A text that is not empty.
pub(super) fn non_empty(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("must not be empty".to_owned())
    } else {
        Ok(text.to_owned())
    }
}
