//! What Prometheus sees. Every metric is registered at start, on every replica.

use std::time::Duration;

use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry, TextEncoder,
};
use tokio::sync::watch;

use crate::election::{Begun, CallError, EndReason, Observer};

/// Buckets of reconciliation and step durations, in seconds.
const RECONCILIATION_BUCKETS: [f64; 6] = [0.01, 0.05, 0.25, 1.0, 5.0, 30.0];
/// Buckets of conversion and renewal durations, in seconds.
const CALL_BUCKETS: [f64; 8] = [0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 2.0, 10.0];

/// All metrics of a process; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    /// Environments whose wanted generation differs from the active one.
    pub environmentd_needs_update: IntGauge,
    /// 1 while this replica leads, else 0.
    pub is_leader: IntGauge,
    /// Terms of this process, by why they ended.
    pub term_ends: IntCounterVec,
    /// Duration of successful renewals of the Lease.
    pub renew_duration: Histogram,
    /// Failed calls about the Lease, by kind.
    pub lease_call_failures: IntCounterVec,
    /// Writes refused because their term was over.
    pub fence_refusals: IntCounter,
    /// Seconds from the start of the last term of this process to its first reconcile; 0 before.
    pub first_reconcile_seconds: Gauge,
    /// Passes, by controller, event type and outcome.
    pub reconciliations: IntCounterVec,
    /// Duration of passes, by controller and event type.
    pub reconciliation_duration: HistogramVec,
    /// Steps of passes, by controller, step and outcome.
    pub reconciliation_steps: IntCounterVec,
    /// Duration of steps, by controller and step.
    pub reconciliation_step_duration: HistogramVec,
    /// Converted objects, by wanted version and result.
    pub conversions: IntCounterVec,
    /// Duration of conversion reviews.
    pub conversion_duration: Histogram,
    /// Conversion reviews in flight.
    pub conversions_in_flight: IntGauge,
    /// Re-reads of the webhook's certificate, by result.
    pub certificate_reloads: IntCounterVec,
}

impl Metrics {
    /// Registers all metrics.
    ///
    /// # Errors
    /// A metric whose name is taken or malformed: a fault of this module.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let metrics = Self {
            environmentd_needs_update: IntGauge::new(
                "environmentd_needs_update",
                "Environments whose wanted generation differs from the active one",
            )?,
            is_leader: IntGauge::new(
                "orchestratord_is_leader",
                "1 while this replica leads, else 0",
            )?,
            term_ends: counters(
                "orchestratord_term_ends_total",
                "Terms that ended",
                &["reason"],
            )?,
            renew_duration: Histogram::with_opts(
                HistogramOpts::new(
                    "orchestratord_lease_renew_duration_seconds",
                    "Duration of successful renewals of the Lease",
                )
                .buckets(CALL_BUCKETS.to_vec()),
            )?,
            lease_call_failures: counters(
                "orchestratord_lease_call_failures_total",
                "Failed calls about the Lease",
                &["kind"],
            )?,
            fence_refusals: IntCounter::new(
                "orchestratord_fence_refusals_total",
                "Writes refused because their term was over",
            )?,
            first_reconcile_seconds: Gauge::new(
                "orchestratord_first_reconcile_seconds",
                "Seconds from the start of the last term of this process to its first reconcile",
            )?,
            reconciliations: counters(
                "orchestratord_reconciliations_total",
                "Passes of the controllers",
                &["controller", "event_type", "outcome"],
            )?,
            reconciliation_duration: histograms(
                "orchestratord_reconciliation_duration_seconds",
                "Duration of passes of the controllers",
                &["controller", "event_type"],
            )?,
            reconciliation_steps: counters(
                "orchestratord_reconciliation_steps_total",
                "Steps of passes of the controllers",
                &["controller", "step", "outcome"],
            )?,
            reconciliation_step_duration: histograms(
                "orchestratord_reconciliation_step_duration_seconds",
                "Duration of steps of the controllers",
                &["controller", "step"],
            )?,
            conversions: counters(
                "orchestratord_conversions_total",
                "Objects converted by the webhook",
                &["to", "result"],
            )?,
            conversion_duration: Histogram::with_opts(
                HistogramOpts::new(
                    "orchestratord_conversion_duration_seconds",
                    "Duration of conversion reviews",
                )
                .buckets(CALL_BUCKETS.to_vec()),
            )?,
            conversions_in_flight: IntGauge::new(
                "orchestratord_conversions_in_flight",
                "Conversion reviews in flight",
            )?,
            certificate_reloads: counters(
                "orchestratord_certificate_reloads_total",
                "Re-reads of the webhook's certificate",
                &["result"],
            )?,
            registry,
        };
        metrics.register()?;
        Ok(metrics)
    }

    fn register(&self) -> Result<(), prometheus::Error> {
        let collectors: [Box<dyn prometheus::core::Collector>; 15] = [
            Box::new(self.environmentd_needs_update.clone()),
            Box::new(self.is_leader.clone()),
            Box::new(self.term_ends.clone()),
            Box::new(self.renew_duration.clone()),
            Box::new(self.lease_call_failures.clone()),
            Box::new(self.fence_refusals.clone()),
            Box::new(self.first_reconcile_seconds.clone()),
            Box::new(self.reconciliations.clone()),
            Box::new(self.reconciliation_duration.clone()),
            Box::new(self.reconciliation_steps.clone()),
            Box::new(self.reconciliation_step_duration.clone()),
            Box::new(self.conversions.clone()),
            Box::new(self.conversion_duration.clone()),
            Box::new(self.conversions_in_flight.clone()),
            Box::new(self.certificate_reloads.clone()),
        ];
        collectors
            .into_iter()
            .try_for_each(|collector| self.registry.register(collector))
    }

    /// The Prometheus text form of all metrics.
    ///
    /// # Errors
    /// A metric that cannot be written as text: a fault of this module.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

fn counters(name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
    IntCounterVec::new(Opts::new(name, help), labels)
}

fn histograms(name: &str, help: &str, labels: &[&str]) -> Result<HistogramVec, prometheus::Error> {
    let options = HistogramOpts::new(name, help).buckets(RECONCILIATION_BUCKETS.to_vec());
    HistogramVec::new(options, labels)
}

/// Keeps the metrics in step with the election, and tells others whether this replica leads.
pub struct ElectionMetrics {
    metrics: Metrics,
    leading: watch::Sender<bool>,
}

impl ElectionMetrics {
    /// Also sends `true` to `leading` when a term starts, and `false` when it ends.
    pub fn new(metrics: Metrics, leading: watch::Sender<bool>) -> Self {
        Self { metrics, leading }
    }
}

impl Observer for ElectionMetrics {
    fn term_started(&self, _begun: &Begun) {
        self.metrics.is_leader.set(1);
        self.metrics.first_reconcile_seconds.set(0.0);
        self.leading.send_replace(true);
    }

    fn term_ended(&self, reason: &EndReason, _held_for: Duration) {
        self.metrics.is_leader.set(0);
        self.metrics.environmentd_needs_update.set(0);
        self.metrics
            .term_ends
            .with_label_values(&[reason.as_str()])
            .inc();
        self.leading.send_replace(false);
    }

    fn renewed(&self, took: Duration) {
        self.metrics.renew_duration.observe(took.as_secs_f64());
    }

    fn call_failed(&self, kind: CallError) {
        self.metrics
            .lease_call_failures
            .with_label_values(&[kind.as_str()])
            .inc();
    }

    fn fence_refused(&self) {
        self.metrics.fence_refusals.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn a_standby_shows_that_it_does_not_lead() {
        let text = Metrics::new().unwrap().render().unwrap();
        assert!(
            text.lines().any(|line| line == "orchestratord_is_leader 0"),
            "{text}"
        );
    }
}
