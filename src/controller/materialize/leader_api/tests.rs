use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kube::client::Body;
use rstest::rstest;
use tower_test::mock;

use super::*;
use crate::api::console::HttpScheme;
use crate::election::testing::fence;
use crate::election::{FenceLayer, is_fence_closed};

/// What was asked: method, path, cookie and body.
type Asked = Arc<Mutex<Vec<(String, String, String)>>>;

struct Server {
    base: String,
    asked: Asked,
}

/// Serves `code` and `body` to everything, and a session to logins.
async fn serve(code: u16, body: &'static str) -> Server {
    let asked = Asked::default();
    let answer = move |State(asked): State<Asked>, request: Request| async move {
        let (parts, content) = request.into_parts();
        let cookie = parts
            .headers
            .get("cookie")
            .map_or("", |cookie| cookie.to_str().unwrap());
        let content = axum::body::to_bytes(content, 1024).await.unwrap();
        let path = parts.uri.path().to_owned();
        let line = (
            format!("{} {path}", parts.method),
            cookie.to_owned(),
            String::from_utf8(content.to_vec()).unwrap(),
        );
        asked.lock().unwrap().push(line);
        let code = StatusCode::from_u16(code).unwrap();
        if path == "/api/login" && code == StatusCode::OK {
            return (code, [("set-cookie", "mz_session=abc; Path=/; HttpOnly")]).into_response();
        }
        Response::builder().status(code).body(body.into()).unwrap()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(asked.clone());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Server { base, asked }
}

fn endpoint() -> LeaderEndpoint {
    LeaderEndpoint {
        scheme: HttpScheme::Http,
        service: "mzabc-environmentd-1".to_owned(),
        namespace: "ns".to_owned(),
        port: 6878,
        login_secret_name: None,
    }
}

fn api_at(base: String) -> LeaderApi {
    behind(&fence(true), base)
}

fn behind(fence: &Fence, base: String) -> LeaderApi {
    let resolver = Resolver::direct(move |_| base.clone()).unwrap();
    LeaderApi::new(&resolver, &api_server().0, fence, &endpoint())
}

fn api_server() -> (
    Client,
    mock::Handle<http::Request<Body>, http::Response<Body>>,
) {
    let (service, server) = mock::pair();
    (Client::new(service, "default"), server)
}

async fn api(code: u16, body: &'static str) -> (LeaderApi, Asked) {
    let server = serve(code, body).await;
    (api_at(server.base), server.asked)
}

#[rstest]
#[case("Initializing", LeaderStatus::Initializing)]
#[case("ReadyToPromote", LeaderStatus::ReadyToPromote)]
#[case("Promoting", LeaderStatus::Promoting)]
#[case("IsLeader", LeaderStatus::IsLeader)]
#[tokio::test]
async fn a_status_is_read(#[case] name: &'static str, #[case] status: LeaderStatus) {
    let body = Box::leak(format!("{{\"status\": \"{name}\"}}").into_boxed_str());
    let (api, asked) = api(200, body).await;
    assert_eq!(api.status().await.unwrap(), status);
    assert_eq!(asked.lock().unwrap()[0].0, "GET /api/leader/status");
}

#[rstest]
#[case::garbage(200, "{\"status\": neither", false)]
#[case::unknown(200, "{\"status\": \"Resting\"}", false)]
#[case::broken(500, "no", true)]
#[case::forbidden(403, "no", true)]
#[case::moved(302, "elsewhere", true)]
#[tokio::test]
async fn only_an_unreadable_status_is_an_error(
    #[case] code: u16,
    #[case] body: &'static str,
    #[case] not_yet: bool,
) {
    let (api, _) = api(code, body).await;
    let error = api.status().await.unwrap_err();
    assert_eq!(error.is_not_yet(), not_yet, "{error}");
    assert!(error.to_string().contains("/api/leader/status"), "{error}");
}

#[tokio::test]
async fn a_refused_connection_is_not_yet() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = api_at(base).status().await.unwrap_err();
    assert!(error.is_not_yet(), "{error}");
}

#[rstest]
#[case::success(200, "{\"result\": \"Success\"}", None)]
#[case::failure(
    200,
    "{\"result\": {\"Failure\": {\"message\": \"cannot promote\"}}}",
    Some("cannot promote")
)]
#[case::garbage(200, "{", Some("unreadable"))]
#[case::broken(500, "oops", Some("HTTP 500: oops"))]
#[tokio::test]
async fn promotion_succeeds_or_says_why_not(
    #[case] code: u16,
    #[case] body: &'static str,
    #[case] failure: Option<&str>,
) {
    let (api, asked) = api(code, body).await;
    let result = api.promote().await.map_err(|error| error.to_string());
    match failure {
        None => assert_eq!(result, Ok(())),
        Some(text) => assert!(
            result.as_ref().is_err_and(|error| error.contains(text)),
            "{result:?}"
        ),
    }
    assert_eq!(asked.lock().unwrap()[0].0, "POST /api/leader/promote");
}

#[rstest]
#[case::done(200, "", None)]
#[case::any_other(500, "no", None)]
#[case::too_early(400, "{\"message\": \"not begun\"}", Some("not begun"))]
#[case::bare(400, "no", Some("no"))]
#[tokio::test]
async fn skipping_is_refused_only_with_400(
    #[case] code: u16,
    #[case] body: &'static str,
    #[case] refusal: Option<&str>,
) {
    let (api, _) = api(code, body).await;
    let refused = match api.skip_catchup().await {
        Ok(()) => None,
        Err(LeaderApiError::SkipRefused(message)) => Some(message),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(refused.as_deref(), refusal);
}

#[tokio::test]
async fn a_session_is_carried_after_login() {
    let (mut api, asked) = api(200, "{\"status\": \"IsLeader\"}").await;
    api.login("secret").await.unwrap();
    api.status().await.unwrap();
    let asked = asked.lock().unwrap();
    let credentials = "{\"username\":\"mz_system\",\"password\":\"secret\"}";
    let line = |request: &str, cookie: &str, body: &str| {
        (request.to_owned(), cookie.to_owned(), body.to_owned())
    };
    assert_eq!(asked[0], line("POST /api/login", "", credentials));
    assert_eq!(
        asked[1],
        line("GET /api/leader/status", "mz_session=abc", "")
    );
}

#[tokio::test]
async fn a_refused_password_opens_no_session_and_is_not_told() {
    let (mut api, asked) = api(401, "wrong password").await;
    let error = api.login("secret").await.unwrap_err();
    assert!(
        error.is_not_yet() && !error.to_string().contains("secret"),
        "{error}"
    );
    let _ = api.status().await;
    assert_eq!(asked.lock().unwrap()[1].1, "");
}

#[tokio::test]
async fn outside_the_cluster_requests_go_through_the_api_server() {
    let (client, mut handle) = api_server();
    let server = tokio::spawn(async move {
        let (request, send) = handle.next_request().await.unwrap();
        let body = Body::from(b"{\"status\": \"IsLeader\"}".to_vec());
        send.send_response(http::Response::new(body));
        request.uri().to_string()
    });
    let resolver = Resolver::ApiServerProxy;
    let status = LeaderApi::new(&resolver, &client, &fence(true), &endpoint())
        .status()
        .await
        .unwrap();
    assert_eq!(status, LeaderStatus::IsLeader);
    assert_eq!(
        server.await.unwrap(),
        "/api/v1/namespaces/ns/services/http:mzabc-environmentd-1:6878/proxy/api/leader/status"
    );
}

#[tokio::test]
async fn nothing_but_reads_reaches_environmentd_once_the_term_is_over() {
    let server = serve(200, "{\"status\": \"IsLeader\"}").await;
    let mut api = behind(&fence(false), server.base);
    let refused = [
        api.promote().await,
        api.skip_catchup().await,
        api.login("secret").await,
    ];
    for result in refused {
        let error = result.unwrap_err();
        assert!(!error.is_not_yet() && is_fence_closed(&error), "{error}");
    }
    assert_eq!(api.status().await.unwrap(), LeaderStatus::IsLeader);
    let asked = server.asked.lock().unwrap();
    assert_eq!(asked.len(), 1, "only the status: {asked:?}");
}

#[tokio::test]
async fn through_the_api_server_the_fence_of_the_client_refuses() {
    let (service, mut server) = mock::pair::<http::Request<Body>, http::Response<Body>>();
    let client = kube::client::ClientBuilder::new(service, "default")
        .with_layer(&FenceLayer::new(fence(false)))
        .build();
    let resolver = Resolver::ApiServerProxy;
    let api = LeaderApi::new(&resolver, &client, &fence(false), &endpoint());
    let error = api.promote().await.unwrap_err();
    assert!(!error.is_not_yet() && is_fence_closed(&error), "{error}");
    drop((api, client));
    assert!(server.next_request().await.is_none(), "nothing was sent");
}
