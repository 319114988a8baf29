//! Promotion: the new generation takes over, and the old one goes.

use super::environment::Environment;
use super::error::Stop;
use super::generation::{self, Wanted};
use super::leader_api::{LeaderApi, LeaderApiError, LeaderStatus};
use super::status::Transition;
use super::teardown;
use crate::controller::outcome::Outcome;

/// Promotes a generation, or ends the pass until that is done. Can be begun again at any point.
pub async fn promote(
    environment: &mut Environment<'_>,
    wanted: &Wanted,
    is_forced: bool,
) -> Result<(), Stop> {
    let pass = environment.pass;
    pass.step("promote", take_over(environment, wanted, is_forced))
        .await?;
    let old = environment.active();
    pass.step("teardown_generation", teardown::teardown(environment, old))
        .await?;
    let promoted = generation::running(environment, wanted.generation).await?;
    environment
        .transition(&Transition::Promoted(promoted))
        .await?;
    Ok(())
}

/// Lets environmentd take over, then leads clients to it.
async fn take_over(
    environment: &Environment<'_>,
    wanted: &Wanted,
    is_forced: bool,
) -> Result<(), Stop> {
    let api = environment.leader_api(wanted.objects.leader()).await?;
    if !is_leader(environment, &api, is_forced).await? {
        return Err(Stop::Early(Outcome::Poll));
    }
    environment
        .pass
        .ensure(&wanted.objects.public_service)
        .await?;
    Ok(())
}

/// Whether environmentd leads by now; asks it to, unless it was asked already.
async fn is_leader(
    environment: &Environment<'_>,
    api: &LeaderApi,
    is_forced: bool,
) -> Result<bool, Stop> {
    let pass = environment.pass;
    match generation::not_yet(pass, api.status().await)? {
        LeaderStatus::IsLeader => Ok(true),
        LeaderStatus::Promoting => Ok(false),
        LeaderStatus::ReadyToPromote => {
            environment.confirm_newest().await?;
            api.promote().await?;
            let status = generation::not_yet(pass, api.status().await)?;
            Ok(status == LeaderStatus::IsLeader)
        }
        // Its pod has started anew since it was ready: it must catch up once more.
        LeaderStatus::Initializing => {
            if is_forced {
                environment.confirm_newest().await?;
                match api.skip_catchup().await {
                    Err(error @ LeaderApiError::FenceClosed { .. }) => return Err(error.into()),
                    Err(error) => pass.tell_wait(&error),
                    Ok(()) => {}
                }
            }
            Ok(false)
        }
    }
}
