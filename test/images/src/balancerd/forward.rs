//! Copying bytes between a client and environmentd.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use pgwire::tokio::tokio_rustls::TlsConnector;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::tls::Tls;

/// How long a client may take to say how it wants to speak, and a backend to accept.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The first message of a Postgres client that wants TLS, and of one that wants Kerberos.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
const GSSENC_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x30];

/// What the bytes mean: it decides how TLS begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Protocol {
    Pgwire,
    Http,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Forwards every connection to `backend`, whose name is resolved each time, until dropped.
pub(super) async fn forward(
    listener: std::net::TcpListener,
    protocol: Protocol,
    backend: String,
    tls: Tls,
) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (client, _) = accepted.with_context(|| format!("accepting a {protocol:?} connection"))?;
                let (backend, tls) = (backend.clone(), tls.clone());
                connections.spawn(async move {
                    if let Err(err) = connection(client, protocol, &backend, tls).await {
                        warn!("{protocol:?} connection: {err:#}");
                    }
                });
            }
            Some(ended) = connections.join_next() => debug!("a connection ended: {ended:?}"),
        }
    }
}

async fn connection(client: TcpStream, protocol: Protocol, backend: &str, tls: Tls) -> Result<()> {
    let opening = async {
        match protocol {
            Protocol::Pgwire => accept_pgwire(client, &tls).await,
            Protocol::Http => Ok((accept_tls(client, &tls).await?, Vec::new())),
        }
    };
    let (mut client, head) = timeout(HANDSHAKE_TIMEOUT, opening)
        .await
        .context("waiting for the client")??;
    let connecting = connect(backend, protocol, tls.backend.as_ref());
    let mut server = timeout(HANDSHAKE_TIMEOUT, connecting)
        .await
        .with_context(|| format!("waiting for {backend}"))?
        .with_context(|| format!("connecting to {backend}"))?;
    server.write_all(&head).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// Answers requests for encryption; returns the stream and what must be forwarded first.
async fn accept_pgwire(mut client: TcpStream, tls: &Tls) -> Result<(Box<dyn Stream>, Vec<u8>)> {
    loop {
        let mut head = [0; 8];
        client
            .read_exact(&mut head)
            .await
            .context("reading the first message")?;
        match (head, &tls.clients) {
            (SSL_REQUEST, Some(_)) => {
                client.write_all(b"S").await?;
                return Ok((accept_tls(client, tls).await?, Vec::new()));
            }
            (SSL_REQUEST | GSSENC_REQUEST, _) => client.write_all(b"N").await?,
            (_, Some(_)) => bail!("the client does not use TLS, which --tls-mode=require asks for"),
            (_, None) => return Ok((Box::new(client), head.to_vec())),
        }
    }
}

async fn accept_tls(client: TcpStream, tls: &Tls) -> Result<Box<dyn Stream>> {
    match &tls.clients {
        None => Ok(Box::new(client)),
        Some(acceptor) => Ok(Box::new(
            acceptor
                .accept(client)
                .await
                .context("the client's TLS handshake")?,
        )),
    }
}

async fn connect(
    backend: &str,
    protocol: Protocol,
    tls: Option<&TlsConnector>,
) -> Result<Box<dyn Stream>> {
    let mut server = TcpStream::connect(backend).await?;
    let Some(connector) = tls else {
        return Ok(Box::new(server));
    };
    if let Protocol::Pgwire = protocol {
        server.write_all(&SSL_REQUEST).await?;
        if server.read_u8().await? != b'S' {
            bail!("it refuses TLS, which --internal-tls asks for");
        }
    }
    let host = backend
        .rsplit_once(':')
        .map_or(backend, |(host, _)| host)
        .to_owned();
    let name = ServerName::try_from(host)?;
    Ok(Box::new(
        connector
            .connect(name, server)
            .await
            .context("the TLS handshake")?,
    ))
}
