//! The Materialize controller: one environment, generation after generation.

mod children;
mod environment;
mod environment_id;
mod error;
mod generation;
pub mod leader_api;
mod progress;
mod promote;
mod rollout;
mod status;
mod teardown;

pub mod license;
pub mod listeners;
pub mod render;

pub use error::Error;
pub(super) use status::new_resource_id;

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{self, finalizer};
use kube::runtime::reflector::Store;

use self::environment::Environment;
use self::error::Stop;
use self::generation::Wanted;
use self::rollout::Decision;
use self::status::Transition;
use crate::api::materialize::v1alpha1::Materialize;
use crate::controller::cache::Caches;
use crate::controller::context::Context;
use crate::controller::outcome::Outcome;
use crate::controller::pass::{Pass, is_code};
use crate::controller::rendering::Generation;
use crate::controller::runner::Reconciler;
use crate::events::Publisher;

/// Finalizer of environments.
const FINALIZER: &str = "orchestratord.materialize.cloud/materialize";

/// A finalizer that changed meanwhile triggers; this is only the safety net.
const FINALIZER_SAFETY_NET: Duration = Duration::from_secs(5);

/// Reconciles environments.
pub struct MaterializeReconciler {
    context: Arc<Context>,
    publisher: Publisher,
}

impl MaterializeReconciler {
    /// A reconciler for one term.
    pub fn new(context: Arc<Context>) -> Self {
        let publisher = Publisher::new(
            context.client.clone(),
            Self::NAME,
            &context.settings.identity,
        );
        Self { context, publisher }
    }
}

impl Reconciler for MaterializeReconciler {
    type Object = Materialize;
    type Error = Error;

    const NAME: &'static str = "materialize";

    fn store(caches: &Caches) -> &Store<Materialize> {
        &caches.materializes
    }

    async fn reconcile(&self, object: Arc<Materialize>, pass: &Pass) -> Result<Outcome, Error> {
        let namespace = object.namespace().unwrap_or_default();
        let name = environment::object(&object);
        let mut outcome = Outcome::Done;
        let finalized = finalizer(
            &pass.api::<Materialize>(&namespace),
            FINALIZER,
            object,
            |event| {
                let outcome = &mut outcome;
                async move {
                    match event {
                        finalizer::Event::Apply(object) => {
                            *outcome = self.apply(&object, pass).await?
                        }
                        finalizer::Event::Cleanup(object) => self.clean_up(&object),
                    }
                    Ok(Action::await_change())
                }
            },
        )
        .await;
        match finalized {
            Ok(_) => Ok(outcome),
            Err(error) => finalizer_error(error, name),
        }
    }
}

impl MaterializeReconciler {
    async fn apply(&self, object: &Materialize, pass: &Pass) -> Result<Outcome, Error> {
        let result = match object.status.clone() {
            // The write brings the next pass.
            None => {
                pass.step("initialize_status", initialize_status(object, pass))
                    .await
            }
            Some(status) => {
                let mut environment = Environment {
                    context: &self.context,
                    pass,
                    publisher: &self.publisher,
                    materialize: object.clone(),
                    status,
                };
                bring_about(&mut environment).await
            }
        };
        match result {
            Ok(()) => Ok(Outcome::Done),
            Err(Stop::Early(outcome)) => Ok(outcome),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Children go by garbage collection; only the gauge must forget.
    fn clean_up(&self, object: &Materialize) {
        let namespace = object.namespace().unwrap_or_default();
        self.context
            .memory
            .set_needs_update(&namespace, &object.name_any(), false);
    }
}

/// One pass, from identity to console.
async fn bring_about(environment: &mut Environment<'_>) -> Result<(), Stop> {
    let pass = environment.pass;
    pass.step(
        "resolve_environment_id",
        environment_id::resolve(environment),
    )
    .await?;
    pass.step("global_resources", apply_global_objects(environment))
        .await?;

    let active = Wanted::render(environment, environment.active())?;
    let has_changes = active.differs_from_active(environment).await?;
    let name = environment.materialize.name_any();
    environment
        .context
        .memory
        .set_needs_update(&environment.namespace(), &name, has_changes);

    bring_about_generation(environment, has_changes, active).await?;
    pass.step("balancer", children::balancer(environment))
        .await?;
    pass.step("console", children::console(environment)).await
}

/// Does about generations what is decided.
async fn bring_about_generation(
    environment: &mut Environment<'_>,
    has_changes: bool,
    active: Wanted,
) -> Result<(), Stop> {
    let next = active.generation.next();
    match Decision::of(environment.situation(has_changes)?) {
        Decision::Promote => {
            let wanted = Wanted::render(environment, next)?;
            let is_forced = environment.is_forced()?;
            promote::promote(environment, &wanted, is_forced).await
        }
        Decision::RollOut => progress::roll_out(environment).await,
        Decision::AwaitApproval { teardown, report } => {
            let news = report.then_some(Transition::WaitingForApproval(next));
            rest(environment, next, teardown, news).await
        }
        Decision::Settle { teardown, report } => {
            let rollout_hash = environment.rollout_hash()?.to_string();
            let news = report.then_some(Transition::UpToDate {
                hash: active.hash,
                rollout_hash,
            });
            rest(environment, next, teardown, news).await
        }
    }
}

/// Leaves the active generation as it is: what was begun of the next one goes, and the status says
/// so.
async fn rest(
    environment: &mut Environment<'_>,
    next: Generation,
    teardown: bool,
    news: Option<Transition>,
) -> Result<(), Stop> {
    if teardown {
        let pass = environment.pass;
        pass.step("teardown_generation", teardown::teardown(environment, next))
            .await?;
    }
    if let Some(transition) = news {
        environment.transition(&transition).await?;
    }
    Ok(())
}

async fn initialize_status(object: &Materialize, pass: &Pass) -> Result<(), Stop> {
    let api = pass.api(&object.namespace().unwrap_or_default());
    environment::write_status(&api, object, status::initial(object)?).await?;
    Ok(())
}

async fn apply_global_objects(environment: &Environment<'_>) -> Result<(), Stop> {
    let objects = render::global(
        environment.inputs(),
        &environment.materialize,
        &environment.resource_id(),
    )?;
    let pass = environment.pass;
    if let Some(service_account) = &objects.service_account {
        pass.ensure(service_account).await?;
    }
    pass.ensure(&objects.role).await?;
    pass.ensure(&objects.role_binding).await?;
    for policy in &objects.network_policies {
        pass.ensure(policy).await?;
    }
    if let Some(certificate) = &objects.certificate {
        pass.ensure_certificate(certificate).await?;
    }
    Ok(())
}

/// A finalizer that is not as it was read has changed meanwhile: the newer object is on its way.
fn finalizer_error(error: finalizer::Error<Error>, object: String) -> Result<Outcome, Error> {
    let (verb, source) = match error {
        finalizer::Error::ApplyFailed(error) | finalizer::Error::CleanupFailed(error) => {
            return Err(error);
        }
        finalizer::Error::UnnamedObject | finalizer::Error::InvalidFinalizer => {
            return Err(Error::NotFromApiServer(object));
        }
        finalizer::Error::AddFinalizer(source) => ("add", source),
        finalizer::Error::RemoveFinalizer(source) => ("remove", source),
    };
    if is_code(&source, 404) || is_code(&source, 422) {
        return Ok(Outcome::Wait(FINALIZER_SAFETY_NET));
    }
    Err(Error::Finalizer {
        verb,
        object,
        source: source.into(),
    })
}

#[cfg(test)]
mod tests;
