//! What the runner lends to one pass: named steps and server-side apply.

use std::collections::HashSet;
use std::fmt::Debug;
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::outcome::{Conclusion, Measured, Part};
use super::rendering::certificate;
use crate::api::FIELD_MANAGER;
use crate::metrics::Metrics;

/// What was applied since something last changed, as hashes of the rendered objects.
pub(super) type Applied = Arc<Mutex<HashSet<u64>>>;

/// One pass over one object, with the client of the term.
pub struct Pass {
    pub(super) client: Client,
    pub(super) metrics: Metrics,
    pub(super) controller: &'static str,
    pub(super) applied: Applied,
    /// Consecutive polls of this object before this pass.
    pub(super) polls: u32,
}

/// A wait that goes on is told of once in so many polls: about once a minute.
const TELL_EVERY: u32 = 30;

/// A request about an object failed.
#[derive(Debug, Error)]
pub enum ObjectError {
    /// The API server refused an apply.
    #[error("cannot apply {object}")]
    Apply {
        /// Kind, namespace and name.
        object: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// An object could not be read.
    #[error("cannot read {object}")]
    Get {
        /// Kind, namespace and name.
        object: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// An object could not be deleted.
    #[error("cannot delete {object}")]
    Delete {
        /// Kind, namespace and name.
        object: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// An object could not be written as JSON: a fault of the rendering.
    #[error("cannot write {object} as JSON")]
    Json {
        /// Kind, namespace and name.
        object: String,
        /// Why.
        source: serde_json::Error,
    },
}

/// What the pass needs of an object's type.
pub trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
{
}

impl Pass {
    /// Runs a step under its name in the metrics.
    pub async fn step<T: Conclusion>(
        &self,
        name: &'static str,
        step: impl Future<Output = T>,
    ) -> T {
        let measured = Measured::start(&self.metrics, self.controller, Part::Step(name));
        let result = step.await;
        measured.conclude(&result);
        result
    }

    /// Tells why a pass only waits: at first, and then now and again.
    pub fn tell_wait(&self, why: &(dyn std::error::Error + 'static)) {
        if self.polls.is_multiple_of(TELL_EVERY) {
            tracing::info!("not yet: {}", crate::errors::cause_chain(why));
        }
    }

    /// The API of `K` in a namespace.
    pub fn api<K: Object>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Makes an object as rendered, by a forced server-side apply. Left out while a pass only
    /// polls and the same object was applied before: a poll must not cost a dozen writes.
    ///
    /// # Errors
    /// [`ObjectError`] if the API server refuses.
    pub async fn ensure<K: Object>(&self, object: &K) -> Result<(), ObjectError> {
        if self.is_applied(object)? {
            return Ok(());
        }
        self.apply(object).await.map(drop)
    }

    /// Like [`Pass::ensure`], and returns the object with its status.
    ///
    /// # Errors
    /// [`ObjectError`] if the API server refuses.
    pub async fn ensure_and_get<K: Object>(&self, object: &K) -> Result<K, ObjectError> {
        if self.is_applied(object)?
            && let Some(found) = self.get(object).await?
        {
            return Ok(found);
        }
        self.apply(object).await
    }

    async fn apply<K: Object>(&self, object: &K) -> Result<K, ObjectError> {
        let hash = fingerprint(object, &describe(object))?;
        let applied = self
            .api::<K>(&object.namespace().unwrap_or_default())
            .patch(
                &object.name_any(),
                &apply_parameters(),
                &Patch::Apply(object),
            )
            .await
            .map_err(|source| ObjectError::Apply {
                object: describe(object),
                source: source.into(),
            })?;
        self.lock().insert(hash);
        Ok(applied)
    }

    async fn get<K: Object>(&self, object: &K) -> Result<Option<K>, ObjectError> {
        self.api::<K>(&object.namespace().unwrap_or_default())
            .get_opt(&object.name_any())
            .await
            .map_err(|source| ObjectError::Get {
                object: describe(object),
                source: source.into(),
            })
    }

    /// Makes a cert-manager Certificate as rendered, like [`Pass::ensure`].
    ///
    /// # Errors
    /// [`ObjectError`] if the API server refuses.
    pub async fn ensure_certificate(&self, certificate: &DynamicObject) -> Result<(), ObjectError> {
        let namespace = certificate.namespace().unwrap_or_default();
        let object = || format!("Certificate {namespace}/{}", certificate.name_any());
        let hash = fingerprint(certificate, &object())?;
        if self.lock().contains(&hash) {
            return Ok(());
        }
        Api::<DynamicObject>::namespaced_with(
            self.client.clone(),
            &namespace,
            &certificate::api_resource(),
        )
        .patch(
            &certificate.name_any(),
            &apply_parameters(),
            &Patch::Apply(certificate),
        )
        .await
        .map_err(|source| ObjectError::Apply {
            object: object(),
            source: source.into(),
        })?;
        self.lock().insert(hash);
        Ok(())
    }

    /// Asks for an object to be deleted, its dependents first. Returns what is left of it: it
    /// stands until its dependents are gone. Left out like an apply in [`Pass::ensure`], once the
    /// object is gone.
    ///
    /// # Errors
    /// [`ObjectError`] if the API server refuses.
    pub async fn delete<K: Object>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<K>, ObjectError> {
        let object = describe_name::<K>(namespace, name);
        let hash = fingerprint("gone", &object)?;
        if self.lock().contains(&hash) {
            return Ok(None);
        }
        match self
            .api::<K>(namespace)
            .delete(name, &DeleteParams::foreground())
            .await
        {
            Ok(deleted) => Ok(deleted.left()),
            Err(error) if is_code(&error, 404) => {
                self.lock().insert(hash);
                Ok(None)
            }
            Err(source) => Err(ObjectError::Delete {
                object,
                source: source.into(),
            }),
        }
    }

    fn is_applied<K: Object>(&self, object: &K) -> Result<bool, ObjectError> {
        let hash = fingerprint(object, &describe(object))?;
        Ok(self.lock().contains(&hash))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<u64>> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the API server answered with this HTTP code.
pub(super) fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

fn apply_parameters() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER).force()
}

fn fingerprint<T: Serialize + ?Sized>(content: &T, object: &str) -> Result<u64, ObjectError> {
    let json = serde_json::to_vec(content).map_err(|source| ObjectError::Json {
        object: object.to_owned(),
        source,
    })?;
    let mut hasher = DefaultHasher::new();
    object.hash(&mut hasher);
    json.hash(&mut hasher);
    Ok(hasher.finish())
}

fn describe<K: Object>(object: &K) -> String {
    describe_name::<K>(&object.namespace().unwrap_or_default(), &object.name_any())
}

/// `Kind namespace/name`.
pub(super) fn describe_name<K: Object>(namespace: &str, name: &str) -> String {
    format!("{} {namespace}/{name}", K::kind(&()))
}
