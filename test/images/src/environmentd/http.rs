//! The HTTP ports: leader API, login, metrics and probes.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;

use super::listeners::{HttpListener, Route};
use super::shared::Shared;
use super::{Fault, Status};
use crate::http::metrics;

const SESSION: &str = "mz_session";

/// The routes of one listener: a group that is off does not exist there.
pub(crate) fn router(listener: &HttpListener, shared: &Arc<Shared>) -> Router {
    let asks_for_password = listener.authenticator_kind.asks_for_password();
    let mut router = Router::new()
        .route("/api/livez", get(|| async { "live" }))
        .route("/api/readyz", get(readyz));
    if asks_for_password {
        router = router.route("/api/login", post(login));
    }
    if listener.routes.contains_key(&Route::Base) {
        router = router.route("/", get(index));
    }
    if listener.routes.contains_key(&Route::Metrics) {
        router = router.route("/metrics", get(show_metrics));
    }
    if let Some(roles) = listener.routes.get(&Route::Internal) {
        let mut leader = leader_api();
        if !roles.internal() {
            leader = leader.layer(from_fn(|_: Request, _: Next| async {
                StatusCode::FORBIDDEN
            }));
        } else if asks_for_password {
            leader = leader.layer(from_fn_with_state(Arc::clone(shared), require_session));
        }
        router = router.merge(leader);
    }
    router
        .layer(from_fn_with_state(Arc::clone(shared), hang))
        .with_state(Arc::clone(shared))
}

fn leader_api() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/leader/status", get(status))
        .route("/api/leader/promote", post(promote))
        .route("/api/leader/skip-catchup", post(skip_catchup))
}

async fn hang(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    if shared.fault() == Fault::Hang {
        std::future::pending::<()>().await;
    }
    next.run(request).await
}

async fn index(State(shared): State<Arc<Shared>>) -> Html<String> {
    Html(format!(
        "<p>This is a stand-in for environmentd {}.</p>\n",
        shared.version
    ))
}

async fn readyz(State(shared): State<Arc<Shared>>) -> Response {
    match shared.status() {
        Status::IsLeader => "ready".into_response(),
        status => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not ready: {status:?}"),
        )
            .into_response(),
    }
}

async fn status(State(shared): State<Arc<Shared>>) -> Response {
    match shared.fault() {
        Fault::Status500 => broken(),
        Fault::Garbage => garbage(),
        Fault::Flap if shared.flap() => {
            Json(json!({ "status": Status::Initializing })).into_response()
        }
        _ => Json(json!({ "status": shared.status() })).into_response(),
    }
}

async fn promote(State(shared): State<Arc<Shared>>) -> Response {
    let outcome = shared.promote();
    match (shared.fault(), outcome) {
        (Fault::Status500, _) => broken(),
        (Fault::Garbage, _) => garbage(),
        (_, Ok(())) => Json(json!({ "result": "Success" })).into_response(),
        (_, Err(message)) => {
            Json(json!({ "result": { "Failure": { "message": message } } })).into_response()
        }
    }
}

async fn skip_catchup(State(shared): State<Arc<Shared>>) -> Response {
    let outcome = shared.skip_catchup();
    match (shared.fault(), outcome) {
        (Fault::Status500, _) => broken(),
        (Fault::Garbage, _) => garbage(),
        (_, Ok(())) => StatusCode::OK.into_response(),
        (_, Err(message)) => {
            (StatusCode::BAD_REQUEST, Json(json!({ "message": message }))).into_response()
        }
    }
}

fn broken() -> Response {
    (
        StatusCode::INTERNAL_SERVER_ERROR,
        "told to answer 500 by MZ_STANDIN_FAULT",
    )
        .into_response()
}

fn garbage() -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        "{\"status\": neither",
    )
        .into_response()
}

#[derive(Deserialize)]
struct Login {
    username: String,
    password: String,
}

async fn login(State(shared): State<Arc<Shared>>, Json(login): Json<Login>) -> Response {
    if login.username != "mz_system" || shared.password.as_ref() != Some(&login.password) {
        return (StatusCode::UNAUTHORIZED, "invalid username or password").into_response();
    }
    let cookie = format!("{SESSION}={}; Path=/; HttpOnly", shared.open_session());
    (StatusCode::OK, [(header::SET_COOKIE, cookie)]).into_response()
}

async fn require_session(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let authorized = request
        .headers()
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|cookies| cookies.to_str().ok())
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
        .any(|(name, value)| name == SESSION && shared.has_session(value));
    if authorized {
        next.run(request).await
    } else {
        (StatusCode::UNAUTHORIZED, "log in first").into_response()
    }
}

async fn show_metrics(State(shared): State<Arc<Shared>>) -> Response {
    let leads = u8::from(shared.status() == Status::IsLeader);
    metrics(format!(
        "# HELP mz_standin_is_leader Whether this generation leads its environment.\n\
         # TYPE mz_standin_is_leader gauge\n\
         mz_standin_is_leader{{generation=\"{}\"}} {leads}\n\
         # HELP mz_standin_promote_requests_total Promote requests so far.\n\
         # TYPE mz_standin_promote_requests_total counter\n\
         mz_standin_promote_requests_total {}\n",
        shared.generation,
        shared.promotes(),
    ))
}
