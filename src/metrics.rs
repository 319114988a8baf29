//! What Prometheus sees. Every metric is registered at start, on every replica.

use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry, TextEncoder,
};

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
    /// Failed renewals of the Lease.
    pub renew_failures: IntCounter,
    /// Writes refused because their term was over.
    pub fence_refusals: IntCounter,
    /// Seconds from the start of the last term of this process to its first reconcile.
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
            renew_failures: IntCounter::new(
                "orchestratord_lease_renew_failures_total",
                "Failed renewals of the Lease",
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
            Box::new(self.renew_failures.clone()),
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
