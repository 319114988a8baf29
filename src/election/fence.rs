//! Refuses writes once their term's right to write has ended.
//!
//! The fence knows the moment at which that is so, and looks at the clock itself: a process that
//! was stopped past its deadline refuses even if the elector has not run since. Writes that were
//! let through are seen to their end, also when the task that sent them is gone, so that the end
//! of a term can wait for them before the Lease is given back.

use std::error::Error as StdError;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request};
use thiserror::Error;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;
use tower::{BoxError, Layer, Service};

use super::clock::{Clock, Moment};
use super::observer::Observer;

/// A write was refused because its term is over.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("write refused: this replica's term as leader is over")]
pub struct FenceClosed;

/// Whether something failed because its term's fence refused a request; looks at all causes.
pub fn is_fence_closed(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<FenceClosed>() {
            return true;
        }
        next = error.source();
    }
    false
}

/// The fence of one term. Clones are the same fence.
#[derive(Clone)]
pub struct Fence {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    /// Nanoseconds since the clock's epoch; from then on nothing is let through.
    until: AtomicU64,
    /// New writes are refused.
    closed: CancellationToken,
    /// Writes on their way are abandoned too.
    cut: CancellationToken,
    on_their_way: TaskTracker,
}

impl Fence {
    /// A fence that is open until `until`.
    pub(super) fn new(clock: Arc<dyn Clock>, observer: Arc<dyn Observer>, until: Moment) -> Self {
        let inner = Inner {
            clock,
            observer,
            until: AtomicU64::new(nanos(until)),
            closed: CancellationToken::new(),
            cut: CancellationToken::new(),
            on_their_way: TaskTracker::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Whether a write may be made now; for writes that don't go through [`super::Term::client`],
    /// such as calls to a cloud's API.
    ///
    /// # Errors
    /// The term is over, or its right to write has run out.
    pub fn check(&self) -> Result<(), FenceClosed> {
        if self.is_open() {
            return Ok(());
        }
        self.inner.observer.fence_refused();
        Err(FenceClosed)
    }

    fn is_open(&self) -> bool {
        !self.inner.closed.is_cancelled() && !self.is_past()
    }

    fn is_past(&self) -> bool {
        nanos(self.inner.clock.now()) >= self.inner.until.load(Ordering::SeqCst)
    }

    /// Whether writes on their way are to be abandoned.
    fn is_cut(&self) -> bool {
        self.inner.cut.is_cancelled() || self.is_past()
    }

    /// Lets writes through until `until`, if that is later than before.
    pub(super) fn extend(&self, until: Moment) {
        self.inner.until.fetch_max(nanos(until), Ordering::SeqCst);
    }

    /// Refuses every write from now on; those on their way may still be answered.
    pub(super) fn close(&self) {
        self.inner.closed.cancel();
        self.inner.on_their_way.close();
    }

    /// Waits until the writes on their way are answered, at most `bound`; then abandons them.
    pub(super) async fn drain(&self, bound: Duration) {
        self.close();
        let answered = tokio::time::timeout(bound, self.inner.on_their_way.wait()).await;
        if answered.is_err() {
            tracing::warn!(
                writes = self.inner.on_their_way.len(),
                ?bound,
                "abandoning writes of the ended term that were not answered in time"
            );
        }
        self.cut();
    }

    /// Refuses every write from now on and abandons those on their way.
    pub(super) fn cut(&self) {
        self.close();
        self.inner.cut.cancel();
    }
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.since_epoch().as_nanos()).unwrap_or(u64::MAX)
}

/// A layer for the outside of a Kubernetes client's stack; see [`Fence`].
#[derive(Clone)]
pub struct FenceLayer {
    fence: Fence,
}

impl FenceLayer {
    /// A layer that asks `fence` before every write.
    pub const fn new(fence: Fence) -> Self {
        Self { fence }
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Fenced<S> {
        Fenced {
            inner,
            fence: self.fence.clone(),
        }
    }
}

/// A service whose writes are refused once the fence is closed.
#[derive(Clone)]
pub struct Fenced<S> {
    inner: S,
    fence: Fence,
}

impl<S, B> Service<Request<B>> for Fenced<S>
where
    S: Service<Request<B>>,
    S::Response: Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if is_read(request.method()) {
            return self
                .inner
                .call(request)
                .map(|r| r.map_err(Into::into))
                .boxed();
        }
        if let Err(closed) = self.fence.check() {
            return futures::future::ready(Err(closed.into())).boxed();
        }
        let inner = &self.fence.inner;
        let write = Write {
            response: self
                .inner
                .call(request)
                .map(|r| r.map_err(Into::into))
                .boxed(),
            fence: self.fence.clone(),
            cut: Box::pin(inner.cut.clone().cancelled_owned()),
        };
        // A task of its own: whoever sent the write may be aborted, but not the waiting for it.
        let write = inner.on_their_way.spawn(write);
        async move { write.await.map_err(BoxError::from)? }.boxed()
    }
}

/// Whether a request can't change anything. An unknown method counts as a write.
pub(super) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// A write on its way. Looks at the fence before every step, because a step may be the one that
/// puts it on the socket (after a connection was made, a token fetched, a retry waited for).
struct Write<R> {
    response: BoxFuture<'static, Result<R, BoxError>>,
    fence: Fence,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<R> Future for Write<R> {
    type Output = Result<R, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.cut.as_mut().poll(cx).is_ready() || self.fence.is_cut() {
            self.fence.inner.observer.fence_refused();
            return Poll::Ready(Err(FenceClosed.into()));
        }
        self.response.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests;
