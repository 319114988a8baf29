//! How a pass and its steps end, and what metrics say about it.

use std::error::Error;
use std::time::{Duration, Instant};

use crate::election::is_fence_closed;
use crate::metrics::Metrics;

/// What ended for another reason than its own.
const ABANDONED: &str = "abandoned";

/// How a pass over one object ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything is as it should be; changes arrive as triggers.
    Done,
    /// Waiting for something that also triggers; look again after this at the latest.
    Wait(Duration),
    /// Waiting for something that never triggers: ask again soon, then less and less often.
    Poll,
}

impl Outcome {
    fn label(self) -> &'static str {
        match self {
            Self::Done => "applied",
            Self::Wait(_) | Self::Poll => "waiting",
        }
    }
}

/// What metrics call the end of a step or a pass.
pub trait Conclusion {
    /// One of `applied`, `waiting`, `failed`, `abandoned`.
    fn label(&self) -> &'static str;
}

impl<E: Error + 'static> Conclusion for Result<Outcome, E> {
    fn label(&self) -> &'static str {
        match self {
            Ok(outcome) => outcome.label(),
            Err(error) => failure_label(error),
        }
    }
}

/// What the end of the term cuts short has not failed.
fn failure_label(error: &(dyn Error + 'static)) -> &'static str {
    if is_fence_closed(error) {
        ABANDONED
    } else {
        "failed"
    }
}

/// Why the steps after this one are not taken.
#[derive(Debug)]
pub enum Stop<E> {
    /// There is nothing more to do in this pass.
    Early(Outcome),
    /// The step failed.
    Failed(E),
}

impl<T, E: Error + 'static> Conclusion for Result<T, Stop<E>> {
    fn label(&self) -> &'static str {
        match self {
            Ok(_) => "applied",
            Err(Stop::Early(outcome)) => outcome.label(),
            Err(Stop::Failed(error)) => failure_label(error),
        }
    }
}

/// Counts one step or pass when it is dropped; `abandoned` if nobody concluded it.
pub(super) struct Measured<'a> {
    metrics: &'a Metrics,
    controller: &'static str,
    part: Part,
    started: Instant,
    outcome: &'static str,
}

/// What is measured.
#[derive(Clone, Copy)]
pub(super) enum Part {
    /// A whole pass, by event type.
    Pass(&'static str),
    /// A named step of a pass.
    Step(&'static str),
}

impl<'a> Measured<'a> {
    pub(super) fn start(metrics: &'a Metrics, controller: &'static str, part: Part) -> Self {
        Self {
            metrics,
            controller,
            part,
            started: Instant::now(),
            outcome: ABANDONED,
        }
    }

    pub(super) fn conclude(mut self, conclusion: &impl Conclusion) {
        self.outcome = conclusion.label();
    }
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        let seconds = self.started.elapsed().as_secs_f64();
        let (counters, durations, name) = match self.part {
            Part::Pass(event_type) => (
                &self.metrics.reconciliations,
                &self.metrics.reconciliation_duration,
                event_type,
            ),
            Part::Step(step) => (
                &self.metrics.reconciliation_steps,
                &self.metrics.reconciliation_step_duration,
                step,
            ),
        };
        counters
            .with_label_values(&[self.controller, name, self.outcome])
            .inc();
        durations
            .with_label_values(&[self.controller, name])
            .observe(seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::FenceClosed;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot apply Service a/b")]
    struct Failure(#[source] Box<dyn Error + Send + Sync>);

    fn counted(measure: impl FnOnce(Measured<'_>)) -> String {
        let metrics = Metrics::new().unwrap();
        measure(Measured::start(
            &metrics,
            "materialize",
            Part::Step("promote"),
        ));
        let text = metrics.render().unwrap();
        let counter = "orchestratord_reconciliation_steps_total{";
        let line = text.lines().find(|line| line.starts_with(counter));
        line.unwrap_or_default().to_owned()
    }

    #[test]
    fn a_step_is_counted_by_its_outcome() {
        let outcome = |outcome| {
            format!(
                "orchestratord_reconciliation_steps_total{{controller=\"materialize\",outcome=\"{outcome}\",\
                 step=\"promote\"}} 1"
            )
        };
        let concluded = |result: Result<(), Stop<Failure>>| counted(|step| step.conclude(&result));
        assert_eq!(concluded(Ok(())), outcome("applied"));
        assert_eq!(
            concluded(Err(Stop::Early(Outcome::Done))),
            outcome("applied")
        );
        assert_eq!(
            concluded(Err(Stop::Early(Outcome::Poll))),
            outcome("waiting")
        );
        let forbidden = Failure(Box::from("forbidden"));
        assert_eq!(concluded(Err(Stop::Failed(forbidden))), outcome("failed"));
        let fenced = || Failure(Box::new(Failure(Box::new(FenceClosed))));
        assert_eq!(concluded(Err(Stop::Failed(fenced()))), outcome("abandoned"));
        let pass: Result<Outcome, Failure> = Err(fenced());
        assert_eq!(counted(|step| step.conclude(&pass)), outcome("abandoned"));
        assert_eq!(counted(|step| drop(step)), outcome("abandoned"));
    }
}
