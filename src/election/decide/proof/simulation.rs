//! Random courses of up to five replicas in fine-grained time.
//!
//! A [`Schedule`] holds everything that is random in a course, so that one that breaks a promise
//! can be printed, run again and made smaller.

mod network;
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use super::super::tests::process;
use super::super::{Answer, EndReason, Event, Me, Wake};
use super::{Bug, Effects, Hand, Replica, Request, Server};
use crate::election::clock::Moment;
use crate::election::record::Record;
use crate::election::timings::Timings;

/// Real time, in microseconds since the course began.
type Micros = u64;

const NEVER: Micros = Micros::MAX;
const SECOND: Micros = 1_000_000;

/// A process that was stopped for longer notices.
const OVERSLEPT: Micros = 3 * SECOND;

/// A course: who takes part, what goes wrong, and the seed of all that is left to chance.
#[derive(Clone, Debug)]
struct Schedule {
    seed: u64,
    /// How fast each replica's clock runs, per mille.
    rates: Vec<u64>,
    troubles: Vec<Trouble>,
    bug: Option<Bug>,
}

#[derive(Clone, Debug)]
struct Trouble {
    /// When it begins.
    at: Micros,
    /// How long it lasts.
    lasts: Micros,
    /// Whom it is for, modulo the number of replicas.
    whose: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Requests do not arrive, or so late that nobody waits for them.
    Cut,
    /// Answers do not arrive.
    Mute,
    /// Requests, answers and sightings take up to half a second each.
    Slow,
    /// Writes arrive twice.
    Twice,
    /// The watch shows nothing; when opened again, it shows what is there.
    Blind,
    /// The process is stopped.
    Pause,
    /// The process is stopped as soon as it has sent a write.
    Freeze,
    /// The process dies and starts again, in the same pod or, if not, in another.
    Restart { same_pod: bool },
    /// The process is asked to stop; another takes its place after a while.
    Stop,
    /// Somebody else changes the Lease.
    By(Hand),
}

/// A small generator of random numbers (SplitMix64).
#[derive(Clone, Debug)]
struct Chance(u64);

impl Chance {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `least` up to, and without, `limit`.
    const fn between(&mut self, least: Micros, limit: Micros) -> Micros {
        least + self.next() % (limit - least)
    }
}

/// A replica, its clock and what is on the way to and from it.
struct Node {
    index: usize,
    rate: u64,
    replica: Replica,
    /// When the outstanding call arrives at the server.
    arrives: Micros,
    /// The answer that is on its way, and when it arrives.
    answer: Option<(Micros, Answer)>,
    sightings: VecDeque<(Micros, Option<Record>)>,
    /// The wake-up that is waited for, and when it is due.
    alarm: Option<(Wake, Micros)>,
    /// When the tasks of the term that ended are gone.
    joined: Micros,
    /// Until when each kind of trouble lasts.
    cut: Micros,
    mute: Micros,
    slow: Micros,
    twice: Micros,
    paused: Micros,
    /// It was stopped for so long that it notices.
    overslept: bool,
    /// For how long it is stopped once it has sent a write.
    freezes: Option<Micros>,
    /// When a blind watch is opened again.
    reopens: Micros,
    /// When another takes the place of one that has stopped.
    returns: Micros,
    lives: u32,
}

fn me(index: usize, pod: u32, life: u32) -> Me {
    let nonce = format!("{index}-{life}");
    Me {
        identity: NAMES[index].to_owned(),
        process: process(&nonce, Some(&format!("{index}-{pod}"))),
    }
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

impl Node {
    fn new(index: usize, rate: u64, pod: u32, life: u32, now: Micros) -> Self {
        let me = me(index, pod, life);
        Self {
            index,
            rate,
            replica: Replica::new(me, Timings::default(), clock(index, rate, now)),
            arrives: NEVER,
            answer: None,
            sightings: VecDeque::new(),
            alarm: None,
            joined: NEVER,
            cut: 0,
            mute: 0,
            slow: 0,
            twice: 0,
            paused: 0,
            overslept: false,
            freezes: None,
            reopens: NEVER,
            returns: NEVER,
            lives: life,
        }
    }

    fn clock(&self, now: Micros) -> Moment {
        clock(self.index, self.rate, now)
    }

    /// When its clock shows this.
    fn when(&self, moment: Moment) -> Micros {
        let since = moment.since(clock(self.index, self.rate, 0)).as_nanos();
        let since = u64::try_from(since.div_ceil(1000).min(1 << 50)).unwrap_or(NEVER);
        (since * 1000).div_ceil(self.rate)
    }

    fn pause(&mut self, now: Micros, lasts: Micros) {
        self.paused = self.paused.max(now + lasts);
        self.overslept |= lasts > OVERSLEPT;
    }

    fn leads(&self) -> bool {
        self.replica.term.is_some()
    }

    fn is_done(&self) -> bool {
        self.replica.finished.is_some()
    }

    /// When it has something to do by itself, and what.
    fn next(&mut self, chance: &mut Chance) -> (Micros, Own) {
        if self.is_done() {
            return (self.returns, Own::Return);
        }
        if self.replica.joining.is_some() {
            return (self.joined.max(self.paused), Own::Joined);
        }
        let mut next = (NEVER, Own::Wake);
        let mut consider = |at: Micros, what| {
            if at < next.0 {
                next = (at, what);
            }
        };
        let awake = |at: Micros| at.max(self.paused);
        if let Some((at, _)) = &self.answer {
            consider(awake(*at), Own::Answer);
        }
        if let Some(sent) = &self.replica.sent {
            consider(awake(self.when(sent.until)), Own::GiveUp);
        }
        if let Some((at, _)) = self.sightings.front() {
            consider(awake(*at), Own::Watch);
        }
        if let Some(wake) = self.replica.state.wake() {
            let due = match self.alarm {
                Some((same, due)) if same == wake => due,
                _ => {
                    let spread = u64::try_from(wake.spread.as_micros()).unwrap_or_default();
                    let late = Duration::from_micros(chance.between(0, spread + 1));
                    self.when(wake.at.plus(late))
                }
            };
            self.alarm = Some((wake, due));
            consider(awake(due), Own::Wake);
        }
        consider(self.reopens, Own::Reopen);
        consider(self.arrives, Own::Arrive);
        next
    }
}

/// Clocks of different processes have nothing in common but, more or less, their rate.
const fn clock(index: usize, rate: u64, now: Micros) -> Moment {
    let epoch = 1_000 * SECOND * (index as u64 + 1);
    Moment::new(Duration::from_micros(epoch + now * rate / 1000))
}

/// What happens to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    Wake,
    Arrive,
    Answer,
    GiveUp,
    Watch,
    Joined,
    Reopen,
    Return,
}
