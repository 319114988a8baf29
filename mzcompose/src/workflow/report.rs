//! What a workflow found, for people and for programs.

use serde::Serialize;

/// All runs of one workflow.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The workflow's name.
    pub workflow: &'static str,
    /// Each run in order; a failed one is the last.
    pub runs: Vec<Run>,
}

/// One run of the workflow.
#[derive(Debug, Default, Serialize)]
pub struct Run {
    /// Whether all steps passed.
    pub passed: bool,
    /// The steps that were taken.
    pub steps: Vec<StepResult>,
    /// The cases that were brought to their end.
    pub cases: Vec<CaseResult>,
    /// Why the last step failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// One step's outcome.
#[derive(Debug, Serialize)]
pub struct StepResult {
    /// From 1.
    pub number: usize,
    /// What was done.
    pub title: &'static str,
    /// Whether what was expected held.
    pub passed: bool,
    /// How long it took.
    pub seconds: f64,
}

/// What one change of leader cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaseResult {
    /// From 1.
    pub case: usize,
    /// What was done to the leader.
    pub title: &'static str,
    /// How long nobody who could lead held the Lease.
    pub lease_without_holder_ms: f64,
    /// From the end of the old leadership to the new leader's first reconcile.
    pub first_reconcile_ms: f64,
    /// How far `leaseTransitions` grew.
    pub lease_transitions: i32,
    /// The conversions that were asked for meanwhile.
    pub conversions: Conversions,
}

/// Conversion requests in a span of time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Conversions {
    /// All of them.
    pub sent: usize,
    /// Those without a good answer.
    pub failed: usize,
    /// The slowest good answer.
    pub slowest_ms: f64,
    /// What the first failed one got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
}

/// A failed step.
#[derive(Debug, Serialize)]
pub struct Failure {
    /// What had to hold.
    pub expected: &'static str,
    /// What was there.
    pub found: String,
}

impl Run {
    /// The numbers of passed and failed steps.
    pub fn counts(&self) -> (usize, usize) {
        let passed = self.steps.iter().filter(|step| step.passed).count();
        (passed, self.steps.len() - passed)
    }
}

impl std::fmt::Display for CaseResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "case {}, {}: Lease without a holder {:.0} ms, first reconcile after {:.0} ms, {} transition(s), {} of {} conversions failed, slowest {:.0} ms",
            self.case,
            self.title,
            self.lease_without_holder_ms,
            self.first_reconcile_ms,
            self.lease_transitions,
            self.conversions.failed,
            self.conversions.sent,
            self.conversions.slowest_ms,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        let conversions = Conversions {
            sent: 40,
            failed: 1,
            slowest_ms: 21.5,
            first_error: Some("refused".into()),
        };
        Run {
            passed: false,
            steps: vec![
                StepResult {
                    number: 1,
                    title: "one",
                    passed: true,
                    seconds: 0.25,
                },
                StepResult {
                    number: 2,
                    title: "two",
                    passed: false,
                    seconds: 3.0,
                },
            ],
            cases: vec![CaseResult {
                case: 1,
                title: "the holder's pod is deleted",
                lease_without_holder_ms: 12.5,
                first_reconcile_ms: 40.0,
                lease_transitions: 1,
                conversions,
            }],
            failure: Some(Failure {
                expected: "a",
                found: "b".into(),
            }),
        }
    }

    #[test]
    fn the_shape_for_programs() {
        insta::assert_json_snapshot!(Report {
            workflow: "leader-failover",
            runs: vec![run()]
        });
    }

    #[test]
    fn the_line_for_people() {
        insta::assert_snapshot!(run().cases[0].to_string());
    }

    #[test]
    fn passed_and_failed_steps_are_counted() {
        assert_eq!(run().counts(), (1, 1));
    }
}
