//! What the election tells the world: metrics, Events on the Lease, and the cost of deleting the
//! leader's pod.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::election::{Begun, BootClock, CallError, Clock, EndReason, Observer, Takeover};
use crate::events::Publisher;
use crate::metrics::Metrics;
use crate::operator::LEASE;
use crate::pod;

/// Events that wait to be published; more are dropped, which only a fault can bring about.
const WAITING_EVENTS: usize = 64;
/// How often missing rights are told of. The right to publish Events may be missing at first too.
const FORBIDDEN_EVERY: Duration = Duration::from_secs(60);
/// How long after the stop the last words may take, so that they add nothing to a release that hangs.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The leader's voice: an [`Observer`] of the election.
pub struct Leadership {
    metrics: Metrics,
    leading: watch::Sender<bool>,
    events: mpsc::Sender<Event>,
    identity: String,
    told_forbidden: Mutex<Option<Instant>>,
}

/// What carries out what [`Leadership`] says; ends once that is dropped, at most 2 s after the stop.
pub struct Announcer {
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Leadership {
    /// Speaks for the replica `identity`; its Lease is in `namespace`. `pod` is the name and
    /// namespace of its pod, if it is one. Writes nothing but Events and an annotation of that
    /// pod, so it needs no term.
    pub fn start(
        client: &Client,
        metrics: Metrics,
        namespace: &str,
        identity: &str,
        pod: Option<(String, String)>,
        stop: &CancellationToken,
    ) -> (Self, Announcer) {
        let (leading, follow) = watch::channel(false);
        let (events, queue) = mpsc::channel(WAITING_EVENTS);
        let mut tasks = JoinSet::new();
        if let Some((name, namespace)) = pod {
            let client = client.clone();
            let following = pod::follow_leadership(client, namespace, name, follow);
            tasks.spawn(until_last_words(stop.clone(), following));
        }
        let publisher = Publisher::new(client.clone(), "leader-election", identity);
        let publishing = publish(publisher, lease(namespace), queue);
        tasks.spawn(until_last_words(stop.clone(), publishing));
        let leadership = Self {
            metrics,
            leading,
            events,
            identity: identity.to_owned(),
            told_forbidden: Mutex::default(),
        };
        let stop = stop.clone();
        (leadership, Announcer { tasks, stop })
    }

    fn tell(&self, type_: EventType, reason: &str, note: String) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: "LeaderElection".to_owned(),
            secondary: None,
        };
        if self.events.try_send(event).is_err() {
            tracing::debug!(reason, "too many Events wait, or this replica has stopped");
        }
    }

    /// Whether it is time to tell of missing rights (again).
    fn forbidden_is_due(&self) -> bool {
        let mut told = self
            .told_forbidden
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let due = told.is_none_or(|told| told.elapsed() >= FORBIDDEN_EVERY);
        if due {
            *told = Some(Instant::now());
        }
        due
    }
}

impl Announcer {
    /// Waits until everything is said, at most 2 s after the stop, which is now if it was not before.
    pub async fn finish(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn until_last_words(stop: CancellationToken, speaking: impl Future<Output = ()>) {
    let over = async {
        stop.cancelled().await;
        sleep(LAST_WORDS).await;
    };
    tokio::select! {
        () = speaking => {}
        () = over => tracing::warn!(bound = ?LAST_WORDS, "could not publish the last Events in time"),
    }
}

async fn publish(publisher: Publisher, lease: ObjectReference, mut queue: mpsc::Receiver<Event>) {
    while let Some(event) = queue.recv().await {
        publisher.publish(&lease, event).await;
    }
}

fn lease(namespace: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("coordination.k8s.io/v1".to_owned()),
        kind: Some("Lease".to_owned()),
        name: Some(LEASE.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ObjectReference::default()
    }
}

fn why(how: &Takeover) -> String {
    match how {
        Takeover::Created => "there was no Lease".to_owned(),
        Takeover::Free {
            previous: Some(previous),
        } => format!("{previous} gave the Lease back"),
        Takeover::Free { previous: None } => "nobody held the Lease".to_owned(),
        Takeover::Expired { holder } => format!("{holder} did not renew the Lease"),
        Takeover::Resumed => "the Lease named it already".to_owned(),
    }
}

impl Observer for Leadership {
    fn term_started(&self, begun: &Begun) {
        self.metrics.is_leader.set(1);
        self.metrics.duplicate_identity.set(0);
        self.metrics.first_reconcile_seconds.set(0.0);
        self.metrics.renewed(BootClock.now().since(begun.sent));
        self.metrics
            .term_starts
            .with_label_values(&[begun.how.as_str()])
            .inc();
        self.leading.send_replace(true);
        let note = format!("{} leads: {}", self.identity, why(&begun.how));
        self.tell(EventType::Normal, "LeaderElected", note);
    }

    fn term_ended(&self, reason: &EndReason, held_for: Duration) {
        self.metrics.is_leader.set(0);
        self.metrics.environmentd_needs_update.set(0);
        self.metrics.not_renewing();
        self.metrics
            .term_ends
            .with_label_values(&[reason.as_str()])
            .inc();
        self.leading.send_replace(false);
        let note = format!(
            "{} led for {}: {reason}",
            self.identity,
            humantime::format_duration(Duration::from_secs(held_for.as_secs()))
        );
        let type_ = match reason {
            EndReason::Stopped => EventType::Normal,
            _ => EventType::Warning,
        };
        self.tell(type_, "LeaderStopped", note);
    }

    fn renewed(&self, took: Duration) {
        self.metrics.renew_duration.observe(took.as_secs_f64());
        self.metrics.renewed(took);
    }

    fn call_failed(&self, kind: CallError) {
        self.metrics
            .lease_call_failures
            .with_label_values(&[kind.as_str()])
            .inc();
        if kind.is_permission() && self.forbidden_is_due() {
            let note = format!(
                "{} may not use the Lease ({}), so it cannot lead: grant it get, create and update on leases",
                self.identity,
                kind.as_str()
            );
            self.tell(EventType::Warning, "LeaseForbidden", note);
        }
    }

    fn vacant(&self, time: Duration) {
        self.metrics.lease_vacant.observe(time.as_secs_f64());
    }

    fn holder_changed(&self, _holder: Option<&str>) {
        self.metrics.duplicate_identity.set(0);
    }

    fn duplicate_identity(&self, own_pod: &str, other_pod: Option<&str>) {
        self.metrics.duplicate_identity.set(1);
        let note = format!(
            "{own_pod} and {} both campaign as {}; {own_pod} stays a standby: give each replica an identity of its own",
            other_pod.unwrap_or("another process"),
            self.identity
        );
        self.tell(EventType::Warning, "DuplicateIdentity", note);
    }

    fn released(&self, took: Duration) {
        self.metrics.handover_duration.observe(took.as_secs_f64());
    }

    fn fence_refused(&self) {
        self.metrics.fence_refusals.inc();
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use tokio::time;
    use tower_test::mock;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hanging_api_server_takes_no_last_words_beyond_two_seconds_after_the_stop() {
        let (service, _unanswered) = mock::pair::<Request<Body>, Response<Body>>();
        let client = Client::new(service, "default");
        let stop = CancellationToken::new();
        let (leadership, announcer) = Leadership::start(
            &client,
            Metrics::new().unwrap(),
            "default",
            "a",
            Some(("a".to_owned(), "default".to_owned())),
            &stop,
        );
        stop.cancel();
        leadership.term_ended(&EndReason::Stopped, Duration::ZERO);
        let stopped = time::Instant::now();
        time::sleep(Duration::from_millis(1_900)).await;
        drop(leadership);
        announcer.finish().await;
        assert_eq!(
            stopped.elapsed().as_millis() / 10,
            LAST_WORDS.as_millis() / 10
        );
    }
}
