//! What happens, and to whom.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::process::{WRITE, starvable, timed, work, work_client};
use super::referee::{Rated, Referee, Seat, Witness};
use super::{Bug, Hand, Kind, Schedule, Trouble, Whose};
use crate::election::testing::{FakeApi, Fault, Link};
use crate::election::{Candidate, Elector, Process, Term, Timings};

/// After this, whatever was tried while there was trouble has been tried again.
const PACE: Duration = Duration::from_secs(8);
/// So long after that one leads: a Lease that nobody renews is waited out and claimed, if need be
/// at the second try.
const PATIENCE: Duration = Duration::from_secs(22);
/// A leader that stops is succeeded so long after its tasks are gone, be it by polling: the watch
/// may still be in one of its longer pauses.
const HANDOVER: Duration = Duration::from_secs(4);
/// A clock that jumps by more is noticed to have jumped.
const NOTICED: Duration = Duration::from_secs(4);
const TICK: Duration = Duration::from_millis(1);

pub(super) struct Course<'a> {
    schedule: &'a Schedule,
    api: FakeApi,
    referee: Arc<Referee>,
    lives: Vec<Life>,
}

/// A process that runs, or has run.
struct Life {
    number: u32,
    pod: String,
    link: Link,
    seat: Arc<Seat>,
    starved: watch::Sender<bool>,
    stop: CancellationToken,
    run: JoinHandle<()>,
}

/// The begin of a trouble, or its end for those it is for.
enum Deed<'a> {
    Begin(&'a Trouble),
    End(Kind, Vec<usize>),
}

impl Life {
    fn starve(&self, starved: bool) {
        self.seat.starved.store(true, Ordering::SeqCst);
        self.starved.send_replace(starved);
    }

    /// Starves it once it has sent a write, if that is before `end`, which ends the starving.
    fn starve_at_write(&self, end: Duration) {
        self.seat.starved.store(true, Ordering::SeqCst);
        let (link, starved) = (self.link.clone(), self.starved.clone());
        let writes = move || link.requests(Some("PUT"));
        let before = writes();
        tokio::spawn(timeout(end - TICK, async move {
            while writes() == before {
                sleep(TICK).await;
            }
            starved.send_replace(true);
        }));
    }

    fn kill(&self) {
        self.run.abort();
        self.seat.is_gone();
    }
}

impl<'a> Course<'a> {
    pub(super) fn new(schedule: &'a Schedule) -> Self {
        let api = FakeApi::default();
        if schedule.bug == Some(Bug::BlindWrites) {
            api.blind();
        }
        let mut course = Self {
            schedule,
            api,
            referee: Arc::new(Referee::new()),
            lives: Vec::new(),
        };
        for index in 0..schedule.rates.len() {
            let life = course.live(index, 0, format!("{index}-0"));
            course.lives.push(life);
        }
        course
    }

    pub(super) async fn run(mut self) -> Result<Vec<String>, String> {
        let start = Instant::now();
        let begins = self.schedule.troubles.iter();
        let mut deeds: Vec<_> = begins.map(|t| (t.at, Deed::Begin(t))).collect();
        while let Some(next) = (0..deeds.len()).min_by_key(|index| deeds[*index].0) {
            let (at, deed) = deeds.swap_remove(next);
            sleep_until(start + Duration::from_millis(at)).await;
            match deed {
                Deed::Begin(trouble) => {
                    let whom = self.whom(trouble.whose);
                    self.begin(trouble, &whom);
                    deeds.push((at + trouble.lasts, Deed::End(trouble.kind, whom)));
                }
                Deed::End(kind, whom) => self.end(kind, &whom).await,
            }
        }
        for life in &self.lives {
            life.link.set(Fault::Fine);
        }
        sleep(PACE).await;
        let leader = self.elected().await?;
        self.calm(leader).await?;
        self.hand_over(leader).await?;
        Ok(self.referee.log())
    }

    /// Goes on until one leads.
    async fn elected(&self) -> Result<usize, String> {
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE {
            self.referee.verdict()?;
            let leaders: Vec<_> = self.leaders().collect();
            if let [leader] = leaders.as_slice() {
                return Ok(*leader);
            }
            sleep(Duration::from_millis(20)).await;
        }
        self.referee.blame("not led: nobody leads".to_owned());
        Err(self.referee.verdict().unwrap_err())
    }

    /// For a while, the leader renews its Lease and loses no term.
    async fn calm(&self, leader: usize) -> Result<(), String> {
        sleep(PACE).await;
        let renewed = self.lives[leader].seat.held().map(|held| held.sent);
        let timings = Timings::default();
        if renewed.is_none_or(|renewed| renewed.elapsed() > timings.retry_period * 2) {
            let name = &self.lives[leader].seat.name;
            self.referee
                .blame(format!("not led: {name} does not go on to lead"));
        }
        self.referee.verdict()
    }

    /// A leader that is asked to stop is succeeded.
    async fn hand_over(&self, leader: usize) -> Result<(), String> {
        let stopping = &self.lives[leader];
        self.referee.note(&format!("{} stops", stopping.seat.name));
        stopping.stop.cancel();
        let linger = Duration::from_millis(self.schedule.linger).max(WRITE);
        sleep(linger.min(Timings::default().join_bound)).await;
        let gone = Instant::now();
        while self.leaders().all(|other| other == leader) && gone.elapsed() < HANDOVER {
            sleep(Duration::from_millis(5)).await;
        }
        if self.leaders().all(|other| other == leader) {
            let name = &stopping.seat.name;
            self.referee
                .blame(format!("not led: nobody succeeds {name}"));
        }
        self.referee.verdict()
    }

    fn leaders(&self) -> impl Iterator<Item = usize> {
        let leads = |life: &Life| life.seat.held().is_some_and(|held| held.is_open());
        let lives = self.lives.iter().enumerate();
        lives
            .filter(move |(_, life)| leads(life))
            .map(|(index, _)| index)
    }

    fn whom(&self, whose: Whose) -> Vec<usize> {
        match whose {
            Whose::One(index) => vec![index % self.lives.len()],
            Whose::Leader => self.leaders().collect(),
            Whose::All => (0..self.lives.len()).collect(),
        }
    }

    fn begin(&self, trouble: &Trouble, whom: &[usize]) {
        let (kind, lasts) = (trouble.kind, Duration::from_millis(trouble.lasts));
        let lives = || whom.iter().map(|index| &self.lives[*index]);
        let names: Vec<_> = lives().map(|life| &life.seat.name).collect();
        self.referee.note(&format!("{kind:?} for {names:?}"));
        if let Kind::By(hand) = kind {
            self.touch(hand);
        }
        for life in lives() {
            match kind {
                Kind::Way(fault) => life.link.set(fault),
                Kind::Starve { at_write: false } => life.starve(true),
                Kind::Starve { at_write: true } => life.starve_at_write(lasts),
                Kind::Jump => life.seat.clock.jump(lasts + NOTICED),
                Kind::Stop { .. } => life.stop.cancel(),
                Kind::Kill { .. } => life.kill(),
                Kind::By(_) => {}
            }
        }
    }

    async fn end(&mut self, kind: Kind, whom: &[usize]) {
        self.referee.note(&format!("{kind:?} is over"));
        for index in whom {
            let life = &self.lives[*index];
            match kind {
                Kind::Way(_) => life.link.set(Fault::Fine),
                Kind::Starve { .. } => life.starve(false),
                Kind::Stop { same_pod } | Kind::Kill { same_pod } => {
                    self.replace(*index, same_pod).await;
                }
                Kind::Jump | Kind::By(_) => {}
            }
        }
    }

    fn touch(&self, hand: Hand) {
        if self.api.lease().is_none() {
            return;
        }
        self.referee.touched();
        match hand {
            Hand::Delete => self.api.delete(),
            Hand::Clear => self.api.patch(json!({"holderIdentity": null})),
            Hand::Name(name) => self.api.patch(json!({"holderIdentity": name})),
            Hand::Unsign => self.api.patch(json!({"acquireTime": null})),
            Hand::Shorten => self.api.patch(json!({"leaseDurationSeconds": 1})),
        }
    }

    /// Kills a process if it still runs, and starts another in its place.
    async fn replace(&mut self, index: usize, same_pod: bool) {
        let old = &mut self.lives[index];
        old.kill();
        let _ = (&mut old.run).await;
        let number = old.number + 1;
        let pod = match same_pod {
            true => old.pod.clone(),
            false => format!("{index}-{number}"),
        };
        self.lives[index] = self.live(index, number, pod);
    }

    /// Starts a process.
    fn live(&self, index: usize, number: u32, pod: String) -> Life {
        let Schedule { bug, rates, .. } = self.schedule;
        let slow = *bug == Some(Bug::SlowClock) && index == 0;
        let rate = if slow { rates[index] / 2 } else { rates[index] };
        let seat = Arc::new(Seat {
            name: format!("{}-{number}", NAMES[index]),
            clock: Rated::new(rate),
            term: Mutex::default(),
            starved: AtomicBool::new(false),
            left: AtomicBool::new(false),
        });
        self.referee.seat(&seat);
        let (lease, link) = self.api.connect();
        let (starved, hears) = watch::channel(false);
        let stop = CancellationToken::new();
        let elector = self.elector(index, &pod, lease, &seat);
        let (lingers, bug, held) = (self.schedule.linger, *bug, seat.clone());
        let lead = move |term: &mut Term| {
            *held.term.lock().unwrap() = Some(work(term, Duration::from_millis(lingers), bug));
        };
        let run = starvable(elector.run(stop.clone(), lead), hears);
        let run = timed(run, stop.clone(), seat.clone(), self.referee.clone());
        let run = tokio::spawn(run);
        Life {
            number,
            pod,
            link,
            seat,
            starved,
            stop,
            run,
        }
    }

    fn elector(&self, index: usize, pod: &str, lease: Client, seat: &Arc<Seat>) -> Elector {
        let twin = self.schedule.twins && index + 1 == self.schedule.rates.len();
        let identity = NAMES[if twin { 0 } else { index }];
        let mut timings = Timings::default();
        match self.schedule.bug {
            Some(Bug::LongLease) => timings.lease_duration = Duration::from_secs(300),
            Some(Bug::LongRelease) => timings.release_bound = Duration::from_secs(20),
            _ => {}
        }
        let candidate = Candidate {
            namespace: "default".into(),
            lease: "l".into(),
            identity: identity.into(),
            process: Process::new(pod, Some(pod.into())),
            timings,
            admission_lag: Duration::ZERO,
        };
        let (referee, seat) = (self.referee.clone(), seat.clone());
        let work = work_client(referee.clone(), seat.clone());
        let clock = Arc::new(seat.clock.clone());
        let witness = Arc::new(Witness { referee, seat });
        Elector::with_clients(lease, work, candidate, clock, witness).unwrap()
    }
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
