//! How environmentd is reached: directly, or through the API server from outside the cluster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, header};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use thiserror::Error;
use tower::{BoxError, Layer, ServiceExt};

use super::super::render::LeaderEndpoint;
use crate::election::{Fence, FenceClosed, FenceLayer, is_fence_closed};

/// Bound on one request to environmentd.
const REQUEST_BOUND: Duration = Duration::from_secs(10);

/// From an endpoint to the start of its URLs, without a slash at the end.
type Locate = dyn Fn(&LeaderEndpoint) -> String + Send + Sync;

/// Where environmentd is looked for.
#[derive(Clone)]
pub enum Resolver {
    /// By a URL that a function gives: the cluster's DNS names, or wherever a test has it.
    Direct {
        /// Sends the requests.
        client: reqwest::Client,
        /// Gives the start of the URLs.
        locate: Arc<Locate>,
    },
    /// Through the API server's service proxy, for an operator outside the cluster.
    ApiServerProxy,
}

/// Why no answer came.
#[derive(Debug, Error)]
pub enum TransportError {
    /// The request writes, and the right to do so is over.
    #[error(transparent)]
    FenceClosed(FenceClosed),
    /// The HTTP client failed.
    #[error(transparent)]
    Http(BoxError),
    /// The API server failed.
    #[error(transparent)]
    Kubernetes(Box<kube::Error>),
    /// The request cannot be written.
    #[error(transparent)]
    Request(#[from] http::Error),
    /// Nobody answered in time.
    #[error("no answer within {REQUEST_BOUND:?}")]
    TooLate,
}

impl From<kube::Error> for TransportError {
    fn from(error: kube::Error) -> Self {
        if is_fence_closed(&error) {
            return Self::FenceClosed(FenceClosed);
        }
        Self::Kubernetes(Box::new(error))
    }
}

impl From<BoxError> for TransportError {
    fn from(error: BoxError) -> Self {
        if is_fence_closed(&*error) {
            return Self::FenceClosed(FenceClosed);
        }
        Self::Http(error)
    }
}

impl From<reqwest::Error> for TransportError {
    fn from(error: reqwest::Error) -> Self {
        Self::Http(error.into())
    }
}

impl Resolver {
    /// Looks for environmentd by its Service's name in the cluster's DNS.
    ///
    /// # Errors
    /// If no HTTP client can be made.
    pub fn service_dns() -> Result<Self, TransportError> {
        Self::direct(|endpoint: &LeaderEndpoint| endpoint.url(""))
    }

    /// Looks for environmentd where `locate` says.
    ///
    /// # Errors
    /// If no HTTP client can be made.
    pub fn direct(
        locate: impl Fn(&LeaderEndpoint) -> String + Send + Sync + 'static,
    ) -> Result<Self, TransportError> {
        let client = reqwest::Client::builder()
            .timeout(REQUEST_BOUND)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            // environmentd's internal issuer is the user's own, and no root of it is configured.
            .danger_accept_invalid_certs(true)
            .build()?;
        Ok(Self::Direct {
            client,
            locate: Arc::new(locate),
        })
    }

    /// A way to an endpoint, with the client and the fence of a term.
    pub(super) fn transport(
        &self,
        client: &Client,
        fence: &Fence,
        endpoint: &LeaderEndpoint,
    ) -> Transport {
        let (route, base) = match self {
            Self::Direct { client, locate } => {
                let route = Route::Direct(client.clone(), fence.clone());
                (route, locate(endpoint))
            }
            Self::ApiServerProxy => (Route::Proxy(client.clone()), proxy_path(endpoint)),
        };
        Transport {
            route,
            base,
            cookie: None,
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct { .. } => "Direct",
            Self::ApiServerProxy => "ApiServerProxy",
        })
    }
}

fn proxy_path(endpoint: &LeaderEndpoint) -> String {
    format!(
        "/api/v1/namespaces/{}/services/{}:{}:{}/proxy",
        endpoint.namespace,
        endpoint.scheme.as_str(),
        endpoint.service,
        endpoint.port
    )
}

/// What came back.
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) body: String,
    /// The session, if one was opened.
    pub(super) cookie: Option<String>,
}

/// Sends requests to one endpoint.
pub(super) struct Transport {
    route: Route,
    base: String,
    cookie: Option<String>,
}

/// Both refuse writes once the term is over.
enum Route {
    Direct(reqwest::Client, Fence),
    /// The term's client, which has the fence around it.
    Proxy(Client),
}

impl Transport {
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub(super) fn set_cookie(&mut self, cookie: Option<String>) {
        self.cookie = cookie;
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, TransportError> {
        let mut request = Request::builder().method(method).uri(self.url(path));
        if let Some(cookie) = &self.cookie {
            request = request.header(header::COOKIE, cookie);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(body.map(Value::to_string).unwrap_or_default())?;
        match &self.route {
            Route::Direct(client, fence) => directly(client, fence, request).await,
            Route::Proxy(client) => {
                tokio::time::timeout(REQUEST_BOUND, through_proxy(client, request))
                    .await
                    .map_err(|_| TransportError::TooLate)?
            }
        }
    }
}

/// Behind the same fence as the term's writes to Kubernetes: a promotion on its way is seen to its
/// end before the Lease is given back.
async fn directly(
    client: &reqwest::Client,
    fence: &Fence,
    request: Request<String>,
) -> Result<Answer, TransportError> {
    let client = client.clone();
    let send = tower::service_fn(move |request: Request<String>| {
        let client = client.clone();
        async move { client.execute(request.try_into()?).await }
    });
    let fenced = FenceLayer::new(fence.clone()).layer(send);
    let response = fenced.oneshot(request).await?;
    Ok(Answer {
        code: response.status().as_u16(),
        cookie: cookie(response.headers()),
        body: response.text().await?,
    })
}

async fn through_proxy(
    client: &Client,
    request: Request<String>,
) -> Result<Answer, TransportError> {
    let request = request.map(|body| Body::from(body.into_bytes()));
    let response = client.send(request).await?;
    let code = response.status().as_u16();
    let cookie = cookie(response.headers());
    let body = response.into_body().collect_bytes().await?;
    Ok(Answer {
        code,
        body: String::from_utf8_lossy(&body).into_owned(),
        cookie,
    })
}

/// The cookies that an answer sets, as a request sends them back.
fn cookie(headers: &http::HeaderMap) -> Option<String> {
    let pairs: Vec<&str> = headers
        .get_all(header::SET_COOKIE)
        .iter()
        .filter_map(|cookie| cookie.to_str().ok())
        .filter_map(|cookie| cookie.split(';').next())
        .map(str::trim)
        .collect();
    (!pairs.is_empty()).then(|| pairs.join("; "))
}
