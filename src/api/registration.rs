//! Custom resource definitions: from the Rust types to the API server.
//!
//! Every replica applies them at start, before any of them leads, and each leader once more. Each is
//! applied whole, versions and conversion together, so that the API server never serves one without
//! the other. What a newer operator has registered stays, and so does a CA that another replica may
//! still be served with.

mod trust;

use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceConversion, CustomResourceDefinition,
    CustomResourceDefinitionVersion, ServiceReference, WebhookClientConfig, WebhookConversion,
};
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::{Condition, await_condition, conditions::is_crd_established};
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use semver::Version;
use tokio::time::{Instant, sleep, timeout};

use super::materialize::{v1, v1alpha1};
use super::{Balancer, Console, FIELD_MANAGER, VpcEndpoint};
use crate::errors::cause_chain;
use crate::webhook::CaBundle;

pub use trust::{trust, trust_only};

/// The annotation of a definition that says which version of the operator has registered it.
const VERSION_ANNOTATION: &str = "materialize.cloud/registered-by-version";
/// Path of the conversion webhook.
const CONVERT_PATH: &str = "/convert";
const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");
/// How long the registration of one definition is tried again.
const RETRY_FOR: Duration = Duration::from_secs(30);
/// How long one try may take.
const TRY_LIMIT: Duration = Duration::from_secs(30);
/// First pause between tries; it doubles up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_millis(200);
/// Longest pause between tries.
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// How long the registration of all definitions may take.
const TOTAL: Duration = Duration::from_secs(120);

/// How the API server reaches the conversion webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConversionClient {
    /// Through a Service.
    Service {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
        /// Its port.
        port: u16,
    },
    /// By the whole URL of `/convert`, for an operator outside the cluster.
    Url(String),
}

/// Conversion by the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    client: ConversionClient,
    ca_bundle: CaBundle,
}

impl Conversion {
    /// Conversion by the webhook that is reached so, and whose certificate this CA has signed.
    pub fn new(client: ConversionClient, ca_bundle: CaBundle) -> Self {
        Self { client, ca_bundle }
    }
}

impl From<&Conversion> for CustomResourceConversion {
    fn from(conversion: &Conversion) -> Self {
        let (service, url) = match conversion.client.clone() {
            ConversionClient::Service {
                name,
                namespace,
                port,
            } => {
                let service = ServiceReference {
                    name,
                    namespace,
                    path: Some(CONVERT_PATH.to_owned()),
                    port: Some(port.into()),
                };
                (Some(service), None)
            }
            ConversionClient::Url(url) => (None, Some(url)),
        };
        Self {
            strategy: "Webhook".to_owned(),
            webhook: Some(WebhookConversion {
                client_config: Some(WebhookClientConfig {
                    ca_bundle: Some(ByteString(conversion.ca_bundle.as_bytes().to_vec())),
                    service,
                    url,
                }),
                conversion_review_versions: vec!["v1".to_owned()],
            }),
        }
    }
}

/// All definitions: Materialize with v1 if there is a conversion for it, Balancer, Console and
/// VpcEndpoint. `columns` stand before the built-in ones of every version of Materialize.
pub fn crds(
    v1: Option<&Conversion>,
    columns: &[CustomResourceColumnDefinition],
) -> Vec<CustomResourceDefinition> {
    let mut materialize = v1alpha1::Materialize::crd();
    if let Some(conversion) = v1 {
        materialize
            .spec
            .versions
            .extend(
                v1::Materialize::crd()
                    .spec
                    .versions
                    .into_iter()
                    .map(|mut version| {
                        version.storage = false;
                        version
                    }),
            );
        materialize.spec.conversion = Some(conversion.into());
    }
    for version in &mut materialize.spec.versions {
        let built_in = version.additional_printer_columns.take();
        version.additional_printer_columns =
            Some([columns, built_in.as_deref().unwrap_or_default()].concat());
    }
    let mut crds = vec![
        materialize,
        Balancer::crd(),
        Console::crd(),
        VpcEndpoint::crd(),
    ];
    for crd in &mut crds {
        let annotations = crd.annotations_mut();
        annotations.insert(VERSION_ANNOTATION.to_owned(), OWN_VERSION.to_owned());
    }
    crds
}

/// Why the definitions are not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// Objects may be stored in a version that this operator does not know.
    #[error(
        "custom resource definition {name} has objects stored as {stored:?}, but this operator stores {expected}: \
         run the operator that wrote them, rewrite every object as {expected}, then set status.storedVersions of the definition to [{expected:?}]"
    )]
    StoredVersions {
        /// Name of the definition.
        name: String,
        /// `status.storedVersions`.
        stored: Vec<String>,
        /// The version that this operator stores.
        expected: String,
    },
    /// There is no answer from an API server.
    #[error(
        "cannot reach the API server to read custom resource definition {name}; is it the one of --kubernetes-context, and does it run?"
    )]
    Unreachable {
        /// Name of the definition.
        name: String,
        /// Why it failed.
        source: kube::Error,
    },
    /// The API server refuses.
    #[error("cannot {step} custom resource definition {name}: {source}")]
    Api {
        /// What was tried.
        step: &'static str,
        /// Name of the definition.
        name: String,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// One try took too long.
    #[error("custom resource definition {name} is not Established after {} s", TRY_LIMIT.as_secs())]
    NotEstablished {
        /// Name of the definition.
        name: String,
    },
    /// All tries together took too long.
    #[error("custom resource definitions are not registered after {} s: is the API server reachable?", TOTAL.as_secs())]
    Timeout,
}

/// Applies all definitions at once and waits until each is Established. Dropping the future stops it.
///
/// # Errors
/// The first definition that cannot be registered within 30 s, or all within 120 s.
pub async fn register(
    client: &Client,
    crds: &[CustomResourceDefinition],
) -> Result<(), RegistrationError> {
    let api = Api::all(client.clone());
    let all = try_join_all(crds.iter().map(|crd| register_one(&api, crd)));
    timeout(TOTAL, all)
        .await
        .map_err(|_| RegistrationError::Timeout)?
        .map(|_| ())
}

async fn register_one(
    api: &Api<CustomResourceDefinition>,
    crd: &CustomResourceDefinition,
) -> Result<(), RegistrationError> {
    let name = crd.name_any();
    let started = Instant::now();
    let mut backoff = MIN_BACKOFF;
    loop {
        let error = match timeout(TRY_LIMIT, apply(api, crd, &name)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => RegistrationError::NotEstablished { name: name.clone() },
        };
        let is_final = matches!(error, RegistrationError::StoredVersions { .. });
        if is_final || started.elapsed() + backoff > RETRY_FOR {
            return Err(error);
        }
        tracing::warn!(
            name,
            error = cause_chain(&error),
            ?backoff,
            "registration will be tried again"
        );
        sleep(backoff).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
}

async fn apply(
    api: &Api<CustomResourceDefinition>,
    crd: &CustomResourceDefinition,
    name: &str,
) -> Result<(), RegistrationError> {
    let existing = api.get_opt(name).await.map_err(|source| match source {
        kube::Error::Api(_) => failed("read", name, source),
        source => RegistrationError::Unreachable {
            name: name.to_owned(),
            source,
        },
    })?;
    check_stored_versions(crd, existing.as_ref())?;
    let (patched, done) = match &existing {
        Some(existing) if stays(crd, existing) => {
            trust::keep_up(api, crd, existing).await?;
            (
                existing.clone(),
                "a newer operator has registered this definition: left as it is",
            )
        }
        existing => {
            let wanted = trust::beside_others(crd, existing.as_ref());
            let params = PatchParams::apply(FIELD_MANAGER).force();
            let applied = api.patch(name, &params, &Patch::Apply(wanted)).await;
            let applied = applied.map_err(|source| failed("apply", name, source))?;
            (applied, "custom resource definition registered")
        }
    };
    tracing::info!(name, "{done}");
    if is_crd_established().matches_object(Some(&patched)) {
        return Ok(());
    }
    await_condition(api.clone(), name, is_crd_established())
        .await
        .map_err(|source| failed("watch", name, source))?;
    Ok(())
}

/// Whether the definition was registered by a newer operator, and serves what this one needs.
fn stays(wanted: &CustomResourceDefinition, existing: &CustomResourceDefinition) -> bool {
    let version = existing.annotations().get(VERSION_ANNOTATION);
    let version = version.and_then(|version| Version::parse(version).ok());
    let own = Version::parse(OWN_VERSION).ok();
    let served = |wanted: &CustomResourceDefinitionVersion| {
        let mut versions = existing.spec.versions.iter();
        versions.any(|version| {
            version.name == wanted.name && version.served && version.storage == wanted.storage
        })
    };
    version > own && wanted.spec.versions.iter().all(served)
}

fn failed(
    step: &'static str,
    name: &str,
    source: impl std::error::Error + Send + Sync + 'static,
) -> RegistrationError {
    RegistrationError::Api {
        step,
        name: name.to_owned(),
        source: Box::new(source),
    }
}

/// The API server refuses a definition without a version that may be stored, but says no way out.
fn check_stored_versions(
    crd: &CustomResourceDefinition,
    existing: Option<&CustomResourceDefinition>,
) -> Result<(), RegistrationError> {
    let expected = crd
        .spec
        .versions
        .iter()
        .find(|version| version.storage)
        .map(|version| version.name.clone())
        .unwrap_or_default();
    let stored = existing
        .and_then(|existing| existing.status.as_ref()?.stored_versions.clone())
        .unwrap_or_default();
    if stored.iter().all(|version| *version == expected) {
        return Ok(());
    }
    Err(RegistrationError::StoredVersions {
        name: crd.name_any(),
        stored,
        expected,
    })
}

#[cfg(test)]
mod tests;
