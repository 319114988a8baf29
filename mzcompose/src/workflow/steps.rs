//! The 22 steps of `leader-failover`: what each does, and what has to hold at its end.

/// One step.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// What is done or looked at.
    pub title: &'static str,
    /// What must hold.
    pub expected: &'static str,
}

const fn step(title: &'static str, expected: &'static str) -> Step {
    Step { title, expected }
}

/// The steps in order; the number of a step is its index plus one.
pub const STEPS: [Step; 22] = [
    step(
        "read the chart's default of operator.replicas",
        "at least 2",
    ),
    step(
        "install afresh with the v1 CRD, apply a Materialize at v1",
        "its rollout completes within 900 s",
    ),
    step(
        "list Materialize objects at v1",
        "at least one item within 120 s",
    ),
    step(
        "look at balancerd and console",
        "their pods exist and all run within 300 s",
    ),
    step("get the operator's PodDisruptionBudget", "it exists"),
    step(
        "count the operator's ready pods",
        "as many as operator.replicas within 120 s",
    ),
    step("read the Lease", "a ready pod holds it within 120 s"),
    step(
        "read each pod's gauge orchestratord_is_leader",
        "1 on the holder and 0 elsewhere within 60 s",
    ),
    step("case 1: delete the holder's pod", "the API server takes it"),
    step(
        "wait for a new leader",
        "another ready pod holds the Lease within 120 s, after at most 1 s without a holder",
    ),
    step(
        "convert",
        "the webhook works within 60 s, and no conversion has failed meanwhile",
    ),
    step(
        "change environmentd's environment at v1",
        "a new rollout completes under the new leader",
    ),
    step(
        "case 2: restart the operator's Deployment",
        "the rollout ends within 300 s",
    ),
    step(
        "read the Lease",
        "a ready pod of the new generation holds it within 120 s; one transition; at most 1 s without a holder",
    ),
    step(
        "convert, and change environmentd's environment at v1",
        "the webhook works within 60 s, no conversion has failed, a new rollout completes",
    ),
    step(
        "case 3: record restart counts and lease transitions",
        "the Lease has a transition count",
    ),
    step(
        "write a foreign holder into the Lease",
        "the API server takes it",
    ),
    step(
        "wait for a takeover",
        "a ready pod holds the Lease, with more transitions than before, within 120 s",
    ),
    step(
        "convert",
        "the webhook works within 60 s, and no conversion has failed meanwhile",
    ),
    step(
        "read each pod's gauge orchestratord_is_leader",
        "1 on the holder and 0 elsewhere within 60 s",
    ),
    step(
        "change environmentd's environment at v1",
        "a new rollout completes",
    ),
    step(
        "compare restart counts",
        "every pod is still there with the same count",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_says_what_it_does_and_expects() {
        assert_eq!(STEPS.len(), 22);
        assert!(
            STEPS
                .iter()
                .all(|step| !step.title.is_empty() && !step.expected.is_empty())
        );
    }

    #[test]
    fn the_cases_begin_at_steps_9_13_and_16() {
        let begins = |case: &str| {
            STEPS
                .iter()
                .position(|step| step.title.starts_with(case))
                .map(|index| index + 1)
        };
        assert_eq!(
            ["case 1", "case 2", "case 3"].map(begins),
            [Some(9), Some(13), Some(16)]
        );
    }
}
