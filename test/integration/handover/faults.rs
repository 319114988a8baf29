//! The way to the API server, or the API server itself, gone for a while.

use std::path::Path;
use std::time::Duration;

use mzcompose::control_plane::{ControlPlane, Options};
use mzcompose::tools::{Module, Tools};
use rstest::rstest;
use tokio::time::{Instant, sleep};

use super::candidate::Settings;
use super::proxy::{Proxy, Way};
use super::world::{Audit, World, wait_for};
use super::{POLL, SLACK, found_free};

/// How long a call may take with the bounds that are the default.
const CALL: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug)]
enum Outage {
    Frozen,
    Stopped,
}

/// What is left of the short outage is the long one's start.
#[rstest]
#[case(Outage::Frozen)]
#[case(Outage::Stopped)]
#[tokio::test]
async fn a_short_outage_ends_no_term_and_a_long_one_is_survived(#[case] outage: Outage) {
    let folder = tempfile::tempdir().unwrap();
    let audit_log = folder.path().join("audit.log");
    let (control_plane, world) = audited(&audit_log).await;
    let settings = async |name| settings(outage, world.settings(name).await.unhurried());
    let leader = world.start(&settings("a").await);
    leader.begun().await;
    let standby = world.start(&settings("b").await);
    standby.campaigns().await;
    let slipped = || {
        Audit::read(&audit_log, &world.namespace)
            .slipped(Duration::ZERO, |user| super::identity(&world, user))
    };

    away(&control_plane, outage, Duration::from_secs(5)).await;
    wait_for("a renewal after the outage", async || renewed(&world).await).await;
    assert_eq!(leader.said(), ["leading 0 created"], "{}", leader.log());
    assert!(standby.said().is_empty(), "{}", standby.log());
    assert_eq!(world.lease().await, ("a".to_owned(), 0));
    assert_eq!(slipped(), [""; 0]);

    away(&control_plane, outage, Duration::from_secs(30)).await;
    leader.ended().await;
    world.one_leads([&leader, &standby]).await;
    wait_for("a renewal after the outage", async || renewed(&world).await).await;
    let said = leader.said();
    assert_eq!(said[..2], ["leading 0 created", "ended deadline"]);
    assert_eq!(slipped(), [""; 0]);
}

/// With the bounds that are the default, but for the time that an API server takes to start.
fn settings(outage: Outage, default: Settings) -> Settings {
    match outage {
        Outage::Frozen => default,
        Outage::Stopped => Settings {
            lease_duration: Duration::from_secs(25),
            renew_deadline: Duration::from_secs(20),
            ..default
        },
    }
}

/// A control plane of its own that tells what it lets through.
async fn audited(log: &Path) -> (ControlPlane, World) {
    let tools = Tools::locate(&[Module::Kubernetes]).unwrap();
    let options = Options {
        audit_log: Some(log.to_owned()),
        ..Options::default()
    };
    let control_plane = ControlPlane::start(&tools, &options).await.unwrap();
    let world = World::on(control_plane.access().clone()).await;
    (control_plane, world)
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

async fn proxied(world: &World, name: &str) -> (Proxy, Settings) {
    let (proxy, kubeconfig) = Proxy::before(&world.user(name, &super::ALL).await).await;
    (proxy, world.settings_of(name, kubeconfig))
}

#[tokio::test]
async fn a_leader_in_a_black_hole_stops_before_another_takes_over() {
    let world = World::shared().await;
    let (proxy, leader) = proxied(&world, "a").await;
    let leader = world.start(&leader);
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
    let leader = world.start(&leader);
    leader.begun().await;
    proxy.set(Way::Delayed(Duration::from_millis(300)));
    for _ in 0..4 {
        wait_for("a renewal", async || renewed(&world).await).await;
    }
    assert_eq!(leader.said().len(), 1, "{}", leader.log());
}

/// A call on a connection that is dead too has to time out first.
#[rstest]
#[case::alone(Way::WatchesSilent, POLL)]
#[case::with_all_connections(Way::OldConnectionsDead, 2 * POLL + CALL)]
#[tokio::test]
async fn a_watch_that_dies_silently_costs_a_poll(#[case] way: Way, #[case] bound: Duration) {
    let world = World::shared().await;
    let mut leader = world.start(&world.settings("a").await.unhurried());
    leader.begun().await;
    let (proxy, standby) = proxied(&world, "b").await;
    let standby = world.start(&standby.unhurried());
    standby.campaigns().await;
    proxy.set(way);
    wait_for("the watch to miss a renewal", async || proxy.has_lost()).await;
    let found = found_free(&mut leader, &standby).await;
    assert!(found < bound + SLACK, "{found:?}");
    let polls = world.audit().reads_before_takeover(&world.user_name("b"));
    assert_eq!(polls, 1);
}
