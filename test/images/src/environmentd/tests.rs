//! Generations in process, seen through their ports.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_postgres::{Client, NoTls};

use super::*;

/// Long enough for a busy machine; nothing here waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(20);

fn quick() -> Timings {
    Timings {
        startup: Duration::ZERO,
        catchup: Duration::ZERO,
        promote: Duration::from_millis(50),
    }
}

async fn start(
    generation: u64,
    catalog: &Arc<MemoryCatalog>,
    change: impl FnOnce(&mut Options),
) -> Environmentd {
    let mut options = Options::new(generation, Arc::clone(catalog) as Arc<dyn Catalog>);
    options.timings = quick();
    change(&mut options);
    Environmentd::start(options).await.unwrap()
}

async fn reach(environmentd: &Environmentd, wanted: Status) {
    let mut status = environmentd.watch_status();
    let reached = status.wait_for(|status| *status == wanted);
    tokio::time::timeout(PATIENCE, reached)
        .await
        .unwrap()
        .unwrap();
}

fn url(environmentd: &Environmentd, path: &str) -> String {
    format!("http://{}{path}", environmentd.http_addr().unwrap())
}

async fn status_of(environmentd: &Environmentd) -> Value {
    get_json(&url(environmentd, "/api/leader/status")).await
}

async fn get_json(url: &str) -> Value {
    reqwest::get(url).await.unwrap().json().await.unwrap()
}

async fn post(environmentd: &Environmentd, path: &str) -> (u16, String) {
    let answer = reqwest::Client::new()
        .post(url(environmentd, path))
        .send()
        .await
        .unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

async fn connect(
    environmentd: &Environmentd,
    login: &str,
) -> Result<Client, tokio_postgres::Error> {
    let addr = environmentd.sql_addr().unwrap();
    let config = format!(
        "host={} port={} dbname=materialize {login}",
        addr.ip(),
        addr.port()
    );
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

#[tokio::test]
async fn a_second_generation_takes_over_when_promoted_and_the_first_ends() {
    let catalog = Arc::new(MemoryCatalog::default());
    let mut first = start(1, &catalog, |_| {}).await;
    reach(&first, Status::IsLeader).await;
    let second = start(2, &catalog, |_| {}).await;
    reach(&second, Status::ReadyToPromote).await;
    assert_eq!(
        status_of(&second).await,
        json!({ "status": "ReadyToPromote" })
    );
    assert_eq!(status_of(&first).await, json!({ "status": "IsLeader" }));

    let promoted = post(&second, "/api/leader/promote").await;
    assert_eq!(promoted, (200, r#"{"result":"Success"}"#.to_owned()));
    reach(&second, Status::IsLeader).await;
    assert_eq!(post(&second, "/api/leader/promote").await.0, 200);
    assert_eq!(second.promotes(), 2);
    let ended = tokio::time::timeout(PATIENCE, first.ended())
        .await
        .unwrap()
        .unwrap_err();
    assert!(
        ended.to_string().contains("fenced: generation 2"),
        "{ended}"
    );

    let mut late = start(1, &catalog, |_| {}).await;
    let ended = tokio::time::timeout(PATIENCE, late.ended())
        .await
        .unwrap()
        .unwrap_err();
    assert!(
        ended.to_string().contains("generation 1 is fenced"),
        "{ended}"
    );
}

#[tokio::test]
async fn catch_up_can_be_skipped_or_shortened() {
    let catalog = Arc::new(MemoryCatalog::default());
    catalog.claim(1).await.unwrap();
    let slow = |options: &mut Options| {
        options.timings.catchup = Duration::from_secs(3600);
        options.timings.promote = Duration::from_secs(3600);
    };

    let skipping = start(2, &catalog, slow).await;
    assert_eq!(
        status_of(&skipping).await,
        json!({ "status": "Initializing" })
    );
    let refused = post(&skipping, "/api/leader/promote").await;
    assert_eq!(refused.0, 200);
    assert!(
        refused.1.starts_with(r#"{"result":{"Failure":{"message":"#),
        "{}",
        refused.1
    );
    // A 400 until it has looked into the catalog, as the operator may meet it.
    tokio::time::timeout(PATIENCE, async {
        while post(&skipping, "/api/leader/skip-catchup").await.0 != 200 {}
    })
    .await
    .unwrap();
    reach(&skipping, Status::ReadyToPromote).await;
    assert!(skipping.skips() >= 1);
    assert_eq!(post(&skipping, "/api/leader/promote").await.0, 200);
    assert_eq!(status_of(&skipping).await, json!({ "status": "Promoting" }));

    let shortened = start(2, &catalog, slow).await;
    shortened.set_catchup(Duration::ZERO);
    reach(&shortened, Status::ReadyToPromote).await;
}

#[tokio::test]
async fn faults_show_in_the_leader_api() {
    let catalog = Arc::new(MemoryCatalog::default());
    let environmentd = start(1, &catalog, |_| {}).await;
    reach(&environmentd, Status::IsLeader).await;
    let status = url(&environmentd, "/api/leader/status");

    environmentd.set_fault(Fault::Status500);
    assert_eq!(reqwest::get(&status).await.unwrap().status(), 500);
    environmentd.set_fault(Fault::Garbage);
    let garbage = reqwest::get(&status).await.unwrap();
    assert_eq!(garbage.status(), 200);
    assert!(garbage.json::<Value>().await.is_err());
    environmentd.set_fault(Fault::Flap);
    assert_ne!(
        status_of(&environmentd).await,
        status_of(&environmentd).await
    );
    environmentd.set_fault(Fault::PromoteFail);
    assert!(
        post(&environmentd, "/api/leader/promote")
            .await
            .1
            .contains("Failure")
    );
    environmentd.set_fault(Fault::SkipCatchupFail);
    let refused = post(&environmentd, "/api/leader/skip-catchup").await;
    assert!(
        refused.0 == 400 && refused.1.starts_with(r#"{"message":"#),
        "{refused:?}"
    );
    environmentd.set_fault(Fault::Hang);
    let client = reqwest::Client::builder()
        .timeout(Duration::from_millis(300))
        .build()
        .unwrap();
    assert!(client.get(&status).send().await.unwrap_err().is_timeout());
    environmentd.set_fault(Fault::None);
    assert_eq!(
        status_of(&environmentd).await,
        json!({ "status": "IsLeader" })
    );

    let mut options = Options::new(1, catalog);
    options.fault = Fault::Exit;
    assert!(Environmentd::start(options).await.is_err());
}

#[tokio::test]
async fn a_password_is_asked_for_by_http_and_sql() {
    for kind in [
        AuthenticatorKind::Password,
        AuthenticatorKind::Sasl,
        AuthenticatorKind::Oidc,
    ] {
        let environmentd = start(1, &Arc::default(), |options| {
            options.listeners = Listeners::loopback(kind);
            options.password = Some("secret".into());
        })
        .await;
        reach(&environmentd, Status::IsLeader).await;
        assert_eq!(post(&environmentd, "/api/leader/promote").await.0, 401);
        assert_eq!(environmentd.promotes(), 0);

        let client = reqwest::Client::builder()
            .cookie_store(true)
            .build()
            .unwrap();
        let login = |password: &str| {
            let body = json!({ "username": "mz_system", "password": password });
            client
                .post(url(&environmentd, "/api/login"))
                .json(&body)
                .send()
        };
        assert_eq!(login("wrong").await.unwrap().status(), 401);
        assert_eq!(login("secret").await.unwrap().status(), 200);
        let status = client
            .get(url(&environmentd, "/api/leader/status"))
            .send()
            .await
            .unwrap();
        assert_eq!(
            status.json::<Value>().await.unwrap(),
            json!({ "status": "IsLeader" })
        );

        for wrong in ["user=mz_system password=wrong", "user=joe password=secret"] {
            assert!(
                connect(&environmentd, wrong).await.is_err(),
                "{kind:?}: {wrong}"
            );
        }
        let sql = connect(&environmentd, "user=mz_system password=secret")
            .await
            .unwrap();
        assert_eq!(
            sql.query_one("SELECT 1", &[])
                .await
                .unwrap()
                .get::<_, i32>(0),
            1
        );
    }
}

#[tokio::test]
async fn sql_answers_as_the_leader_and_only_then() {
    let catalog = Arc::new(MemoryCatalog::default());
    catalog.claim(1).await.unwrap();
    let environmentd = start(2, &catalog, |options| {
        options.parameters = [("max_connections".to_owned(), "1000".to_owned())].into();
    })
    .await;
    let sql = connect(&environmentd, "user=mz_system").await.unwrap();
    let code = |error: tokio_postgres::Error| error.code().unwrap().code().to_owned();
    assert_eq!(
        code(sql.query_one("SELECT 1", &[]).await.unwrap_err()),
        "57P03"
    );

    reach(&environmentd, Status::ReadyToPromote).await;
    assert_eq!(post(&environmentd, "/api/leader/promote").await.0, 200);
    reach(&environmentd, Status::IsLeader).await;
    assert_eq!(
        sql.query_one("SELECT 1", &[])
            .await
            .unwrap()
            .get::<_, i32>(0),
        1
    );
    assert_eq!(
        sql.query_one("SHOW max_connections", &[])
            .await
            .unwrap()
            .get::<_, String>(0),
        "1000"
    );
    let version = sql
        .query_one("SELECT mz_version()", &[])
        .await
        .unwrap()
        .get::<_, String>(0);
    assert_eq!(version, "v26.40.0 (stand-in)");
    let simple = sql.simple_query("SHOW max_connections").await.unwrap();
    assert!(format!("{simple:?}").contains("1000"), "{simple:?}");
    assert_eq!(
        code(sql.query("SHOW nothing", &[]).await.unwrap_err()),
        "42704"
    );
    let unsupported = sql.simple_query("SELECT * FROM t").await.unwrap_err();
    assert!(
        unsupported
            .as_db_error()
            .unwrap()
            .message()
            .ends_with("SELECT * FROM t")
    );
    assert_eq!(code(unsupported), "0A000");
}

#[tokio::test]
async fn a_listener_only_answers_the_routes_that_it_enables() {
    let environmentd = start(1, &Arc::default(), |options| {
        for (name, route) in [
            ("metrics", Route::Metrics),
            ("base", Route::Base),
            ("normal", Route::Internal),
        ] {
            let mut listener = options.listeners.http["external"].clone();
            listener.routes = [(route, AllowedRoles::Normal)].into();
            options.listeners.http.insert(name.into(), listener);
        }
    })
    .await;
    let answer = async |name: &str, path: &str| {
        let url = format!("http://{}{path}", environmentd.http[name]);
        reqwest::get(url).await.unwrap().status().as_u16()
    };
    assert_eq!(
        (
            answer("metrics", "/metrics").await,
            answer("base", "/metrics").await
        ),
        (200, 404)
    );
    assert_eq!(
        (answer("base", "/").await, answer("metrics", "/").await),
        (200, 404)
    );
    assert_eq!(answer("metrics", "/api/leader/status").await, 404);
    assert_eq!(answer("normal", "/api/leader/status").await, 403);
    assert_eq!(answer("external", "/api/leader/status").await, 200);
    assert_eq!(answer("metrics", "/api/livez").await, 200);
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut options = Options::new(1, Arc::new(MemoryCatalog::default()));
    options.listeners.sql.get_mut("external").unwrap().addr = taken.local_addr().unwrap();
    let error = format!("{:#}", Environmentd::start(options).await.unwrap_err());
    assert!(
        error.contains("sql.external") && error.contains(&taken.local_addr().unwrap().to_string()),
        "{error}"
    );
}
