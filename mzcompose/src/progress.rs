//! What a person sees while they wait: one line a step, with its time.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressStyle};

const TICK: Duration = Duration::from_millis(100);

/// Where steps are shown: spinners on a terminal, plain lines elsewhere.
#[derive(Clone)]
pub struct Progress(Sink);

#[derive(Clone)]
enum Sink {
    Terminal(MultiProgress),
    Lines,
}

impl Progress {
    /// Spinners when standard error is a terminal, else one line per finished step.
    pub fn new() -> Self {
        if stderr().is_terminal() {
            Self(Sink::Terminal(MultiProgress::new()))
        } else {
            Self(Sink::Lines)
        }
    }

    /// Begins a step; it counts as failed unless [`Step::done`] is called.
    pub fn step(&self, name: impl Into<String>) -> Step {
        let name = name.into();
        let bar = match &self.0 {
            Sink::Terminal(multi) => {
                let bar = multi.add(ProgressBar::new_spinner().with_style(style()));
                bar.set_message(name.clone());
                bar.enable_steady_tick(TICK);
                Some(bar)
            }
            Sink::Lines => None,
        };
        Step {
            sink: self.0.clone(),
            name,
            bar,
            started: Instant::now(),
            finished: false,
        }
    }

    /// Shows one line that is not a step.
    pub fn note(&self, line: &str) {
        self.0.line(line);
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Sink {
    fn line(&self, line: &str) {
        match self {
            // A failure to write to the terminal must not fail the work that is being shown.
            Self::Terminal(multi) => multi.println(line).unwrap_or_default(),
            Self::Lines => eprintln!("{line}"),
        }
    }
}

/// One thing that is being done.
pub struct Step {
    sink: Sink,
    name: String,
    bar: Option<ProgressBar>,
    started: Instant,
    finished: bool,
}

impl Step {
    /// Says what the step is at, on a terminal.
    pub fn at(&self, detail: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{} ({detail})", self.name));
        }
    }

    /// Ends the step well.
    pub fn done(self) {
        self.done_with("");
    }

    /// Ends the step well, with a word about the outcome.
    pub fn done_with(mut self, outcome: &str) {
        self.finish('✓', outcome);
    }

    fn finish(&mut self, mark: char, outcome: &str) {
        self.finished = true;
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.sink
            .line(&line(mark, &self.name, outcome, self.started.elapsed()));
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if !self.finished {
            self.finish('✗', "failed");
        }
    }
}

fn line(mark: char, name: &str, outcome: &str, elapsed: Duration) -> String {
    let time = if elapsed < Duration::from_secs(60) {
        format!("{:.1} s", elapsed.as_secs_f32())
    } else {
        HumanDuration(elapsed).to_string()
    };
    let outcome = if outcome.is_empty() {
        String::new()
    } else {
        format!(" ({outcome})")
    };
    format!("{mark} {name}{outcome} … {time}")
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {msg} … {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_step_outcome_and_time() {
        let short = line('✓', "build node", "cached", Duration::from_millis(3240));
        assert_eq!(short, "✓ build node (cached) … 3.2 s");
        let long = line('✗', "build kubernetes", "", Duration::from_secs(331));
        assert_eq!(long, "✗ build kubernetes … 6 minutes");
    }
}
