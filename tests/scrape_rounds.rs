//! Rounds over replicas on real sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/fake_engine.rs"]
mod fake_engine;
#[path = "common/running_rounds.rs"]
mod running_rounds;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::TimeDelta;
use fake_engine::{Answer, FakeEngine, refusing_address};
use keda_vllm_scaler::aggregate::FailureKind;
use keda_vllm_scaler::scrape::rounds::TierEvent;
use keda_vllm_scaler::supply::{Discovered, Phase, Target};
use running_rounds::{Running, config, listed, pages, target, unknown, until, vllm_page};
use tokio::sync::watch;

#[tokio::test]
async fn each_round_brings_every_replica_once_and_then_its_end() {
    let engine = FakeEngine::start(vllm_page()).await;
    let refusing = refusing_address().await;
    let replicas = listed(vec![
        target("a", engine.url()),
        target("b", engine.url()),
        target("gone", format!("http://{refusing}/metrics")),
    ]);
    let mut running = Running::start(config(), replicas.clone());
    assert_eq!(running.next().await, TierEvent::Discovered(replicas));
    for _ in 0..4 {
        let events = running.round().await;
        let (good, bad) = pages(&events);
        assert_eq!(good, BTreeSet::from(["a", "b"]));
        assert_eq!(bad, BTreeMap::from([("gone", FailureKind::Refused)]));
    }
    running.stop().await;
}

#[tokio::test]
async fn rounds_follow_the_clock_not_life() {
    let engine = FakeEngine::start(vllm_page()).await;
    let mut running = Running::start(config(), listed(vec![target("a", engine.url())]));
    let mut ends = Vec::new();
    for _ in 0..6 {
        let events = running.round().await;
        let Some(TierEvent::RoundDone { at }) = events.last() else { unreachable!() };
        ends.push(*at);
    }
    let span = ends[5] - ends[0];
    assert!(
        span > TimeDelta::seconds(20) && span < TimeDelta::seconds(120),
        "five intervals of 5 s took {span}"
    );
    running.stop().await;
}

#[tokio::test]
async fn a_replica_that_hangs_delays_no_round_and_is_asked_once() {
    let good = FakeEngine::start(vllm_page()).await;
    let hanging = FakeEngine::start(Answer::RawThenSilence(Vec::new())).await;
    let mut slow = config();
    slow.settings.timeout = Duration::from_secs(30);
    let replicas = listed(vec![target("good", good.url()), target("hanging", hanging.url())]);
    let mut running = Running::start(slow, replicas);
    for _ in 0..5 {
        let events = running.round().await;
        assert_eq!(pages(&events), (BTreeSet::from(["good"]), BTreeMap::new()));
    }
    assert_eq!(hanging.requests(), 1);
    running.stop().await;
    // Nothing outlives the rounds.
    until(|| hanging.open() == 0).await;
}

#[tokio::test]
async fn a_replica_that_vanishes_is_dropped_in_flight_and_a_new_one_joins() {
    let hanging = FakeEngine::start(Answer::RawThenSilence(Vec::new())).await;
    let good = FakeEngine::start(vllm_page()).await;
    let mut slow = config();
    slow.settings.timeout = Duration::from_secs(30);
    slow.settings.interval = Duration::from_secs(50);
    let mut running = Running::start(slow, listed(vec![target("hanging", hanging.url())]));
    running.next().await;
    hanging.until_requests(1).await;

    let replaced = listed(vec![target("good", good.url())]);
    running.discovered.send(replaced.clone()).unwrap();
    let events = running.round().await;
    // At once, and the round that waited for it alone is over.
    assert_eq!(events[0], TierEvent::Discovered(replaced));
    assert_eq!(events.len(), 2);
    until(|| hanging.open() == 0).await;

    let events = running.round().await;
    assert_eq!(pages(&events).0, BTreeSet::from(["good"]));
    running.stop().await;
}

#[tokio::test]
async fn a_replica_whose_address_changes_is_fetched_at_the_new_one() {
    let (old, new) = (FakeEngine::start(vllm_page()).await, FakeEngine::start(vllm_page()).await);
    let mut running = Running::start(config(), listed(vec![target("uid", old.url())]));
    running.round().await;
    running.discovered.send(listed(vec![target("uid", new.url())])).unwrap();
    new.until_requests(1).await;
    let before = old.requests();
    new.until_requests(3).await;
    assert_eq!(old.requests(), before);
    running.stop().await;
}

#[tokio::test]
async fn while_the_source_knows_nothing_the_known_replicas_are_still_fetched() {
    let engine = FakeEngine::start(vllm_page()).await;
    let mut running = Running::start(config(), listed(vec![target("a", engine.url())]));
    running.round().await;
    running.discovered.send(unknown()).unwrap();
    loop {
        if running.next().await == TierEvent::Discovered(unknown()) {
            break;
        }
    }
    running.round().await;
    assert_eq!(pages(&running.round().await).0, BTreeSet::from(["a"]));
    running.stop().await;
}

#[tokio::test]
async fn a_source_that_knows_nothing_at_first_is_given_an_interval_and_its_first_answer_begins_a_round() {
    let engine = FakeEngine::start(vllm_page()).await;
    let mut patient = config();
    patient.settings.interval = Duration::from_secs(50);
    let mut running = Running::start(patient, unknown());
    assert_eq!(running.next().await, TierEvent::Discovered(unknown()));
    running.discovered.send(listed(vec![target("a", engine.url())])).unwrap();
    assert!(matches!(running.next().await, TierEvent::Discovered(Discovered::Targets { .. })));
    assert_eq!(pages(&running.round().await).0, BTreeSet::from(["a"]));
    running.stop().await;
}

#[tokio::test]
async fn a_round_without_replicas_still_ends_so_that_a_decision_says_unknown() {
    let mut running = Running::start(config(), unknown());
    assert_eq!(running.next().await, TierEvent::Discovered(unknown()));
    for _ in 0..3 {
        assert_eq!(running.round().await.len(), 1);
    }
    running.stop().await;
}

#[tokio::test]
async fn a_list_s_sender_may_be_gone() {
    let engine = FakeEngine::start(vllm_page()).await;
    let mut running = Running::start(config(), listed(vec![target("a", engine.url())]));
    running.discovered = watch::channel(unknown()).0;
    for _ in 0..3 {
        assert_eq!(pages(&running.round().await).0, BTreeSet::from(["a"]));
    }
    running.stop().await;
}

#[tokio::test]
async fn starting_and_terminating_replicas_are_fetched_blocked_ones_and_those_without_an_address_are_not() {
    let engine = FakeEngine::start(vllm_page()).await;
    let with_phase = |id: &str, phase| Target { phase, ..target(id, engine.url()) };
    let mut replicas = vec![
        with_phase("starting", Phase::Starting),
        with_phase("ready", Phase::Ready),
        with_phase("terminating", Phase::Terminating),
        with_phase("blocked", Phase::Blocked),
    ];
    replicas.push(Target { url: None, ..target("no-address", String::new()) });
    let mut running = Running::start(config(), listed(replicas));
    let events = running.round().await;
    assert_eq!(pages(&events).0, BTreeSet::from(["starting", "ready", "terminating"]));
    assert!(pages(&events).1.is_empty());
    running.stop().await;
}

#[tokio::test]
async fn fetches_at_once_are_bounded() {
    let engine = FakeEngine::start(Answer::RawThenSilence(Vec::new())).await;
    let mut narrow = config();
    narrow.settings.concurrency = 4;
    narrow.settings.timeout = Duration::from_millis(60);
    let replicas = (0..20).map(|n| target(&n.to_string(), engine.url())).collect();
    let running = Running::start(narrow, listed(replicas));
    engine.until_requests(20).await;
    assert!(engine.most_at_once() <= 5, "{} at once", engine.most_at_once());
    running.stop().await;
}

#[tokio::test]
async fn replicas_that_hang_do_not_hold_up_those_that_answer() {
    let good = FakeEngine::start(vllm_page()).await;
    let hanging = FakeEngine::start(Answer::RawThenSilence(Vec::new())).await;
    let mut narrow = config();
    narrow.settings.concurrency = 4;
    narrow.settings.timeout = Duration::from_millis(150);
    let mut replicas: Vec<_> = (0..12).map(|n| target(&format!("hanging-{n}"), hanging.url())).collect();
    replicas.push(target("good", good.url()));
    let mut running = Running::start(narrow, listed(replicas));
    let mut hung = BTreeSet::new();
    while hung.len() < 12 {
        let events = running.round().await;
        hung.extend(pages(&events).1.into_keys().map(str::to_owned));
    }
    running.round().await;
    for _ in 0..5 {
        assert_eq!(pages(&running.round().await).0, BTreeSet::from(["good"]));
    }
    running.stop().await;
}

#[tokio::test]
async fn nobody_listening_ends_the_rounds() {
    let engine = FakeEngine::start(vllm_page()).await;
    let running = Running::start(config(), listed(vec![target("a", engine.url())]));
    drop(running.events);
    tokio::time::timeout(Duration::from_secs(5), running.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn credentials_that_come_late_are_a_failure_until_then() {
    let engine = FakeEngine::start(vllm_page()).await;
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    let mut late = config();
    late.settings.bearer_token_file = Some(token.clone());
    let mut running = Running::start(late, listed(vec![target("a", engine.url())]));
    let events = running.round().await;
    assert_eq!(pages(&events).1, BTreeMap::from([("a", FailureKind::Tls)]));
    assert_eq!(engine.requests(), 0);
    std::fs::write(&token, "secret").unwrap();
    running.round().await;
    assert_eq!(pages(&running.round().await).0, BTreeSet::from(["a"]));
    running.stop().await;
}
