//! The leader API of one generation of environmentd.

mod transport;

pub use transport::{Resolver, TransportError};

use http::Method;
use kube::Client;
use serde::Deserialize;
use serde_json::json;
use thiserror::Error;

use self::transport::{Answer, Transport};
use super::render::LeaderEndpoint;
use crate::election::{Fence, FenceClosed};

const STATUS: &str = "/api/leader/status";
const SKIP_CATCHUP: &str = "/api/leader/skip-catchup";
const PROMOTE: &str = "/api/leader/promote";
const LOGIN: &str = "/api/login";

/// The user that the operator logs in as.
const USER: &str = "mz_system";

/// How far a generation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum LeaderStatus {
    /// It starts or catches up.
    Initializing,
    /// It has caught up.
    ReadyToPromote,
    /// It is taking over.
    Promoting,
    /// It serves.
    IsLeader,
}

/// Why environmentd could not be asked.
#[derive(Debug, Error)]
pub enum LeaderApiError {
    /// No answer at all.
    #[error("environmentd cannot be reached at {url}")]
    Unreachable {
        /// Where it was looked for.
        url: String,
        /// Why.
        source: TransportError,
    },
    /// It was not asked: only the leader may.
    #[error("environmentd was not asked at {url}")]
    FenceClosed {
        /// What would have been asked.
        url: String,
        /// Why.
        source: FenceClosed,
    },
    /// An answer that says no.
    #[error("environmentd answered {url} with HTTP {code}: {body}")]
    Code {
        /// What was asked.
        url: String,
        /// The HTTP code.
        code: u16,
        /// The start of the answer.
        body: String,
    },
    /// An answer that makes no sense.
    #[error("environmentd answered {url} with something unreadable; is its version supported?")]
    Garbage {
        /// What was asked.
        url: String,
        /// Why it cannot be read.
        source: serde_json::Error,
    },
    /// The catch-up cannot be skipped.
    #[error("environmentd does not skip its catch-up: {0}")]
    SkipRefused(String),
    /// The generation cannot be promoted.
    #[error("environmentd does not promote itself: {0}")]
    PromoteRefused(String),
}

impl LeaderApiError {
    /// Whether waiting may help: nobody answers yet, or not yet as it should.
    pub fn is_not_yet(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Code { .. })
    }

    /// Whether environmentd refused to skip its catch-up, which it also does before that begins.
    pub fn is_skip_refused(&self) -> bool {
        matches!(self, Self::SkipRefused(_))
    }
}

#[derive(Deserialize)]
struct StatusAnswer {
    status: LeaderStatus,
}

#[derive(Deserialize)]
struct PromoteAnswer {
    result: PromoteResult,
}

#[derive(Deserialize)]
enum PromoteResult {
    Success,
    Failure { message: String },
}

#[derive(Deserialize)]
struct Message {
    message: String,
}

/// A client of one generation's leader API.
pub struct LeaderApi {
    transport: Transport,
}

impl LeaderApi {
    /// A client for an endpoint, with the client and the fence of a term; nothing is sent yet.
    pub fn new(
        resolver: &Resolver,
        client: &Client,
        fence: &Fence,
        endpoint: &LeaderEndpoint,
    ) -> Self {
        Self {
            transport: resolver.transport(client, fence, endpoint),
        }
    }

    /// Logs in; later requests carry the session.
    ///
    /// # Errors
    /// [`LeaderApiError`] if nobody answers or the password is refused.
    pub async fn login(&mut self, password: &str) -> Result<(), LeaderApiError> {
        let body = json!({ "username": USER, "password": password });
        let answer = self.send(Method::POST, LOGIN, Some(&body)).await?;
        let cookie = answer.cookie.clone();
        self.success(LOGIN, answer)?;
        self.transport.set_cookie(cookie);
        Ok(())
    }

    /// How far the generation has come.
    ///
    /// # Errors
    /// [`LeaderApiError`] if nobody answers, or not with a status.
    pub async fn status(&self) -> Result<LeaderStatus, LeaderApiError> {
        let answer = self.send(Method::GET, STATUS, None).await?;
        let body = self.success(STATUS, answer)?;
        Ok(self.read::<StatusAnswer>(STATUS, &body)?.status)
    }

    /// Asks the generation to stop catching up.
    ///
    /// # Errors
    /// [`LeaderApiError::SkipRefused`] with environmentd's reason, or if nobody answers.
    pub async fn skip_catchup(&self) -> Result<(), LeaderApiError> {
        let answer = self.send(Method::POST, SKIP_CATCHUP, None).await?;
        if answer.code != 400 {
            return Ok(());
        }
        let message =
            serde_json::from_str(&answer.body).map_or(answer.body, |Message { message }| message);
        Err(LeaderApiError::SkipRefused(message))
    }

    /// Asks the generation to take over; success says that it has begun to.
    ///
    /// # Errors
    /// [`LeaderApiError::PromoteRefused`] with environmentd's reason, or if it does not answer.
    pub async fn promote(&self) -> Result<(), LeaderApiError> {
        let answer = self.send(Method::POST, PROMOTE, None).await?;
        let body = self.success(PROMOTE, answer)?;
        match self.read::<PromoteAnswer>(PROMOTE, &body)?.result {
            PromoteResult::Success => Ok(()),
            PromoteResult::Failure { message } => Err(LeaderApiError::PromoteRefused(message)),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<Answer, LeaderApiError> {
        let answer = self.transport.send(method, path, body).await;
        answer.map_err(|error| {
            let url = self.transport.url(path);
            match error {
                TransportError::FenceClosed(source) => LeaderApiError::FenceClosed { url, source },
                source => LeaderApiError::Unreachable { url, source },
            }
        })
    }

    fn success(&self, path: &str, answer: Answer) -> Result<String, LeaderApiError> {
        if (200..300).contains(&answer.code) {
            return Ok(answer.body);
        }
        Err(LeaderApiError::Code {
            url: self.transport.url(path),
            code: answer.code,
            body: answer.body.chars().take(200).collect(),
        })
    }

    fn read<'a, T: Deserialize<'a>>(&self, path: &str, body: &'a str) -> Result<T, LeaderApiError> {
        serde_json::from_str(body).map_err(|source| LeaderApiError::Garbage {
            url: self.transport.url(path),
            source,
        })
    }
}

#[cfg(test)]
mod tests;
