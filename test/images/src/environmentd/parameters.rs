//! System parameters: defaults from the command line, later values from a file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;
use tracing::warn;

/// What `SHOW` knows.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    defaults: BTreeMap<String, String>,
    file: Option<PathBuf>,
}

impl Parameters {
    pub(crate) fn new(
        defaults: impl IntoIterator<Item = (String, String)>,
        file: Option<PathBuf>,
    ) -> Self {
        Self {
            defaults: defaults.into_iter().collect(),
            file,
        }
    }

    /// The value of a parameter. The file is read anew each time, so a change counts at once; one
    /// that is absent counts as empty, as its ConfigMap is optional.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let from_file = self.file.as_ref().and_then(|path| {
            let text = std::fs::read_to_string(path).ok()?;
            let values: BTreeMap<String, Value> = serde_json::from_str(&text)
                .inspect_err(|err| warn!("{} is not a JSON object: {err}", path.display()))
                .ok()?;
            values.get(name).map(|value| match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            })
        });
        from_file.or_else(|| self.defaults.get(name).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_wins_and_is_read_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("system-params.json");
        let defaults = [("max_connections".to_owned(), "10".to_owned())];
        let parameters = Parameters::new(defaults, Some(path.clone()));
        assert_eq!(parameters.get("max_connections").as_deref(), Some("10"));
        std::fs::write(&path, r#"{"max_connections": 1000, "a": "b"}"#).unwrap();
        assert_eq!(parameters.get("max_connections").as_deref(), Some("1000"));
        assert_eq!(parameters.get("a").as_deref(), Some("b"));
        std::fs::write(&path, "{").unwrap();
        assert_eq!(parameters.get("max_connections").as_deref(), Some("10"));
        assert_eq!(parameters.get("a"), None);
    }
}
