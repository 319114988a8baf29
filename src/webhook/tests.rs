//! The server over real TLS: conversion, new certificates, drain.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use reqwest::{Certificate, Client, StatusCode};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::{Webhook, WebhookConfig, WebhookError};
use crate::metrics::Metrics;

/// Generous: the machine may be busy.
const LIMIT: Duration = Duration::from_secs(30);
const RELOAD: Duration = Duration::from_millis(20);

type Ca = CertifiedIssuer<'static, KeyPair>;

fn new_ca() -> Ca {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn write_pair(dir: &Path, ca: &Ca) {
    write_pair_until(dir, ca, 2060);
}

/// A pair whose certificate expires when a year begins.
fn write_pair_until(dir: &Path, ca: &Ca, year: i32) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.not_after = date_time_ymd(year, 1, 1);
    let leaf = params.signed_by(&key, ca).unwrap();
    fs::write(dir.join("tls.key"), key.serialize_pem()).unwrap();
    fs::write(dir.join("tls.crt"), leaf.pem()).unwrap();
}

fn write_all(dir: &Path, ca: &Ca) {
    write_pair(dir, ca);
    fs::write(dir.join("ca.crt"), ca.pem()).unwrap();
}

fn config(dir: &Path, address: &str) -> WebhookConfig {
    WebhookConfig {
        address: address.parse().unwrap(),
        name: ServerName::try_from("127.0.0.1").unwrap(),
        cert: dir.join("tls.crt"),
        key: dir.join("tls.key"),
        ca: dir.join("ca.crt"),
        reload_interval: RELOAD,
    }
}

struct Fixture {
    dir: TempDir,
    ca: Ca,
    metrics: Metrics,
    webhook: Webhook,
}

impl Fixture {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = new_ca();
        write_all(dir.path(), &ca);
        let metrics = Metrics::new().unwrap();
        let config = config(dir.path(), "127.0.0.1:0");
        let webhook = Webhook::start(config, metrics.clone()).await.unwrap();
        Self {
            dir,
            ca,
            metrics,
            webhook,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.webhook.local_addr())
    }

    fn reloads(&self, result: &str) -> u64 {
        let counter = &self.metrics.certificate_reloads;
        counter.with_label_values(&[result]).get()
    }
}

/// A client with connections of its own that trusts one CA.
fn client(ca: &Ca) -> Client {
    let ca = Certificate::from_pem(ca.pem().as_bytes()).unwrap();
    Client::builder()
        .tls_certs_only([ca])
        .timeout(LIMIT)
        .build()
        .unwrap()
}

fn review() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": {
            "uid": "u-1",
            "desiredAPIVersion": "materialize.cloud/v1",
            "objects": [{
                "apiVersion": "materialize.cloud/v1alpha1",
                "kind": "Materialize",
                "metadata": {"name": "demo"},
                "spec": {"requestRollout": "x", "backendSecretName": "s"},
            }],
        },
    })
}

async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !condition().await {
        assert!(Instant::now() < deadline, "{what}: not within {LIMIT:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

async fn convert(client: &Client, fixture: &Fixture) -> reqwest::Result<Value> {
    let request = client.post(fixture.url("/convert")).json(&review());
    request.send().await?.error_for_status()?.json().await
}

#[tokio::test]
async fn converts_over_tls() {
    let fixture = Fixture::start().await;
    let client = client(&fixture.ca);
    let answer = convert(&client, &fixture).await.unwrap();
    assert_eq!(answer["response"]["result"]["status"], "Success");
    assert_eq!(
        answer["response"]["convertedObjects"][0]["spec"],
        json!({"backendSecretName": "s"})
    );
    let counted = fixture
        .metrics
        .conversions
        .with_label_values(&["v1alpha1", "v1", "success"]);
    assert_eq!(counted.get(), 1);
    assert_eq!(fixture.metrics.conversion_objects.get_sample_sum(), 1.0);
    assert_eq!(fixture.metrics.conversions_in_flight.get(), 0);
    assert_eq!(fixture.metrics.conversion_duration.get_sample_count(), 1);
}

#[tokio::test]
async fn serves_health_and_http_2() {
    let fixture = Fixture::start().await;
    let response = client(&fixture.ca)
        .get(fixture.url("/healthz"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.version(), reqwest::Version::HTTP_2);
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.bytes().await.unwrap().len(), 0);
}

#[tokio::test]
async fn refuses_what_is_no_review_and_what_is_too_large() {
    let fixture = Fixture::start().await;
    let client = client(&fixture.ca);
    let status = async |body: Vec<u8>| {
        let request = client.post(fixture.url("/convert")).body(body);
        request.send().await.map(|response| response.status())
    };
    assert_eq!(
        status(b"?".to_vec()).await.unwrap(),
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        status(b"{}".to_vec()).await.unwrap(),
        StatusCode::UNPROCESSABLE_ENTITY
    );
    let large = vec![b' '; super::server::BODY_LIMIT + 1];
    assert_eq!(status(large).await.unwrap(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn accepts_a_review_larger_than_the_frameworks_default() {
    let fixture = Fixture::start().await;
    let mut review = review();
    review["request"]["objects"][0]["spec"]["environmentdExtraArgs"] = json!(["x".repeat(4 << 20)]);
    let request = client(&fixture.ca)
        .post(fixture.url("/convert"))
        .json(&review);
    let answer: Value = request.send().await.unwrap().json().await.unwrap();
    assert_eq!(answer["response"]["result"]["status"], "Success");
}

#[tokio::test]
async fn a_new_pair_and_ca_are_taken_over_and_open_connections_live_on() {
    let fixture = Fixture::start().await;
    let mut announced = fixture.webhook.ca();
    let old = client(&fixture.ca);
    convert(&old, &fixture).await.unwrap();
    let ca = new_ca();
    write_all(fixture.dir.path(), &ca);
    until("the new certificate is served", async || {
        convert(&client(&ca), &fixture).await.is_ok()
    })
    .await;
    timeout(
        LIMIT,
        announced.wait_for(|bundle| bundle.as_bytes() == ca.pem().as_bytes()),
    )
    .await
    .expect("the new CA is announced")
    .unwrap();
    convert(&old, &fixture)
        .await
        .expect("the connection made under the old certificate");
    assert!(
        convert(&client(&fixture.ca), &fixture).await.is_err(),
        "a new connection must get the new certificate"
    );
    assert!(fixture.reloads("success") > 0);
}

#[tokio::test]
async fn a_bad_pair_keeps_the_last_good_one() {
    let fixture = Fixture::start().await;
    let good = fs::read(fixture.dir.path().join("tls.key")).unwrap();
    for bad in [
        KeyPair::generate().unwrap().serialize_pem().into_bytes(),
        good[..good.len() / 2].to_vec(),
        Vec::new(),
    ] {
        let before = fixture.reloads("failure");
        fs::write(fixture.dir.path().join("tls.key"), bad).unwrap();
        until("the bad pair is counted", async || {
            fixture.reloads("failure") > before
        })
        .await;
        convert(&client(&fixture.ca), &fixture).await.unwrap();
    }
    write_pair(fixture.dir.path(), &fixture.ca);
    until("the next good pair is counted", async || {
        fixture.reloads("success") > 0
    })
    .await;
    convert(&client(&fixture.ca), &fixture).await.unwrap();
}

#[tokio::test]
async fn the_expiry_of_what_is_served_can_be_watched() {
    let fixture = Fixture::start().await;
    let expiry = &fixture.metrics.certificate_not_after;
    until("the first expiry is shown", async || {
        expiry.get() == 2_840_140_800
    })
    .await;
    write_pair_until(fixture.dir.path(), &fixture.ca, 2050);
    until("the new expiry is shown", async || {
        expiry.get() == 2_524_608_000
    })
    .await;
    fs::write(fixture.dir.path().join("tls.key"), "").unwrap();
    until("the bad pair is counted", async || {
        fixture.reloads("failure") > 0
    })
    .await;
    assert_eq!(expiry.get(), 2_524_608_000, "the good pair is still served");
}

#[tokio::test]
async fn a_certificate_that_clients_refuse_makes_the_replica_unready() {
    let fixture = Fixture::start().await;
    let dir = fixture.dir.path();
    let validity = fixture.webhook.validity();
    assert_eq!(validity.check(), Ok(()));
    let key = KeyPair::generate().unwrap();
    let elsewhere = CertificateParams::new(["elsewhere".to_owned()]).unwrap();
    let elsewhere = elsewhere.signed_by(&key, &fixture.ca).unwrap();
    let spoilt: [(&str, &dyn Fn()); 3] = [
        ("has expired", &|| write_pair_until(dir, &fixture.ca, 2020)),
        ("is not signed by the CA", &|| write_pair(dir, &new_ca())),
        ("bears other names", &|| {
            fs::write(dir.join("tls.key"), key.serialize_pem()).unwrap();
            fs::write(dir.join("tls.crt"), elsewhere.pem()).unwrap();
        }),
    ];
    for (what, spoil) in spoilt {
        spoil();
        until(what, async || {
            validity.check().is_err_and(|error| error.contains(what))
        })
        .await;
        let error = validity.check().unwrap_err();
        assert!(
            error.contains("tls.crt for 127.0.0.1, signed by /"),
            "{error}"
        );
        write_pair(dir, &fixture.ca);
        until("it is good again", async || validity.check().is_ok()).await;
    }
}

#[tokio::test]
async fn a_certificate_that_signed_itself_is_as_good_as_its_ca() {
    let dir = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    // As `openssl req -x509` makes it.
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    for (file, text) in [
        ("tls.crt", &pem),
        ("ca.crt", &pem),
        ("tls.key", &key.serialize_pem()),
    ] {
        fs::write(dir.path().join(file), text).unwrap();
    }
    let config = config(dir.path(), "127.0.0.1:0");
    let webhook = Webhook::start(config, Metrics::new().unwrap())
        .await
        .unwrap();
    assert_eq!(webhook.validity().check(), Ok(()));
}

#[tokio::test]
async fn a_bad_ca_keeps_the_last_good_one() {
    let fixture = Fixture::start().await;
    fs::write(fixture.dir.path().join("ca.crt"), "").unwrap();
    until("the bad CA is counted", async || {
        fixture.reloads("failure") > 0
    })
    .await;
    assert_eq!(
        fixture.webhook.ca().borrow().as_bytes(),
        fixture.ca.pem().as_bytes()
    );
}

#[tokio::test]
async fn a_taken_address_names_the_flag() {
    let fixture = Fixture::start().await;
    let taken = fixture.webhook.local_addr().to_string();
    let config = config(fixture.dir.path(), &taken);
    let error = Webhook::start(config, Metrics::new().unwrap())
        .await
        .unwrap_err();
    assert!(matches!(error, WebhookError::Listen { .. }), "{error}");
    assert!(
        error.to_string().contains("--webhook-listen-address"),
        "{error}"
    );
}

#[tokio::test]
async fn a_missing_file_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let error = Webhook::start(config(dir.path(), "127.0.0.1:0"), Metrics::new().unwrap())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("tls.crt") && error.contains("--tls-cert"),
        "{error}"
    );
}

async fn tls(address: SocketAddr, ca: &Ca) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tokio_rustls::TlsConnector::from(std::sync::Arc::new(config))
        .connect(
            "127.0.0.1".try_into().unwrap(),
            TcpStream::connect(address).await.unwrap(),
        )
        .await
        .unwrap()
}

fn drained(webhook: Webhook, linger: Duration) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move { webhook.drain(linger, LIMIT).await })
}

/// A request that is in flight for as long as the test wants: its body is sent in two halves.
#[tokio::test]
async fn drain_lets_requests_finish_and_refuses_new_connections() {
    let fixture = Fixture::start().await;
    let address = fixture.webhook.local_addr();
    let idle = client(&fixture.ca);
    convert(&idle, &fixture).await.unwrap();
    let in_flight = fixture.metrics.conversions_in_flight.clone();
    let mut stream = tls(address, &fixture.ca).await;
    let body = review().to_string();
    let (first, second) = body.split_at(body.len() / 2);
    let head = format!(
        "POST /convert HTTP/1.1\r\nhost: webhook\r\ncontent-length: {}\r\n\r\n{first}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    until("the request is in flight", async || in_flight.get() == 1).await;

    let drained = drained(fixture.webhook, Duration::ZERO);
    until("connections are refused", async || {
        TcpStream::connect(address).await.is_err()
    })
    .await;
    assert!(!drained.is_finished(), "a request is in flight");

    stream.write_all(second.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(LIMIT, stream.read_to_string(&mut answer))
        .await
        .expect("the server closes the connection")
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        answer.to_lowercase().contains("connection: close"),
        "{answer}"
    );
    assert!(answer.contains(r#""status":"Success""#), "{answer}");
    timeout(LIMIT, drained).await.unwrap().unwrap();
}

#[tokio::test]
async fn lingering_goes_on_accepting() {
    let fixture = Fixture::start().await;
    let address = fixture.webhook.local_addr();
    let trusted = client(&fixture.ca);
    let drained = drained(fixture.webhook, LIMIT);
    let url = format!("https://{address}/healthz");
    let response = trusted.get(url).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    drained.abort();
}

/// A connection that is closed while it is in use breaks the request that is just being sent.
#[tokio::test]
async fn lingering_gives_up_a_connection_with_its_next_answer() {
    let fixture = Fixture::start().await;
    let address = fixture.webhook.local_addr();
    let mut stream = tls(address, &fixture.ca).await;
    let request = b"GET /healthz HTTP/1.1\r\nhost: webhook\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = [0; 1024];
    let length = stream.read(&mut answer).await.unwrap();
    let before = String::from_utf8_lossy(&answer[..length]).to_lowercase();
    assert!(before.starts_with("http/1.1 200"), "{before}");
    assert!(!before.contains("connection: close"), "{before}");

    let drained = drained(fixture.webhook, LIMIT);
    tokio::task::yield_now().await;
    stream.write_all(request).await.unwrap();
    let mut after = String::new();
    timeout(LIMIT, stream.read_to_string(&mut after))
        .await
        .expect("the server closes the connection")
        .unwrap();
    let after = after.to_lowercase();
    assert!(after.starts_with("http/1.1 200"), "{after}");
    assert!(after.contains("connection: close"), "{after}");
    assert!(
        TcpStream::connect(address).await.is_ok(),
        "it accepts still"
    );
    drained.abort();
}

#[tokio::test]
async fn drain_is_bounded() {
    let fixture = Fixture::start().await;
    let in_flight = fixture.metrics.conversions_in_flight.clone();
    let mut stream = tls(fixture.webhook.local_addr(), &fixture.ca).await;
    let head = "POST /convert HTTP/1.1\r\nhost: webhook\r\ncontent-length: 9\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    until("the request is in flight", async || in_flight.get() == 1).await;
    let drain = fixture
        .webhook
        .drain(Duration::ZERO, Duration::from_millis(50));
    timeout(LIMIT, drain).await.expect("drain is bounded");
}
