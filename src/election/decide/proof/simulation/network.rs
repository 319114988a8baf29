//! What happens, in the order in which it happens.

use super::*;

/// The way to the server takes up to this, and as long back; a sighting, too.
pub(super) const LATENCY: Micros = 5_000;
/// More than can happen at one instant.
const BUSTLE: u32 = 10_000;
const SLOWNESS: Micros = SECOND / 2;
/// The tasks of a term take up to this to end.
pub(super) const TASKS: Micros = 20_000;

pub(super) struct Course {
    pub(super) now: Micros,
    pub(super) nodes: Vec<Node>,
    server: Server,
    chance: Chance,
    /// Requests that nobody waits for, and when they arrive.
    strays: Vec<(Micros, Request)>,
    troubles: Vec<Trouble>,
    /// When the last trouble is over.
    pub(super) troubled: Micros,
    deletions: usize,
    bug: Option<Bug>,
    pub(super) terms: usize,
    /// How many terms were lost.
    pub(super) lost: usize,
    /// How much has happened since time last passed.
    at_once: u32,
}

impl Course {
    pub(super) fn new(schedule: &Schedule) -> Self {
        let mut troubles = schedule.troubles.clone();
        troubles.sort_by_key(|trouble| std::cmp::Reverse(trouble.at));
        let rates = schedule.rates.iter().enumerate();
        let delete = Kind::By(Hand::Delete);
        Self {
            now: 0,
            nodes: rates
                .map(|(index, rate)| Node::new(index, *rate, 0, 0, 0))
                .collect(),
            server: Server::default(),
            chance: Chance(schedule.seed),
            strays: Vec::new(),
            deletions: troubles.iter().filter(|t| t.kind == delete).count(),
            troubles,
            troubled: 0,
            bug: schedule.bug,
            terms: 0,
            lost: 0,
            at_once: 0,
        }
    }

    /// Goes on to the next thing that happens, if that is before `limit`.
    pub(super) fn step(&mut self, limit: Micros) -> Result<bool, String> {
        let mut next = (limit, None);
        for index in 0..self.nodes.len() {
            let (at, own) = self.nodes[index].next(&mut self.chance);
            if at < next.0 {
                next = (at, Some((index, own)));
            }
        }
        let trouble = self.troubles.last().map_or(NEVER, |trouble| trouble.at);
        let stray = self.strays.iter().map(|stray| stray.0).min();
        let stray = stray.unwrap_or(NEVER);
        let now = self.now.max(next.0.min(trouble).min(stray));
        self.at_once = if now > self.now { 0 } else { self.at_once + 1 };
        self.now = now;
        if self.at_once > BUSTLE {
            return Err(format!("not led: no end of what happens at {now} µs"));
        }
        if trouble <= next.0 && trouble < limit {
            let trouble = self.troubles.pop();
            trouble.map_or(Ok(()), |trouble| self.suffer(&trouble))?;
        } else if stray < next.0 {
            let place = self.strays.iter().position(|(at, _)| *at == stray);
            let (_, request) = self.strays.swap_remove(place.unwrap_or_default());
            let (_, changed) = self.server.serve(&request, self.bug);
            self.tell(changed);
            self.troubled = self.troubled.max(self.now);
        } else if let (_, Some((index, own))) = next {
            self.happen(index, own)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn happen(&mut self, index: usize, own: Own) -> Result<(), String> {
        let bug = self.bug;
        match own {
            Own::Wake => self.event(index, Event::Wake),
            Own::Arrive => {
                self.arrive(index);
                Ok(())
            }
            Own::Answer => match self.nodes[index].answer.take() {
                Some((_, answer)) => self.act(index, |r, now| r.answer(answer, now, bug)),
                None => Ok(()),
            },
            Own::GiveUp => {
                let request = self.nodes[index].replica.sent.take().map(|s| s.request);
                self.abandon(index, request);
                self.act(index, |r, now| r.answer(Answer::Failed, now, bug))
            }
            Own::Watch => {
                let sighting = self.nodes[index].sightings.pop_front();
                self.event(index, Event::Watched(sighting.and_then(|(_, seen)| seen)))
            }
            Own::Joined => {
                self.nodes[index].joined = NEVER;
                self.act(index, |r, now| r.joined(now, bug))
            }
            Own::Reopen => {
                self.reopen(index);
                Ok(())
            }
            Own::Return => {
                self.restart(index, false);
                Ok(())
            }
        }
    }

    fn event(&mut self, index: usize, event: Event) -> Result<(), String> {
        let bug = self.bug;
        self.act(index, |replica, now| replica.take(event, now, bug))
    }

    /// Lets a replica take a step, and sees that it keeps its promises.
    fn act(
        &mut self,
        index: usize,
        step: impl FnOnce(&mut Replica, Moment) -> Effects,
    ) -> Result<(), String> {
        let node = &mut self.nodes[index];
        let sent = node.replica.sent.as_ref();
        let knew = sent.and_then(|sent| sent.knew.clone());
        let now = node.clock(self.now);
        if std::mem::take(&mut node.overslept) {
            node.replica.state.restart_wait(now);
        }
        let effects = step(&mut node.replica, now);
        if let Some(broken) = node.replica.broken {
            return Err(format!("{} {broken}", NAMES[index]));
        }
        if !node.replica.has_a_future() {
            return Err(format!("not led: {} is stuck", NAMES[index]));
        }
        if effects.called || node.replica.sent.is_none() {
            self.abandon(index, effects.superseded);
        }
        if effects.called {
            self.send(index);
        }
        if let Some(reason) = effects.ended {
            self.lost += usize::from(reason != EndReason::Stopped);
            let now = self.now;
            self.nodes[index].joined = now + self.chance.between(0, TASKS);
        }
        if effects.began.is_some() {
            self.terms += 1;
            self.leads_alone(index, knew.as_ref())?;
        }
        Ok(())
    }

    /// When a term begins, no other may write; but one whose Lease was taken from it by somebody
    /// who takes no part in the election may not know yet, and who takes over may not know it.
    fn leads_alone(
        &self,
        index: usize,
        knew: Option<&crate::election::process::Process>,
    ) -> Result<(), String> {
        let seized = |node: &Node| node.replica.term.as_ref().map(|t| self.server.seized(t));
        for node in &self.nodes {
            if node.index == index || !node.replica.is_open(node.clock(self.now)) {
                continue;
            }
            let seized = [seized(node).flatten(), seized(&self.nodes[index]).flatten()];
            if seized == [None, None] {
                return Err(format!(
                    "two write: {} and {}",
                    NAMES[index], NAMES[node.index]
                ));
            }
            let traced = seized[0].is_some_and(Hand::leaves_a_trace) && self.deletions == 1;
            if traced && knew == Some(node.replica.process()) {
                return Err(format!("{} takes over in haste", NAMES[index]));
            }
        }
        Ok(())
    }

    fn latency(&mut self, index: usize) -> Micros {
        let slow = self.now < self.nodes[index].slow;
        let most = if slow { SLOWNESS } else { LATENCY };
        self.chance.between(200, most)
    }

    fn send(&mut self, index: usize) {
        let latency = self.latency(index);
        let node = &mut self.nodes[index];
        node.arrives = self.now + latency;
        let request = node.replica.sent.as_ref().map(|sent| &sent.request);
        let write = request.filter(|request| request.is_write()).cloned();
        if self.now < node.cut {
            node.arrives = NEVER;
        }
        if write.is_some()
            && let Some(lasts) = node.freezes.take()
        {
            node.pause(self.now, lasts);
            self.troubled = self.troubled.max(node.paused);
        }
        let again =
            self.now < node.twice || (self.now < node.cut && self.chance.next().is_multiple_of(2));
        if again {
            let late = self.chance.between(LATENCY, 8 * SECOND);
            self.strays
                .extend(write.map(|write| (self.now + late, write)));
        }
    }

    fn arrive(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.arrives = NEVER;
        let Some(sent) = &node.replica.sent else {
            return;
        };
        let (answer, changed) = self.server.serve(&sent.request, self.bug);
        if self.now >= node.mute {
            let back = self.now + self.latency(index);
            self.nodes[index].answer = Some((back, answer));
        }
        self.tell(changed);
    }

    fn tell(&mut self, changed: bool) {
        if !changed {
            return;
        }
        for index in 0..self.nodes.len() {
            if !self.nodes[index].is_done() && self.nodes[index].reopens == NEVER {
                self.show(index);
            }
        }
    }

    /// The watch of a node shows it the Lease, after what it has still to show.
    fn show(&mut self, index: usize) {
        let at = self.now + self.latency(index);
        let lease = self.server.lease.clone();
        let sightings = &mut self.nodes[index].sightings;
        let at = sightings.back().map_or(at, |(last, _)| at.max(*last));
        sightings.push_back((at, lease));
    }

    fn reopen(&mut self, index: usize) {
        self.nodes[index].reopens = NEVER;
        if self.server.lease.is_some() {
            self.show(index);
        }
    }

    /// Nobody waits for the call any more, but if it has not arrived, it still may.
    fn abandon(&mut self, index: usize, request: Option<Request>) {
        let node = &mut self.nodes[index];
        let arrives = std::mem::replace(&mut node.arrives, NEVER);
        node.answer = None;
        if arrives != NEVER {
            let write = request.filter(Request::is_write);
            self.strays.extend(write.map(|write| (arrives, write)));
        }
    }

    fn suffer(&mut self, trouble: &Trouble) -> Result<(), String> {
        let index = trouble.whose % self.nodes.len();
        let over = self.now + trouble.lasts;
        self.troubled = self.troubled.max(over);
        let node = &mut self.nodes[index];
        match trouble.kind {
            Kind::Cut => node.cut = node.cut.max(over),
            Kind::Mute => node.mute = node.mute.max(over),
            Kind::Slow => node.slow = node.slow.max(over),
            Kind::Twice => node.twice = node.twice.max(over),
            Kind::Pause => node.pause(self.now, trouble.lasts),
            Kind::Freeze => node.freezes = Some(trouble.lasts),
            Kind::Blind => {
                node.sightings.clear();
                node.reopens = over;
            }
            Kind::Restart { same_pod } => self.restart(index, same_pod),
            Kind::Stop => return self.stop(index, over),
            Kind::By(hand) => {
                let changed = self.server.touch(hand);
                self.tell(changed);
            }
        }
        Ok(())
    }

    /// Asks a replica to stop, unless it is busy; another takes its place then.
    pub(super) fn stop(&mut self, index: usize, returns: Micros) -> Result<(), String> {
        let node = &mut self.nodes[index];
        if node.is_done() || node.replica.joining.is_some() || self.now < node.paused {
            return Ok(());
        }
        node.returns = returns;
        self.event(index, Event::Stop(EndReason::Stopped))
    }

    fn restart(&mut self, index: usize, same_pod: bool) {
        let request = self.nodes[index].replica.sent.take().map(|s| s.request);
        self.abandon(index, request);
        let old = &self.nodes[index];
        let life = old.lives + 1;
        let pod = if same_pod { old.lives } else { life };
        self.nodes[index] = Node::new(index, old.rate, pod, life, self.now);
        self.reopen(index);
    }
}
