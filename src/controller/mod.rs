//! Controllers: one runner, three reconcilers.
