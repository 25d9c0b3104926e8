//! Rounds over replicas on real sockets. The clock runs 50 times as fast as life: an interval of 5 s takes 100 ms.

#[path = "common/fake_engine.rs"]
mod fake_engine;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use fake_engine::{Answer, FakeEngine, refusing_address};
use keda_vllm_scaler::aggregate::FailureKind;
use keda_vllm_scaler::clock::Clock;
use keda_vllm_scaler::config::{ActivatorSettings, ScrapeSettings, TlsSettings};
use keda_vllm_scaler::decision::TierId;
use keda_vllm_scaler::scrape::rounds::{self, RoundsConfig, TierEvent};
use keda_vllm_scaler::supply::{Discovered, Phase, Target};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const FACTOR: f64 = 50.0;

fn config() -> RoundsConfig {
    // As `main` does it; a second test of the process finds it installed.
    let _already = rustls::crypto::ring::default_provider().install_default();
    RoundsConfig {
        tier: TierId::new("serving", "chat-h100"),
        settings: ScrapeSettings {
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_millis(500),
            stale_after: Duration::from_secs(15),
            rate_window: Duration::from_secs(60),
            concurrency: 16,
            max_body_bytes: 1_000_000,
            max_expanded_bytes: 1_000_000,
            tls: TlsSettings::default(),
            bearer_token_file: None,
        },
        model: None,
        activator: None,
        clock: Clock::starting_at(DateTime::<Utc>::UNIX_EPOCH, FACTOR),
    }
}

fn vllm_page() -> Answer {
    let packed = include_bytes!("../benches/fixtures/vllm-0.32.txt.gz");
    let mut page = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut page).unwrap();
    Answer::page(&page)
}

fn target(id: &str, url: String) -> Target {
    Target { id: id.to_owned(), name: id.to_owned(), url: Some(url), phase: Phase::Listed, since: None }
}

fn listed(targets: Vec<Target>) -> Discovered {
    Discovered::Targets { targets, authoritative: false, current: None }
}

fn unknown() -> Discovered {
    Discovered::Unknown { why: "no answer in time".to_owned() }
}

struct Running {
    events: mpsc::Receiver<(TierId, TierEvent)>,
    discovered: watch::Sender<Discovered>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    fn start(config: RoundsConfig, first: Discovered) -> Self {
        let (discovered, seen) = watch::channel(first);
        let (out, events) = mpsc::channel(64);
        let stop = CancellationToken::new();
        let task = tokio::spawn(rounds::run(config, seen, out, stop.clone()));
        Self { events, discovered, stop, task }
    }

    async fn next(&mut self) -> TierEvent {
        let (tier, event) =
            tokio::time::timeout(Duration::from_secs(20), self.events.recv()).await.unwrap().unwrap();
        assert_eq!(tier, TierId::new("serving", "chat-h100"));
        event
    }

    /// Everything up to and with the end of this round.
    async fn round(&mut self) -> Vec<TierEvent> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await;
            let done = matches!(event, TierEvent::RoundDone { .. });
            events.push(event);
            if done {
                return events;
            }
        }
    }

    async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(5), self.task).await.unwrap().unwrap();
    }
}

/// The replicas that gave a page, and those that failed with their class.
fn pages(events: &[TierEvent]) -> (BTreeSet<&str>, BTreeMap<&str, FailureKind>) {
    let (mut good, mut bad) = (BTreeSet::new(), BTreeMap::new());
    for event in events {
        match event {
            TierEvent::Page { target, result: Ok(_), .. } => {
                assert!(good.insert(target.as_str()), "{target} twice")
            }
            TierEvent::Page { target, result: Err(failure), .. } => {
                bad.insert(target.as_str(), failure.kind);
            }
            _ => {}
        }
    }
    (good, bad)
}

async fn until(condition: impl Fn() -> bool) {
    tokio::time::timeout(Duration::from_secs(10), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .expect("the condition never holds");
}

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

fn activator(url: String, metric: &str) -> ActivatorSettings {
    ActivatorSettings {
        url,
        metric: metric.to_owned(),
        labels: BTreeMap::from([("model".to_owned(), "chat".to_owned())]),
        interval: Duration::from_millis(500),
        timeout: Duration::from_secs(1),
        tls: TlsSettings::default(),
        bearer_token_file: None,
    }
}

fn queue(waiting: u32) -> Answer {
    Answer::page(&format!(
        "# TYPE queue gauge\nqueue{{model=\"chat\"}} {waiting}\nqueue{{model=\"code\"}} 7\n"
    ))
}

async fn next_reading(running: &mut Running) -> Result<f64, String> {
    loop {
        if let TierEvent::Activator { result, .. } = running.next().await {
            return result;
        }
    }
}

#[tokio::test]
async fn the_first_request_that_waits_asks_for_a_decision_at_once() {
    let router = FakeEngine::start(queue(0)).await;
    let mut at_zero = config();
    // No round ends in the time of this test.
    at_zero.settings.interval = Duration::from_secs(5000);
    at_zero.activator = Some(activator(router.url(), "queue"));
    let mut running = Running::start(at_zero, unknown());
    assert_eq!(running.next().await, TierEvent::Discovered(unknown()));
    for _ in 0..3 {
        assert!(matches!(running.next().await, TierEvent::Activator { result: Ok(0.0), .. }));
    }
    router.now_answers(queue(2));
    while next_reading(&mut running).await == Ok(0.0) {}
    assert!(matches!(running.next().await, TierEvent::RoundDone { .. }));
    // Once: what goes on waiting is told, and decided with the rounds.
    for _ in 0..3 {
        assert!(matches!(running.next().await, TierEvent::Activator { result: Ok(2.0), .. }));
    }
    running.stop().await;
}

#[tokio::test]
async fn an_activator_that_fails_is_an_error_and_never_zero() {
    let router = FakeEngine::start(Answer::page("# TYPE other gauge\nother 1\n")).await;
    let mut config = config();
    config.activator = Some(activator(router.url(), "queue"));
    let mut running = Running::start(config, unknown());
    assert!(next_reading(&mut running).await.unwrap_err().contains("queue"));
    router.now_answers(Answer::Raw(Answer::with_head("HTTP/1.1 503 Unavailable\nContent-Length: 0", b"")));
    while !next_reading(&mut running).await.unwrap_err().contains("status 503") {}
    router.now_answers(queue(0));
    while next_reading(&mut running).await != Ok(0.0) {}
    running.stop().await;
}

#[tokio::test]
async fn arrivals_of_a_counter_wait_until_a_minute_has_passed() {
    let arrived =
        |total: u32| Answer::page(&format!("# TYPE in counter\nin_total{{model=\"chat\"}} {total}\n"));
    let router = FakeEngine::start(arrived(40)).await;
    let mut config = config();
    config.activator = Some(activator(router.url(), "in_total"));
    let mut running = Running::start(config, unknown());
    next_reading(&mut running).await.unwrap_err();
    assert_eq!(next_reading(&mut running).await, Ok(0.0));
    router.now_answers(arrived(43));
    while next_reading(&mut running).await == Ok(0.0) {}
    assert_eq!(next_reading(&mut running).await, Ok(3.0));
    while next_reading(&mut running).await == Ok(3.0) {}
    assert_eq!(next_reading(&mut running).await, Ok(0.0));
    running.stop().await;
}

#[tokio::test]
async fn the_activator_is_read_often_only_while_no_replica_is_ready() {
    let router = FakeEngine::start(queue(0)).await;
    let engine = FakeEngine::start(vllm_page()).await;
    let mut config = config();
    config.settings.interval = Duration::from_secs(10);
    config.activator = Some(activator(router.url(), "queue"));
    let refusing = refusing_address().await;
    let cold = target("a", format!("http://{refusing}/metrics"));
    let mut running = Running::start(config, listed(vec![cold]));
    let readings = |events: &[TierEvent]| {
        events.iter().filter(|event| matches!(event, TierEvent::Activator { .. })).count()
    };
    running.round().await;
    let mut while_cold = 0;
    for _ in 0..3 {
        while_cold += readings(&running.round().await);
    }
    assert!(while_cold > 15, "{while_cold} in 3 intervals of 10 s, where one is due every 500 ms");

    running.discovered.send(listed(vec![target("a", engine.url())])).unwrap();
    while pages(&running.round().await).0.is_empty() {}
    running.round().await;
    let mut while_ready = 0;
    for _ in 0..3 {
        while_ready += readings(&running.round().await);
    }
    assert!((1..=6).contains(&while_ready), "{while_ready} in 3 intervals, where one is due in each");
    running.stop().await;
}
