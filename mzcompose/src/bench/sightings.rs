//! A watch on one Lease that keeps who held it and when that was seen.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// A failed watch is started anew after this.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The Lease at one moment.
#[derive(Debug, Clone, PartialEq)]
struct Sighting {
    at: Instant,
    holder: Option<String>,
}

/// What the watch has shown so far; the watch ends when this is dropped.
pub struct Sightings {
    seen: watch::Receiver<Vec<Sighting>>,
    _task: JoinSet<()>,
}

impl Sightings {
    /// Starts to watch.
    pub fn start(client: &Client, namespace: &str, lease: &str) -> Self {
        let (sender, seen) = watch::channel(vec![]);
        let leases = Api::namespaced(client.clone(), namespace);
        let mut task = JoinSet::new();
        task.spawn(follow(leases, lease.to_owned(), sender));
        Self { seen, _task: task }
    }

    /// How long after `since` the watch showed that `holder` holds the Lease no more.
    pub async fn released(
        &self,
        since: Instant,
        holder: &str,
        limit: Duration,
    ) -> Result<Duration> {
        let mut seen = self.seen.clone();
        let all = timeout(
            limit,
            seen.wait_for(|all| left(all, since, holder).is_some()),
        )
        .await;
        let all = all.with_context(|| format!("{holder} held the Lease for {limit:?} more"))?;
        let all = all.context("the watch on the Lease ended")?;
        left(&all, since, holder).context("the watch forgot what it saw")
    }
}

async fn follow(leases: Api<Lease>, name: String, sender: watch::Sender<Vec<Sighting>>) {
    let only = Config::default().fields(&format!("metadata.name={name}"));
    let mut events = watcher(leases, only).boxed();
    while let Some(event) = events.next().await {
        let at = Instant::now();
        let holder = match event {
            Ok(Event::Apply(lease) | Event::InitApply(lease)) => holder(&lease),
            Ok(Event::Delete(_)) => None,
            Ok(Event::Init | Event::InitDone) => continue,
            Err(_) => {
                sleep(RETRY_INTERVAL).await;
                continue;
            }
        };
        sender.send_modify(|all| all.push(Sighting { at, holder }));
    }
}

/// Who holds a Lease, if anyone does.
pub fn holder(lease: &Lease) -> Option<String> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.clone();
    holder.filter(|holder| !holder.is_empty())
}

fn left(all: &[Sighting], since: Instant, holder: &str) -> Option<Duration> {
    let mut later = all.iter().filter(|sighting| sighting.at >= since);
    let left = later.find(|sighting| sighting.holder.as_deref() != Some(holder))?;
    Some(left.at - since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_has_left_once_somebody_or_nobody_holds_the_lease() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let sighting = |ms, holder: Option<&str>| Sighting {
            at: after(ms),
            holder: holder.map(str::to_owned),
        };
        let mut all = vec![
            sighting(0, None),
            sighting(5, Some("a")),
            sighting(20, Some("a")),
        ];
        assert_eq!(left(&all, after(10), "a"), None);
        all.push(sighting(25, None));
        all.push(sighting(30, Some("b")));
        assert_eq!(left(&all, after(10), "a"), Some(Duration::from_millis(15)));
        assert_eq!(left(&all, after(26), "a"), Some(Duration::from_millis(4)));
    }

    #[test]
    fn an_empty_holder_is_none() {
        let lease = |holder: serde_json::Value| -> Lease {
            let spec = serde_json::json!({"holderIdentity": holder});
            serde_json::from_value(serde_json::json!({"metadata": {}, "spec": spec})).unwrap()
        };
        assert_eq!(holder(&lease("".into())), None);
        assert_eq!(holder(&lease("a".into())).as_deref(), Some("a"));
        assert_eq!(holder(&Lease::default()), None);
    }
}
