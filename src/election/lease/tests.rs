use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use rstest::rstest;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::election::testing::{FakeApi, Fault, LATENCY, Replica, Told, until};
use crate::election::{
    Candidate, Elector, EndReason, Error, Process, Takeover, Timings, is_fence_closed,
};

const LEASE_DURATION: Duration = Duration::from_secs(15);
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// One watch event, one read and one write, with some to spare.
const AT_ONCE: Duration = Duration::from_millis(20);

async fn leader_and_standby(api: &FakeApi) -> (Replica, Replica) {
    let leader = Replica::start(api, "a");
    leader.begun().await;
    let standby = Replica::start(api, "b");
    until("the standby watches", || {
        standby.link.requests(Some("WATCH")) == 1
    })
    .await;
    let lease = api.lease();
    until("a renewal", || api.lease() != lease).await;
    (leader, standby)
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_leads_at_once() {
    let api = FakeApi::default();
    let start = Instant::now();
    let replica = Replica::start(&api, "a");
    let begun = replica.begun().await;
    assert_eq!((begun.transitions, begun.how), (0, Takeover::Created));
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    let lease = api.lease().unwrap();
    let (spec, acquired) = (&lease["spec"], lease["spec"]["acquireTime"].clone());
    assert_eq!(spec["holderIdentity"], "a");
    assert_eq!(spec["leaseDurationSeconds"], 15);
    assert_eq!(spec["leaseTransitions"], 0);
    until("a renewal", || api.lease().unwrap() != lease).await;
    assert_eq!(api.lease().unwrap()["spec"]["acquireTime"], acquired);
}

#[tokio::test(start_paused = true)]
async fn a_release_is_taken_over_at_once() {
    let api = FakeApi::default();
    let (leader, standby) = leader_and_standby(&api).await;
    let stop = Instant::now();
    leader.stopped().await.unwrap();
    let begun = standby.begun().await;
    let previous = Some("a".to_owned());
    assert_eq!(
        (begun.transitions, begun.how),
        (1, Takeover::Free { previous })
    );
    assert!(
        standby.told_at() - stop < AT_ONCE,
        "{:?}",
        standby.told_at() - stop
    );
    standby.stopped().await.unwrap();
    let spec = api.lease().unwrap()["spec"].clone();
    assert_eq!(
        spec,
        json!({"leaseDurationSeconds": 15, "leaseTransitions": 1})
    );
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_watch_a_release_is_taken_over_by_polling() {
    let api = FakeApi::default();
    let leader = Replica::start(&api, "a");
    leader.begun().await;
    let standby = Replica::start(&api, "b");
    standby.link.set(Fault::AnswersWatch(403));
    until("the standby polls", || {
        standby.link.requests(Some("GET")) == 3
    })
    .await;
    let stop = Instant::now();
    leader.stopped().await.unwrap();
    standby.begun().await;
    let took = standby.told_at() - stop;
    assert!(took < Duration::from_secs(3) + AT_ONCE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_replaced_when_its_lease_expires() {
    let api = FakeApi::default();
    let (leader, standby) = leader_and_standby(&api).await;
    let kill = Instant::now();
    leader.kill().await;
    let begun = standby.begun().await;
    let holder = "a".to_owned();
    assert_eq!(
        (begun.transitions, begun.how),
        (1, Takeover::Expired { holder })
    );
    let took = standby.told_at() - kill;
    assert!(
        took < LEASE_DURATION + Duration::from_millis(300),
        "{took:?}"
    );
    assert!(took > LEASE_DURATION - Duration::from_secs(3), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_process_resumes_at_once() {
    let api = FakeApi::default();
    let (leader, _standby) = leader_and_standby(&api).await;
    leader.kill().await;
    let start = Instant::now();
    let again = Replica::start(&api, "a");
    let begun = again.begun().await;
    assert_eq!((begun.transitions, begun.how), (0, Takeover::Resumed));
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_foreign_holder_ends_the_term_and_is_waited_out() {
    let api = FakeApi::default();
    let leader = Replica::start(&api, "a");
    leader.begun().await;
    until("the leader watches", || {
        leader.link.requests(Some("WATCH")) == 1
    })
    .await;
    let by = "not-a-real-candidate".to_owned();
    let patched = Instant::now();
    api.patch(json!({"holderIdentity": by}));
    assert_eq!(leader.ended().await, EndReason::Taken { by: by.clone() });
    assert!(patched.elapsed() < AT_ONCE, "{:?}", patched.elapsed());
    assert_eq!(api.holder(), Some(by.clone()), "not overwritten");
    let begun = leader.begun().await;
    assert_eq!(
        (begun.transitions, begun.how),
        (1, Takeover::Expired { holder: by })
    );
    let waited = leader.told_at() - patched;
    assert!(waited >= LEASE_DURATION, "{waited:?}");
    assert!(
        waited < LEASE_DURATION + Duration::from_secs(1),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_ends_the_term() {
    let api = FakeApi::default();
    let (leader, standby) = leader_and_standby(&api).await;
    until("the leader watches", || {
        leader.link.requests(Some("WATCH")) == 1
    })
    .await;
    let deleted = Instant::now();
    api.delete();
    assert_eq!(leader.ended().await, EndReason::Deleted);
    let begun = leader.begun().await;
    assert_eq!((begun.transitions, begun.how), (0, Takeover::Created));
    assert!(deleted.elapsed() < 2 * AT_ONCE, "{:?}", deleted.elapsed());
    assert_eq!(standby.told(), [], "nobody leads beside it");
}

#[rstest]
#[case::hangs(Fault::Hangs)]
#[case::unauthorized(Fault::Answers(401))]
#[case::forbidden(Fault::Answers(403))]
#[case::unavailable(Fault::Answers(503))]
#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_in_time_and_rejoins(#[case] fault: Fault) {
    let api = FakeApi::default();
    let (leader, standby) = leader_and_standby(&api).await;
    let cut = Instant::now();
    leader.link.set(fault);
    assert_eq!(leader.ended().await, EndReason::Deadline);
    let held = leader.told_at() - cut;
    assert!(held <= RENEW_DEADLINE, "{held:?}");
    assert!(held > RENEW_DEADLINE - Duration::from_secs(3), "{held:?}");
    standby.begun().await;
    assert!(standby.told_at() > leader.told_at() + Duration::from_secs(4));
    leader.link.set(Fault::Fine);
    let renewals = standby.link.requests(Some("PUT"));
    until("renewals", || {
        standby.link.requests(Some("PUT")) > renewals + 5
    })
    .await;
    standby.stopped().await.unwrap();
    assert_eq!(leader.begun().await.transitions, 2, "in the same process");
    leader.health.check().unwrap();
}

#[rstest]
#[case::unauthorized(401)]
#[case::forbidden(403)]
#[tokio::test(start_paused = true)]
async fn missing_rights_are_told_every_half_minute(#[case] code: u16) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let writer = Mutex::new(log.reopen().unwrap());
    let subscriber = tracing_subscriber::fmt().with_writer(writer).finish();
    let _listens = tracing::subscriber::set_default(subscriber);
    // Without a second subscriber, a test in another thread that comes by a line first turns it
    // off for all.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());

    let api = FakeApi::default();
    let replica = Replica::start(&api, "a");
    replica.link.set(Fault::Answers(code));
    sleep(Duration::from_secs(600)).await;
    let log = std::fs::read_to_string(log.path()).unwrap();
    let told = log.matches("may not use the Lease; grant").count();
    assert!((18..=21).contains(&told), "{told} times in ten minutes");
    assert!(
        replica.link.requests(Some("GET")) > 5 * told,
        "each is tried"
    );
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_is_survived() {
    let api = FakeApi::default();
    let (leader, _standby) = leader_and_standby(&api).await;
    let tries = leader.link.requests(None);
    leader.link.set(Fault::Hangs);
    until("a try fails", || leader.link.requests(None) > tries + 1).await;
    leader.link.set(Fault::Fine);
    let renewals = leader.link.requests(Some("PUT"));
    until("renewals", || {
        leader.link.requests(Some("PUT")) > renewals + 5
    })
    .await;
    assert!(leader.leads(), "{:?}", leader.told());
    assert_eq!(leader.told().len(), 1, "one term all along");
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_is_lost_is_resumed() {
    let api = FakeApi::default();
    let replica = Replica::start(&api, "a");
    replica.link.set(Fault::LosesAnswers);
    until("a read is sent", || replica.link.requests(Some("GET")) > 0).await;
    sleep(LATENCY).await;
    replica.link.set(Fault::Fine);
    until("a claim is sent", || {
        replica.link.requests(Some("POST")) > 0
    })
    .await;
    replica.link.set(Fault::LosesAnswers);
    until("it has arrived", || api.holder().is_some()).await;
    until("it is given up", || replica.link.requests(Some("GET")) > 1).await;
    replica.link.set(Fault::Fine);
    let begun = replica.begun().await;
    assert_eq!((begun.transitions, begun.how), (0, Takeover::Resumed));
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_the_middle_of_a_claim_leaves_a_free_lease() {
    let api = FakeApi::default();
    let replica = Replica::start(&api, "a");
    until("a claim is sent", || {
        replica.link.requests(Some("POST")) > 0
    })
    .await;
    let (stop, told) = (Instant::now(), replica.told());
    replica.stopped().await.unwrap();
    assert!(stop.elapsed() < AT_ONCE, "{:?}", stop.elapsed());
    assert_eq!(told, [], "no term");
    assert!(api.lease().is_some());
    assert_eq!(api.holder(), None);
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_renewals_hang_is_bounded() {
    let api = FakeApi::default();
    let (leader, _standby) = leader_and_standby(&api).await;
    let sent = leader.link.requests(Some("PUT"));
    leader.link.set(Fault::Hangs);
    until("a renewal hangs", || {
        leader.link.requests(Some("PUT")) > sent
    })
    .await;
    let stop = Instant::now();
    leader.stopped().await.unwrap();
    let took = stop.elapsed();
    assert!(
        took <= Timings::default().release_bound + AT_ONCE,
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_bound_of_a_stop_counts_from_when_it_is_asked_for() {
    let api = FakeApi::default();
    let replica = Replica::start_with(&api, "a", Timings::default(), |term| {
        term.spawn("deaf", std::future::pending());
    });
    replica.begun().await;
    replica.link.set(Fault::Hangs);
    let stop = Instant::now();
    replica.stopped().await.unwrap();
    let took = stop.elapsed();
    assert!(took <= Timings::default().stop_time() + AT_ONCE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_noticed_while_a_lost_term_is_joined() {
    let api = FakeApi::default();
    let replica = Replica::start_with(&api, "a", Timings::default(), |term| {
        term.spawn("deaf", std::future::pending());
    });
    replica.begun().await;
    replica.link.set(Fault::Hangs);
    sleep(RENEW_DEADLINE + Timings::default().join_bound / 5).await;
    assert!(replica.leads(), "the term is being joined");
    let stop = Instant::now();
    replica.stopped().await.unwrap();
    let took = stop.elapsed();
    assert!(took <= Timings::default().stop_time() + AT_ONCE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_standby_stops_at_once_and_touches_nothing() {
    let api = FakeApi::default();
    let (leader, standby) = leader_and_standby(&api).await;
    let (stop, link) = (Instant::now(), standby.link.clone());
    standby.stopped().await.unwrap();
    assert!(stop.elapsed() < AT_ONCE);
    assert_eq!(link.requests(Some("PUT")), 0);
    assert!(leader.leads());
}

#[rstest]
#[case::ends(false, "leader task brief ended by itself")]
#[case::panics(true, "leader task brief panicked")]
#[tokio::test(start_paused = true)]
async fn a_task_that_ends_by_itself_ends_the_election(#[case] panics: bool, #[case] says: &str) {
    let api = FakeApi::default();
    let replica = Replica::start_with(&api, "a", Timings::default(), move |term| {
        let token = term.token();
        term.spawn("waits", async move { token.cancelled().await });
        term.spawn("brief", async move {
            sleep(Duration::from_secs(1)).await;
            assert!(!panics, "on purpose");
        });
    });
    assert_eq!(replica.ended().await, EndReason::TaskEnded);
    let health = replica.health.clone();
    let error = replica.run.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), says);
    assert_eq!(api.holder(), None, "the Lease is given back");
    assert!(health.check().is_err(), "the elector has ended");
}

#[tokio::test]
async fn a_leader_whose_other_calls_hang_renews() {
    let api = FakeApi::default();
    let ((config, link), (work, work_link)) = (api.listen().await, api.connect());
    work_link.set(Fault::Hangs);
    let candidate = Candidate {
        namespace: "default".into(),
        lease: "l".into(),
        identity: "a".into(),
        process: Process::new("a", None),
        timings: Timings {
            lease_duration: Duration::from_secs(2),
            renew_deadline: Duration::from_millis(1_500),
            retry_period: Duration::from_millis(200),
            call_timeout: Duration::from_millis(500),
            join_bound: Duration::from_millis(50),
            ..Timings::default()
        },
        admission_lag: Duration::ZERO,
    };
    let elector = Elector::new(config, work, candidate, Arc::new(())).unwrap();
    let (stop, terms) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
    let begun = terms.clone();
    let run = tokio::spawn(elector.run(stop.clone(), move |term| {
        begun.fetch_add(1, Ordering::SeqCst);
        for name in ["one", "two", "three"] {
            let maps: Api<ConfigMap> = Api::namespaced(term.client(), "default");
            term.spawn(name, async move { drop(maps.get(name).await) });
        }
    }));
    // For longer than a term lasts without them.
    let renewals = async {
        while link.requests(Some("PUT")) < 10 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let renewals = timeout(Duration::from_secs(30), renewals).await;
    renewals.expect("ten renewals");
    assert_eq!(terms.load(Ordering::SeqCst), 1);
    assert_eq!(work_link.requests(None), 3, "only what its tasks ask for");
    stop.cancel();
    run.await.unwrap().unwrap();
    assert_eq!(api.holder(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_task_that_blocks_is_reported_and_the_lease_kept() {
    let api = FakeApi::default();
    let timings = Timings {
        join_bound: Duration::from_millis(50),
        ..Timings::default()
    };
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let mut blocked = Some(blocked);
    let replica = Replica::start_with(&api, "a", timings, move |term| {
        let blocked = blocked.take().unwrap();
        term.spawn("blocks", async move {
            let _ = blocked.recv();
        });
    });
    replica.begun().await;
    let error = replica.stopped().await.unwrap_err();
    assert!(
        matches!(&error, Error::TasksStuck { names } if names == &["blocks"]),
        "{error}"
    );
    assert_eq!(api.holder().as_deref(), Some("a"), "it may still act");
    unblock.send(()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_resumed_process_writes_nothing_before_its_elector_ran() {
    let api = FakeApi::default();
    let (leader, standby) = leader_and_standby(&api).await;
    let client = leader.client.lock().unwrap().clone().unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    leader.clock.stop_for(RENEW_DEADLINE);
    let params = DeleteParams::default();
    let error = maps.delete("x", &params).await.unwrap_err();
    assert!(is_fence_closed(&error), "{error}");
    assert_eq!(
        leader.work_link.requests(None),
        0,
        "nothing reached the socket"
    );
    assert!(leader.told().contains(&Told::Refused));
    let _ = maps.get("x").await;
    assert_eq!(leader.work_link.requests(None), 1, "reads pass");
    assert_eq!(leader.ended().await, EndReason::Deadline);
    drop(standby);
}

#[tokio::test(start_paused = true)]
async fn health_tells_of_an_elector_that_does_not_run() {
    let api = FakeApi::default();
    let replica = Replica::start(&api, "a");
    replica.begun().await;
    replica.health.check().unwrap();
    replica.clock.stop_for(Duration::from_secs(13));
    replica.health.check().expect("it may find out by itself");
    replica.clock.stop_for(Duration::from_secs(2));
    let error = replica.health.check().unwrap_err().to_string();
    assert!(error.contains("past its deadline"), "{error}");
    until("it is well again", || replica.health.check().is_ok()).await;
    let health = replica.health.clone();
    replica.kill().await;
    assert_eq!(
        health.check().unwrap_err().to_string(),
        "the elector has ended"
    );
}

#[tokio::test(start_paused = true)]
async fn idle_replicas_ask_little() {
    let api = FakeApi::default();
    let (leader, standby) = leader_and_standby(&api).await;
    let before = (leader.link.requests(None), standby.link.requests(None));
    sleep(Duration::from_secs(600)).await;
    let leads = leader.link.requests(None) - before.0;
    let waits = standby.link.requests(None) - before.1;
    assert!(
        leads <= 310,
        "{leads} requests of the leader in ten minutes"
    );
    assert!(
        waits <= 30,
        "{waits} requests of the standby in ten minutes"
    );
}

#[tokio::test(start_paused = true)]
async fn of_five_candidates_at_once_one_leads() {
    let api = FakeApi::default();
    let replicas: Vec<_> = ["a", "b", "c", "d", "e"]
        .map(|id| Replica::start(&api, id))
        .into();
    until("one leads", || replicas.iter().any(Replica::leads)).await;
    sleep(Duration::from_secs(30)).await;
    let terms: usize = replicas.iter().map(|replica| replica.told().len()).sum();
    assert_eq!(terms, 1);
}

#[rstest]
#[case::no_spec(json!(null))]
#[case::empty_holder(json!({"holderIdentity": "", "leaseTransitions": 65_535}))]
#[case::released_by_client_go(json!({"holderIdentity": "", "leaseDurationSeconds": 1}))]
#[case::null_times(json!({"holderIdentity": "x", "renewTime": null, "acquireTime": null}))]
#[case::huge(json!({"holderIdentity": "x", "leaseDurationSeconds": i32::MAX}))]
#[case::future(json!({"holderIdentity": "x", "renewTime": "9999-01-01T00:00:00.000000Z"}))]
#[case::ancient(json!({"holderIdentity": "x", "renewTime": "0001-01-01T00:00:00.000000Z"}))]
#[tokio::test(start_paused = true)]
async fn any_lease_is_led_in_the_end(#[case] spec: serde_json::Value) {
    let api = FakeApi::default();
    api.create(spec);
    let replica = Replica::start(&api, "a");
    replica.begun().await;
    assert_eq!(api.holder().as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn of_two_processes_with_one_identity_one_leads_and_the_other_says_so() {
    let api = FakeApi::default();
    let leader = Replica::start_in_pod(&api, "same", "pod-1");
    leader.begun().await;
    let other = Replica::start_in_pod(&api, "same", "pod-2");
    sleep(10 * LEASE_DURATION).await;
    assert!(leader.leads());
    let told = Told::Duplicate {
        own: "pod-2".to_owned(),
        other: Some("pod-1".to_owned()),
    };
    assert_eq!(other.told(), [told]);
    leader.stopped().await.unwrap();
    other.begun().await;
}

#[tokio::test(start_paused = true)]
async fn a_crashed_process_with_our_identity_in_another_pod_is_waited_out() {
    let api = FakeApi::default();
    let leader = Replica::start_in_pod(&api, "same", "pod-1");
    leader.begun().await;
    leader.kill().await;
    let start = Instant::now();
    let other = Replica::start_in_pod(&api, "same", "pod-2");
    let begun = other.begun().await;
    assert!(start.elapsed() >= LEASE_DURATION, "{:?}", start.elapsed());
    assert_eq!(begun.transitions, 1, "another process, another holder");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_process_of_the_same_pod_leads_at_once() {
    let api = FakeApi::default();
    let leader = Replica::start_in_pod(&api, "same", "pod-1");
    leader.begun().await;
    leader.kill().await;
    let start = Instant::now();
    let again = Replica::start_in_pod(&api, "same", "pod-1");
    let begun = again.begun().await;
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    assert_eq!((begun.transitions, begun.how), (0, Takeover::Resumed));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_shortened_by_hand_is_set_right_before_another_takes_it() {
    let api = FakeApi::default();
    let (leader, standby) = leader_and_standby(&api).await;
    api.patch(json!({"leaseDurationSeconds": 1}));
    sleep(2 * LEASE_DURATION).await;
    assert!(leader.leads(), "{:?}", leader.told());
    assert_eq!(standby.told(), []);
}

#[rstest]
#[case::acquired_otherwise(json!({"acquireTime": "1970-01-01T00:00:00.000000Z"}))]
#[case::never_acquired(json!({"acquireTime": null}))]
#[case::more_often(json!({"leaseTransitions": 100}))]
#[case::for_longer(json!({"leaseDurationSeconds": 100}))]
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_tampered_with_but_names_its_holder_stays_his(
    #[case] change: serde_json::Value,
) {
    let api = FakeApi::default();
    let (leader, standby) = leader_and_standby(&api).await;
    for _ in 0..10 {
        api.patch(change.clone());
        sleep(Duration::from_millis(700)).await;
    }
    sleep(2 * LEASE_DURATION).await;
    assert!(leader.leads(), "{:?}", leader.told());
    assert_eq!(leader.told().len(), 1);
    assert_eq!(standby.told(), []);
}

#[tokio::test(start_paused = true)]
async fn a_handover_is_timed_from_when_the_stop_is_asked_for() {
    let api = FakeApi::default();
    let (leader, _standby) = leader_and_standby(&api).await;
    // In the middle of the driver's sleep.
    sleep(Duration::from_millis(700)).await;
    let told = leader.last_words().await;
    let Some(Told::Released(took)) = told.last() else {
        panic!("{told:?}");
    };
    assert!(*took > Duration::ZERO && *took < AT_ONCE, "{took:?}");
}
