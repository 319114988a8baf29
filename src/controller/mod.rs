//! Controllers: one runner, three reconcilers.

mod backoff;
mod context;
mod outcome;
mod pass;
mod workload;

pub mod balancer;
pub mod cache;
pub mod console;
pub mod materialize;
pub mod rendering;
pub mod runner;

use std::sync::Arc;

use crate::election::Term;

pub use cache::Caches;
pub use context::{Context, Settings};
pub use materialize::leader_api::Resolver;
pub use outcome::{Outcome, Stop};
pub use pass::{ObjectError, Pass};

/// Runs all controllers for one term.
pub fn spawn(term: &mut Term, context: &Arc<Context>) {
    let materialize = materialize::MaterializeReconciler::new(Arc::clone(context));
    let balancer = balancer::BalancerReconciler::new(Arc::clone(context));
    let console = console::ConsoleReconciler::new(Arc::clone(context));
    let token = term.token();
    term.spawn(
        "materialize",
        runner::run(materialize, Arc::clone(context), token.clone()),
    );
    term.spawn(
        "balancer",
        runner::run(balancer, Arc::clone(context), token.clone()),
    );
    term.spawn("console", runner::run(console, Arc::clone(context), token));
}
