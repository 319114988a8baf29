//! The alarm clock: a watch on the one Lease.
//!
//! It may be forbidden, broken, late or silent; then the poll does its work, only slower.

use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::jitter;
use crate::errors::cause_chain;

/// A watch is opened again at the earliest so long after it was opened.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest pause before a broken watch is opened again; the first is [`SHORTEST`].
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often a watch that is not allowed is tried again: rights may be granted later.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(60);

/// What the watch shows; `None`: the Lease was deleted.
pub(super) type Sighting = Option<Lease>;

/// Bounds of the watch.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// On opening it.
    pub(super) open: Duration,
    /// On silence: after that it is taken for dead. A held Lease is renewed more often.
    pub(super) silence: Duration,
}

enum Broken {
    Forbidden,
    Other(String),
    Unheard,
}

/// Starts the watch. It ends when the handle is dropped.
pub(super) fn spawn(
    api: Api<Lease>,
    name: String,
    bounds: Bounds,
) -> (mpsc::Receiver<Sighting>, AbortOnDropHandle<()>) {
    let (sender, receiver) = mpsc::channel(16);
    let task = tokio::spawn(async move { keep_watching(&api, &name, bounds, &sender).await });
    (receiver, AbortOnDropHandle::new(task))
}

async fn keep_watching(
    api: &Api<Lease>,
    name: &str,
    bounds: Bounds,
    sender: &mpsc::Sender<Sighting>,
) {
    let mut pause = SHORTEST;
    let mut said_forbidden = false;
    loop {
        let opened = Instant::now();
        let rest = match watch_once(api, name, bounds, sender).await {
            Err(Broken::Unheard) => return,
            Ok(()) => {
                pause = SHORTEST;
                said_forbidden = false;
                SHORTEST.saturating_sub(opened.elapsed())
            }
            Err(Broken::Forbidden) => {
                if !said_forbidden {
                    said_forbidden = true;
                    tracing::warn!(
                        lease = name,
                        "may not watch the Lease, so a free one is noticed by polling only; grant \
                         list and watch on leases to hand over within milliseconds"
                    );
                }
                FORBIDDEN_PAUSE
            }
            Err(Broken::Other(error)) => {
                tracing::debug!(lease = name, error, ?pause, "watch on the Lease broke");
                let rest = pause;
                pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
                rest
            }
        };
        sleep(rest.mul_f64(0.8 + 0.4 * jitter::fraction())).await;
    }
}

/// Watches until the stream ends or falls silent (`Ok`: open again) or breaks.
async fn watch_once(
    api: &Api<Lease>,
    name: &str,
    bounds: Bounds,
    sender: &mpsc::Sender<Sighting>,
) -> Result<(), Broken> {
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    // Version 0 starts with the Lease as the API server's cache has it; needs no list.
    let opened = timeout(bounds.open, api.watch(&params, "0")).await;
    let stream = opened
        .map_err(|_| Broken::Other(format!("not opened within {:?}", bounds.open)))?
        .map_err(broken)?;
    let mut stream = std::pin::pin!(stream);
    while let Ok(event) = timeout(bounds.silence, stream.try_next()).await {
        let sighting = match event.map_err(broken)? {
            None => return Ok(()),
            Some(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => Some(lease),
            Some(WatchEvent::Deleted(_)) => None,
            Some(WatchEvent::Bookmark(_)) => continue,
            Some(WatchEvent::Error(status)) => return Err(broken(kube::Error::Api(status))),
        };
        sender.send(sighting).await.map_err(|_| Broken::Unheard)?;
    }
    Ok(())
}

fn broken(error: kube::Error) -> Broken {
    match error {
        kube::Error::Api(status) if status.code == 403 => Broken::Forbidden,
        error => Broken::Other(cause_chain(&error)),
    }
}
