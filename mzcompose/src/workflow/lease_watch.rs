//! Watches the Lease, so that the time without a holder can be told afterwards.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::runtime::watcher::{Config, Event, watcher};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::kubernetes::{LEASE, leases};

/// How long the watch may take to show what a read has shown.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(10);
/// A failed watch is started anew after this.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The Lease at one moment.
#[derive(Debug, Clone, PartialEq)]
struct Sighting {
    at: Instant,
    holder: Option<String>,
    duration: Duration,
}

impl Sighting {
    fn new(at: Instant, lease: Option<&Lease>) -> Self {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        let seconds = spec
            .and_then(|spec| spec.lease_duration_seconds)
            .unwrap_or_default();
        Self {
            at,
            holder: spec
                .and_then(|spec| spec.holder_identity.clone())
                .filter(|holder| !holder.is_empty()),
            duration: Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
        }
    }
}

/// How long nobody held the Lease.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Vacancy {
    /// All gaps together.
    pub total: Duration,
    /// The last gap, which the present holder ended.
    pub last: Duration,
}

/// A watch on the Lease that keeps what it saw.
pub struct LeaseWatch {
    sightings: watch::Receiver<Vec<Sighting>>,
    _task: JoinSet<()>,
}

impl LeaseWatch {
    /// Starts to watch; ends when dropped.
    pub fn start(client: &Client) -> Self {
        let (sender, sightings) = watch::channel(Vec::new());
        let mut task = JoinSet::new();
        task.spawn(follow(client.clone(), sender));
        Self {
            sightings,
            _task: task,
        }
    }

    /// How long the Lease had no holder since `since`, up to the moment when `holder` took it; a holder named
    /// `foreign` counts as none.
    pub async fn vacancy(
        &mut self,
        since: Instant,
        holder: &str,
        foreign: Option<&str>,
    ) -> Result<Vacancy> {
        let caught_up = self.sightings.wait_for(|all| {
            all.last()
                .is_some_and(|last| last.holder.as_deref() == Some(holder))
        });
        let all = tokio::time::timeout(CATCH_UP_LIMIT, caught_up).await;
        let all =
            all.with_context(|| format!("the watch never showed {holder} as the Lease's holder"))?;
        Ok(vacancy(
            &all.context("the watch on the Lease ended")?,
            since,
            foreign,
        ))
    }
}

async fn follow(client: Client, sender: watch::Sender<Vec<Sighting>>) {
    let only = Config::default().fields(&format!("metadata.name={LEASE}"));
    let mut events = watcher(leases(&client), only).boxed();
    while let Some(event) = events.next().await {
        let at = Instant::now();
        match event {
            Ok(Event::Apply(lease) | Event::InitApply(lease)) => {
                sender.send_modify(|all| all.push(Sighting::new(at, Some(&lease))));
            }
            Ok(Event::Delete(_)) => sender.send_modify(|all| all.push(Sighting::new(at, None))),
            Ok(Event::Init | Event::InitDone) => {}
            Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
        }
    }
}

/// Adds up the gaps: from a release to the next holder, or from the expiry of what was last written to the next write.
fn vacancy(sightings: &[Sighting], since: Instant, foreign: Option<&str>) -> Vacancy {
    let mut vacancy = Vacancy::default();
    let mut gap = Duration::ZERO;
    for pair in sightings.windows(2) {
        let [before, after] = pair else { continue };
        if after.at <= since {
            continue;
        }
        let held = |sighting: &Sighting| {
            sighting.holder.is_some() && sighting.holder.as_deref() != foreign
        };
        let vacant_from = if held(before) {
            before.at + before.duration
        } else {
            before.at
        };
        gap += after.at.saturating_duration_since(vacant_from.max(since));
        if held(after) && !gap.is_zero() {
            vacancy.total += gap;
            vacancy.last = gap;
            gap = Duration::ZERO;
        }
    }
    vacancy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(start: Instant, sightings: &[(u64, Option<&str>)]) -> Vec<Sighting> {
        let sighting = |(ms, holder): &(u64, Option<&str>)| Sighting {
            at: start + Duration::from_millis(*ms),
            holder: holder.map(str::to_owned),
            duration: Duration::from_secs(15),
        };
        sightings.iter().map(sighting).collect()
    }

    fn ms(vacancy: Vacancy) -> (u128, u128) {
        (vacancy.total.as_millis(), vacancy.last.as_millis())
    }

    #[test]
    fn a_release_lasts_until_the_next_holder() {
        let start = Instant::now();
        let all = timeline(
            start,
            &[
                (0, Some("a")),
                (2000, Some("a")),
                (3000, None),
                (3020, Some("b")),
                (5000, Some("b")),
            ],
        );
        assert_eq!(ms(vacancy(&all, start, None)), (20, 20));
    }

    #[test]
    fn what_was_before_does_not_count() {
        let start = Instant::now();
        let all = timeline(start, &[(0, None), (3000, Some("a")), (5000, Some("a"))]);
        assert_eq!(
            ms(vacancy(&all, start + Duration::from_millis(4000), None)),
            (0, 0)
        );
    }

    #[test]
    fn without_a_release_the_gap_begins_at_expiry() {
        let start = Instant::now();
        let all = timeline(start, &[(0, Some("a")), (15_300, Some("b"))]);
        assert_eq!(ms(vacancy(&all, start, None)), (300, 300));
    }

    #[test]
    fn several_gaps_add_up() {
        let start = Instant::now();
        let all = timeline(
            start,
            &[
                (0, Some("a")),
                (100, None),
                (110, Some("b")),
                (200, None),
                (205, None),
                (230, Some("c")),
            ],
        );
        assert_eq!(ms(vacancy(&all, start, None)), (40, 30));
    }

    #[test]
    fn a_foreign_holder_is_none() {
        let start = Instant::now();
        let all = timeline(
            start,
            &[(0, Some("a")), (100, Some("x")), (15_200, Some("b"))],
        );
        assert_eq!(ms(vacancy(&all, start, Some("x"))), (15_100, 15_100));
    }
}
