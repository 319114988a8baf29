//! Integration tests: a real API server, the real Helm, the real binary.
// Only then do the lints know that helpers of tests are tests too.
#![cfg(test)]

mod chart;
mod conversion;
mod examples;
mod handover;
mod process;
mod rollout;
