//! Many measurements in a few numbers.

use std::time::Duration;

use serde::Serialize;

/// What a series of durations comes to, in milliseconds; percentiles are measured values (nearest rank).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// How many there are.
    pub rounds: usize,
    /// Half of them are at most so long.
    pub p50_ms: f64,
    /// 95 of 100 are at most so long; of fewer than 20 it is the maximum.
    pub p95_ms: f64,
    /// 99 of 100 are at most so long; of fewer than 100 it is the maximum.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

impl Summary {
    /// Sums up durations; none if there are none.
    pub fn of(durations: &[Duration]) -> Option<Self> {
        let mut sorted = durations.to_vec();
        sorted.sort_unstable();
        Some(Self {
            rounds: sorted.len(),
            p50_ms: milliseconds(percentile(&sorted, 50)?),
            p95_ms: milliseconds(percentile(&sorted, 95)?),
            p99_ms: milliseconds(percentile(&sorted, 99)?),
            max_ms: milliseconds(*sorted.last()?),
        })
    }
}

fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

/// To a hundredth: what is behind it is noise.
fn milliseconds(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1000.0)
}

/// To two decimal places.
pub fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// The most spans that hold one instant; a span without an end goes on.
pub fn most_at_once<T: Ord + Copy>(spans: &[(T, Option<T>)]) -> usize {
    let holding = |instant: T| {
        let holds = |(from, until): &&(T, Option<T>)| {
            *from <= instant && until.is_none_or(|until| instant < until)
        };
        spans.iter().filter(holds).count()
    };
    // The number only grows where a span begins.
    spans
        .iter()
        .map(|(from, _)| holding(*from))
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(ms: impl IntoIterator<Item = u64>) -> Option<Summary> {
        let durations: Vec<_> = ms.into_iter().map(Duration::from_millis).collect();
        Summary::of(&durations)
    }

    #[test]
    fn percentiles_are_measured_values_by_nearest_rank() {
        let hundred = summary((1..=100).rev()).unwrap();
        let Summary {
            rounds,
            p50_ms,
            p95_ms,
            p99_ms,
            max_ms,
        } = hundred;
        assert_eq!((rounds, p50_ms, p95_ms), (100, 50.0, 95.0));
        assert_eq!((p99_ms, max_ms), (99.0, 100.0));
        let three = summary([30, 10, 20]).unwrap();
        assert_eq!(
            (three.p50_ms, three.p95_ms, three.max_ms),
            (20.0, 30.0, 30.0)
        );
        let one = summary([7]).unwrap();
        assert_eq!((one.p50_ms, one.p99_ms), (7.0, 7.0));
        assert_eq!(summary([]), None);
    }

    #[test]
    fn noise_is_cut_off() {
        let summary = Summary::of(&[Duration::from_nanos(12_345_678)]).unwrap();
        assert_eq!(summary.max_ms.to_string(), "12.35");
    }

    #[test]
    fn spans_overlap_only_while_both_last() {
        assert_eq!(most_at_once::<u8>(&[]), 0);
        assert_eq!(most_at_once(&[(1, Some(3)), (3, None)]), 1);
        assert_eq!(most_at_once(&[(1, Some(4)), (3, None)]), 2);
        assert_eq!(
            most_at_once(&[(1, None), (2, Some(9)), (3, Some(5)), (6, None)]),
            3
        );
    }
}
