//! A replica that gives the Lease back, if it has it, and goes.

use super::{Action, Answer, Call, Claim, Event, Phase, Release, State, Takeover, Wake};
use crate::election::clock::Moment;
use crate::election::record::Record;

/// Tries per release bound when the API server answers with errors.
const RELEASE_TRIES: u32 = 20;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Releasing {
    /// Our Lease as last seen; `None` if it has to be read first.
    pub(super) own: Option<Record>,
    /// Until then the write that was outstanding when the stop came may still answer.
    pub(super) patience: Moment,
    pub(super) until: Moment,
    pub(super) read_at: Moment,
}

impl Releasing {
    pub(super) fn wake(&self, state: &State) -> Wake {
        let next = match &state.outstanding {
            Some(outstanding) if !is_release(&outstanding.call) && outstanding.call.is_write() => {
                self.patience
            }
            Some(_) => self.until,
            None => self.read_at,
        };
        Wake::exactly(next.min(self.until))
    }
}

fn is_release(call: &Call) -> bool {
    matches!(call, Call::Replace { claim, .. } if claim.holder.is_none())
}

impl State {
    /// `asked` is when the stop was asked for; the bound counts from there.
    pub(super) fn start_releasing(
        &mut self,
        own: Option<Record>,
        asked: Moment,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        let until = asked.plus(self.timings.release_bound);
        let releasing = Releasing {
            own,
            patience: now.plus(until.since(now) / 2),
            until,
            read_at: now,
        };
        if !self.write_is_outstanding() {
            self.outstanding = None;
        }
        self.release(releasing, now, out);
    }

    pub(super) fn releasing(
        &mut self,
        mut releasing: Releasing,
        event: Event,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        if let Event::Answer(answer) = event
            && let Some(outstanding) = self.outstanding.take()
        {
            let released = is_release(&outstanding.call);
            releasing.own = None;
            match answer {
                Answer::Written(_) if released => return self.finish(Release::Released, out),
                Answer::Written(record) => releasing.own = Some(record),
                Answer::Read(Some(record)) if self.me.signed(&record) => {
                    releasing.own = Some(record);
                }
                Answer::Read(_) | Answer::Gone => return self.finish(Release::NotHeld, out),
                Answer::Conflict => {}
                Answer::Failed => {
                    releasing.read_at = now.plus(self.timings.release_bound / RELEASE_TRIES);
                }
            }
        }
        self.release(releasing, now, out);
    }

    /// Frees the Lease if it is known to be ours, else reads it.
    fn release(&mut self, releasing: Releasing, now: Moment, out: &mut Vec<Action>) {
        if now >= releasing.until {
            return self.finish(Release::TimedOut, out);
        }
        let call = match (&self.outstanding, &releasing.own) {
            // The outcome of an earlier write has to be known first, but not at any price: the
            // read and compare-and-swap that follow make its late arrival harmless.
            (Some(earlier), _) => {
                let hangs = earlier.call.is_write() && !is_release(&earlier.call);
                (hangs && now >= releasing.patience).then_some(Call::Get)
            }
            (None, Some(own)) => Some(Call::Replace {
                version: own.version.clone(),
                claim: Claim {
                    holder: None,
                    transitions: own.transitions.unwrap_or_default(),
                    keep_acquire_time: false,
                },
            }),
            (None, None) => (now >= releasing.read_at).then_some(Call::Get),
        };
        self.phase = Phase::Releasing(releasing);
        if let Some(call) = call {
            self.issue(call, Takeover::Resumed, now, out);
        }
    }

    fn finish(&mut self, release: Release, out: &mut Vec<Action>) {
        self.outstanding = None;
        self.phase = Phase::Done;
        out.push(Action::Finish(release));
    }
}
