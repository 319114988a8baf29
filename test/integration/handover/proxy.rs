//! A way to the API server that can be made slow or silent.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::config::Kubeconfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to bytes on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// They pass.
    Open,
    /// Answers take this much longer.
    Delayed(Duration),
    /// They vanish, on connections old and new.
    BlackHole,
    /// They vanish on the connections that there are; new ones are fine.
    OldConnectionsDead,
    /// What nobody asked for lately vanishes, and all that follows it on that connection.
    WatchesSilent,
}

/// An answer that begins so long after the last request is news of a watch.
const LATELY: Duration = Duration::from_secs(1);

/// The proxy; it ends when dropped, with its test's runtime.
pub struct Proxy {
    way: Arc<watch::Sender<(Way, u64)>>,
    address: SocketAddr,
    lost: Arc<AtomicBool>,
}

/// A connection through the proxy.
struct Connection {
    way: watch::Receiver<(Way, u64)>,
    born: u64,
    asked: Mutex<Instant>,
    lost: Arc<AtomicBool>,
}

impl Proxy {
    /// A proxy to the server that `kubeconfig` names, and a kubeconfig that goes through it.
    pub async fn before(kubeconfig: &Path) -> (Self, PathBuf) {
        let mut config = Kubeconfig::read_from(kubeconfig).unwrap();
        let cluster = config.clusters[0].cluster.as_mut().unwrap();
        let server = cluster.server.take().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        cluster.server = Some(format!("https://{address}"));
        let path = kubeconfig.with_extension("proxied");
        std::fs::write(&path, serde_json::to_string(&config).unwrap()).unwrap();
        let way = Arc::new(watch::Sender::new((Way::Open, 0)));
        let server = server.trim_start_matches("https://").to_owned();
        let lost = Arc::new(AtomicBool::new(false));
        tokio::spawn(accept(listener, server, way.clone(), lost.clone()));
        let proxy = Self { way, address, lost };
        (proxy, path)
    }

    /// Whether an answer has vanished.
    pub fn has_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    pub fn set(&self, way: Way) {
        assert_ne!(self.address.port(), 0);
        self.way.send_modify(|(now, changes)| {
            *now = way;
            *changes += 1;
        });
    }
}

async fn accept(
    listener: TcpListener,
    server: String,
    way: Arc<watch::Sender<(Way, u64)>>,
    lost: Arc<AtomicBool>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let (server, way, lost) = (server.clone(), way.subscribe(), lost.clone());
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(server).await else {
                return;
            };
            let born = way.borrow().1;
            let connection = Connection {
                way,
                born,
                asked: Mutex::new(Instant::now()),
                lost,
            };
            let ((from_client, to_client), (from_server, to_server)) =
                (client.into_split(), server.into_split());
            let there = pass(from_client, to_server, &connection, false);
            let back = pass(from_server, to_client, &connection, true);
            tokio::select! {
                () = there => {}
                () = back => {}
            }
        });
    }
}

/// Passes bytes on until one side is done.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    connection: &Connection,
    is_answer: bool,
) {
    let mut buffer = vec![0; 64 * 1024];
    let mut is_silent = false;
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let (now, changes) = *connection.way.borrow();
        let since_asked = {
            let mut asked = connection.asked.lock().unwrap();
            if !is_answer {
                *asked = Instant::now();
            }
            asked.elapsed()
        };
        is_silent |= now == Way::WatchesSilent && since_asked > LATELY;
        let is_dead = now == Way::OldConnectionsDead && connection.born < changes;
        if is_silent || is_dead || now == Way::BlackHole {
            connection.lost.fetch_or(is_answer, Ordering::SeqCst);
            continue;
        }
        if let Way::Delayed(by) = now
            && is_answer
        {
            tokio::time::sleep(by).await;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
