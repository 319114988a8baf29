//! A new holder's first writes, where the API server admits only the holder's.
//!
//! An admission policy that looks at the Lease sees it through a cache, so for some milliseconds
//! after a takeover it still refuses the new holder. Such a refusal is tried again.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use kube::client::Body;
use tokio::time::Sleep;
use tower::retry::Policy;

use super::clock::{Clock, Moment};
use super::fence::is_read;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Tries a write that is forbidden again, until a moment.
#[derive(Clone)]
pub(super) struct Patience {
    clock: Arc<dyn Clock>,
    until: Moment,
    pause: Duration,
}

impl Patience {
    pub(super) fn new(clock: Arc<dyn Clock>, until: Moment) -> Self {
        Self {
            clock,
            until,
            pause: FIRST_PAUSE,
        }
    }
}

impl<B, E> Policy<Request<Body>, Response<B>, E> for Patience {
    type Future = Sleep;

    fn retry(
        &mut self,
        _request: &mut Request<Body>,
        result: &mut Result<Response<B>, E>,
    ) -> Option<Sleep> {
        let forbidden = matches!(result, Ok(answer) if answer.status() == StatusCode::FORBIDDEN);
        if !forbidden || self.clock.now() >= self.until {
            return None;
        }
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        Some(tokio::time::sleep(pause))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        if is_read(request.method()) {
            return None;
        }
        let mut copy = Request::new(request.body().try_clone()?);
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.version_mut() = request.version();
        *copy.headers_mut() = request.headers().clone();
        *copy.extensions_mut() = request.extensions().clone();
        Some(copy)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::Method;
    use tower::{Service, ServiceBuilder, ServiceExt};

    use super::*;
    use crate::election::testing::TestClock;

    /// Sends one request to a server that forbids the first `refusals`; returns the answer and the tries.
    async fn send(method: Method, refusals: u32) -> (StatusCode, u32) {
        let tries = Arc::new(AtomicU32::new(0));
        let counted = tries.clone();
        let clock = TestClock::new();
        let until = clock.now().plus(Duration::from_secs(2));
        let mut service = ServiceBuilder::new()
            .retry(Patience::new(Arc::new(clock), until))
            .service(tower::service_fn(move |request: Request<Body>| {
                let tried = counted.fetch_add(1, Ordering::SeqCst);
                async move {
                    let body = request.into_body().collect_bytes().await.unwrap();
                    assert_eq!(body, "x", "each try has the body");
                    let mut answer = Response::new(());
                    if tried < refusals {
                        *answer.status_mut() = StatusCode::FORBIDDEN;
                    }
                    Ok::<_, Infallible>(answer)
                }
            }));
        let mut request = Request::new(Body::from(b"x".to_vec()));
        *request.method_mut() = method;
        let answer = service.ready().await.unwrap().call(request).await.unwrap();
        (answer.status(), tries.load(Ordering::SeqCst))
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_forbidden_at_first_is_tried_again() {
        assert_eq!(send(Method::POST, 3).await, (StatusCode::OK, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_stays_forbidden_is_given_up_in_time() {
        let (status, tries) = send(Method::PATCH, u32::MAX).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        assert!((20..40).contains(&tries), "{tries}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_is_not_tried_again() {
        assert_eq!(send(Method::GET, 1).await, (StatusCode::FORBIDDEN, 1));
    }
}
