//! The way to the API server, or the API server itself, gone for a while.

use std::time::Duration;

use mzcompose::control_plane::ControlPlane;
use rstest::rstest;
use tokio::time::{Instant, sleep};

use super::proxy::{Proxy, Way};
use super::world::{World, wait_for};

#[derive(Clone, Copy, Debug)]
enum Outage {
    Frozen,
    Stopped,
}

/// One control plane for both outages and both lengths: what is left of one is the next one's start.
#[rstest]
#[case(Outage::Frozen)]
#[case(Outage::Stopped)]
#[tokio::test]
async fn a_short_outage_ends_no_term_and_a_long_one_is_survived(#[case] outage: Outage) {
    let control_plane = ControlPlane::private().await.unwrap();
    let world = World::on(control_plane.access().clone()).await;
    let mut settings = world.settings("a").await;
    // As by default, scaled up for a restart of the API server in between.
    settings.lease_duration = Duration::from_secs(25);
    settings.renew_deadline = Duration::from_secs(20);
    settings.retry_period = Duration::from_secs(2);
    let leader = world.start(&settings);
    leader.begun().await;
    settings.identity = "b".to_owned();
    settings.pod = "b".to_owned();
    let standby = world.start(&settings);
    standby.campaigns().await;

    away(&control_plane, outage, Duration::from_secs(5)).await;
    wait_for("a renewal after the outage", async || renewed(&world).await).await;
    assert!(
        leader.leads() && leader.said().len() == 1,
        "{}",
        leader.log()
    );
    assert!(standby.said().is_empty(), "{}", standby.log());

    away(&control_plane, outage, Duration::from_secs(30)).await;
    wait_for("one to lead again", async || {
        renewed(&world).await && leader.leads() != standby.leads()
    })
    .await;
    assert!(
        leader.said().contains(&"ended deadline".to_owned()),
        "{}",
        leader.log()
    );
}

async fn away(control_plane: &ControlPlane, outage: Outage, time: Duration) {
    match outage {
        Outage::Frozen => control_plane.pause().unwrap(),
        Outage::Stopped => control_plane.stop_api_server().await.unwrap(),
    }
    sleep(time).await;
    match outage {
        Outage::Frozen => control_plane.resume().unwrap(),
        Outage::Stopped => control_plane.start_api_server().await.unwrap(),
    }
}

/// Whether the Lease is seen to change.
async fn renewed(world: &World) -> bool {
    let version = async || {
        let lease = world.leases().get("orchestratord").await;
        lease.ok().and_then(|lease| lease.metadata.resource_version)
    };
    let before = version().await;
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        sleep(Duration::from_millis(50)).await;
        if before.is_some() && version().await.is_some_and(|now| Some(now) != before) {
            return true;
        }
    }
    false
}

async fn proxied(world: &World, name: &str) -> (Proxy, super::candidate::Replica) {
    let (proxy, kubeconfig) = Proxy::before(&world.user(name, &super::ALL).await).await;
    (proxy, world.start(&world.settings_of(name, kubeconfig)))
}

#[tokio::test]
async fn a_leader_in_a_black_hole_stops_before_another_takes_over() {
    let world = World::shared().await;
    let (proxy, leader) = proxied(&world, "a").await;
    leader.begun().await;
    let standby = world.candidate("b").await;
    standby.campaigns().await;
    proxy.set(Way::BlackHole);
    standby.begun().await;
    assert!(!leader.leads(), "{}", leader.log());
    assert_eq!(
        world
            .audit()
            .slipped(Duration::ZERO, |user| super::identity(&world, user)),
        [""; 0]
    );
    proxy.set(Way::Open);
    wait_for("it to campaign again", async || {
        leader.log().contains("another replica holds the Lease")
    })
    .await;
}

#[tokio::test]
async fn slow_answers_end_no_term() {
    let world = World::shared().await;
    let (proxy, leader) = proxied(&world, "a").await;
    leader.begun().await;
    proxy.set(Way::Delayed(Duration::from_millis(300)));
    for _ in 0..4 {
        wait_for("a renewal", async || renewed(&world).await).await;
    }
    assert_eq!(leader.said().len(), 1, "{}", leader.log());
}

#[tokio::test]
async fn a_standby_whose_watch_died_silently_still_takes_over_by_polling() {
    let world = World::shared().await;
    let mut leader = world.candidate("a").await;
    leader.begun().await;
    let (proxy, standby) = proxied(&world, "b").await;
    standby.campaigns().await;
    proxy.set(Way::OldConnectionsDead);
    leader.stop().await;
    standby.begun().await;
    let said = standby.said();
    assert!(
        said == ["leading 1 free"] || said == ["leading 1 expired"],
        "{said:?}"
    );
}
