//! Routes of the webhook, and the bounds of a request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use prometheus::IntGauge;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::review::{Review, review, version_label};
use crate::metrics::Metrics;

/// Largest review accepted, in bytes. One object reaches 1.5 MiB in etcd, and a LIST is sent whole.
pub(super) const BODY_LIMIT: usize = 64 << 20;
/// Reviews read and converted at once; bodies of any more stay on the wire.
const REVIEWS: usize = 16;
/// The API server waits 30 s for an answer.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone)]
struct Server {
    metrics: Metrics,
    permits: Arc<Semaphore>,
}

pub(super) fn router(metrics: Metrics, leaving: CancellationToken) -> Router {
    let server = Server {
        metrics,
        permits: Arc::new(Semaphore::new(REVIEWS)),
    };
    Router::new()
        .route("/convert", post(convert))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(from_fn_with_state(server.clone(), bounded))
        .route("/healthz", get(StatusCode::OK))
        .layer(from_fn_with_state(leaving, say_goodbye))
        .with_state(server)
}

/// Once this replica is leaving, each answer tells an HTTP/1.1 client to use its connection no
/// more. Closing a connection that is still in use would race with the next request on it.
async fn say_goodbye(
    State(leaving): State<CancellationToken>,
    request: Request,
    next: Next,
) -> Response {
    let is_http1 = request.version() <= Version::HTTP_11;
    let mut response = next.run(request).await;
    if is_http1 && leaving.is_cancelled() {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

/// Bounds number and time of the requests whose bodies are in memory.
async fn bounded(State(server): State<Server>, request: Request, next: Next) -> Response {
    let _in_flight = InFlight::new(&server.metrics.conversions_in_flight);
    let _timer = server.metrics.conversion_duration.start_timer();
    let answer = async {
        let _permit = server.permits.acquire().await;
        next.run(request).await
    };
    timeout(REQUEST_LIMIT, answer)
        .await
        .unwrap_or_else(|_| StatusCode::SERVICE_UNAVAILABLE.into_response())
}

/// A task of its own keeps a large review away from the other connections.
async fn convert(State(server): State<Server>, body: Bytes) -> Response {
    let started = Instant::now();
    let answer = spawn_blocking(move || {
        let review = review(&body).map_err(|error| (error.status(), error.to_string()))?;
        let json = review.to_json();
        json.map(|json| (review, json))
            .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    })
    .await
    .unwrap_or_else(|error| Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())));
    match answer {
        Ok((review, json)) => {
            observe(&server.metrics, &review, started.elapsed());
            ([(header::CONTENT_TYPE, "application/json")], json).into_response()
        }
        Err((status, error)) => {
            tracing::warn!(%status, error, "conversion request refused");
            (status, error).into_response()
        }
    }
}

fn observe(metrics: &Metrics, review: &Review, took: Duration) {
    let to = version_label(review.to);
    let objects: u64 = review.objects.values().sum();
    let result = match &review.result {
        Ok(_) => "success",
        Err(error) => {
            tracing::warn!(uid = review.uid, to, objects, %error, "conversion failed");
            "failure"
        }
    };
    metrics.conversion_objects.observe(objects as f64);
    for (from, objects) in &review.objects {
        metrics
            .conversions
            .with_label_values(&[from, to, result])
            .inc_by(*objects);
    }
    tracing::debug!(
        uid = review.uid,
        to,
        result,
        objects,
        ?took,
        "conversion review"
    );
}

/// Counts a request for as long as it lives, however it ends.
struct InFlight<'a>(&'a IntGauge);

impl<'a> InFlight<'a> {
    fn new(gauge: &'a IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
