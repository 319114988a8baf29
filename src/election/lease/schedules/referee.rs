//! Sees that the promises are kept.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::election::{Begun, Clock, EndReason, Fence, Moment, Observer, Timings};

/// A clock with a rate of its own, that may jump.
#[derive(Clone)]
pub(super) struct Rated {
    start: Instant,
    per_mille: u32,
    jumped: Arc<Mutex<Duration>>,
}

impl Rated {
    pub(super) fn new(per_mille: u32) -> Self {
        Self {
            start: Instant::now(),
            per_mille,
            jumped: Arc::default(),
        }
    }

    pub(super) fn jump(&self, by: Duration) {
        *self.jumped.lock().unwrap() += by;
    }

    /// The true time in which this clock counts `time`.
    pub(super) fn truly(&self, time: Duration) -> Duration {
        time * 1000 / self.per_mille
    }
}

impl Clock for Rated {
    fn now(&self) -> Moment {
        let counted = self.start.elapsed() * self.per_mille / 1000;
        Moment::new(counted + *self.jumped.lock().unwrap())
    }
}

/// A term that has begun and not ended.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) fence: Fence,
    /// Before this, the last write was sent that shows that the Lease is its own.
    pub(super) sent: Instant,
    /// Its tasks hold on to this.
    pub(super) tasks: Weak<()>,
}

impl Held {
    pub(super) fn is_open(&self) -> bool {
        self.fence.check().is_ok()
    }

    fn has_tasks(&self) -> bool {
        self.tasks.strong_count() > 0
    }
}

/// A process, as the referee sees it.
pub(super) struct Seat {
    pub(super) name: String,
    pub(super) clock: Rated,
    pub(super) term: Mutex<Option<Held>>,
    /// Its elector did not get to run for a while, so its fences alone keep their promise.
    pub(super) starved: AtomicBool,
    /// It was asked to stop, and its term has ended.
    pub(super) left: AtomicBool,
}

impl Seat {
    pub(super) fn held(&self) -> Option<Held> {
        self.term.lock().unwrap().clone()
    }

    /// It was killed: what is left of it is not its fault.
    pub(super) fn is_gone(&self) {
        self.term.lock().unwrap().take();
    }

    pub(super) fn was_starved(&self) -> bool {
        self.starved.load(Ordering::SeqCst)
    }
}

pub(super) struct Referee {
    start: Instant,
    seats: Mutex<Vec<Arc<Seat>>>,
    /// When somebody who takes no part last changed the Lease.
    touched: Mutex<Option<Instant>>,
    log: Mutex<Vec<String>>,
    broken: Mutex<Option<String>>,
}

impl Referee {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            seats: Mutex::default(),
            touched: Mutex::default(),
            log: Mutex::default(),
            broken: Mutex::default(),
        }
    }

    pub(super) fn seat(&self, seat: &Arc<Seat>) {
        self.seats.lock().unwrap().push(seat.clone());
    }

    pub(super) fn note(&self, what: &str) {
        let line = format!("{:?} {what}", self.start.elapsed());
        self.log.lock().unwrap().push(line);
    }

    pub(super) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    pub(super) fn touched(&self) {
        *self.touched.lock().unwrap() = Some(Instant::now());
    }

    pub(super) fn blame(&self, broken: String) {
        self.note(&broken);
        self.broken.lock().unwrap().get_or_insert(broken);
    }

    /// Whether all promises were kept so far.
    pub(super) fn verdict(&self) -> Result<(), String> {
        match &*self.broken.lock().unwrap() {
            Some(broken) => Err(format!("{broken}\n{}", self.log().join("\n"))),
            None => Ok(()),
        }
    }

    /// Whose Lease was taken from it by somebody who takes no part may not know yet, and who takes
    /// it over then may not know that.
    fn is_seized(&self, held: &Held) -> bool {
        let touched = *self.touched.lock().unwrap();
        touched.is_some_and(|touched| held.sent <= touched)
    }

    /// The terms of other processes, but for those that the Lease may have been taken from.
    fn others(&self, seat: &Seat) -> Vec<(Arc<Seat>, Held)> {
        if seat.held().is_none_or(|own| self.is_seized(&own)) {
            return Vec::new();
        }
        let seats = self.seats.lock().unwrap();
        let others = seats.iter().filter(|other| other.name != seat.name);
        let held = others.filter_map(|other| Some((other.clone(), other.held()?)));
        held.filter(|(_, held)| !self.is_seized(held)).collect()
    }

    /// While this process writes, or from now on may, no other may.
    fn writes_alone(&self, seat: &Seat) {
        for (other, held) in self.others(seat) {
            if held.is_open() {
                self.blame(format!("two write: {} and {}", seat.name, other.name));
            }
        }
    }

    /// A write arrives, which may be later than it was let through.
    pub(super) fn sees_write(&self, seat: &Seat) {
        if seat.left.load(Ordering::SeqCst) {
            self.blame(format!("two write: {}, after its term", seat.name));
        }
        self.writes_alone(seat);
    }

    /// When a term begins, nothing runs any more of those before.
    fn begins_alone(&self, seat: &Seat) {
        for (other, held) in self.others(seat) {
            if held.has_tasks() && !other.was_starved() {
                self.blame(format!(
                    "tasks outlive their term: {} leads, {} works",
                    seat.name, other.name
                ));
            }
        }
    }
}

/// Told by one process what happens.
pub(super) struct Witness {
    pub(super) referee: Arc<Referee>,
    pub(super) seat: Arc<Seat>,
}

impl Witness {
    fn sent(&self, ago: Duration) {
        let ago = self.seat.clock.truly(ago) + Duration::from_millis(1);
        if let Some(held) = &mut *self.seat.term.lock().unwrap() {
            held.sent = Instant::now() - ago;
        }
    }
}

/// Fences open here only, so what is seen here is seen at every instant.
impl Observer for Witness {
    fn term_started(&self, begun: &Begun) {
        let name = &self.seat.name;
        let how = begun.how.as_str();
        self.referee.note(&format!("{name} leads: {how}"));
        let left = begun.until.since(self.seat.clock.now());
        self.sent(Timings::default().renew_deadline.saturating_sub(left));
        self.referee.writes_alone(&self.seat);
        self.referee.begins_alone(&self.seat);
    }

    fn renewed(&self, took: Duration) {
        self.sent(took);
        self.referee.writes_alone(&self.seat);
    }

    fn term_ended(&self, reason: &EndReason, _held_for: Duration) {
        let name = &self.seat.name;
        self.referee.note(&format!("{name} has led: {reason}"));
        let held = self.seat.term.lock().unwrap().take();
        let left = *reason == EndReason::Stopped;
        self.seat.left.store(left, Ordering::SeqCst);
        if held.is_some_and(|held| held.is_open() || held.has_tasks()) {
            self.referee
                .blame(format!("tasks outlive their term: {name} works on"));
        }
    }
}
