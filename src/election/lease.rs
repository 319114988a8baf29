//! The driver: carries out what [`super::decide`] decides.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use futures::future::{BoxFuture, OptionFuture};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::calls::{self, Outcome};
use super::clock::Moment;
use super::decide::{
    Action, Answer, Begun, Call, EndReason, Event, Me, Release, State, Takeover, Wake, decide,
};
use super::elector::{Elector, Error};
use super::jitter;
use super::observer::CallError;
use super::record::Record;
use super::tasks::Ended;
use super::term::Term;
use super::watch;

/// The driver looks at the clock at least this often: the runtime's timers don't count suspend.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// The clock has jumped, or the process was stopped, if it moved on by this much between two looks:
/// the longest sleep, and more than a busy machine makes of it.
const OVERSLEPT: Duration = Duration::from_secs(3);
/// How often a Lease request that fails in the same way is logged.
const LOG_EVERY: Duration = Duration::from_secs(30);

/// A term, and when it began.
struct Leading {
    term: Term,
    since: Moment,
}

pub(super) struct Driver<'a, L> {
    elector: &'a Elector,
    state: State,
    lead: L,
    stop: CancellationToken,
    stopping: bool,
    stop_asked: Option<Moment>,
    api: Api<Lease>,
    /// The Lease that the next replace changes.
    base: Option<Lease>,
    outstanding: Option<BoxFuture<'static, Outcome>>,
    sightings: mpsc::Receiver<watch::Sighting>,
    _watching: AbortOnDropHandle<()>,
    leading: Option<Leading>,
    terms: u64,
    ended_task: Option<Ended>,
    /// The wake-up that is waited for, and its place within the spread.
    alarm: Option<(Wake, Moment)>,
    logged: HashMap<CallError, Moment>,
    /// When the clock was last looked at.
    looked: Moment,
}

impl<'a, L: FnMut(&mut Term)> Driver<'a, L> {
    pub(super) fn new(elector: &'a Elector, stop: CancellationToken, lead: L) -> Self {
        let candidate = &elector.candidate;
        let timings = candidate.timings;
        let me = Me {
            identity: candidate.identity.clone(),
            process: candidate.process.clone(),
        };
        let api = Api::namespaced(elector.lease.clone(), &candidate.namespace);
        let bounds = watch::Bounds {
            open: timings.call_timeout,
            silence: timings.lease_duration,
        };
        let (sightings, watching) = watch::spawn(api.clone(), candidate.lease.clone(), bounds);
        Self {
            elector,
            state: State::new(me, timings, elector.clock.now()),
            lead,
            stop,
            stopping: false,
            stop_asked: None,
            api,
            base: None,
            outstanding: None,
            sightings,
            _watching: watching,
            leading: None,
            terms: 0,
            ended_task: None,
            alarm: None,
            logged: HashMap::new(),
            looked: elector.clock.now(),
        }
    }

    pub(super) async fn run(mut self) -> Result<(), Error> {
        let candidate = &self.elector.candidate;
        tracing::info!(
            namespace = candidate.namespace,
            lease = candidate.lease,
            identity = candidate.identity,
            "campaigning for the Lease"
        );
        let release = loop {
            let (event, lease) = self.next_event().await;
            if let Some(release) = self.take(event, lease).await? {
                break release;
            }
        };
        match release {
            Release::Released => {
                tracing::info!("gave the Lease back");
                if let Some(asked) = self.stop_asked {
                    let took = self.elector.clock.now().since(asked);
                    self.elector.observer.released(took);
                }
            }
            Release::NotHeld => tracing::info!("left the election; the Lease was not ours"),
            Release::TimedOut => tracing::warn!(
                bound = ?self.elector.candidate.timings.release_bound,
                "could not give the Lease back in time; others take over once it expires"
            ),
        }
        match self.ended_task {
            Some(Ended { name, panicked }) => Err(Error::TaskEnded { name, panicked }),
            None => Ok(()),
        }
    }

    /// What happens next, with the Lease if that is what was seen.
    async fn next_event(&mut self) -> (Event, Option<Lease>) {
        loop {
            let now = self.look();
            self.elector.health.beat(now);
            let due = self.due();
            let rest = due.map_or(LONGEST_SLEEP, |due| due.since(now).min(LONGEST_SLEEP));
            let task_end = self.leading.as_mut().map(|leading| leading.term.task_end());
            let answer = self.outstanding.as_mut();
            tokio::select! {
                biased;
                () = self.stop.cancelled(), if !self.stopping => {
                    self.stopping = true;
                    self.stop_asked = Some(self.elector.clock.now());
                    return (Event::Stop(EndReason::Stopped), None);
                }
                Some(ended) = OptionFuture::from(task_end) => {
                    self.stopping = true;
                    self.ended_task = Some(ended);
                    return (Event::Stop(EndReason::TaskEnded), None);
                }
                Some(outcome) = OptionFuture::from(answer) => {
                    self.outstanding = None;
                    return self.answered(outcome);
                }
                Some(sighting) = self.sightings.recv() => {
                    return (Event::Watched(sighting.as_ref().map(|l| self.read(l))), sighting);
                }
                () = tokio::time::sleep(rest) => {
                    if due.is_some_and(|due| self.elector.clock.now() >= due) {
                        return (Event::Wake, None);
                    }
                }
            }
        }
    }

    /// The time; notices if it is not what it should be.
    fn look(&mut self) -> Moment {
        let now = self.elector.clock.now();
        let passed = now.since(self.looked);
        self.looked = now;
        if passed > OVERSLEPT {
            tracing::warn!(?passed, "the clock jumped or this process was stopped");
            self.state.restart_wait(now);
        }
        now
    }

    /// When to wake the state up. The place within the spread is drawn once for each wake-up.
    fn due(&mut self) -> Option<Moment> {
        let Some(wake) = self.state.wake() else {
            self.alarm = None;
            return None;
        };
        match self.alarm {
            Some((same, due)) if same == wake => Some(due),
            _ => {
                let due = wake.at.plus(wake.spread.mul_f64(jitter::fraction()));
                self.alarm = Some((wake, due));
                Some(due)
            }
        }
    }

    fn read(&self, lease: &Lease) -> Record {
        Record::read(lease, self.elector.candidate.timings.lease_duration)
    }

    fn answered(&mut self, outcome: Outcome) -> (Event, Option<Lease>) {
        let (answer, lease) = match outcome {
            Outcome::Read(lease) => (Answer::Read(lease.as_ref().map(|l| self.read(l))), lease),
            Outcome::Written(lease) => (Answer::Written(self.read(&lease)), Some(lease)),
            Outcome::Conflict => (Answer::Conflict, None),
            Outcome::Gone => (Answer::Gone, None),
            Outcome::Failed(kind, error) => {
                self.say_failed(kind, &error);
                (Answer::Failed, None)
            }
        };
        (Event::Answer(answer), lease)
    }

    /// Makes one step and carries out what it asks for; `Some` once nothing is left to do.
    async fn take(&mut self, event: Event, lease: Option<Lease>) -> Result<Option<Release>, Error> {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let now = self.look();
            let (state, actions) = decide(self.state.clone(), event, now);
            self.state = state;
            self.keep_base(&lease);
            for action in actions {
                match action {
                    Action::Call { call, bound } => self.call(call, bound),
                    Action::Begin(begun) => self.begin(&begun, now),
                    Action::Extend { until, took } => self.extend(until, took),
                    Action::End(reason) => {
                        if let Some(asked) = self.end(reason).await? {
                            // As of then, for the bound of a stop counts from there.
                            let stop = Event::Stop(EndReason::Stopped);
                            (self.state, _) = decide(self.state.clone(), stop, asked);
                        }
                        next = Some(Event::TermEnded);
                    }
                    Action::Saw { holder } => self.say_holder(holder.as_deref()),
                    Action::Duplicate { pod } => self.say_duplicate(pod.as_deref()),
                    Action::Vacant(time) => self.elector.observer.vacant(time),
                    Action::Finish(release) => return Ok(Some(release)),
                }
            }
        }
        Ok(None)
    }

    /// Keeps `lease` if it is the one that the next replace is compared with.
    fn keep_base(&mut self, lease: &Option<Lease>) {
        let version = lease
            .as_ref()
            .and_then(|l| l.metadata.resource_version.as_deref());
        if version.is_some() && version == self.state.version() {
            self.base.clone_from(lease);
        }
    }

    fn call(&mut self, call: Call, bound: Duration) {
        let candidate = &self.elector.candidate;
        self.outstanding = Some(Box::pin(calls::send(
            self.api.clone(),
            candidate.lease.clone(),
            call,
            self.base.clone(),
            calls::Signer {
                process: candidate.process.clone(),
                lease_duration: candidate.timings.lease_duration,
            },
            bound,
        )));
    }

    fn begin(&mut self, begun: &Begun, now: Moment) {
        let elector = self.elector;
        self.terms = self.terms.saturating_add(1);
        elector.health.holding(Some(begun.until));
        let mut term = Term::new(elector, begun, self.terms);
        (self.lead)(&mut term);
        self.leading = Some(Leading { term, since: now });
        let (transitions, term) = (begun.transitions, self.terms);
        match &begun.how {
            Takeover::Created => tracing::info!(term, transitions, "leading: created the Lease"),
            Takeover::Free { previous } => {
                let previous = previous.as_deref();
                tracing::info!(term, transitions, previous, "leading: the Lease was free");
            }
            Takeover::Expired { holder } => tracing::warn!(
                term,
                transitions,
                previous = holder,
                "leading: the holder did not renew its Lease"
            ),
            Takeover::Resumed => {
                tracing::info!(term, transitions, "leading: the Lease named this replica");
            }
        }
        elector.observer.term_started(begun);
    }

    fn extend(&self, until: Moment, took: Duration) {
        if let Some(leading) = &self.leading {
            leading.term.extend(until);
            self.elector.health.holding(Some(until));
            self.elector.observer.renewed(took);
        }
    }

    /// Ends the term; says when a stop was asked for meanwhile, if it was.
    async fn end(&mut self, reason: EndReason) -> Result<Option<Moment>, Error> {
        let Some(Leading { term, since }) = self.leading.take() else {
            return Ok(None);
        };
        let elector = self.elector;
        let number = term.number();
        let lost = !matches!(reason, EndReason::Stopped | EndReason::TaskEnded);
        let ending = term.end(lost, elector.candidate.timings.join_bound);
        let (stopped, asked) = self.noticing_a_stop(ending).await;
        elector.health.holding(None);
        let held_for = elector.clock.now().since(since);
        if lost {
            tracing::warn!(term = number, %reason, ?held_for, "term ended: lost the Lease");
        } else {
            tracing::info!(term = number, %reason, ?held_for, "term ended");
        }
        elector.observer.term_ended(&reason, held_for);
        match stopped {
            Ok(()) => Ok(asked),
            Err(stuck) => Err(Error::TasksStuck { names: stuck.names }),
        }
    }

    /// Waits for `ending`, and notices if a stop is asked for before it has come.
    async fn noticing_a_stop<T>(&mut self, ending: impl Future<Output = T>) -> (T, Option<Moment>) {
        let mut ending = pin!(ending);
        tokio::select! {
            biased;
            () = self.stop.cancelled(), if !self.stopping => {}
            ended = &mut ending => return (ended, None),
        }
        self.stopping = true;
        self.stop_asked = Some(self.elector.clock.now());
        (ending.await, self.stop_asked)
    }

    fn say_holder(&self, holder: Option<&str>) {
        self.elector.observer.holder_changed(holder);
        match holder {
            Some(holder) if holder == self.elector.candidate.identity => {}
            Some(holder) => tracing::info!(holder, "another replica holds the Lease"),
            None => tracing::info!("nobody holds the Lease"),
        }
    }

    fn say_duplicate(&self, pod: Option<&str>) {
        let candidate = &self.elector.candidate;
        tracing::error!(
            identity = candidate.identity,
            pod = candidate.process.pod(),
            other_pod = pod.unwrap_or("unknown"),
            "another live process campaigns under this replica's identity; this one stays a standby: \
             give each replica an identity of its own, like its pod's name"
        );
        self.elector
            .observer
            .duplicate_identity(candidate.process.pod(), pod);
    }

    fn say_failed(&mut self, kind: CallError, error: &str) {
        self.elector.observer.call_failed(kind);
        let now = self.elector.clock.now();
        let last = self.logged.get(&kind);
        if last.is_some_and(|last| now.since(*last) < LOG_EVERY) {
            return;
        }
        self.logged.insert(kind, now);
        let leading = self.leading.is_some();
        let kind_name = kind.as_str();
        if kind.is_permission() {
            tracing::error!(
                kind = kind_name,
                leading,
                error,
                "may not use the Lease; grant get, create and update on leases"
            );
        } else {
            tracing::warn!(kind = kind_name, leading, error, "Lease request failed");
        }
    }
}

#[cfg(test)]
mod schedules;
#[cfg(test)]
mod tests;
