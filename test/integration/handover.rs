//! Leadership on a real API server: handed over, lost, taken, and never held by two.

pub mod candidate;
mod faults;
mod fence;
mod priority;
mod proxy;
pub mod world;

use std::time::{Duration, Instant};

use futures::future::join_all;
use kube::api::{DeleteParams, Patch, PatchParams};
use rustix::process::Signal;
use serde_json::json;

use self::candidate::Replica;
use self::world::{ALL, World, wait_for};

#[tokio::test]
async fn a_stopped_leader_hands_over_and_writes_nothing_more() {
    let world = World::shared().await;
    let (mut leader, standby) = world.two().await;
    assert_eq!(world.lease().await, ("a".to_owned(), 0));
    leader.stop().await;
    standby.begun().await;
    assert_eq!(world.lease().await, ("b".to_owned(), 1));
    assert_eq!(standby.said(), ["leading 1 free"]);
    let audit = world.audit();
    assert!(audit.writes_by(&world.user_name("a")) > 0, "it did write");
    assert_eq!(
        audit.slipped(Duration::ZERO, |user| user.to_owned()).len(),
        audit.writes(),
        "names are compared"
    );
    assert_eq!(
        audit.slipped(Duration::ZERO, |user| identity(&world, user)),
        [""; 0]
    );
}

/// The longest time between two polls with the bounds that are the default.
const POLL: Duration = Duration::from_secs(3);
/// What a loaded machine adds; less than the shortest time between two polls.
const SLACK: Duration = Duration::from_millis(1_900);

/// How long a standby takes to find the Lease free once its holder is asked to stop.
async fn found_free(leader: &mut Replica, standby: &Replica) -> Duration {
    let asked = Instant::now();
    leader.stop().await;
    standby.begun().await;
    let found = asked.elapsed();
    assert_eq!(standby.said(), ["leading 1 free"]);
    found
}

/// The identity that a user campaigns as, where both have one name.
fn identity(world: &World, user: &str) -> String {
    let prefix = format!("{}-", world.namespace);
    user.strip_prefix(&prefix).unwrap().to_owned()
}

#[tokio::test]
async fn a_killed_leader_is_succeeded_once_its_lease_expires() {
    let world = World::shared().await;
    let (mut leader, standby) = world.two().await;
    leader.kill();
    standby.begun().await;
    assert_eq!(standby.said(), ["leading 1 expired"]);
    assert_eq!(
        world
            .audit()
            .slipped(Duration::ZERO, |user| identity(&world, user)),
        [""; 0]
    );
}

#[tokio::test]
async fn a_leader_that_was_frozen_past_its_lease_writes_nothing_when_it_goes_on() {
    let world = World::shared().await;
    let (leader, standby) = world.two().await;
    leader.signal(Signal::STOP);
    standby.begun().await;
    let user = world.user_name("a");
    let before = world.audit().writes_by(&user);
    leader.signal(Signal::CONT);
    leader.ended().await;
    wait_for("its leaked writer to be refused", async || {
        leader.log().contains("refused:")
    })
    .await;
    let audit = world.audit();
    assert!(before > 0, "it did write");
    assert_eq!(audit.writes_by(&user), before);
    assert_eq!(
        audit.slipped(Duration::ZERO, |user| identity(&world, user)),
        [""; 0]
    );
    assert!(standby.leads());
}

#[tokio::test]
async fn a_deleted_lease_is_led_again_by_one() {
    let world = World::shared().await;
    let (first, second) = world.two().await;
    let params = DeleteParams::default();
    world
        .leases()
        .delete("orchestratord", &params)
        .await
        .unwrap();
    first.ended().await;
    world.one_leads([&first, &second]).await;
    assert!(
        first.said().contains(&"ended deleted".to_owned()),
        "{}",
        first.log()
    );
}

#[tokio::test]
async fn of_two_with_one_identity_the_second_stands_by_and_names_both_pods() {
    let world = World::shared().await;
    let mut settings = world.settings("a").await;
    settings.identity = "same".to_owned();
    let mut first = world.start(&settings);
    first.begun().await;
    settings.pod = "b".to_owned();
    let second = world.start(&settings);
    wait_for("the second to notice", async || !second.said().is_empty()).await;
    assert_eq!(second.said(), ["duplicate b a"]);
    tokio::time::sleep(2 * settings.lease_duration).await;
    assert_eq!(
        second.said(),
        ["duplicate b a"],
        "it waits for as long as the first renews"
    );
    assert!(first.leads());
    first.stop().await;
    second.begun().await;
}

#[tokio::test]
async fn a_restarted_process_of_the_same_pod_resumes_its_term() {
    let world = World::shared().await;
    let (mut leader, standby) = world.two().await;
    leader.kill();
    let settings = leader.settings.clone();
    let again = world.start(&settings);
    wait_for("it to lead again", async || again.leads()).await;
    assert_eq!(again.said(), ["leading 0 resumed"]);
    assert!(standby.said().is_empty(), "{}", standby.log());
}

#[tokio::test]
async fn rights_taken_away_end_the_term_and_given_back_start_one() {
    let world = World::shared().await;
    let (leader, standby) = world.two().await;
    world.revoke("a").await;
    standby.begun().await;
    leader.ended().await;
    wait_for("the loss to be loud", async || {
        leader.log().contains("ERROR") && leader.log().contains("grant get, create and update")
    })
    .await;
    world.revoke("b").await;
    standby.ended().await;
    world.grant("a", &ALL).await;
    leader.begun().await;
    assert!(!standby.leads());
}

#[tokio::test]
async fn upstreams_rights_suffice_by_polling_and_that_is_said_once() {
    let world = World::shared().await;
    let mut leader = world.start(&world.settings("a").await.unhurried());
    leader.begun().await;
    let kubeconfig = world.user("b", &["get", "create", "update"]).await;
    let standby = world.start(&world.settings_of("b", kubeconfig).unhurried());
    standby.campaigns().await;
    let found = found_free(&mut leader, &standby).await;
    assert!(found < POLL + SLACK, "{found:?}");
    let told = standby.log().matches("may not watch the Lease").count();
    assert_eq!(told, 1, "{}", standby.log());
}

#[tokio::test]
async fn a_clock_that_jumps_ends_the_term_of_its_process_alone() {
    let world = World::shared().await;
    let (leader, standby) = world.two().await;
    leader.signal(Signal::USR1);
    wait_for("the term to end", async || {
        leader.said().contains(&"ended deadline".to_owned())
    })
    .await;
    world.one_leads([&leader, &standby]).await;
    assert_eq!(
        world
            .audit()
            .slipped(Duration::ZERO, |user| identity(&world, user)),
        [""; 0]
    );
}

/// With renewals so rare that a jump is noticed between two of them.
#[tokio::test]
async fn a_standby_whose_clock_jumps_takes_nothing() {
    let world = World::shared().await;
    let leader = world.start(&world.settings("a").await.unhurried());
    leader.begun().await;
    let standby = world.start(&world.settings("b").await.unhurried());
    standby.campaigns().await;
    for _ in 0..3 {
        standby.signal(Signal::USR1);
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    assert_eq!(world.lease().await, ("a".to_owned(), 0));
    assert!(
        leader.leads() && standby.said().is_empty(),
        "{}",
        standby.log()
    );
}

#[tokio::test]
async fn of_five_that_start_at_once_one_leads() {
    let world = World::shared().await;
    let names = ["a", "b", "c", "d", "e"];
    let settings = join_all(names.iter().map(|name| world.settings(name))).await;
    let candidates: Vec<_> = settings
        .iter()
        .map(|settings| world.start(settings))
        .collect();
    wait_for("one to lead", async || {
        candidates.iter().any(|one| one.leads())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let terms: usize = candidates.iter().map(|one| one.said().len()).sum();
    assert_eq!(terms, 1, "one term, of one of them");
    assert_eq!(world.audit().changes(), 1);
}

#[tokio::test]
async fn a_stranger_in_the_lease_is_waited_out() {
    let world = World::shared().await;
    let leader = world.candidate("a").await;
    leader.begun().await;
    let stranger = json!({"spec": {"holderIdentity": "stranger"}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(stranger));
    world
        .leases()
        .patch("orchestratord", &params, &patch)
        .await
        .unwrap();
    leader.ended().await;
    wait_for("it to lead again", async || leader.leads()).await;
    let said = ["leading 0 created", "ended taken", "leading 1 expired"];
    assert_eq!(leader.said(), said);
}
