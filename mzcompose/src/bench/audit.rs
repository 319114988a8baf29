//! Who asked the API server for what, out of its audit log.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use mzcompose::process::wait_until;
use serde::Deserialize;

const LEASES: &str = "leases";

/// The API server's audit log.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
}

/// A place in the log.
#[derive(Debug, Clone, Copy)]
pub struct Mark(u64);

/// A request, or one stage of it: a watch is written down when it opens and when it ends.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(rename = "auditID")]
    id: String,
    verb: String,
    user: User,
    object_ref: Option<Object>,
    request_received_timestamp: Timestamp,
}

#[derive(Debug, Deserialize)]
struct User {
    username: String,
}

#[derive(Debug, Deserialize)]
struct Object {
    resource: Option<String>,
}

/// How many requests there were.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Requests {
    /// All of them.
    pub all: usize,
    /// Those for Leases.
    pub leases: usize,
}

impl AuditLog {
    /// The log in this file, which the API server has begun.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The end of the log as it is now.
    pub fn mark(&self) -> Result<Mark> {
        let metadata = self.path.metadata();
        let metadata = metadata.with_context(|| format!("cannot read {}", self.path.display()))?;
        Ok(Mark(metadata.len()))
    }

    /// Waits until `user` has sent a request for a Lease, with `verb` if one is given.
    pub async fn wait_lease_request(
        &self,
        mark: Mark,
        user: &str,
        verb: Option<&str>,
        limit: Duration,
    ) -> Result<()> {
        let what = format!("{user} to ask for the Lease");
        wait_until(&what, limit, &[], async || {
            let entries = self.since(mark)?;
            let wanted = |entry: &&Entry| {
                entry.user.username == user
                    && entry.is_of_a_lease()
                    && verb.is_none_or(|verb| entry.verb == verb)
            };
            Ok(entries.iter().any(|entry| wanted(&entry)))
        })
        .await
    }

    /// Counts the requests of `user` that came in at or after `from` and before `until`.
    pub fn count(
        &self,
        mark: Mark,
        user: &str,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Requests> {
        Ok(count(&self.since(mark)?, user, from, until))
    }

    fn since(&self, mark: Mark) -> Result<Vec<Entry>> {
        let unreadable = || format!("cannot read {}", self.path.display());
        let mut file = File::open(&self.path).with_context(unreadable)?;
        // A log that is shorter now was begun anew.
        let length = file.metadata().with_context(unreadable)?.len();
        let start = if length < mark.0 { 0 } else { mark.0 };
        file.seek(SeekFrom::Start(start)).with_context(unreadable)?;
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(unreadable)?;
        Ok(entries(&text))
    }
}

impl Entry {
    fn is_of_a_lease(&self) -> bool {
        let object = self.object_ref.as_ref();
        object.is_some_and(|object| object.resource.as_deref() == Some(LEASES))
    }
}

/// The whole lines; the last one may be half written.
fn entries(text: &str) -> Vec<Entry> {
    let lines = text.lines();
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn count(entries: &[Entry], user: &str, from: Timestamp, until: Timestamp) -> Requests {
    let mut seen = HashSet::new();
    let mut requests = Requests::default();
    for entry in entries {
        let received = entry.request_received_timestamp;
        let counts = entry.user.username == user && (from..until).contains(&received);
        if counts && seen.insert(&entry.id) {
            requests.all += 1;
            requests.leases += usize::from(entry.is_of_a_lease());
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, user: &str, resource: Option<&str>, second: u8) -> String {
        let object = resource.map(|resource| serde_json::json!({"resource": resource}));
        let line = serde_json::json!({
            "auditID": id, "stage": "ResponseComplete", "verb": "watch", "user": {"username": user},
            "objectRef": object,
            "requestReceivedTimestamp": format!("2026-12-01T10:00:{second:02}.000001Z"),
        });
        format!("{line}\n")
    }

    fn at(second: u8) -> Timestamp {
        format!("2026-12-01T10:00:{second:02}Z").parse().unwrap()
    }

    #[test]
    fn a_request_counts_once_for_its_user_in_its_time() {
        let text = [
            line("early", "a", Some(LEASES), 9),
            line("1", "a", Some(LEASES), 10),
            line("1", "a", Some(LEASES), 10),
            line("2", "a", Some("events"), 11),
            line("3", "a", None, 12),
            line("4", "b", Some(LEASES), 13),
            line("late", "a", Some(LEASES), 20),
        ];
        let text = text.concat() + "{\"auditID\": \"half";
        let requests = count(&entries(&text), "a", at(10), at(20));
        assert_eq!(requests, Requests { all: 3, leases: 1 });
    }

    #[tokio::test]
    async fn only_what_comes_after_the_mark_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, line("1", "a", Some(LEASES), 1)).unwrap();
        let log = AuditLog::at(path.clone());
        let (start, now) = (Mark(0), log.mark().unwrap());
        let wait = async |mark, verb| {
            log.wait_lease_request(mark, "a", verb, Duration::ZERO)
                .await
        };
        wait(start, Some("watch")).await.unwrap();
        wait(start, Some("get")).await.unwrap_err();
        let error = wait(now, None).await.unwrap_err();
        assert!(
            error.to_string().contains("a to ask for the Lease"),
            "{error}"
        );
        std::fs::write(&path, line("2", "a", Some(LEASES), 2).trim_end()).unwrap();
        wait(now, None).await.unwrap();
    }
}
