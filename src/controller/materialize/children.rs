//! The Balancer and the Console of an environment.

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};

use super::environment::Environment;
use super::error::Stop;
use super::generation::SAFETY_NET;
use super::render;
use crate::controller::outcome::Outcome;
use crate::controller::pass::Object;
use crate::image::ImageRef;

/// Makes the Balancer, and ends the pass until it is ready; or deletes it, where none is wanted.
pub async fn balancer(environment: &Environment<'_>) -> Result<(), Stop> {
    if !environment.context.settings.environment.create_balancers {
        return delete_owned(environment, &environment.context.caches.balancers).await;
    }
    let wanted = render::balancer(
        environment.inputs(),
        &environment.materialize,
        &environment.resource_id(),
        &active_image(environment),
    )?;
    let balancer = environment.pass.ensure_and_get(&wanted).await?;
    let conditions = balancer
        .status
        .map(|status| status.conditions)
        .unwrap_or_default();
    if conditions.iter().any(is_ready) {
        return Ok(());
    }
    Err(Stop::Early(Outcome::Wait(SAFETY_NET)))
}

/// Makes the Console; or deletes it, where none is wanted.
pub async fn console(environment: &Environment<'_>) -> Result<(), Stop> {
    if !environment.context.settings.environment.create_console {
        return delete_owned(environment, &environment.context.caches.consoles).await;
    }
    let wanted = render::console(
        environment.inputs(),
        &environment.materialize,
        &environment.resource_id(),
        &active_image(environment),
    )?;
    environment.pass.ensure(&wanted).await?;
    Ok(())
}

/// The environmentd image that serves: its siblings follow only after promotion.
fn active_image(environment: &Environment<'_>) -> ImageRef {
    let completed = environment
        .status
        .last_completed_rollout_environmentd_image_ref
        .as_ref();
    ImageRef::parse(completed.unwrap_or(&environment.spec().environmentd_image_ref))
}

fn is_ready(condition: &Condition) -> bool {
    condition.type_ == "Ready" && condition.status == "True"
}

/// Deletes the child of the environment's name, if it is the environment's own: one that a user
/// made stays.
async fn delete_owned<K>(environment: &Environment<'_>, store: &Store<K>) -> Result<(), Stop>
where
    K: Object + Debug + 'static,
{
    let name = environment.materialize.name_any();
    let uid = environment.materialize.uid();
    let child = store.get(&ObjectRef::new(&name).within(&environment.namespace()));
    let is_owned = |child: &K| {
        child
            .owner_references()
            .iter()
            .any(|owner| Some(&owner.uid) == uid.as_ref())
    };
    if child.is_some_and(|child| is_owned(&child)) {
        environment.confirm_newest().await?;
        environment
            .pass
            .delete::<K>(&environment.namespace(), &name)
            .await?;
    }
    Ok(())
}
