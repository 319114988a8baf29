//! The record of which generation leads an environment.
//!
//! Materialize keeps it in its metadata store. The stand-in has none, so it uses a Secret, which
//! the operator's Role for environmentd lets it write.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};

/// How often a claim is tried again when others write at the same time.
const CLAIM_ATTEMPTS: usize = 10;

/// The key of the leading generation.
const LEADER: &str = "leader_generation";

/// Where the leading generation of an environment is recorded.
#[async_trait]
pub trait Catalog: Send + Sync + 'static {
    /// The leading generation, if there has been one.
    async fn leader(&self) -> Result<Option<u64>>;

    /// Records `generation` as the leader unless a higher one is recorded; returns who leads now.
    async fn claim(&self, generation: u64) -> Result<u64>;

    /// How often a generation looks at the record.
    fn interval(&self) -> Duration;
}

/// A catalog that generations within one process share.
#[derive(Debug, Default)]
pub struct MemoryCatalog {
    leader: Mutex<Option<u64>>,
}

#[async_trait]
impl Catalog for MemoryCatalog {
    async fn leader(&self) -> Result<Option<u64>> {
        Ok(*self.leader.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn claim(&self, generation: u64) -> Result<u64> {
        let mut leader = self.leader.lock().unwrap_or_else(PoisonError::into_inner);
        let now = leader.map_or(generation, |leader| leader.max(generation));
        *leader = Some(now);
        Ok(now)
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(10)
    }
}

/// A catalog kept in a Secret.
#[derive(Debug)]
pub(crate) struct SecretCatalog {
    secrets: Api<Secret>,
    name: String,
    labels: BTreeMap<String, String>,
}

impl SecretCatalog {
    /// The Secret `<prefix>standin-catalog` in the client's namespace.
    pub(crate) fn new(client: Client, prefix: &str, labels: BTreeMap<String, String>) -> Self {
        Self {
            secrets: Api::default_namespaced(client),
            name: format!("{prefix}standin-catalog"),
            labels,
        }
    }

    async fn get(&self) -> Result<Option<Secret>> {
        self.secrets
            .get_opt(&self.name)
            .await
            .with_context(|| format!("reading the Secret {}", self.name))
    }

    /// Writes the record; `false` when somebody else wrote meanwhile.
    async fn write(&self, current: Option<Secret>, generation: u64) -> Result<bool> {
        let exists = current.is_some();
        let mut secret = current.unwrap_or_else(|| Secret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(self.labels.clone()),
                ..ObjectMeta::default()
            },
            ..Secret::default()
        });
        secret.string_data = Some(BTreeMap::from([(
            LEADER.to_owned(),
            generation.to_string(),
        )]));
        let written = if exists {
            self.secrets
                .replace(&self.name, &PostParams::default(), &secret)
                .await
        } else {
            self.secrets.create(&PostParams::default(), &secret).await
        };
        match written {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => Ok(false),
            Err(err) => Err(err).with_context(|| format!("writing the Secret {}", self.name)),
        }
    }
}

#[async_trait]
impl Catalog for SecretCatalog {
    async fn leader(&self) -> Result<Option<u64>> {
        recorded(self.get().await?.as_ref())
    }

    async fn claim(&self, generation: u64) -> Result<u64> {
        for _ in 0..CLAIM_ATTEMPTS {
            let current = self.get().await?;
            match recorded(current.as_ref())? {
                Some(leader) if leader >= generation => return Ok(leader),
                _ if self.write(current, generation).await? => return Ok(generation),
                _ => {}
            }
        }
        bail!(
            "the Secret {} changed {CLAIM_ATTEMPTS} times while it was written",
            self.name
        )
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(500)
    }
}

fn recorded(secret: Option<&Secret>) -> Result<Option<u64>> {
    let Some(value) = secret.and_then(|secret| secret.data.as_ref()?.get(LEADER)) else {
        return Ok(None);
    };
    let text =
        std::str::from_utf8(&value.0).with_context(|| format!("the Secret's key {LEADER}"))?;
    Ok(Some(
        text.parse()
            .with_context(|| format!("the Secret's key {LEADER}"))?,
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::extract::State;
    use axum::http::StatusCode;
    use axum::response::{IntoResponse, Response};
    use axum::routing::{get, post};
    use axum::{Json, Router};
    use serde_json::{Value, json};

    use super::*;

    /// One Secret of an API server, which changes under the writer `races` times.
    #[derive(Default)]
    struct Server {
        secret: Option<Secret>,
        version: u64,
        races: u64,
    }

    type Shared = Arc<Mutex<Server>>;

    fn failure(code: StatusCode, reason: &str) -> Response {
        let status = json!({ "kind": "Status", "status": "Failure", "reason": reason, "message": "", "code": code.as_u16() });
        (code, Json(status)).into_response()
    }

    impl Server {
        fn store(&mut self, mut secret: Secret) -> Response {
            self.version += 1;
            secret.metadata.resource_version = Some(self.version.to_string());
            for (key, text) in secret.string_data.take().unwrap_or_default() {
                let bytes = k8s_openapi::ByteString(text.into_bytes());
                secret.data.get_or_insert_default().insert(key, bytes);
            }
            self.secret = Some(secret.clone());
            Json(secret).into_response()
        }
    }

    async fn read(State(server): State<Shared>) -> Response {
        match &server.lock().unwrap().secret {
            None => failure(StatusCode::NOT_FOUND, "NotFound"),
            Some(secret) => Json(secret).into_response(),
        }
    }

    async fn create(State(server): State<Shared>, Json(secret): Json<Secret>) -> Response {
        let mut server = server.lock().unwrap();
        match server.secret {
            None => server.store(secret),
            Some(_) => failure(StatusCode::CONFLICT, "AlreadyExists"),
        }
    }

    async fn replace(State(server): State<Shared>, Json(value): Json<Value>) -> Response {
        let mut server = server.lock().unwrap();
        if server.races > 0 {
            server.races -= 1;
            let current = server.secret.clone().unwrap();
            server.store(current);
        }
        let secret: Secret = serde_json::from_value(value).unwrap();
        let current = server
            .secret
            .as_ref()
            .unwrap()
            .metadata
            .resource_version
            .clone();
        match secret.metadata.resource_version == current {
            true => server.store(secret),
            false => failure(StatusCode::CONFLICT, "Conflict"),
        }
    }

    fn catalog() -> (SecretCatalog, Shared) {
        let server = Shared::default();
        let router = Router::new()
            .route("/api/v1/namespaces/ns/secrets", post(create))
            .route(
                "/api/v1/namespaces/ns/secrets/mzabc-standin-catalog",
                get(read).put(replace),
            )
            .with_state(Arc::clone(&server));
        (
            SecretCatalog::new(Client::new(router, "ns"), "mzabc-", BTreeMap::new()),
            server,
        )
    }

    #[tokio::test]
    async fn the_highest_claim_is_kept() {
        let (catalog, _server) = catalog();
        assert_eq!(catalog.leader().await.unwrap(), None);
        assert_eq!(catalog.claim(1).await.unwrap(), 1);
        assert_eq!(catalog.claim(3).await.unwrap(), 3);
        assert_eq!(catalog.claim(2).await.unwrap(), 3);
        assert_eq!(catalog.leader().await.unwrap(), Some(3));
    }

    #[tokio::test]
    async fn a_claim_survives_other_writers_but_not_for_ever() {
        let (catalog, server) = catalog();
        catalog.claim(1).await.unwrap();
        server.lock().unwrap().races = 3;
        assert_eq!(catalog.claim(2).await.unwrap(), 2);
        server.lock().unwrap().races = u64::MAX;
        let error = catalog.claim(3).await.unwrap_err().to_string();
        assert!(error.contains("mzabc-standin-catalog changed"), "{error}");
    }
}
