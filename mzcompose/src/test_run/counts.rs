//! How many tests passed and failed.

use std::fmt;

/// The sums over everything that has run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    passed: usize,
    failed: usize,
}

impl Counts {
    /// Adds numbers of passed and failed.
    pub fn add(&mut self, (passed, failed): (usize, usize)) {
        self.passed += passed;
        self.failed += failed;
    }

    /// Adds what a line of `cargo test` says, which is nothing unless it is a `test result:`.
    pub fn add_line(&mut self, line: &str) {
        let Some((_, result)) = line.split_once("test result: ") else {
            return;
        };
        let number_of = |what: &str| {
            let mut parts = result.split([';', '.']).map(str::trim);
            parts
                .find_map(|part| part.strip_suffix(what)?.trim().parse().ok())
                .unwrap_or(0)
        };
        self.add((number_of("passed"), number_of("failed")));
    }

    /// Whether nothing failed.
    pub fn all_passed(self) -> bool {
        self.failed == 0
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_test_binaries_add_up() {
        let mut counts = Counts::default();
        counts.add_line("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        counts.add_line("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.01s");
        counts.add_line("test some::test ... ok");
        counts.add((22, 0));
        assert_eq!(counts.to_string(), "37 passed, 2 failed");
        assert!(!counts.all_passed());
    }
}
