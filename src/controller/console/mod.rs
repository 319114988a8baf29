//! The Console controller: the web console of one environment.

pub mod render;

use std::sync::Arc;

use kube::runtime::reflector::Store;

use super::cache::Caches;
use super::context::Context;
use super::outcome::Outcome;
use super::pass::Pass;
use super::rendering::ResourceId;
use super::runner::Reconciler;
use super::workload::{self, WorkloadError};
use crate::api::Console;

/// Reconciles Consoles.
pub struct ConsoleReconciler {
    context: Arc<Context>,
}

impl ConsoleReconciler {
    /// A reconciler for one term.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }
}

impl Reconciler for ConsoleReconciler {
    type Object = Console;
    type Error = WorkloadError;

    const NAME: &'static str = "console";

    fn store(caches: &Caches) -> &Store<Console> {
        &caches.consoles
    }

    async fn reconcile(
        &self,
        console: Arc<Console>,
        pass: &Pass,
    ) -> Result<Outcome, WorkloadError> {
        if console.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        let Some(status) = &console.status else {
            workload::initialize_status(pass, console.as_ref(), console.spec.resource_id.as_ref())
                .await?;
            return Ok(Outcome::Done);
        };
        let inputs = self.context.inputs();
        let id = ResourceId(status.resource_id.clone());
        for policy in render::network_policies(inputs, &console, &id)? {
            pass.ensure(&policy).await?;
        }
        pass.ensure(&render::config_map(&console, &id)?).await?;
        let deployment = pass
            .ensure_and_get(&render::deployment(inputs, &console, &id)?)
            .await?;
        pass.ensure(&render::service(inputs, &console, &id)?)
            .await?;
        if let Some(certificate) = render::certificate(inputs, &console, &id)? {
            pass.ensure_certificate(&certificate).await?;
        }
        workload::follow(pass, console.as_ref(), &id.0, &deployment).await?;
        Ok(Outcome::Done)
    }
}
