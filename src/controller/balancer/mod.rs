//! The Balancer controller: balancerd in front of one environment.

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
use crate::api::Balancer;

/// Reconciles Balancers.
pub struct BalancerReconciler {
    context: Arc<Context>,
}

impl BalancerReconciler {
    /// A reconciler for one term.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }
}

impl Reconciler for BalancerReconciler {
    type Object = Balancer;
    type Error = WorkloadError;

    const NAME: &'static str = "balancer";

    fn store(caches: &Caches) -> &Store<Balancer> {
        &caches.balancers
    }

    async fn reconcile(
        &self,
        balancer: Arc<Balancer>,
        pass: &Pass,
    ) -> Result<Outcome, WorkloadError> {
        if balancer.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        let Some(status) = &balancer.status else {
            workload::initialize_status(
                pass,
                balancer.as_ref(),
                balancer.spec.resource_id.as_ref(),
            )
            .await?;
            return Ok(Outcome::Done);
        };
        let inputs = self.context.inputs();
        let id = ResourceId(status.resource_id.clone());
        if let Some(certificate) = render::certificate(inputs, &balancer, &id)? {
            pass.ensure_certificate(&certificate).await?;
        }
        let deployment = pass
            .ensure_and_get(&render::deployment(inputs, &balancer, &id)?)
            .await?;
        pass.ensure(&render::service(inputs, &balancer, &id)?)
            .await?;
        workload::follow(pass, balancer.as_ref(), &id.0, &deployment).await?;
        Ok(Outcome::Done)
    }
}
