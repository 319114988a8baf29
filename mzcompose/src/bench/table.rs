//! What the benchmark found, as one Markdown table for a person.

use std::fmt::Write;

use clap::ValueEnum;

use super::candidate::Name;
use super::report::{Figure, Figures, Idle, Report};
use super::statistics::Summary;

const COLUMNS: usize = 11;
const HEAD: [&str; COLUMNS] = [
    "candidate",
    "SIGTERM rounds",
    "SIGTERM → other leads, ms: p50 / p95 / p99 / max",
    "release visible, ms: p50 / p99 / max",
    "SIGTERM, API server hangs → ended, ms: p50 / max of N",
    "SIGKILL → other leads, ms: p50 / max of N",
    "5 at once: one leader in the end / two led of N",
    "restart → leads, ms: p50 / max of N",
    "idle Lease (all) requests/min: leader; standby",
    "leader RSS, MiB",
    "first reconcile, ms: p50 / max of N",
];

/// The whole report.
pub fn table(report: &Report) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(report.candidates.iter().map(row));
    let mut text = markdown(&rows);
    let ratios = &report.ratios;
    let _ = writeln!(
        text,
        "\n{}, Kubernetes {}, {} processors\n{}",
        report.date,
        report.kubernetes,
        report.processors,
        conditions()
    );
    for (ratio, meaning) in [
        (ratios.best_peer_p50_over_ours, "best peer's p50 / ours"),
        (ratios.ours_p50_over_floor, "our p50 / floor's"),
    ] {
        if let Some(ratio) = ratio {
            let _ = writeln!(text, "{meaning}: {ratio}");
        }
    }
    for candidate in &report.candidates {
        for failure in &candidate.failures {
            let _ = writeln!(
                text,
                "{}, {}: {}",
                candidate.name, failure.figure, failure.error
            );
        }
    }
    text
}

/// What ran at the same time.
fn conditions() -> String {
    let names = Name::value_variants().iter();
    let slow = names.filter(|name| name.hands_over_slowly());
    let slow: Vec<_> = slow.map(|name| name.as_str()).collect();
    format!(
        "taken alone: all of orchestratord and the floor; restarts of the peers, and SIGTERM and release, except {}\n\
         taken while the other peers were at theirs, each under its own Lease: all else\n\
         –: not taken, or a percentile that would be the maximum of so few rounds",
        slow.join(" and ")
    )
}

fn row(figures: &Figures) -> [String; COLUMNS] {
    let cell = |figure: Figure, value: Option<String>| match value {
        Some(value) if figures.failed(figure) => format!("{value} (broken off)"),
        Some(value) => value,
        None if figures.failed(figure) => "failed".into(),
        None => "–".into(),
    };
    let version = figures.version.iter().map(|version| format!(" {version}"));
    let handover = figures.handover.as_ref();
    let handovers = handover.map(|all| {
        let [p50, max] = [all.p50_ms, all.max_ms].map(ms);
        format!("{p50} / {} / {} / {max}", p95(all), p99(all))
    });
    let release = figures.release_visible.as_ref();
    let release =
        release.map(|all| format!("{} / {} / {}", ms(all.p50_ms), p99(all), ms(all.max_ms)));
    let start = figures.start.as_ref();
    let start =
        start.map(|all| format!("{} / {} of {}", all.one_leader, all.two_at_once, all.rounds));
    let idle = figures.idle.as_ref();
    let requests = idle.map(requests);
    let first = figures.first_reconcile.as_ref();
    [
        format!("{}{}", figures.name, version.collect::<String>()),
        cell(Figure::Handover, handover.map(|all| all.rounds.to_string())),
        cell(Figure::Handover, handovers),
        cell(Figure::Handover, release),
        cell(
            Figure::StopWithoutAnswer,
            figures.stop_without_answer.as_ref().map(median_and_max),
        ),
        cell(Figure::Crash, figures.crash.as_ref().map(median_and_max)),
        cell(Figure::Start, start),
        cell(
            Figure::Restart,
            figures.restart.as_ref().map(median_and_max),
        ),
        cell(Figure::Idle, requests),
        cell(
            Figure::Idle,
            idle.map(|idle| format!("{:.1}", idle.leader_rss_mib)),
        ),
        cell(
            Figure::FirstReconcile,
            first.map(|first| median_and_max(&first.summary)),
        ),
    ]
}

/// Requests for the Lease, and in parentheses all.
fn requests(idle: &Idle) -> String {
    let of = |lease: f64, all: f64| format!("{lease:.0} ({all:.0})");
    let leader = of(
        idle.leader_lease_requests_per_minute,
        idle.leader_requests_per_minute,
    );
    let standby = of(
        idle.standby_lease_requests_per_minute,
        idle.standby_requests_per_minute,
    );
    format!("{leader}; {standby}")
}

fn median_and_max(all: &Summary) -> String {
    let [p50, max] = [all.p50_ms, all.max_ms].map(ms);
    format!("{p50} / {max} of {}", all.rounds)
}

fn p95(all: &Summary) -> String {
    percentile(all, 95, all.p95_ms)
}

fn p99(all: &Summary) -> String {
    percentile(all, 99, all.p99_ms)
}

/// Nothing if it would be the maximum by another name.
fn percentile(all: &Summary, percent: usize, value: f64) -> String {
    if all.rounds * (100 - percent) < 100 {
        return "–".into();
    }
    ms(value)
}

/// Short durations with a decimal place, long ones with their thousands set off.
fn ms(value: f64) -> String {
    if value < 99.95 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Rows of a Markdown table, the first one its head, in columns of even width; numbers stand to the right.
fn markdown(rows: &[[String; COLUMNS]]) -> String {
    let mut widths = [0; COLUMNS];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (column, (width, cell)) in widths.iter().zip(row).enumerate() {
            let _ = match column {
                0 => write!(text, "| {cell:<width$} |"),
                _ => write!(text, " {cell:>width$} |"),
            };
        }
        text.push('\n');
        if number == 0 {
            for (column, width) in widths.iter().enumerate() {
                let _ = match column {
                    0 => write!(text, "|{}|", "-".repeat(width + 2)),
                    _ => write!(text, "{}:|", "-".repeat(width + 1)),
                };
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::report::{Ratios, Starts};
    use super::*;

    fn summary(ms: &[u64]) -> Option<Summary> {
        let durations: Vec<_> = ms.iter().copied().map(Duration::from_millis).collect();
        Summary::of(&durations)
    }

    fn report() -> Report {
        let ours = Figures {
            name: "orchestratord",
            version: Some("26.40.0".into()),
            handover: summary(&(1..=100).collect::<Vec<_>>()),
            release_visible: summary(&[3, 4, 5]),
            stop_without_answer: summary(&[2005]),
            crash: summary(&[15_012]),
            start: Some(Starts {
                candidates: 5,
                rounds: 20,
                one_leader: 20,
                two_at_once: 0,
            }),
            idle: Some(Idle {
                seconds: 60.0,
                leader_lease_requests_per_minute: 30.0,
                standby_lease_requests_per_minute: 0.0,
                leader_requests_per_minute: 34.0,
                standby_requests_per_minute: 4.0,
                leader_rss_mib: 20.95,
            }),
            ..Figures::default()
        };
        let mut broken = Figures {
            name: "kubert",
            ..Figures::default()
        };
        broken.fail(Figure::Crash, &anyhow::anyhow!("waited 90s for a leader"));
        Report {
            date: "2026-12-01".into(),
            kubernetes: "v1.36.3".into(),
            processors: 2,
            candidates: vec![ours, broken],
            ratios: Ratios {
                best_peer_p50_over_ours: Some(68.9),
                ours_p50_over_floor: None,
            },
        }
    }

    #[test]
    fn a_person_finds_all_figures_and_failures() {
        let text = table(&report());
        let lines: Vec<_> = text.lines().collect();
        let cells = |line: &str| {
            line.split('|')
                .map(|cell| cell.trim().to_owned())
                .collect::<Vec<_>>()
        };
        let ours = cells(lines[2]);
        assert_eq!(
            ours[1..7],
            [
                "orchestratord 26.40.0",
                "100",
                "50.0 / 95.0 / 99.0 / 100",
                "4.0 / – / 5.0",
                "2,005 / 2,005 of 1",
                "15,012 / 15,012 of 1"
            ]
        );
        assert_eq!(ours[7..9], ["20 / 0 of 20", "–"]);
        assert_eq!(ours[9..11], ["30 (34); 0 (4)", "20.9"]);
        let broken = cells(lines[3]);
        assert_eq!(broken[1..7], ["kubert", "–", "–", "–", "–", "failed"]);
        assert!(
            text.contains("except kube-lease-manager and kubert"),
            "{text}"
        );
        assert!(
            text.contains("2026-12-01, Kubernetes v1.36.3, 2 processors\n"),
            "{text}"
        );
        assert!(text.contains("best peer's p50 / ours: 68.9\n"), "{text}");
        assert!(!text.contains("floor's"), "{text}");
        assert!(
            text.ends_with("kubert, crash: waited 90s for a leader\n"),
            "{text}"
        );
    }

    #[test]
    fn the_maximum_is_not_called_a_percentile() {
        let of = |rounds: u64| summary(&(1..=rounds).collect::<Vec<_>>()).unwrap();
        let shown = |rounds| [p95(&of(rounds)), p99(&of(rounds))];
        assert_eq!(shown(19), ["–", "–"]);
        assert_eq!(shown(20), ["19.0", "–"]);
        assert_eq!(shown(99), ["95.0", "–"]);
        assert_eq!(shown(100), ["95.0", "99.0"]);
    }

    #[test]
    fn all_lines_of_the_table_are_as_wide() {
        let text = table(&report());
        let widths: Vec<_> = text
            .lines()
            .take(4)
            .map(|line| line.chars().count())
            .collect();
        assert!(
            widths.iter().all(|width| *width == widths[0]),
            "{widths:?}\n{text}"
        );
    }

    #[test]
    fn milliseconds_are_as_exact_as_they_are_short() {
        assert_eq!(ms(7.04), "7.0");
        assert_eq!(ms(99.96), "100");
        assert_eq!(ms(2238.4), "2,238");
        assert_eq!(ms(1_234_567.0), "1,234,567");
    }
}
