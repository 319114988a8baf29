//! Every course of a small election, within bounds on time and faults.
//!
//! Time goes in ticks, and there is no end to it: what a course was like long ago is forgotten
//! ([`canon`]), so that all courses together have a finite number of states.
//! Within a tick, what is due happens in any order that can matter; a tick
//! ends when nothing is due any more. What takes time, gets lost or goes wrong is a [`Fault`], of
//! which a [`Setup`] allows some.

mod canon;
mod moves;
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use stateright::{Model, Property};

use super::super::tests::process;
use super::super::{Answer, EndReason, Event, Me, Wake};
use super::{Bug, Effects, Hand, Replica, Request, Server};
use crate::election::clock::Moment;
use crate::election::process::Process;
use crate::election::record::Record;
use crate::election::timings::Timings;

const TICK: Duration = Duration::from_secs(1);

const TIMINGS: Timings = Timings {
    lease_duration: Duration::from_secs(4),
    renew_deadline: Duration::from_secs(3),
    retry_period: Duration::from_secs(1),
    call_timeout: Duration::from_secs(1),
    release_bound: Duration::from_secs(1),
    join_bound: Duration::from_millis(300),
};

/// So many ticks without trouble may pass until one replica leads for good: a Lease that nobody
/// renews is noticed (2), waited out (5) and claimed, if need be at the second try (2).
const PATIENCE: u32 = 9;

/// So many sightings wait for a replica that does not look; of more, all but the first and the
/// last are forgotten.
const BACKLOG: usize = 2;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fault {
    /// A request arrives later, if at all, be it after its sender has given it up.
    SlowRequest,
    /// A request arrives, but its answer comes later, if at all.
    SlowAnswer,
    /// A request arrives, but its answer does not.
    LostAnswer,
    /// A write arrives once more, later.
    Twice,
    /// A replica wakes up as soon as it may, not as late.
    EarlyWake,
    /// A watch shows what it has to show later.
    SlowWatch,
    /// A watch does not show something.
    BlindWatch,
    /// The tasks of a term take their time to end.
    SlowTasks,
    /// A process is stopped and resumed later, or never.
    Pause,
    /// A process dies; its container starts again at once.
    Restart,
    /// A process dies; another with its identity starts in another pod.
    Successor,
    /// A process is asked to stop.
    Stop,
    /// Somebody else changes the Lease.
    By(Hand),
}

/// What is explored.
#[derive(Clone, Debug)]
struct Setup {
    /// How fast each replica's clock runs, in percent.
    rates: [u32; 3],
    /// What may go wrong, and how often each.
    faults: Vec<(Fault, u8)>,
    /// How much may go wrong altogether.
    at_most: u8,
    bug: Option<Bug>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    server: Server,
    nodes: Vec<Arc<Node>>,
    /// Writes on their way that nobody waits for.
    strays: Vec<Request>,
    /// How often each fault has happened.
    spent: Vec<u8>,
    /// Ticks without trouble, since the last one, in which no replica led.
    unled: u32,
    /// How the last step made a replica the leader, if it did.
    began: Option<&'static str>,
    /// A promise broken by a step, not by a state.
    broken: Option<&'static str>,
}

/// A replica and its surroundings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    index: usize,
    rate: u32,
    replica: Replica,
    way: Way,
    /// What the watch has yet to show.
    sightings: VecDeque<Option<Record>>,
    watch_is_slow: bool,
    tasks_are_slow: bool,
    wakes_early: bool,
    paused: bool,
    lives: u8,
}

/// Where the outstanding call is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Way {
    Nowhere,
    Out { slow: bool },
    Back { answer: Answer, slow: bool },
    Lost,
}

impl Node {
    fn new(index: usize, rate: u32) -> Self {
        let me = me(index, 0, 0);
        Self {
            index,
            rate,
            replica: Replica::new(me, TIMINGS, now(index)),
            way: Way::Nowhere,
            sightings: VecDeque::new(),
            watch_is_slow: false,
            tasks_are_slow: false,
            wakes_early: false,
            paused: false,
            lives: 0,
        }
    }

    /// It is always the same moment: time goes on by moving all others into the past.
    const fn now(&self) -> Moment {
        now(self.index)
    }

    fn is_open(&self) -> bool {
        self.replica.is_open(self.now())
    }

    /// Whether it is late or stopped through a fault.
    fn is_disturbed(&self) -> bool {
        let slow_call = matches!(
            self.way,
            Way::Out { slow: true } | Way::Back { slow: true, .. }
        );
        self.paused || slow_call || self.watch_is_slow || self.tasks_are_slow
    }
}

/// Clocks of different processes have nothing in common but, more or less, their rate.
const fn now(index: usize) -> Moment {
    Moment::new(Duration::from_secs(1_000 * (index as u64 + 1)))
}

fn me(index: usize, pod: u8, life: u8) -> Me {
    let identity = NAMES[index];
    Me {
        identity: identity.to_owned(),
        process: process(
            &format!("{identity}{life}"),
            Some(&format!("{identity}-{pod}")),
        ),
    }
}

impl World {
    /// Both fences of `two` are open, and no hand took the Lease from one of them.
    fn both_write(&self, two: [&Node; 2]) -> bool {
        two.iter().all(|node| {
            let term = node.replica.term.as_ref();
            node.is_open() && term.is_some_and(|term| self.server.seized(term).is_none())
        })
    }

    fn two_write(&self) -> bool {
        let [a, b, c] = self.nodes.as_slice() else {
            return false;
        };
        self.both_write([a, b]) || self.both_write([b, c]) || self.both_write([a, c])
    }

    /// Whether one replica leads, with a Lease that it renewed when it was due, or none is left.
    fn is_led(&self) -> bool {
        let mut leaders = self.nodes.iter().filter(|node| node.replica.term.is_some());
        let fresh = |node: &Arc<Node>| {
            let until = node.replica.term.as_ref().map(|term| term.until);
            let left = until.unwrap_or_default().since(node.now());
            left + TIMINGS.retry_period + TICK >= TIMINGS.renew_deadline
        };
        match (leaders.next(), leaders.next()) {
            (Some(leader), None) => fresh(leader),
            (None, None) => self
                .nodes
                .iter()
                .all(|node| node.replica.finished.is_some()),
            _ => false,
        }
    }
}

impl Model for Setup {
    type State = World;
    type Action = moves::Move;

    fn init_states(&self) -> Vec<World> {
        let nodes = self.rates.iter().enumerate();
        vec![World {
            server: Server::default(),
            nodes: nodes
                .map(|(index, rate)| Arc::new(Node::new(index, *rate)))
                .collect(),
            strays: Vec::new(),
            spent: vec![0; self.faults.len()],
            unled: 0,
            began: None,
            broken: None,
        }]
    }

    fn actions(&self, world: &World, moves: &mut Vec<moves::Move>) {
        world.moves(self, moves);
    }

    fn next_state(&self, world: &World, step: moves::Move) -> Option<World> {
        let mut world = world.clone();
        world.make(self, step);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("never two open fences", |_, world: &World| {
                !world.two_write()
            }),
            Property::always("each step is sound", |_, world: &World| {
                let broken = |node: &Arc<Node>| node.replica.broken.is_some();
                world.broken.is_none() && !world.nodes.iter().any(broken)
            }),
            Property::always("nobody is stuck", |_, world: &World| {
                world.nodes.iter().all(|node| node.replica.has_a_future())
            }),
            Property::always(
                "without trouble, one leads and renews",
                |_, world: &World| world.unled <= PATIENCE,
            ),
            Property::sometimes("a Lease is created", |_, world: &World| {
                world.began == Some("created")
            }),
        ]
    }
}
