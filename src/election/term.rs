//! What is lent for one term as leader.

use std::future::Future;
use std::time::Duration;

use kube::Client;
use kube::client::ClientBuilder;
use tokio_util::sync::CancellationToken;
use tower::retry::RetryLayer;

use super::clock::Moment;
use super::decide::Begun;
use super::elector::Elector;
use super::fence::{Fence, FenceLayer};
use super::patience::Patience;
use super::tasks::{Ended, Stuck, TaskSet};

/// One term as leader. Whatever only the leader may do takes a `Term`, or something made of one.
///
/// Not `Clone`: it is lent by the elector, which ends it. When it ends, however it ends, its
/// writes are refused and its tasks are gone.
pub struct Term {
    client: Client,
    fence: Fence,
    tasks: TaskSet,
    token: CancellationToken,
    number: u64,
    transitions: i32,
}

impl Term {
    pub(super) fn new(elector: &Elector, begun: &Begun, number: u64) -> Self {
        let (clock, observer) = (elector.clock.clone(), elector.observer.clone());
        let admitted = clock.now().plus(elector.candidate.admission_lag);
        let patience = Patience::new(clock.clone(), admitted);
        let fence = Fence::new(clock, observer, begun.until);
        Self {
            client: fenced(&elector.work, patience, fence.clone()),
            fence,
            tasks: TaskSet::default(),
            token: CancellationToken::new(),
            number,
            transitions: begun.transitions,
        }
    }

    /// A client whose writes are refused once this term's right to write has ended; so are those
    /// of its clones.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The fence itself, to check before writes that don't go to Kubernetes.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Runs `task` for as long as the term lasts. A task that ends or panics by itself ends the
    /// term and the election.
    pub fn spawn<F>(&mut self, name: impl Into<String>, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(name, task);
    }

    /// Cancelled when the term ends. Tasks have the join bound to end by themselves.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// The how-many-th term of this process it is, from 1.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// `leaseTransitions` of the Lease in this term.
    pub const fn transitions(&self) -> i32 {
        self.transitions
    }

    pub(super) fn extend(&self, until: Moment) {
        self.fence.extend(until);
    }

    pub(super) async fn task_end(&mut self) -> Ended {
        self.tasks.next_end().await
    }

    /// Ends the term: nothing of it runs or writes any more. Writes on their way are waited for,
    /// unless the Lease is `lost`: then another may lead already.
    ///
    /// # Errors
    /// The tasks that run on although they were aborted.
    pub(super) async fn end(mut self, lost: bool, join_bound: Duration) -> Result<(), Stuck> {
        if lost {
            self.fence.cut();
        } else {
            self.fence.close();
        }
        let tasks = std::mem::take(&mut self.tasks);
        let (stopped, ()) = tokio::join!(
            tasks.stop(&self.token, join_bound),
            self.fence.drain(join_bound)
        );
        stopped
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.fence.cut();
        self.token.cancel();
    }
}

/// `base` with a fence around it. It shares the connections of `base`.
fn fenced(base: &Client, patience: Patience, fence: Fence) -> Client {
    let sender = base.clone();
    let send = tower::service_fn(move |request| {
        let sender = sender.clone();
        async move { sender.send(request).await }
    });
    ClientBuilder::new(send, base.default_namespace())
        .with_layer(&RetryLayer::new(patience))
        .with_layer(&FenceLayer::new(fence))
        .build()
}
