use std::net::SocketAddr;

use rstest::rstest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use super::*;
use crate::environmentd::{
    AuthenticatorKind, Environmentd, Listeners, MemoryCatalog, Options, Status,
};

const GOOD: [&str; 8] = [
    "balancerd",
    "service",
    "--pgwire-listen-addr=127.0.0.1:0",
    "--https-listen-addr=127.0.0.1:0",
    "--internal-http-listen-addr=127.0.0.1:0",
    "--https-resolver-template=mz1-environmentd.ns.svc.cluster.local:6876",
    "--static-resolver-addr=mz1-environmentd.ns.svc.cluster.local:6875",
    "--tls-mode=disable",
];

fn service(args: &[&str]) -> Result<Service> {
    let Args {
        command: Command::Service(service),
    } = parse(args.iter().copied())?;
    service.check()?;
    Ok(service)
}

#[test]
fn accepts_what_the_operator_passes() {
    service(&GOOD).unwrap();
    let config = [
        "--internal-tls",
        "--config-sync-file-path=/etc/balancerd/config.json",
        "--config-sync-loop-interval=1s",
    ];
    service(&[&GOOD[..], &config].concat()).unwrap();
}

#[rstest]
#[case(&GOOD[..7], "--tls-mode")]
#[case(&GOOD[..1], "requires a subcommand")]
#[case(&[&GOOD[..], &["--frontegg-url=x"]].concat(), "--frontegg-url")]
#[case(&[&GOOD[..7], &["--tls-mode=require"]].concat(), "--tls-cert")]
#[case(&[&GOOD[..7], &["--tls-mode=require", "--tls-cert=/no/crt", "--tls-key=/no/key"]].concat(), "/no/crt")]
#[case(&[&GOOD[..6], &["--static-resolver-addr=name", "--tls-mode=disable"]].concat(), "--static-resolver-addr")]
fn names_what_is_wrong(#[case] args: &[&str], #[case] named: &str) {
    let error = service(args).unwrap_err().to_string();
    assert!(error.contains(named) && !error.contains('\n'), "{error}");
}

/// A balancer on free ports: pgwire, https, internal HTTP.
struct Running {
    ports: [SocketAddr; 3],
    task: JoinHandle<Result<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn start(sql: &str, http: &str, extra: &[&str]) -> Running {
    let resolvers = [
        format!("--https-resolver-template={http}"),
        format!("--static-resolver-addr={sql}"),
    ];
    let mut args = GOOD[..5].to_vec();
    args.extend(resolvers.iter().map(String::as_str));
    args.extend(extra);
    let balancer = Balancerd::open(service(&args).unwrap()).unwrap();
    let ports = [&balancer.pgwire, &balancer.https, &balancer.internal_http]
        .map(|socket| socket.local_addr().unwrap());
    Running {
        ports,
        task: tokio::spawn(balancer.serve()),
    }
}

async fn leader(options: impl FnOnce(&mut Options)) -> Environmentd {
    let mut chosen = Options::new(1, Arc::new(MemoryCatalog::default()));
    options(&mut chosen);
    let environmentd = Environmentd::start(chosen).await.unwrap();
    let mut status = environmentd.watch_status();
    status
        .wait_for(|status| *status == Status::IsLeader)
        .await
        .unwrap();
    environmentd
}

/// `SELECT 1` over a socket that may be encrypted, in Postgres' own bytes.
async fn select_one(stream: &mut (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin)) {
    let startup = b"\0\0\0\x11\0\x03\0\0user\0joe\0\0";
    stream.write_all(startup).await.unwrap();
    stream
        .write_all(b"Q\0\0\0\x0dSELECT 1\0X\0\0\0\x04")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let row = b"D\0\0\0\x0b\0\x01\0\0\0\x011";
    assert!(
        answer.windows(row.len()).any(|window| window == row),
        "{answer:?}"
    );
}

#[tokio::test]
async fn forwards_sql_and_http_and_says_when_it_is_ready() {
    let environmentd = leader(|_| {}).await;
    let [sql, http] = [
        environmentd.sql_addr().unwrap(),
        environmentd.http_addr().unwrap(),
    ];
    // A name, not an address: it is resolved for each connection.
    let balancer = start(
        &format!("localhost:{}", sql.port()),
        &http.to_string(),
        &["--tls-mode=disable"],
    );
    let [pgwire, https, internal] = balancer.ports;

    let readyz = reqwest::get(format!("http://{internal}/api/readyz"))
        .await
        .unwrap();
    assert_eq!(readyz.status(), 200);
    let status = reqwest::get(format!("http://{https}/api/leader/status"))
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert_eq!(status, r#"{"status":"IsLeader"}"#);
    let mut client = TcpStream::connect(pgwire).await.unwrap();
    client
        .write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])
        .await
        .unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'N');
    select_one(&mut client).await;
}

#[tokio::test]
async fn is_not_ready_without_a_backend_but_alive() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for backend in [closed.to_string(), "no-such-name.invalid:6875".to_owned()] {
        let balancer = start(&backend, &backend, &["--tls-mode=disable"]);
        let internal = balancer.ports[2];
        assert_eq!(
            reqwest::get(format!("http://{internal}/api/readyz"))
                .await
                .unwrap()
                .status(),
            503
        );
        assert_eq!(
            reqwest::get(format!("http://{internal}/api/livez"))
                .await
                .unwrap()
                .status(),
            200
        );
    }
}

#[tokio::test]
async fn shows_the_limit_of_the_synced_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.json");
    let flag = format!("--config-sync-file-path={}", path.display());
    let balancer = start("localhost:1", "localhost:1", &["--tls-mode=disable", &flag]);
    for limit in [123, 456, 0] {
        std::fs::write(&path, format!(r#"{{"balancerd_max_connections":{limit}}}"#)).unwrap();
        let url = format!("http://{}/metrics", balancer.ports[2]);
        let text = reqwest::get(url).await.unwrap().text().await.unwrap();
        assert!(
            text.lines()
                .any(|line| line == format!("mz_balancer_connection_limit {limit}")),
            "{text}"
        );
    }
}

#[tokio::test]
async fn terminates_tls_and_begins_it_again_towards_environmentd() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = axum_server::tls_rustls::RustlsConfig::from_pem_file(&cert, &key)
        .await
        .unwrap();
    let environmentd = leader(|options| {
        options.tls = Some(tls);
        options.listeners = Listeners::loopback(AuthenticatorKind::None);
        options
            .listeners
            .sql
            .values_mut()
            .for_each(|listener| listener.enable_tls = true);
        options
            .listeners
            .http
            .values_mut()
            .for_each(|listener| listener.enable_tls = true);
    })
    .await;
    let [sql, http] = [
        environmentd.sql_addr().unwrap(),
        environmentd.http_addr().unwrap(),
    ];
    let files = [
        format!("--tls-cert={}", cert.display()),
        format!("--tls-key={}", key.display()),
    ];
    let extra = ["--tls-mode=require", &files[0], &files[1], "--internal-tls"];
    let balancer = start(&sql.to_string(), &http.to_string(), &extra);

    let client = reqwest::Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .build()
        .unwrap();
    let url = format!("https://{}/api/leader/status", balancer.ports[1]);
    let status = client.get(url).send().await.unwrap().text().await.unwrap();
    assert_eq!(status, r#"{"status":"IsLeader"}"#);

    let mut plain = TcpStream::connect(balancer.ports[0]).await.unwrap();
    plain
        .write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])
        .await
        .unwrap();
    assert_eq!(plain.read_u8().await.unwrap(), b'S');
    let provider = service(&[&GOOD[..], &["--internal-tls"]].concat()).unwrap();
    let connector = Tls::new(&provider).unwrap().backend.unwrap();
    let mut encrypted = connector
        .connect("localhost".try_into().unwrap(), plain)
        .await
        .unwrap();
    select_one(&mut encrypted).await;
}
