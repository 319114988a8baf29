//! Leader election by one `coordination.k8s.io` Lease; knows nothing of Materialize.
//!
//! Any number of [`Elector`]s campaign for a Lease. One holds it at a time and is lent a [`Term`]:
//! a client and a set of tasks that end with it. The others wait, with a watch on the Lease, and
//! take it over within milliseconds once it is free.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use std::time::Duration;
//! # use orchestratord::election::{Candidate, Elector, Process, Term, Timings, prompt_client};
//! # use tokio_util::sync::CancellationToken;
//! # async fn work(client: kube::Client, stop: CancellationToken) {}
//! # async fn example(stop: CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
//! let candidate = Candidate {
//!     namespace: "default".into(),
//!     lease: "example".into(),
//!     identity: "pod-1".into(),
//!     process: Process::new("pod-1", std::env::var("POD_UID").ok()),
//!     timings: Timings::default(),
//!     admission_lag: Duration::ZERO,
//! };
//! let config = kube::Config::infer().await?;
//! let client = prompt_client(config.clone())?;
//! let elector = Elector::new(config, client, candidate, Arc::new(()))?;
//! elector
//!     .run(stop, |term: &mut Term| {
//!         let (client, token) = (term.client(), term.token());
//!         term.spawn("controller", work(client, token));
//!     })
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! What keeps two from writing at once:
//! * The Lease is only written by compare-and-swap on its `resourceVersion`.
//! * A holder's right to write ends at *send time of its last successful renewal + renew
//!   deadline*; others wait for the lease duration, from when they saw that renewal.
//! * A [`Fence`] around the term's client refuses writes from that moment on, whether or not the
//!   elector got to run.
//! * A holder signs its Lease, so that two processes with one identity are not taken for one.
//! * The Lease is given back after the term's tasks are joined and its writes answered.
//!
//! What it can't do: recall a write that is already on the wire when a stopped process is
//! resumed.

#[cfg(test)]
mod any_lease;
mod calls;
mod client;
mod clock;
mod decide;
mod elector;
mod fence;
mod health;
mod jitter;
mod lease;
mod observer;
mod patience;
mod process;
mod record;
mod tasks;
mod term;
#[cfg(test)]
pub(crate) mod testing;
mod timings;
mod watch;

pub use client::prompt_client;
pub use clock::{BootClock, Clock, Moment};
pub use decide::{Begun, EndReason, Takeover};
pub use elector::{Candidate, Elector, Error};
pub use fence::{Fence, FenceClosed, FenceLayer, Fenced, is_fence_closed};
pub use health::{ElectorHealth, Unhealthy};
pub use observer::{CallError, Observer};
pub use process::{PROCESS_ANNOTATION, Process};
pub use record::Record;
pub use tasks::{Ended, Stuck, TaskSet};
pub use term::Term;
pub use timings::{LONGEST_LEASE_DURATION, Timings, TimingsError};
