//! Named tasks that are aborted when their set is dropped, and that can be joined.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Tasks that belong together.
#[derive(Default)]
pub struct TaskSet {
    tasks: JoinSet<()>,
    names: HashMap<Id, String>,
}

/// A task that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The name it was spawned under.
    pub name: String,
    /// Whether it panicked.
    pub panicked: bool,
}

/// Tasks that run on although they were aborted; they block their thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Their names, sorted.
    pub names: Vec<String>,
}

impl TaskSet {
    /// Runs `task` until it ends, the set is stopped, or the set is dropped.
    pub fn spawn<F>(&mut self, name: impl Into<String>, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let id = self.tasks.spawn(task).id();
        self.names.insert(id, name.into());
    }

    /// The next task that ends. Waits for ever while there is none, so that it fits a `select!`.
    /// Cancel-safe.
    pub async fn next_end(&mut self) -> Ended {
        match self.tasks.join_next_with_id().await {
            Some(end) => self.note(end),
            None => std::future::pending().await,
        }
    }

    /// Cancels the tasks by `token` and joins them for `bound`; then aborts and joins those that
    /// are left for `bound` again.
    ///
    /// # Errors
    /// The tasks that still run after both.
    pub async fn stop(mut self, token: &CancellationToken, bound: Duration) -> Result<(), Stuck> {
        token.cancel();
        if timeout(bound, self.join()).await.is_ok() {
            return Ok(());
        }
        tracing::warn!(
            tasks = ?self.names(),
            ?bound,
            "aborting tasks that did not end in time after they were cancelled"
        );
        self.tasks.abort_all();
        match timeout(bound, self.join()).await {
            Ok(()) => Ok(()),
            Err(_) => Err(Stuck {
                names: self.names(),
            }),
        }
    }

    async fn join(&mut self) {
        while let Some(end) = self.tasks.join_next_with_id().await {
            let ended = self.note(end);
            if ended.panicked {
                tracing::error!(task = ended.name, "task panicked while it was stopped");
            }
        }
    }

    fn note(&mut self, end: Result<(Id, ()), JoinError>) -> Ended {
        let (id, panicked) = match end {
            Ok((id, ())) => (id, false),
            Err(error) => (error.id(), error.is_panic()),
        };
        Ended {
            name: self.names.remove(&id).unwrap_or_default(),
            panicked,
        }
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.names.values().cloned().collect();
        names.sort();
        names
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::mpsc;

    use super::*;

    const BOUND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn names_the_task_that_ends() {
        let mut set = TaskSet::default();
        set.spawn("stays", pending());
        set.spawn("goes", async {});
        let ended = set.next_end().await;
        assert_eq!((ended.name.as_str(), ended.panicked), ("goes", false));
    }

    #[tokio::test(start_paused = true)]
    async fn names_the_task_that_panics() {
        let mut set = TaskSet::default();
        set.spawn("bad", async { panic!("on purpose") });
        let ended = set.next_end().await;
        assert_eq!((ended.name.as_str(), ended.panicked), ("bad", true));
    }

    #[tokio::test(start_paused = true)]
    async fn empty_set_never_ends() {
        let mut set = TaskSet::default();
        assert!(timeout(BOUND, set.next_end()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_task_may_finish_within_the_bound() {
        let mut set = TaskSet::default();
        let token = CancellationToken::new();
        let (done, is_done) = mpsc::channel();
        let cancelled = token.clone();
        set.spawn("tidy", async move {
            cancelled.cancelled().await;
            tokio::time::sleep(BOUND / 2).await;
            done.send(()).unwrap();
        });
        assert_eq!(set.stop(&token, BOUND).await, Ok(()));
        is_done.try_recv().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_deaf_task_is_aborted_and_joined() {
        let mut set = TaskSet::default();
        let (held, dropped) = mpsc::channel::<()>();
        set.spawn("deaf", async move {
            let _held = held;
            pending::<()>().await;
        });
        assert_eq!(set.stop(&CancellationToken::new(), BOUND).await, Ok(()));
        assert_eq!(dropped.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_blocking_task_is_named_within_the_bounds() {
        let mut set = TaskSet::default();
        let (unblock, blocked) = mpsc::channel::<()>();
        let (started, is_started) = tokio::sync::oneshot::channel();
        set.spawn("blocks", async move {
            started.send(()).unwrap();
            let _ = blocked.recv();
        });
        is_started.await.unwrap();
        let bound = Duration::from_millis(20);
        let stopped = set.stop(&CancellationToken::new(), bound).await;
        let names = vec!["blocks".to_owned()];
        assert_eq!(stopped, Err(Stuck { names }));
        unblock.send(()).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_the_set_aborts() {
        let mut set = TaskSet::default();
        let (held, dropped) = tokio::sync::oneshot::channel::<()>();
        set.spawn("deaf", async move {
            let _held = held;
            pending::<()>().await;
        });
        drop(set);
        assert!(dropped.await.is_err(), "the task is gone");
    }
}
