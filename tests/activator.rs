//! The activator of a tier on a real socket: what waits in front of replicas that aren't there.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/fake_engine.rs"]
mod fake_engine;
#[path = "common/running_rounds.rs"]
mod running_rounds;

use std::collections::BTreeMap;
use std::time::Duration;

use fake_engine::{Answer, FakeEngine, refusing_address};
use keda_vllm_scaler::config::{ActivatorSettings, TlsSettings};
use keda_vllm_scaler::scrape::rounds::TierEvent;
use running_rounds::{Running, config, listed, pages, target, unknown, vllm_page};

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
