//! What every replica knows of the cluster, kept up to date also on standbys, so that a new
//! leader starts from memory.

mod decode;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::reflector::{self, ObjectRef, Store, store::Writer};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, DefaultBackoff, Event, watcher};
use kube::runtime::{WatchStreamExt, reflector::Lookup};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::broadcast;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::rendering::owner::RESOURCE_ID;
use crate::api::materialize::v1alpha1::Materialize;
use crate::api::{Balancer, Console, GROUP};
use crate::connection::WATCH_TIMEOUT;
use crate::errors::cause_chain;

/// Objects in one page of a list.
const PAGE_SIZE: u32 = 500;
/// Triggers that a slow controller may fall behind before it looks at everything instead.
const TRIGGERS: usize = 4096;
/// The longest pause before a watch that fails is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// Bound on asking once whether cert-manager is installed.
const DISCOVERY_BOUND: Duration = Duration::from_secs(5);

/// A reason to look at custom resources again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// One object, or something that it owns, has changed.
    One {
        /// Kind of the object.
        kind: String,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// All objects of a kind were listed anew.
    All {
        /// The kind.
        kind: String,
    },
}

/// The caches were not filled in time.
#[derive(Debug, Error)]
#[error(
    "the caches were not filled within {0:?}; see the warnings above for the watch that fails, and check that the \
     custom resource definitions are installed and may be listed"
)]
pub struct NotReady(Duration);

/// The caches and their watches, which end when the last clone is dropped.
#[derive(Clone)]
pub struct Caches {
    /// All environments.
    pub materializes: Store<Materialize>,
    /// All Balancers.
    pub balancers: Store<Balancer>,
    /// All Consoles.
    pub consoles: Store<Console>,
    triggers: broadcast::Sender<Trigger>,
    _watches: Arc<JoinSet<()>>,
}

impl Caches {
    /// Starts all watches with a client that only reads. A watch that fails is retried for ever.
    pub fn start(client: &Client) -> Self {
        let (triggers, _) = broadcast::channel(TRIGGERS);
        let (materializes, materialize_writer) = reflector::store();
        let (balancers, balancer_writer) = reflector::store();
        let (consoles, console_writer) = reflector::store();
        let mut watches = JoinSet::new();
        watches.spawn(reflect(
            client.clone(),
            materialize_writer,
            triggers.clone(),
        ));
        watches.spawn(reflect(client.clone(), balancer_writer, triggers.clone()));
        watches.spawn(reflect(client.clone(), console_writer, triggers.clone()));
        watches.spawn(watch_owned::<StatefulSet>(client.clone(), triggers.clone()));
        watches.spawn(watch_owned::<Deployment>(client.clone(), triggers.clone()));
        watches.spawn(watch_owned::<Service>(client.clone(), triggers.clone()));
        watches.spawn(watch_owned::<ConfigMap>(client.clone(), triggers.clone()));
        watches.spawn(watch_owned::<NetworkPolicy>(
            client.clone(),
            triggers.clone(),
        ));
        watches.spawn(watch_owned::<ServiceAccount>(
            client.clone(),
            triggers.clone(),
        ));
        watches.spawn(watch_owned::<Role>(client.clone(), triggers.clone()));
        watches.spawn(watch_owned::<RoleBinding>(client.clone(), triggers.clone()));
        watches.spawn(watch_certificates(client.clone(), triggers.clone()));
        Self {
            materializes,
            balancers,
            consoles,
            triggers,
            _watches: Arc::new(watches),
        }
    }

    /// Waits until all custom resources are in memory.
    ///
    /// # Errors
    /// [`NotReady`] after `bound`; the watches go on.
    pub async fn ready(&self, bound: Duration) -> Result<(), NotReady> {
        let filled = async {
            // A writer is only dropped together with its watch, when the process ends.
            let _ = self.materializes.wait_until_ready().await;
            let _ = self.balancers.wait_until_ready().await;
            let _ = self.consoles.wait_until_ready().await;
        };
        tokio::time::timeout(bound, filled)
            .await
            .map_err(|_| NotReady(bound))
    }

    /// All triggers from now on.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Trigger> {
        self.triggers.subscribe()
    }
}

/// The pauses of a watch that fails: kube's own, but never so long that a replica which leads again
/// after an outage works blindly.
#[derive(Default)]
struct Pauses(DefaultBackoff);

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|pause| pause.min(LONGEST_PAUSE))
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.0.reset();
    }
}

fn config() -> watcher::Config {
    let timeout = u32::try_from(WATCH_TIMEOUT.as_secs()).unwrap_or(u32::MAX);
    watcher::Config::default()
        .page_size(PAGE_SIZE)
        .timeout(timeout)
}

/// Keeps one kind of custom resource in memory.
async fn reflect<K>(client: Client, writer: Writer<K>, triggers: broadcast::Sender<Trigger>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let kind = <K as Resource>::kind(&());
    let store = writer.as_reader();
    let api: Api<DynamicObject> = Api::all_with(client, &ApiResource::erase::<K>(&()));
    watcher(api, config())
        .backoff(Pauses::default())
        .inspect_err(|error| tell_failure(&kind, error))
        .try_filter_map(|event| std::future::ready(Ok(decode::event(event, &store))))
        .reflect(writer)
        .filter_map(async |event| event.ok())
        .for_each(async |event| match event {
            Event::Apply(object) | Event::Delete(object) => send_for(&triggers, &object, &()),
            // The store is swapped as a whole at the end of a list.
            Event::Init | Event::InitApply(_) => {}
            Event::InitDone => send(
                &triggers,
                Trigger::All {
                    kind: kind.to_string(),
                },
            ),
        })
        .await;
}

/// Turns changes of one kind of owned object into triggers; only metadata is transferred.
async fn watch_owned<K>(client: Client, triggers: broadcast::Sender<Trigger>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::all(client);
    trigger_owners(api, &<K as Resource>::kind(&()), triggers).await;
}

/// Like [`watch_owned`] for cert-manager's Certificates, if cert-manager is there at the start.
async fn watch_certificates(client: Client, triggers: broadcast::Sender<Trigger>) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = definitions.get_opt("certificates.cert-manager.io");
    match tokio::time::timeout(DISCOVERY_BOUND, found).await {
        Ok(Ok(Some(_))) => {}
        Ok(Ok(None)) => {
            info!("cert-manager is not installed; restart the operator after installing it");
            return;
        }
        Ok(Err(error)) => {
            warn!(
                "cannot find out whether cert-manager is installed; Certificates are not watched: {}",
                cause_chain(&error)
            );
            return;
        }
        Err(_) => {
            warn!(bound = ?DISCOVERY_BOUND, "asking for cert-manager took too long; Certificates are not watched");
            return;
        }
    }
    let kind = GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &resource);
    trigger_owners(api, "Certificate", triggers).await;
}

async fn trigger_owners<K>(api: Api<K>, kind: &str, triggers: broadcast::Sender<Trigger>)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watcher(api, config().labels(RESOURCE_ID))
        .backoff(Pauses::default())
        .inspect_err(|error| tell_failure(kind, error))
        .filter_map(async |event| event.ok())
        .for_each(async |event| match event {
            Event::Apply(object) | Event::Delete(object) | Event::InitApply(object) => {
                send_for_owners(&triggers, &object);
            }
            Event::Init | Event::InitDone => {}
        })
        .await;
}

fn tell_failure(kind: &str, error: &watcher::Error) {
    warn!(
        kind,
        "watch failed; it is tried again: {}",
        cause_chain(error)
    );
}

/// Triggers the object itself and its owners.
fn send_for<K: Resource>(triggers: &broadcast::Sender<Trigger>, object: &K, kind: &K::DynamicType) {
    send(
        triggers,
        Trigger::One {
            kind: K::kind(kind).to_string(),
            namespace: ResourceExt::namespace(object).unwrap_or_default(),
            name: object.name_any(),
        },
    );
    send_for_owners(triggers, object);
}

fn send_for_owners<K: Resource>(triggers: &broadcast::Sender<Trigger>, object: &K) {
    let namespace = ResourceExt::namespace(object).unwrap_or_default();
    let of_group = |version: &str| {
        version
            .split_once('/')
            .is_some_and(|(group, _)| group == GROUP)
    };
    for owner in object.owner_references() {
        if of_group(&owner.api_version) {
            send(
                triggers,
                Trigger::One {
                    kind: owner.kind.clone(),
                    namespace: namespace.clone(),
                    name: owner.name.clone(),
                },
            );
        }
    }
}

/// Nobody listens on a standby, and that is fine.
fn send(triggers: &broadcast::Sender<Trigger>, trigger: Trigger) {
    let _ = triggers.send(trigger);
}

impl Trigger {
    /// The objects of kind `K` that this trigger asks to look at.
    pub(super) fn objects<K>(&self, store: &Store<K>) -> Vec<ObjectRef<K>>
    where
        K: Resource<DynamicType = ()> + Lookup<DynamicType = ()> + Clone + 'static,
    {
        let wanted = <K as Resource>::kind(&());
        match self {
            Self::One {
                kind,
                namespace,
                name,
            } if *kind == wanted => {
                vec![ObjectRef::new(name).within(namespace)]
            }
            Self::All { kind } if *kind == wanted => all(store),
            Self::One { .. } | Self::All { .. } => Vec::new(),
        }
    }
}

/// Everything in a store.
pub(super) fn all<K>(store: &Store<K>) -> Vec<ObjectRef<K>>
where
    K: Resource<DynamicType = ()> + Lookup<DynamicType = ()> + Clone + 'static,
{
    let reference = |object: &Arc<K>| ObjectRef::from_obj(object.as_ref());
    store.state().iter().map(reference).collect()
}

#[cfg(test)]
mod tests;
