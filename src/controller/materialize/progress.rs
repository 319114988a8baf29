//! A requested rollout, taken as far as it goes in one pass.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::environment::Environment;
use super::error::Stop;
use super::generation::{self, Wanted};
use super::promote;
use super::rollout::Plan;
use super::status::{Reason, Transition};
use super::teardown;
use crate::api::materialize::RolloutStrategy;
use crate::controller::outcome::Outcome;
use crate::errors::cause_chain;
use crate::image::{ImageRef, upgrade_allowed};

/// A rollout that waits to be promoted is looked at again after this at the latest.
const PARKED_RESYNC: Duration = Duration::from_secs(40 * 60);

/// Takes a requested rollout as far as it goes.
pub async fn roll_out(environment: &mut Environment<'_>) -> Result<(), Stop> {
    let is_forced = environment.is_forced()?;
    let refusal = upgrade_refusal(environment);
    let plan = Plan::of(
        environment.spec(),
        environment.situation(true)?,
        is_forced,
        refusal.is_none(),
        Timestamp::now(),
    );
    match plan {
        Plan::Cancel { timeout } => cancel(environment, timeout).await,
        Plan::Refuse => {
            let why = refusal.unwrap_or_default();
            environment
                .transition(&Transition::FailedDeploy(why))
                .await?;
            Err(Stop::Early(Outcome::Done))
        }
        Plan::Apply { deadline } => {
            let wanted = bring_up(environment, is_forced)
                .await
                .map_err(|stop| not_after(deadline, stop))?;
            promote::promote(environment, &wanted, is_forced).await
        }
    }
}

async fn cancel(environment: &mut Environment<'_>, timeout: Duration) -> Result<(), Stop> {
    let generation = environment.active().next();
    let pass = environment.pass;
    pass.step(
        "teardown_generation",
        teardown::teardown(environment, generation),
    )
    .await?;
    environment
        .transition(&Transition::TimedOut {
            generation,
            timeout,
        })
        .await?;
    Err(Stop::Early(Outcome::Done))
}

/// Brings the next generation up to its promotion, or ends the pass until it is ready for that.
async fn bring_up(environment: &mut Environment<'_>, is_forced: bool) -> Result<Wanted, Stop> {
    let generation = environment.active().next();
    let wanted = Wanted::render(environment, generation)?;
    if !is_waiting_for_promotion(environment, &wanted) && !has_been_refused(environment) {
        environment
            .transition(&Transition::Applying(generation))
            .await?;
    }
    apply(environment, &wanted, is_forced).await?;
    let hash = wanted.hash.clone();
    if environment.spec().rollout_strategy == RolloutStrategy::ManuallyPromote && !is_forced {
        environment
            .transition(&Transition::ReadyToPromote { generation, hash })
            .await?;
        return Err(Stop::Early(Outcome::Wait(PARKED_RESYNC)));
    }
    environment
        .transition(&Transition::Promoting { generation, hash })
        .await?;
    Ok(wanted)
}

/// Applies a generation and waits for it; a failure is also told in the condition.
async fn apply(
    environment: &mut Environment<'_>,
    wanted: &Wanted,
    is_forced: bool,
) -> Result<(), Stop> {
    let pass = environment.pass;
    let active = environment.active();
    let is_immediate =
        environment.spec().rollout_strategy == RolloutStrategy::ImmediatelyPromoteCausingDowntime;
    if is_immediate {
        pass.step(
            "teardown_generation",
            teardown::teardown(environment, active),
        )
        .await?;
    }
    let brought_up = generation::bring_up(environment, wanted, is_forced);
    let result = pass.step("generation_resources", brought_up).await;
    let generation = wanted.generation;
    match &result {
        Err(Stop::Failed(error)) => {
            let why = cause_chain(error);
            let message = format!("Failed to apply generation {generation}: {why}");
            environment
                .transition(&Transition::FailedDeploy(message))
                .await?;
        }
        _ if has_been_refused(environment) => {
            environment
                .transition(&Transition::Applying(generation))
                .await?;
        }
        _ => {}
    }
    result
}

/// Whether this very spec could not be applied the last time. That it is tried again is no news:
/// each write of the status starts the next pass at once.
fn has_been_refused(environment: &Environment<'_>) -> bool {
    let condition = environment.status.conditions.first();
    condition.is_some_and(|condition| {
        Reason::FailedDeploy.is_of(condition)
            && condition.observed_generation == environment.materialize.metadata.generation
            && environment.status.resources_hash.is_empty()
    })
}

/// Whether this very generation is parked: looking at it again must not seem like applying it.
fn is_waiting_for_promotion(environment: &Environment<'_>, wanted: &Wanted) -> bool {
    let condition = environment.status.conditions.first();
    condition.is_some_and(|condition| Reason::ReadyToPromote.is_of(condition))
        && environment.status.resources_hash == wanted.hash
}

/// Why the upgrade window refuses the wanted image, if it does.
fn upgrade_refusal(environment: &Environment<'_>) -> Option<String> {
    let from = environment
        .status
        .last_completed_rollout_environmentd_image_ref
        .as_ref()?;
    let to = &environment.spec().environmentd_image_ref;
    upgrade_allowed(&ImageRef::parse(from), &ImageRef::parse(to))
        .err()
        .map(|refusal| refusal.to_string())
}

/// A rollout must be looked at when its time is up, whatever it waits for.
fn not_after(deadline: Option<Timestamp>, stop: Stop) -> Stop {
    let Some(deadline) = deadline else {
        return stop;
    };
    let left = Timestamp::now()
        .duration_until(deadline)
        .max(SignedDuration::ZERO)
        .unsigned_abs();
    match stop {
        Stop::Early(Outcome::Wait(bound)) => Stop::Early(Outcome::Wait(bound.min(left))),
        stop => stop,
    }
}
