//! The objects of an environment: one file an object.

mod arguments;
mod balancer;
mod certificate;
mod console;
mod environment;
pub mod gates;
mod leader;
mod listeners;
mod network_policies;
mod role;
mod role_binding;
mod service_account;
mod services;
mod stateful_set;
mod volumes;

pub use leader::{LOGIN_PASSWORD_KEY, LeaderEndpoint};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::DynamicObject;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::api::materialize::FORCE_ROLLOUT_ANNOTATION;
use crate::api::materialize::v1alpha1::{Materialize, MaterializeSpec};
use crate::api::{Balancer, Console};
use crate::controller::rendering::certificate::Choice;
use crate::controller::rendering::{Generation, Inputs, Owner, RenderError, ResourceId};
use crate::image::ImageRef;

/// The objects that all generations share.
#[derive(Clone, Debug)]
pub struct GlobalObjects {
    /// None if the user brings one.
    pub service_account: Option<ServiceAccount>,
    /// What environmentd may do in its namespace.
    pub role: Role,
    /// Binds the role to the service account.
    pub role_binding: RoleBinding,
    /// Those that are enabled.
    pub network_policies: Vec<NetworkPolicy>,
    /// environmentd's certificate, if there is an issuer.
    pub certificate: Option<DynamicObject>,
}

/// The objects of one generation, and the public Service as it stands once that generation serves.
#[derive(Clone, Debug, Serialize)]
pub struct GenerationObjects {
    generation: Generation,
    /// Leads clients to this generation; applied at promotion.
    pub public_service: Service,
    /// Leads to this generation whether it serves or not.
    pub service: Service,
    /// Carries persist updates between environmentd and clusterd.
    pub persist_pubsub_service: Service,
    /// environmentd.
    pub stateful_set: StatefulSet,
    connection: Connection,
}

#[derive(Clone, Debug, Serialize)]
struct Connection {
    leader: LeaderEndpoint,
    listeners: ConfigMap,
}

impl GenerationObjects {
    /// Where this generation's leader API is.
    pub fn leader(&self) -> &LeaderEndpoint {
        &self.connection.leader
    }

    /// The ConfigMap that tells environmentd where to listen.
    pub fn listeners(&self) -> &ConfigMap {
        &self.connection.listeners
    }

    /// Lower-case hexadecimal SHA-256 of everything in here: what `status.resourcesHash` is compared with.
    ///
    /// # Errors
    /// If an object has no JSON form.
    pub fn resources_hash(&self) -> Result<String, RenderError> {
        let text = to_json("the objects of a generation", self)?;
        Ok(Sha256::digest(text)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect())
    }
}

/// One environment while it is rendered.
struct Environment<'a> {
    inputs: Inputs<'a>,
    materialize: &'a Materialize,
    spec: &'a MaterializeSpec,
    owner: Owner,
    image: ImageRef,
}

impl<'a> Environment<'a> {
    fn new(
        inputs: Inputs<'a>,
        materialize: &'a Materialize,
        resource_id: &ResourceId,
    ) -> Result<Self, RenderError> {
        Ok(Self {
            inputs,
            materialize,
            spec: &materialize.spec,
            owner: Owner::of(materialize, resource_id)?,
            image: ImageRef::parse(&materialize.spec.environmentd_image_ref),
        })
    }

    fn service_account_name(&self) -> &str {
        let own = self.spec.service_account_name.as_deref();
        own.unwrap_or(&self.owner.name)
    }

    fn internal_certificate(&self) -> Choice<'a> {
        Choice::new(
            self.spec.internal_certificate_spec.as_ref(),
            self.inputs
                .environment
                .default_certificate_specs
                .internal
                .as_ref(),
        )
    }

    fn has_listeners(&self) -> bool {
        self.image.meets_minimum(gates::LISTENERS)
    }

    /// Whether `mz_system` logs in with a password: older images have no password logins, whatever the spec says.
    fn has_password_login(&self) -> bool {
        self.spec.authenticator_kind.uses_password() && self.has_listeners()
    }
}

/// Renders the objects that all generations share.
///
/// # Errors
/// [`RenderError`] for metadata or a certificate spec that cannot be rendered.
pub fn global(
    inputs: Inputs<'_>,
    materialize: &Materialize,
    resource_id: &ResourceId,
) -> Result<GlobalObjects, RenderError> {
    let environment = Environment::new(inputs, materialize, resource_id)?;
    Ok(GlobalObjects {
        service_account: service_account::render(&environment),
        role: role::render(&environment),
        role_binding: role_binding::render(&environment),
        network_policies: network_policies::render(&environment),
        certificate: certificate::render(&environment)?,
    })
}

/// Renders the objects of one generation.
///
/// # Errors
/// [`RenderError`] for metadata that cannot be rendered or an environment id that is not filled in.
pub fn generation(
    inputs: Inputs<'_>,
    materialize: &Materialize,
    resource_id: &ResourceId,
    generation: Generation,
) -> Result<GenerationObjects, RenderError> {
    let environment = Environment::new(inputs, materialize, resource_id)?;
    Ok(GenerationObjects {
        generation,
        public_service: services::public(&environment, generation),
        service: services::generation(&environment, generation),
        persist_pubsub_service: services::persist_pubsub(&environment, generation),
        stateful_set: stateful_set::render(&environment, generation)?,
        connection: Connection {
            leader: leader::render(&environment, generation),
            listeners: listeners::render(&environment, generation)?,
        },
    })
}

/// Renders the Balancer in front of an environment; `active_image` is the environmentd image that serves.
///
/// # Errors
/// [`RenderError`] for metadata that cannot be rendered.
pub fn balancer(
    inputs: Inputs<'_>,
    materialize: &Materialize,
    resource_id: &ResourceId,
    active_image: &ImageRef,
) -> Result<Balancer, RenderError> {
    let environment = Environment::new(inputs, materialize, resource_id)?;
    Ok(balancer::render(&environment, active_image))
}

/// Renders the Console of an environment; `active_image` is the environmentd image that serves.
///
/// # Errors
/// [`RenderError`] for metadata that cannot be rendered.
pub fn console(
    inputs: Inputs<'_>,
    materialize: &Materialize,
    resource_id: &ResourceId,
    active_image: &ImageRef,
) -> Result<Console, RenderError> {
    let environment = Environment::new(inputs, materialize, resource_id)?;
    Ok(console::render(&environment, active_image))
}

/// The value whose change makes the StatefulSet differ: `<forceRollout>[/<force-rollout annotation>]`.
pub fn force_value(materialize: &Materialize) -> String {
    let force = materialize.spec.force_rollout;
    let annotations = materialize.metadata.annotations.as_ref();
    match annotations.and_then(|all| all.get(FORCE_ROLLOUT_ANNOTATION)) {
        Some(annotation) => format!("{force}/{annotation}"),
        None => force.to_string(),
    }
}

fn to_json<T: Serialize>(what: &'static str, value: &T) -> Result<String, RenderError> {
    serde_json::to_string(value).map_err(|source| RenderError::Json { what, source })
}

#[cfg(test)]
mod tests;
