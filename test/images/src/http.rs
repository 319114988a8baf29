//! What every HTTP port of a stand-in has.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, Result};
use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum_server::tls_rustls::RustlsConfig;

/// Opens a listening socket; `what` names it in errors.
pub(crate) fn bind(what: &str, addr: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(addr).with_context(|| format!("opening {what} on {addr}"))?;
    listener
        .set_nonblocking(true)
        .with_context(|| format!("opening {what} on {addr}"))?;
    Ok(listener)
}

/// Serves until the future is dropped, with TLS when a configuration is given.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<RustlsConfig>,
) -> Result<()> {
    match tls {
        None => {
            axum_server::from_tcp(listener)?
                .serve(router.into_make_service())
                .await?
        }
        Some(config) => {
            axum_server::from_tcp_rustls(listener, config)?
                .serve(router.into_make_service())
                .await?;
        }
    }
    Ok(())
}

/// A page of metrics in Prometheus' text form.
pub(crate) fn metrics(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
