//! Chance, so that replicas do not act in step.

/// A number from 0 up to, and without, 1.
pub(super) fn fraction() -> f64 {
    #[cfg(test)]
    if let Some(drawn) = seeded::draw() {
        return drawn;
    }
    rand::random_range(0.0..1.0)
}

/// Chance that can be repeated, for tests that run on one thread.
#[cfg(test)]
pub(super) mod seeded {
    use std::cell::RefCell;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    thread_local! {
        static CHANCE: RefCell<Option<StdRng>> = const { RefCell::new(None) };
    }

    /// From now on, chance on this thread follows from `seed`.
    pub(in crate::election) fn start(seed: u64) {
        CHANCE.set(Some(StdRng::seed_from_u64(seed)));
    }

    pub(super) fn draw() -> Option<f64> {
        CHANCE.with_borrow_mut(|chance| Some(chance.as_mut()?.random_range(0.0..1.0)))
    }
}
