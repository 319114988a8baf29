//! What can happen next, and what comes of it.

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Move {
    Tick,
    /// A replica wakes up.
    Wake(usize),
    /// A call reaches the server.
    Arrive(usize),
    /// An answer reaches its replica.
    Answer(usize),
    /// A call is given up.
    GiveUp(usize),
    /// The watch shows something.
    Watch(usize),
    /// The tasks of a term are gone.
    Joined(usize),
    /// A stopped process is resumed, and notices that it was stopped, if it was for long enough.
    Resume(usize, bool),
    /// A write that nobody waits for reaches the server.
    Stray(usize),
    /// Something goes wrong, of the setup's so-manieth kind, for a replica.
    Fault(usize, usize),
}

impl Node {
    /// What it may do by itself now, and whether it is due: then it can't wait for the next tick.
    fn own_moves(&self) -> Vec<(Move, bool)> {
        let (index, now) = (self.index, self.now());
        let mut moves = Vec::new();
        if self.paused || self.replica.finished.is_some() {
            return moves;
        }
        if let Some(joining) = &self.replica.joining {
            let due = !self.tasks_are_slow || now >= joining.until;
            return vec![(Move::Joined(index), due)];
        }
        if !self.sightings.is_empty() {
            moves.push((Move::Watch(index), !self.watch_is_slow));
        }
        if let Some(wake) = self.replica.state.wake()
            && (now >= wake.at.plus(wake.spread) || (self.wakes_early && now >= wake.at))
        {
            moves.push((Move::Wake(index), true));
        }
        if let Some(sent) = &self.replica.sent
            && now >= sent.until
        {
            moves.push((Move::GiveUp(index), true));
        }
        if let Way::Back { slow, .. } = self.way {
            moves.push((Move::Answer(index), !slow));
        }
        moves
    }

    fn suffers(&self, fault: Fault) -> bool {
        let runs = !self.paused && self.replica.finished.is_none();
        let sent = matches!(self.way, Way::Out { slow: false });
        let writes = |node: &Self| {
            let request = node.replica.sent.as_ref().map(|sent| &sent.request);
            request.is_some_and(Request::is_write)
        };
        match fault {
            Fault::SlowRequest | Fault::SlowAnswer | Fault::LostAnswer => sent,
            Fault::Twice => sent && writes(self),
            Fault::EarlyWake => {
                let wake = self.replica.state.wake();
                let may = |wake: Wake| self.now() >= wake.at;
                runs && !self.wakes_early && wake.is_some_and(may) && self.own_moves().is_empty()
            }
            Fault::SlowWatch => !self.sightings.is_empty() && !self.watch_is_slow,
            Fault::BlindWatch => !self.sightings.is_empty(),
            Fault::SlowTasks => self.replica.joining.is_some() && !self.tasks_are_slow,
            Fault::Pause => runs,
            Fault::Restart | Fault::Successor => true,
            Fault::Stop => runs && self.replica.joining.is_none(),
            // Not a node's.
            Fault::By(_) => self.index == 0,
        }
    }
}

impl World {
    pub(super) fn moves(&self, setup: &Setup, moves: &mut Vec<Move>) {
        let mut due = false;
        for node in &self.nodes {
            let own = node.own_moves();
            let own_due = own.iter().any(|(_, due)| *due);
            // What two replicas do by themselves does not depend on which comes first.
            if !own_due || !due {
                moves.extend(own.iter().map(|(step, _)| *step));
            }
            due |= own_due;
        }
        for node in &self.nodes {
            if let Way::Out { slow } = node.way {
                moves.push(Move::Arrive(node.index));
                due |= !slow;
            }
            if node.paused {
                moves.extend([false, true].map(|notices| Move::Resume(node.index, notices)));
            }
        }
        moves.extend((0..self.strays.len()).map(Move::Stray));
        self.faults(setup, moves);
        if !due {
            moves.push(Move::Tick);
        }
    }

    fn faults(&self, setup: &Setup, moves: &mut Vec<Move>) {
        let spent = self.spent.iter().sum::<u8>();
        if spent >= setup.at_most {
            return;
        }
        for (kind, ((fault, most), spent)) in setup.faults.iter().zip(&self.spent).enumerate() {
            let suffers = |node: &&Arc<Node>| spent < most && node.suffers(*fault);
            let nodes = self.nodes.iter().filter(suffers);
            moves.extend(nodes.map(|node| Move::Fault(kind, node.index)));
        }
    }

    pub(super) fn make(&mut self, setup: &Setup, step: Move) {
        self.began = None;
        match step {
            Move::Tick => self.tick(setup),
            Move::Arrive(index) => {
                let can_hear = {
                    let node = &self.nodes[index];
                    !node.paused && node.replica.joining.is_none()
                };
                self.arrive(setup, index, false);
                if can_hear {
                    self.answer(setup, index);
                }
            }
            Move::Answer(index) => self.answer(setup, index),
            Move::Wake(index) => {
                Arc::make_mut(&mut self.nodes[index]).wakes_early = false;
                self.event(setup, index, Event::Wake);
            }
            Move::GiveUp(index) => self.give_up(setup, index),
            Move::Watch(index) => {
                let node = Arc::make_mut(&mut self.nodes[index]);
                let sighting = node.sightings.pop_front().flatten();
                node.watch_is_slow &= !node.sightings.is_empty();
                self.event(setup, index, Event::Watched(sighting));
            }
            Move::Joined(index) => self.act(index, |node, now| {
                node.tasks_are_slow = false;
                node.replica.joined(now, setup.bug)
            }),
            Move::Resume(index, notices) => {
                let node = Arc::make_mut(&mut self.nodes[index]);
                node.paused = false;
                if notices {
                    node.replica.state.restart_wait(node.now());
                }
            }
            Move::Stray(index) => {
                let request = self.strays.remove(index);
                let (_, changed) = self.server.serve(&request, setup.bug);
                self.tell(changed);
                self.unled = 0;
            }
            Move::Fault(kind, index) => {
                self.spent[kind] += 1;
                self.unled = 0;
                self.suffer(setup, setup.faults[kind].0, index);
            }
        }
    }

    fn tick(&mut self, setup: &Setup) {
        self.age();
        self.forget(setup);
        if self.nodes.iter().any(|node| node.is_disturbed()) {
            self.unled = 0;
        } else if !self.is_led() {
            self.unled += 1;
        }
    }

    /// The outstanding call of a node reaches the server.
    fn arrive(&mut self, setup: &Setup, index: usize, slow: bool) {
        let node = Arc::make_mut(&mut self.nodes[index]);
        let Some(sent) = &node.replica.sent else {
            return;
        };
        let (answer, changed) = self.server.serve(&sent.request, setup.bug);
        node.way = Way::Back { answer, slow };
        self.tell(changed);
    }

    fn tell(&mut self, changed: bool) {
        for node in self.nodes.iter_mut().filter(|_| changed) {
            if node.replica.finished.is_none() {
                let sightings = &mut Arc::make_mut(node).sightings;
                sightings.push_back(self.server.lease.clone());
                if sightings.len() > BACKLOG {
                    sightings.remove(BACKLOG - 1);
                }
            }
        }
    }

    fn answer(&mut self, setup: &Setup, index: usize) {
        let node = Arc::make_mut(&mut self.nodes[index]);
        if let Way::Back { answer, .. } = std::mem::replace(&mut node.way, Way::Nowhere) {
            self.act(index, |node, now| {
                node.replica.answer(answer, now, setup.bug)
            });
        }
    }

    fn give_up(&mut self, setup: &Setup, index: usize) {
        let node = Arc::make_mut(&mut self.nodes[index]);
        let request = node.replica.sent.take().map(|sent| sent.request);
        let way = std::mem::replace(&mut node.way, Way::Nowhere);
        self.abandon(request, &way);
        self.act(index, |node, now| {
            node.replica.answer(Answer::Failed, now, setup.bug)
        });
    }

    /// Nobody waits for the request any more, but if it has not arrived, it still may.
    fn abandon(&mut self, request: Option<Request>, way: &Way) {
        let sent = matches!(way, Way::Out { .. });
        self.strays
            .extend(request.filter(|request| sent && request.is_write()));
    }

    fn event(&mut self, setup: &Setup, index: usize, event: Event) {
        self.act(index, |node, now| node.replica.take(event, now, setup.bug));
    }

    /// Lets a replica take a step.
    fn act(&mut self, index: usize, step: impl FnOnce(&mut Node, Moment) -> Effects) {
        let node = Arc::make_mut(&mut self.nodes[index]);
        let sent = node.replica.sent.as_ref();
        let knew = sent.and_then(|sent| sent.knew.clone());
        let now = node.now();
        let effects = step(node, now);
        let way = if effects.called {
            Some(Way::Out { slow: false })
        } else {
            node.replica.sent.is_none().then_some(Way::Nowhere)
        };
        if node.replica.finished.is_some() {
            node.sightings.clear();
            node.watch_is_slow = false;
        }
        if let Some(way) = way {
            let old = std::mem::replace(&mut node.way, way);
            self.abandon(effects.superseded, &old);
        }
        self.began = effects.began;
        if effects.began.is_some() {
            self.check_haste(index, knew.as_ref());
        }
        let wrong = self.spent.iter().any(|spent| *spent > 0);
        if effects.ended.is_some() && !wrong {
            self.broken = Some("a term is lost although nothing goes wrong");
        }
    }

    /// A replica that knew the holder of a deleted Lease gives it time to notice.
    fn check_haste(&mut self, index: usize, knew: Option<&Process>) {
        let hasty = self.nodes.iter().any(|other| {
            let term = other.replica.term.as_ref();
            let seized = term.and_then(|term| self.server.seized(term));
            other.index != index
                && other.is_open()
                && seized.is_some_and(Hand::leaves_a_trace)
                && knew == Some(other.replica.process())
        });
        if hasty {
            self.broken = Some("takes over from a holder that it knew and that may act");
        }
    }

    fn suffer(&mut self, setup: &Setup, fault: Fault, index: usize) {
        let node = Arc::make_mut(&mut self.nodes[index]);
        match fault {
            Fault::SlowRequest => node.way = Way::Out { slow: true },
            Fault::SlowAnswer => self.arrive(setup, index, true),
            Fault::LostAnswer => {
                self.arrive(setup, index, false);
                Arc::make_mut(&mut self.nodes[index]).way = Way::Lost;
            }
            Fault::Twice => {
                let request = node.replica.sent.as_ref().map(|sent| &sent.request);
                self.strays.extend(request.cloned());
            }
            Fault::SlowWatch => node.watch_is_slow = true,
            Fault::BlindWatch => {
                node.sightings.pop_front();
                node.watch_is_slow &= !node.sightings.is_empty();
            }
            Fault::EarlyWake => node.wakes_early = true,
            Fault::SlowTasks => node.tasks_are_slow = true,
            Fault::Pause => node.paused = true,
            Fault::Restart => self.restart(index, 0),
            Fault::Successor => self.restart(index, 1),
            Fault::Stop => {
                let stop = Event::Stop(EndReason::Stopped);
                self.event(setup, index, stop);
            }
            Fault::By(hand) => {
                let changed = self.server.touch(hand);
                self.tell(changed);
            }
        }
    }

    fn restart(&mut self, index: usize, pods: u8) {
        let old = self.nodes[index].clone();
        self.abandon(old.replica.sent.clone().map(|sent| sent.request), &old.way);
        let lives = old.lives + 1;
        let mut node = Node::new(index, old.rate);
        let me = me(index, pods * lives, lives);
        node.replica = Replica::new(me, TIMINGS, node.now());
        node.lives = lives;
        let lease = self.server.lease.clone();
        node.sightings.extend(lease.map(Some));
        self.nodes[index] = Arc::new(node);
    }
}
