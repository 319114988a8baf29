//! Ways to go wrong on request.

use anyhow::{Result, bail};

/// What a stand-in for environmentd does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Exits with 1 at start.
    Exit,
    /// Accepts HTTP connections and never answers.
    Hang,
    /// Every second answer to `GET /api/leader/status` says `Initializing`, whatever is true.
    Flap,
    /// Answers every leader request with 500.
    Status500,
    /// Answers every leader request with 200 and a body that is not JSON.
    Garbage,
    /// Answers `POST /api/leader/promote` with a failure, and does not promote.
    PromoteFail,
    /// Answers `POST /api/leader/skip-catchup` with 400, and does not skip.
    SkipCatchupFail,
}

impl Fault {
    /// Reads the value of `MZ_STANDIN_FAULT`.
    pub(crate) fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "none" => Self::None,
            "exit" => Self::Exit,
            "hang" => Self::Hang,
            "flap" => Self::Flap,
            "status-500" => Self::Status500,
            "garbage" => Self::Garbage,
            "promote-fail" => Self::PromoteFail,
            "skip-catchup-fail" => Self::SkipCatchupFail,
            other => bail!(
                "MZ_STANDIN_FAULT is {other:?}: must be none, exit, hang, flap, status-500, garbage, promote-fail or \
                 skip-catchup-fail"
            ),
        })
    }
}
