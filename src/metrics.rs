//! What Prometheus sees. Every metric is registered at start, on every replica.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry, TextEncoder,
};

use crate::election::{BootClock, CallError, Clock, EndReason, Moment, Takeover};

/// Buckets of reconciliation and step durations, in seconds.
const RECONCILIATION_BUCKETS: [f64; 6] = [0.01, 0.05, 0.25, 1.0, 5.0, 30.0];
/// Buckets of conversions, and of all that has to do with the Lease, in seconds.
const CALL_BUCKETS: [f64; 9] = [0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 2.0, 10.0, 30.0];
/// Buckets of the objects of a conversion review.
const OBJECTS_BUCKETS: [f64; 5] = [1.0, 10.0, 100.0, 1000.0, 10_000.0];

/// All metrics of a process; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    last_renewal: Arc<Mutex<Option<Moment>>>,
    renewal_age: Gauge,
    /// Environments whose wanted generation differs from the active one.
    pub environmentd_needs_update: IntGauge,
    /// 1 while this replica leads, else 0.
    pub is_leader: IntGauge,
    /// 1 while another live process holds the Lease under this replica's identity, else 0.
    pub duplicate_identity: IntGauge,
    /// Terms of this process, by why they started.
    pub term_starts: IntCounterVec,
    /// Terms of this process, by why they ended.
    pub term_ends: IntCounterVec,
    /// How long nobody held the Lease, each time, as seen from this replica.
    pub lease_vacant: Histogram,
    /// From the request to stop until the Lease was given back.
    pub handover_duration: Histogram,
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
    /// Converted objects, by the version they came in, the wanted one and result.
    pub conversions: IntCounterVec,
    /// Duration of conversion reviews.
    pub conversion_duration: Histogram,
    /// Objects of a conversion review.
    pub conversion_objects: Histogram,
    /// Conversion reviews in flight.
    pub conversions_in_flight: IntGauge,
    /// Re-reads of the webhook's certificate, by result.
    pub certificate_reloads: IntCounterVec,
    /// When the webhook's certificate expires, in seconds since 1970; 0 without a webhook.
    pub certificate_not_after: IntGauge,
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
            duplicate_identity: IntGauge::new(
                "orchestratord_duplicate_identity",
                "1 while another live process holds the Lease under this replica's identity, else 0",
            )?,
            term_starts: counters(
                "orchestratord_term_starts_total",
                "Terms that started",
                &["how"],
            )?,
            term_ends: counters(
                "orchestratord_term_ends_total",
                "Terms that ended",
                &["reason"],
            )?,
            renew_duration: times(
                "orchestratord_lease_renew_duration_seconds",
                "Duration of successful renewals of the Lease",
            )?,
            renewal_age: Gauge::new(
                "orchestratord_lease_renewal_age_seconds",
                "Seconds since the leader's last renewal of the Lease was sent; 0 on a standby",
            )?,
            lease_vacant: times(
                "orchestratord_lease_vacant_seconds",
                "How long nobody held the Lease, as seen from this replica",
            )?,
            handover_duration: times(
                "orchestratord_handover_duration_seconds",
                "From the request to stop until the Lease was given back",
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
                &["from", "to", "result"],
            )?,
            conversion_duration: times(
                "orchestratord_conversion_duration_seconds",
                "Duration of conversion reviews",
            )?,
            conversion_objects: Histogram::with_opts(
                HistogramOpts::new(
                    "orchestratord_conversion_review_objects",
                    "Objects of a conversion review",
                )
                .buckets(OBJECTS_BUCKETS.to_vec()),
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
            certificate_not_after: IntGauge::new(
                "orchestratord_certificate_not_after_seconds",
                "When the webhook's certificate expires, in seconds since 1970; 0 without a webhook",
            )?,
            last_renewal: Arc::default(),
            registry,
        };
        metrics.register()?;
        metrics.show_zeros();
        Ok(metrics)
    }

    /// Counters that nothing has happened to yet, so that their first increase is one.
    fn show_zeros(&self) {
        for how in Takeover::KINDS {
            self.term_starts.with_label_values(&[how]);
        }
        for reason in EndReason::KINDS {
            self.term_ends.with_label_values(&[reason]);
        }
        for result in ["success", "failure"] {
            self.certificate_reloads.with_label_values(&[result]);
        }
        for kind in CallError::ALL {
            self.lease_call_failures.with_label_values(&[kind.as_str()]);
        }
    }

    fn register(&self) -> Result<(), prometheus::Error> {
        let collectors: [Box<dyn prometheus::core::Collector>; 22] = [
            Box::new(self.environmentd_needs_update.clone()),
            Box::new(self.is_leader.clone()),
            Box::new(self.duplicate_identity.clone()),
            Box::new(self.term_starts.clone()),
            Box::new(self.term_ends.clone()),
            Box::new(self.renewal_age.clone()),
            Box::new(self.lease_vacant.clone()),
            Box::new(self.handover_duration.clone()),
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
            Box::new(self.conversion_objects.clone()),
            Box::new(self.conversions_in_flight.clone()),
            Box::new(self.certificate_reloads.clone()),
            Box::new(self.certificate_not_after.clone()),
        ];
        collectors
            .into_iter()
            .try_for_each(|collector| self.registry.register(collector))
    }

    /// The Lease has been renewed by a request sent this long ago: its age is counted from then.
    pub fn renewed(&self, ago: Duration) {
        let sent = BootClock.now().since_epoch().saturating_sub(ago);
        *self.last_renewal() = Some(Moment::new(sent));
    }

    /// This replica does not renew the Lease.
    pub fn not_renewing(&self) {
        *self.last_renewal() = None;
    }

    fn last_renewal(&self) -> std::sync::MutexGuard<'_, Option<Moment>> {
        self.last_renewal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The Prometheus text form of all metrics.
    ///
    /// # Errors
    /// A metric that cannot be written as text: a fault of this module.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        let age = self.last_renewal().map(|sent| BootClock.now().since(sent));
        self.renewal_age.set(age.unwrap_or_default().as_secs_f64());
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

fn counters(name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
    IntCounterVec::new(Opts::new(name, help), labels)
}

fn times(name: &str, help: &str) -> Result<Histogram, prometheus::Error> {
    Histogram::with_opts(HistogramOpts::new(name, help).buckets(CALL_BUCKETS.to_vec()))
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
        for shown in [
            "orchestratord_term_starts_total{how=\"free\"} 0",
            "orchestratord_term_ends_total{reason=\"deleted\"} 0",
            "orchestratord_lease_call_failures_total{kind=\"forbidden\"} 0",
        ] {
            assert!(text.lines().any(|line| line == shown), "{shown} in {text}");
        }
    }
}
