//! One change of leader, measured.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use tokio::time::Instant;

use super::conversion_probe::ConversionProbe;
use super::lease_watch::{LeaseWatch, Vacancy};
use super::report::CaseResult;
use crate::kubernetes::{eventually, lease_transitions, operator_metrics, parse_gauge};

const FIRST_RECONCILE: &str = "orchestratord_first_reconcile_seconds";
/// How long a new leader may take to its first reconcile.
const FIRST_RECONCILE_LIMIT: Duration = Duration::from_secs(60);

/// What watches while the leader changes.
pub struct Watchers {
    client: Client,
    lease: LeaseWatch,
    probe: ConversionProbe,
}

impl Watchers {
    /// Starts them.
    pub fn start(client: &Client) -> Self {
        Self {
            client: client.clone(),
            lease: LeaseWatch::start(client),
            probe: ConversionProbe::start(client),
        }
    }
}

/// A case that is under way.
pub struct Case {
    number: usize,
    title: &'static str,
    began: Instant,
    transitions: i32,
    vacancy: Vacancy,
    first_reconcile: Duration,
}

impl Case {
    /// Begins a case, before anything is done to the leader.
    pub async fn begin(number: usize, title: &'static str, watchers: &Watchers) -> Result<Self> {
        let transitions = lease_transitions(&watchers.client).await?;
        let (vacancy, first_reconcile) = (Vacancy::default(), Duration::ZERO);
        Ok(Self {
            number,
            title,
            began: Instant::now(),
            transitions,
            vacancy,
            first_reconcile,
        })
    }

    /// `leaseTransitions` when the case began.
    pub fn transitions(&self) -> i32 {
        self.transitions
    }

    /// Takes note that `leader` holds the Lease now; returns how long nobody held it, a holder named `foreign` counting as nobody.
    pub async fn taken_over(
        &mut self,
        leader: &str,
        foreign: Option<&str>,
        watchers: &mut Watchers,
    ) -> Result<Duration> {
        self.vacancy = watchers.lease.vacancy(self.began, leader, foreign).await?;
        let gauge = eventually(FIRST_RECONCILE_LIMIT, || async {
            let gauge = parse_gauge(
                &operator_metrics(&watchers.client, leader).await?,
                FIRST_RECONCILE,
            );
            gauge
                .filter(|seconds| *seconds > 0.0)
                .with_context(|| format!("no {FIRST_RECONCILE} on pod {leader}"))
        });
        let seconds = gauge
            .await
            .context("waiting for the new leader's first reconcile")?;
        self.first_reconcile = self.vacancy.last + Duration::try_from_secs_f64(seconds)?;
        Ok(self.vacancy.total)
    }

    /// Fails if a conversion has failed since the case began.
    pub async fn all_converted(&self, watchers: &mut Watchers) -> Result<()> {
        let conversions = watchers.probe.conversions(self.began).await?;
        ensure!(
            conversions.sent > 0 && conversions.failed == 0,
            "{conversions:?}"
        );
        Ok(())
    }

    /// The figures from the case's beginning to now.
    pub async fn result(&self, watchers: &mut Watchers) -> Result<CaseResult> {
        Ok(CaseResult {
            case: self.number,
            title: self.title,
            lease_without_holder_ms: self.vacancy.total.as_secs_f64() * 1e3,
            first_reconcile_ms: self.first_reconcile.as_secs_f64() * 1e3,
            lease_transitions: lease_transitions(&watchers.client).await? - self.transitions,
            conversions: watchers.probe.conversions(self.began).await?,
        })
    }
}
