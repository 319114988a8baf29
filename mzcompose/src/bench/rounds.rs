//! What is done to a candidate's replicas again and again, and how long each time it takes until one leads.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::jiff::Timestamp;
use mzcompose::control_plane::ControlPlane;
use mzcompose::progress::Step;
use rustix::process::Signal;
use tokio::time::sleep;

use super::arena::{Arena, END_LIMIT, LEADER_LIMIT, PLACES};
use super::report::{Idle, Starts};
use super::statistics::{most_at_once, rounded};

/// How long after the first one another leader may still show up.
const SETTLE: Duration = Duration::from_secs(3);
/// A release is written before the other can lead; only its sighting may come late.
const SIGHTING_LIMIT: Duration = Duration::from_secs(10);

/// SIGTERM to the leader, `rounds` times: until the other leads, and until the release is visible.
pub async fn handovers(
    arena: &mut Arena<'_>,
    rounds: usize,
    step: &Step,
    handovers: &mut Vec<Duration>,
    releases: &mut Vec<Duration>,
) -> Result<()> {
    let mut pair = arena.pair().await?;
    for round in 1..=rounds {
        step.at(&format!("{round} of {rounds}"));
        arena.pause().await;
        pair.check()?;
        let since = pair.leader.signal(Signal::TERM)?;
        handovers.push(pair.standby.leads(LEADER_LIMIT).await? - since);
        let identity = &pair.leader.identity;
        releases.push(
            arena
                .sightings
                .released(since, identity, SIGHTING_LIMIT)
                .await?,
        );
        pair = arena.relieve(pair).await?;
    }
    pair.end().await
}

/// SIGTERM to the leader of an API server that hangs, `rounds` times: until its process has ended.
pub async fn stops_without_answer(
    arena: &mut Arena<'_>,
    control_plane: &ControlPlane,
    rounds: usize,
    step: &Step,
    stops: &mut Vec<Duration>,
) -> Result<()> {
    for round in 1..=rounds {
        step.at(&format!("{round} of {rounds}"));
        let leader = arena.start(0)?;
        leader.leads(LEADER_LIMIT).await?;
        arena.pause().await;
        control_plane.pause()?;
        let stop = async {
            let since = leader.signal(Signal::TERM)?;
            leader.ended(END_LIMIT).await?;
            anyhow::Ok(since.elapsed())
        };
        let stopped = stop.await;
        control_plane.resume()?;
        stops.push(stopped?);
    }
    Ok(())
}

/// SIGKILL of the leader, `rounds` times: until the other leads.
pub async fn crashes(
    arena: &mut Arena<'_>,
    rounds: usize,
    step: &Step,
    takeovers: &mut Vec<Duration>,
) -> Result<()> {
    let mut pair = arena.pair().await?;
    for round in 1..=rounds {
        step.at(&format!("{round} of {rounds}"));
        arena.pause().await;
        pair.check()?;
        let since = pair.leader.signal(Signal::KILL)?;
        takeovers.push(pair.standby.leads(LEADER_LIMIT).await? - since);
        pair = arena.relieve(pair).await?;
    }
    pair.end().await
}

/// SIGKILL of the leader, and a new process for the same pod, `rounds` times: from its start until it leads.
pub async fn restarts(
    arena: &mut Arena<'_>,
    rounds: usize,
    step: &Step,
    resumptions: &mut Vec<Duration>,
) -> Result<()> {
    let mut pair = arena.pair().await?;
    for round in 1..=rounds {
        step.at(&format!("{round} of {rounds}"));
        arena.pause().await;
        pair.check()?;
        let (identity, pod_uid) = (pair.leader.identity.clone(), pair.leader.pod_uid.clone());
        pair.leader.signal(Signal::KILL)?;
        pair.leader.ended(END_LIMIT).await?;
        pair.leader = arena.start_as(pair.leader_place, &identity, &pod_uid)?;
        let leads = tokio::select! {
            leads = pair.leader.leads(LEADER_LIMIT) => leads?,
            Ok(_) = pair.standby.leads(LEADER_LIMIT) => bail!("the standby took the Lease over"),
        };
        resumptions.push(leads - pair.leader.started);
    }
    pair.end().await
}

/// Several at once on a Lease as their own kind leaves it, `rounds` times: how many lead.
pub async fn starts(
    arena: &mut Arena<'_>,
    rounds: usize,
    step: &Step,
    starts: &mut Starts,
) -> Result<()> {
    starts.candidates = PLACES;
    for round in 1..=rounds {
        step.at(&format!("{round} of {rounds}"));
        let (leaders, at_once) = start_together(arena).await?;
        starts.rounds += 1;
        starts.one_leader += usize::from(leaders == 1);
        starts.two_at_once += usize::from(at_once > 1);
    }
    Ok(())
}

/// How many lead in the end, and how many led at one instant.
async fn start_together(arena: &mut Arena<'_>) -> Result<(usize, usize)> {
    let replicas = (0..PLACES).map(|place| arena.start(place));
    let replicas = replicas.collect::<Result<Vec<_>>>()?;
    let first = replicas
        .iter()
        .map(|replica| Box::pin(replica.leads(LEADER_LIMIT)));
    futures::future::select_ok(first)
        .await
        .context("nobody leads")?;
    sleep(SETTLE).await;
    let terms: Vec<_> = replicas
        .iter()
        .flat_map(|replica| replica.terms())
        .collect();
    let (mut last, first): (Vec<_>, Vec<_>) = replicas
        .into_iter()
        .partition(|replica| replica.leads_now());
    let leaders = last.len();
    // Leaders last, so that the Lease is left free.
    let mut all = first;
    all.append(&mut last);
    for replica in all {
        replica.signal(Signal::TERM)?;
        replica.ended(END_LIMIT).await?;
    }
    Ok((leaders, most_at_once(&terms)))
}

/// Two replicas, left alone for `window`: what they ask the API server for, and the leader's memory.
pub async fn idle(arena: &mut Arena<'_>, window: Duration) -> Result<Idle> {
    let pair = arena.pair().await?;
    sleep(arena.candidate.name.period()).await;
    let mark = arena.audit.mark()?;
    let from = Timestamp::now();
    sleep(window).await;
    let until = Timestamp::now();
    pair.check()?;
    let count = |place| arena.audit.count(mark, arena.user(place)?, from, until);
    let (leader, standby) = (count(pair.leader_place)?, count(pair.standby_place())?);
    let minutes = window.as_secs_f64() / 60.0;
    let per_minute = |requests: usize| {
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        rounded(f64::from(requests) / minutes)
    };
    let kibibytes = u32::try_from(pair.leader.resident_bytes()? >> 10).unwrap_or(u32::MAX);
    pair.end().await?;
    Ok(Idle {
        seconds: window.as_secs_f64(),
        leader_lease_requests_per_minute: per_minute(leader.leases),
        standby_lease_requests_per_minute: per_minute(standby.leases),
        leader_requests_per_minute: per_minute(leader.all),
        standby_requests_per_minute: per_minute(standby.all),
        leader_rss_mib: rounded(f64::from(kibibytes) / 1024.0),
    })
}
