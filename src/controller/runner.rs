//! One runner for all controllers: queue, back-off, metrics and Events around a reconciler.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::Resource;
use kube::runtime::applier;
use kube::runtime::controller::{self, Action, Config};
use kube::runtime::reflector::{ObjectRef, Store};
use thiserror::Error;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use super::backoff;
use super::cache::{self, Caches};
use super::context::Context;
use super::outcome::{Measured, Outcome, Part};
use super::pass::{Applied, Object, Pass, is_code};
use crate::election::is_fence_closed;
use crate::errors::cause_chain;
use crate::events::{Published, Publisher};

/// Passes of one controller at a time.
const CONCURRENCY: u16 = 32;

/// Bound on one pass.
const PASS_BOUND: Duration = Duration::from_secs(120);

/// A controller's idea of one kind of object.
pub trait Reconciler: Send + Sync + 'static {
    /// The kind.
    type Object: Object + Send + Sync + 'static;
    /// Why a pass fails.
    type Error: Error + Send + Sync + 'static;

    /// Name of the controller, in metrics and as the end of the reporter of its Events.
    const NAME: &'static str;

    /// Where the objects are in memory.
    fn store(caches: &Caches) -> &Store<Self::Object>;

    /// Brings the world closer to what the object says. Runs at most once at a time for an object.
    fn reconcile(
        &self,
        object: Arc<Self::Object>,
        pass: &Pass,
    ) -> impl Future<Output = Result<Outcome, Self::Error>> + Send;
}

/// Why a pass failed.
#[derive(Debug, Error)]
enum PassError<E: Error + 'static> {
    #[error(transparent)]
    Reconciler(E),
    #[error(
        "the pass took longer than {PASS_BOUND:?} and was given up; the API server or environmentd answers slowly"
    )]
    TooLong,
}

/// What is remembered of one object between passes of a term.
#[derive(Default)]
struct Memory {
    failures: u32,
    polls: u32,
    applied: Applied,
    failure_event: Option<Published>,
}

struct Runner<R: Reconciler> {
    reconciler: R,
    context: Arc<Context>,
    publisher: Publisher,
    memories: Mutex<HashMap<ObjectRef<R::Object>, Memory>>,
}

/// Runs a controller until `token` is cancelled. Starts with everything that is in memory.
pub async fn run<R: Reconciler>(reconciler: R, context: Arc<Context>, token: CancellationToken) {
    let store = R::store(&context.caches).clone();
    let runner = Arc::new(Runner {
        reconciler,
        publisher: Publisher::new(context.client.clone(), R::NAME, &context.settings.identity),
        memories: Mutex::default(),
        context,
    });
    let queue = queue::<R>(&runner);
    let passes = applier(
        |object, runner: Arc<Runner<R>>| Box::pin(async move { Ok(runner.pass(object).await) }),
        |_, never: &Infallible, _| match *never {},
        Arc::clone(&runner),
        store,
        queue,
        Config::default().concurrency(CONCURRENCY),
    );
    let all_passes = passes.for_each(async |pass| {
        if let Err(controller::Error::ObjectNotFound(gone)) = pass {
            debug!(object = %gone, "gone");
            runner.forget(gone.name, gone.namespace);
        }
    });
    tokio::select! {
        () = token.cancelled() => {}
        () = all_passes => {}
    }
}

/// Everything in memory, then every trigger.
fn queue<R: Reconciler>(
    runner: &Arc<Runner<R>>,
) -> impl Stream<Item = Result<ObjectRef<R::Object>, Infallible>> + Send + use<R> {
    let caches = &runner.context.caches;
    let receiver = caches.subscribe();
    let store = R::store(caches).clone();
    let first = cache::all(&store);
    let triggers = stream::unfold((receiver, store), async |(mut receiver, store)| {
        let objects = match receiver.recv().await {
            Ok(trigger) => trigger.objects(&store),
            Err(RecvError::Lagged(_)) => cache::all(&store),
            Err(RecvError::Closed) => return None,
        };
        Some((objects, (receiver, store)))
    });
    let runner = Arc::clone(runner);
    stream::once(async { first })
        .chain(triggers)
        .flat_map(stream::iter)
        .inspect(move |object| runner.forget_applied(object))
        .map(Ok)
}

impl<R: Reconciler> Runner<R> {
    /// One pass over one object, with all that surrounds it.
    async fn pass(&self, object: Arc<R::Object>) -> Action {
        let reference = ObjectRef::from_obj(object.as_ref());
        let is_deleting = object.meta().deletion_timestamp.is_some();
        let event_type = if is_deleting { "cleanup" } else { "apply" };
        let pass = Pass {
            client: self.context.client.clone(),
            metrics: self.context.metrics.clone(),
            controller: R::NAME,
            applied: self.remember(&reference, |memory| Arc::clone(&memory.applied)),
            polls: self.remember(&reference, |memory| memory.polls),
        };
        let measured = Measured::start(&self.context.metrics, R::NAME, Part::Pass(event_type));
        let reconciled = self.reconciler.reconcile(Arc::clone(&object), &pass);
        let result = match tokio::time::timeout(PASS_BOUND, reconciled).await {
            Ok(result) => result.map_err(PassError::Reconciler),
            Err(_) => Err(PassError::TooLong),
        };
        measured.conclude(&result);
        if let Err(error) = &result
            && is_fence_closed(error)
        {
            debug!("abandoned: {}", cause_chain(error));
            self.forget_applied(&reference);
            return Action::requeue(backoff::after_failure(0, rand::random()));
        }
        self.context
            .memory
            .tell_first_reconcile(self.context.term_started);
        match result {
            Ok(outcome) => self.succeeded(&reference, outcome),
            Err(error) => self.failed(&reference, &object, is_deleting, &error).await,
        }
    }

    fn succeeded(&self, reference: &ObjectRef<R::Object>, outcome: Outcome) -> Action {
        let polls = self.remember(reference, |memory| {
            memory.failures = 0;
            memory.failure_event = None;
            let polls = memory.polls;
            memory.polls = if outcome == Outcome::Poll {
                polls.saturating_add(1)
            } else {
                0
            };
            polls
        });
        Action::requeue(match outcome {
            Outcome::Done => {
                self.forget_applied(reference);
                backoff::resync(rand::random())
            }
            Outcome::Wait(bound) => {
                self.forget_applied(reference);
                bound
            }
            Outcome::Poll => backoff::poll(polls),
        })
    }

    async fn failed(
        &self,
        reference: &ObjectRef<R::Object>,
        object: &R::Object,
        is_deleting: bool,
        failure: &PassError<R::Error>,
    ) -> Action {
        self.forget_applied(reference);
        let (failures, before) = self.remember(reference, |memory| {
            let failures = memory.failures;
            memory.failures = failures.saturating_add(1);
            (failures, memory.failure_event.take())
        });
        let why = cause_chain(failure);
        if is_stale(failure) {
            info!("the object has changed meanwhile and is looked at again: {why}");
        } else {
            error!("{why}");
            let (reason, action) = if is_deleting {
                ("CleanupFailed", "Cleanup")
            } else {
                ("ReconcileFailed", "Reconcile")
            };
            let regarding = object.object_ref(&());
            let published = self
                .publisher
                .publish_failure(&regarding, reason, action, &why, before)
                .await;
            self.remember(reference, |memory| memory.failure_event = Some(published));
        }
        Action::requeue(backoff::after_failure(failures, rand::random()))
    }

    /// Something changed: the next pass applies everything again.
    fn forget_applied(&self, reference: &ObjectRef<R::Object>) {
        if let Some(memory) = self.lock().get(reference) {
            memory
                .applied
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clear();
        }
    }

    fn forget(&self, name: String, namespace: Option<String>) {
        let reference = ObjectRef::new(&name).within(namespace.as_deref().unwrap_or_default());
        self.lock().remove(&reference);
    }

    fn remember<T>(
        &self,
        reference: &ObjectRef<R::Object>,
        change: impl FnOnce(&mut Memory) -> T,
    ) -> T {
        change(self.lock().entry(reference.clone()).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectRef<R::Object>, Memory>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a write was refused because the object in memory was not the newest: its trigger is on
/// its way, and nobody needs to be told.
fn is_stale(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let refusal = error
            .downcast_ref::<kube::Error>()
            .or_else(|| error.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref));
        if refusal.is_some_and(|refusal| is_code(refusal, 409)) {
            return true;
        }
        cause = error.source();
    }
    false
}
