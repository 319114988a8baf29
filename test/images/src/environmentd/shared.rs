//! What the ports and the driver of one generation share.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use super::Fault;
use super::leader::{Machine, Status, Timings};
use super::parameters::Parameters;

/// The state of one generation.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) generation: u64,
    pub(crate) version: String,
    pub(crate) password: Option<String>,
    pub(crate) parameters: Parameters,
    machine: Mutex<Machine>,
    started: Instant,
    fault: Mutex<Fault>,
    sessions: Mutex<HashSet<String>>,
    flapped: AtomicBool,
    promotes: AtomicU64,
    skips: AtomicU64,
    status: watch::Sender<Status>,
    /// Wakes the driver when a request has changed the machine.
    pub(crate) nudge: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(
        generation: u64,
        version: String,
        password: Option<String>,
        parameters: Parameters,
        timings: Timings,
        fault: Fault,
    ) -> Self {
        Self {
            generation,
            version,
            password,
            parameters,
            machine: Mutex::new(Machine::new(generation, timings)),
            started: Instant::now(),
            fault: Mutex::new(fault),
            sessions: Mutex::default(),
            flapped: AtomicBool::new(false),
            promotes: AtomicU64::new(0),
            skips: AtomicU64::new(0),
            status: watch::Sender::new(Status::Initializing),
            nudge: Notify::new(),
        }
    }

    /// Time since the start of this generation.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Looks at or changes the machine; a changed status is published.
    pub(crate) fn with_machine<T>(&self, change: impl FnOnce(&mut Machine) -> T) -> T {
        let mut machine = lock(&self.machine);
        let outcome = change(&mut machine);
        let status = machine.status();
        self.status
            .send_if_modified(|published| std::mem::replace(published, status) != status);
        outcome
    }

    pub(crate) fn status(&self) -> Status {
        *self.status.borrow()
    }

    pub(crate) fn watch_status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    pub(crate) fn fault(&self) -> Fault {
        *lock(&self.fault)
    }

    pub(crate) fn set_fault(&self, fault: Fault) {
        *lock(&self.fault) = fault;
    }

    /// True on every second call.
    pub(crate) fn flap(&self) -> bool {
        self.flapped.fetch_xor(true, Ordering::Relaxed)
    }

    pub(crate) fn open_session(&self) -> String {
        let session = uuid::Uuid::new_v4().to_string();
        lock(&self.sessions).insert(session.clone());
        session
    }

    pub(crate) fn has_session(&self, session: &str) -> bool {
        lock(&self.sessions).contains(session)
    }

    /// Carries out a promote request, and counts it.
    pub(crate) fn promote(&self) -> Result<(), &'static str> {
        self.promotes.fetch_add(1, Ordering::Relaxed);
        if self.fault() == Fault::PromoteFail {
            return Err("told to fail promotions by MZ_STANDIN_FAULT");
        }
        let now = self.now();
        let outcome = self.with_machine(|machine| machine.promote(now));
        self.nudge.notify_one();
        outcome
    }

    /// Carries out a request to skip catch-up, and counts it.
    pub(crate) fn skip_catchup(&self) -> Result<(), &'static str> {
        self.skips.fetch_add(1, Ordering::Relaxed);
        if self.fault() == Fault::SkipCatchupFail {
            return Err("told to refuse skipping by MZ_STANDIN_FAULT");
        }
        let outcome = self.with_machine(Machine::skip_catchup);
        self.nudge.notify_one();
        outcome
    }

    pub(crate) fn promotes(&self) -> u64 {
        self.promotes.load(Ordering::Relaxed)
    }

    pub(crate) fn skips(&self) -> u64 {
        self.skips.load(Ordering::Relaxed)
    }
}
