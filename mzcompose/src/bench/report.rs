//! What the benchmark found, for programs.

use std::fmt;

use serde::Serialize;

use super::statistics::{Summary, rounded};

/// One run of the benchmark.
#[derive(Debug, Serialize)]
pub struct Report {
    /// When it ended.
    pub date: String,
    /// Version of the API server.
    pub kubernetes: String,
    /// Processors of the machine.
    pub processors: usize,
    /// Everybody who was measured, in order.
    pub candidates: Vec<Figures>,
    /// How they compare.
    pub ratios: Ratios,
}

/// What was measured of one candidate; what is missing was not asked for or failed.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    /// Its name.
    pub name: &'static str,
    /// Its version, unless it is a part of the benchmark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// From SIGTERM to the leader until the other replica leads.
    #[serde(flatten)]
    pub handover: Option<Summary>,
    /// From SIGTERM to the leader until a watch shows that it holds the Lease no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_visible: Option<Summary>,
    /// From SIGTERM to the leader until its process has ended, while the API server hangs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_without_answer: Option<Summary>,
    /// From SIGKILL of the leader until the other replica leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crash: Option<Summary>,
    /// Several at once on a free Lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Starts>,
    /// From the start of the killed leader's successor, which has the same identity, until it leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<Summary>,
    /// What two replicas cost while nothing happens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    /// From leading to the end of the first reconcile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_reconcile: Option<FirstReconcile>,
    /// What went wrong, by what was to be measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
}

/// What is measured of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// SIGTERM to the leader.
    Handover,
    /// SIGTERM to the leader while the API server hangs.
    StopWithoutAnswer,
    /// SIGKILL of the leader.
    Crash,
    /// Several started at once.
    Start,
    /// SIGKILL and a new process for the same pod.
    Restart,
    /// Nothing happens.
    Idle,
    /// From leading to work.
    FirstReconcile,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Handover => "handover",
            Self::StopWithoutAnswer => "stop without answer",
            Self::Crash => "crash",
            Self::Start => "start",
            Self::Restart => "restart",
            Self::Idle => "idle",
            Self::FirstReconcile => "first reconcile",
        })
    }
}

/// A measurement that came to nothing, or was broken off.
#[derive(Debug, Serialize)]
pub struct Failure {
    /// What was to be measured.
    pub figure: Figure,
    /// Why it was not.
    pub error: String,
}

/// What came of starting several candidates at once on a free Lease.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub struct Starts {
    /// How many there are each time.
    pub candidates: usize,
    /// How often.
    pub rounds: usize,
    /// Rounds with one leader at the end.
    pub one_leader: usize,
    /// Rounds in which two or more led at one instant.
    pub two_at_once: usize,
}

/// What a leader and a standby cost while nothing happens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Idle {
    /// How long it was counted.
    pub seconds: f64,
    /// The leader's requests for the Lease.
    pub leader_lease_requests_per_minute: f64,
    /// The standby's requests for the Lease.
    pub standby_lease_requests_per_minute: f64,
    /// All of the leader's requests.
    pub leader_requests_per_minute: f64,
    /// All of the standby's requests.
    pub standby_requests_per_minute: f64,
    /// The leader's resident memory.
    pub leader_rss_mib: f64,
}

/// How soon a new leader works.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FirstReconcile {
    /// How many environments it has to look after.
    pub environments: usize,
    /// From leading to the end of the first reconcile.
    #[serde(flatten)]
    pub summary: Summary,
}

/// How the operator compares, by the median of a handover.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Ratios {
    /// How many times as long the best peer takes.
    pub best_peer_p50_over_ours: Option<f64>,
    /// How many times as long as the floor the operator takes.
    pub ours_p50_over_floor: Option<f64>,
}

impl Figures {
    /// Whether a measurement came to nothing, or was broken off.
    pub fn failed(&self, figure: Figure) -> bool {
        self.failures.iter().any(|failure| failure.figure == figure)
    }

    /// Keeps why a measurement failed.
    pub fn fail(&mut self, figure: Figure, error: &anyhow::Error) {
        let error = format!("{error:#}");
        self.failures.push(Failure { figure, error });
    }
}

impl Ratios {
    /// Compares the candidate named `ours` with `floor`, and with the best of all others.
    pub fn of(candidates: &[Figures], ours: &str, floor: &str) -> Self {
        let median = |figures: &Figures| Some(figures.handover.as_ref()?.p50_ms);
        let median_of = |name: &str| {
            let found = candidates.iter().find(|figures| figures.name == name);
            found.and_then(median)
        };
        let peers = candidates
            .iter()
            .filter(|figures| figures.name != ours && figures.name != floor);
        let best_peer = peers.filter_map(median).min_by(f64::total_cmp);
        let over = |dividend: Option<f64>, divisor: Option<f64>| {
            let divisor = divisor.filter(|divisor| *divisor > 0.0)?;
            Some(rounded(dividend? / divisor))
        };
        Self {
            best_peer_p50_over_ours: over(best_peer, median_of(ours)),
            ours_p50_over_floor: over(median_of(ours), median_of(floor)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn candidate(name: &'static str, ms: u64) -> Figures {
        Figures {
            name,
            handover: Summary::of(&[Duration::from_millis(ms)]),
            ..Figures::default()
        }
    }

    #[test]
    fn the_best_peer_is_neither_the_floor_nor_we() {
        let mut all = vec![
            candidate("we", 10),
            candidate("floor", 8),
            candidate("slow", 3000),
            candidate("fast", 700),
        ];
        let ratios = Ratios::of(&all, "we", "floor");
        assert_eq!(ratios.best_peer_p50_over_ours, Some(70.0));
        assert_eq!(ratios.ours_p50_over_floor, Some(1.25));
        all.truncate(1);
        assert_eq!(Ratios::of(&all, "we", "floor"), Ratios::default());
    }

    #[test]
    fn a_program_finds_the_median_beside_the_name() {
        let mut figures = candidate("we", 10);
        figures.fail(Figure::FirstReconcile, &anyhow::anyhow!("no"));
        let json = serde_json::to_value(&figures).unwrap();
        assert_eq!(json["name"], "we");
        assert_eq!(
            (&json["rounds"], &json["p50_ms"]),
            (&1.into(), &10.0.into())
        );
        assert_eq!(json["failures"][0]["figure"], "first-reconcile");
        assert_eq!(json.get("first_reconcile"), None);
        assert!(figures.failed(Figure::FirstReconcile) && !figures.failed(Figure::Crash));
    }
}
