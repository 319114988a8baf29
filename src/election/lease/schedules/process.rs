//! A process: the tasks of its terms, and how its elector runs.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::Bug;
use super::referee::{Held, Referee, Seat};
use crate::election::{Error, Moment, Term, Timings};

/// How long a write of the leader takes, and how long after it the next is sent.
pub(super) const WRITE: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(700);
/// The timers of the runtime are as late as this.
const LATE: Duration = Duration::from_millis(50);

/// Starts the tasks of a term: one writes, the other takes its time to end.
pub(super) fn work(term: &mut Term, lingers: Duration, bug: Option<Bug>) -> Held {
    let tasks = Arc::new(());
    let held = Held {
        fence: term.fence(),
        sent: Instant::now(),
        tasks: Arc::downgrade(&tasks),
    };
    if bug == Some(Bug::OpenFences) {
        held.fence.extend(Moment::new(Duration::MAX));
    }
    let (client, token, own) = (term.client(), term.token(), tasks.clone());
    term.spawn("writes", async move {
        let _own = own;
        let write = || Request::post("/").body(Vec::new()).unwrap();
        let writes = async {
            loop {
                let _ = client.request_text(write()).await;
                sleep(PAUSE).await;
            }
        };
        token.run_until_cancelled(writes).await;
    });
    let token = term.token();
    let lingers = async move {
        token.cancelled().await;
        sleep(lingers).await;
        drop(tasks);
    };
    match bug {
        Some(Bug::StrayTask) => drop(tokio::spawn(lingers)),
        _ => term.spawn("lingers", lingers),
    }
    held
}

/// A client whose writes are looked at as they arrive.
pub(super) fn work_client(referee: Arc<Referee>, seat: Arc<Seat>) -> Client {
    let service = tower::service_fn(move |_: Request<kube::client::Body>| {
        let (referee, seat) = (referee.clone(), seat.clone());
        async move {
            // A task of its own: what was sent arrives.
            let arrives = tokio::spawn(async move {
                sleep(WRITE / 2).await;
                referee.sees_write(&seat);
            });
            sleep(WRITE).await;
            drop(arrives);
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }
    });
    Client::new(service, "default")
}

/// Does not let `run` run while it is starved.
pub(super) async fn starvable<T>(
    run: impl Future<Output = T>,
    mut starved: watch::Receiver<bool>,
) -> T {
    let mut run = pin!(run);
    loop {
        tokio::select! {
            biased;
            Ok(_) = starved.wait_for(|starved| *starved) => {}
            ended = &mut run => return ended,
        }
        let _ = starved.wait_for(|starved| !starved).await;
    }
}

/// Runs an elector, and sees that it ends well, and in time after it was asked to stop.
pub(super) async fn timed(
    run: impl Future<Output = Result<(), Error>>,
    stop: CancellationToken,
    seat: Arc<Seat>,
    referee: Arc<Referee>,
) {
    // The driver sleeps in true time, whatever its clock.
    let bound = Timings::default().stop_time();
    let bound = bound.max(seat.clock.truly(bound)) + LATE;
    let late = async {
        stop.cancelled().await;
        sleep(bound).await;
    };
    tokio::select! {
        biased;
        ended = run => match ended {
            Ok(()) if stop.is_cancelled() => referee.note(&format!("{} is gone", seat.name)),
            other => referee.blame(format!("not run: {}: {other:?}", seat.name)),
        },
        () = late => if seat.was_starved() {
            referee.note(&format!("{} was starved, and is killed", seat.name));
            seat.is_gone();
        } else {
            referee.blame(format!("not stopped: {} within {bound:?}", seat.name));
        }
    }
}
