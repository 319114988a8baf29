//! Asks for conversions all the time, and remembers how each went.
//!
//! It reads one object: a GET without a resource version goes past the API server's cache to the store, so each one
//! converts from v1alpha1 to v1. A list may be answered from a cache that holds converted objects.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::report::Conversions;
use crate::kubernetes::{ENVIRONMENT, materializes};

const INTERVAL: Duration = Duration::from_millis(50);
/// After this a request counts as failed.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Sample {
    started: Instant,
    outcome: Result<Duration, String>,
}

#[derive(Debug, Default)]
struct Samples {
    sent: usize,
    answered: Vec<Sample>,
}

/// Conversions under way; they end when this is dropped.
pub struct ConversionProbe {
    samples: watch::Receiver<Samples>,
    _task: JoinSet<()>,
}

impl ConversionProbe {
    /// Starts to ask.
    pub fn start(client: &Client) -> Self {
        let (sender, samples) = watch::channel(Samples::default());
        let mut task = JoinSet::new();
        task.spawn(ask(client.clone(), Arc::new(sender)));
        Self {
            samples,
            _task: task,
        }
    }

    /// How the conversions went that were asked for since `since`; waits for the answers to those under way.
    pub async fn conversions(&mut self, since: Instant) -> Result<Conversions> {
        let now = Instant::now();
        let sent = self.samples.borrow().sent;
        let answered = self
            .samples
            .wait_for(|samples| samples.answered.len() >= sent);
        let samples = timeout(REQUEST_LIMIT * 2, answered)
            .await
            .context("conversion requests hang beyond their limit")?;
        Ok(summary(
            &samples.context("the conversion probe ended")?.answered,
            since,
            now,
        ))
    }
}

async fn ask(client: Client, sender: Arc<watch::Sender<Samples>>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut requests = JoinSet::new();
    loop {
        ticks.tick().await;
        while requests.try_join_next().is_some() {}
        sender.send_modify(|samples| samples.sent += 1);
        let (client, sender) = (client.clone(), sender.clone());
        requests.spawn(async move {
            let started = Instant::now();
            let outcome = convert(&client)
                .await
                .map(|()| started.elapsed())
                .map_err(|error| format!("{error:#}"));
            sender.send_modify(|samples| samples.answered.push(Sample { started, outcome }));
        });
    }
}

async fn convert(client: &Client) -> Result<()> {
    let api = materializes(client, "v1");
    let object = timeout(REQUEST_LIMIT, api.get(ENVIRONMENT))
        .await
        .context("no answer in time")??;
    let version = object
        .types
        .map(|types| types.api_version)
        .unwrap_or_default();
    anyhow::ensure!(
        version == "materialize.cloud/v1",
        "asked for v1, got {version}"
    );
    Ok(())
}

fn summary(samples: &[Sample], since: Instant, until: Instant) -> Conversions {
    let mut conversions = Conversions::default();
    for sample in samples
        .iter()
        .filter(|sample| (since..=until).contains(&sample.started))
    {
        conversions.sent += 1;
        match &sample.outcome {
            Ok(latency) => {
                conversions.slowest_ms = conversions.slowest_ms.max(latency.as_secs_f64() * 1e3)
            }
            Err(error) => {
                conversions.failed += 1;
                conversions.first_error.get_or_insert_with(|| error.clone());
            }
        }
    }
    conversions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_what_was_asked_in_its_span() {
        let start = Instant::now();
        let sample = |ms: u64, outcome: Result<u64, &str>| Sample {
            started: start + Duration::from_millis(ms),
            outcome: outcome.map(Duration::from_millis).map_err(str::to_owned),
        };
        let samples = [
            sample(0, Err("before")),
            sample(100, Ok(4)),
            sample(150, Err("refused")),
            sample(160, Err("later")),
            sample(200, Ok(9)),
            sample(900, Ok(99)),
        ];
        let span = (
            start + Duration::from_millis(50),
            start + Duration::from_millis(500),
        );
        let expected = Conversions {
            sent: 4,
            failed: 2,
            slowest_ms: 9.0,
            first_error: Some("refused".into()),
        };
        assert_eq!(summary(&samples, span.0, span.1), expected);
    }
}
