//! What one scaler has learned gets to another, over a real socket.

#![allow(clippy::unwrap_used, reason = "what can't be set up fails the test")]

use std::sync::Arc;
use std::time::Duration;

use keda_vllm_scaler::control_loop::PeerLearned;
use keda_vllm_scaler::decision::policy::ForecastPolicy;
use keda_vllm_scaler::decision::{Answer, Learned, Memory, Observation, Policy};
use keda_vllm_scaler::forecast::{Forecast, Terms};
use keda_vllm_scaler::peers;
use keda_vllm_scaler::serve::http::{self, PagePort};
use keda_vllm_scaler::snapshot::Published;
use keda_vllm_scaler::telemetry::Counters;
use keda_vllm_scaler::writers::lease::Leadership;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

#[path = "common/published.rs"]
mod published;

/// Longer than any answer of a socket of this machine takes, shorter than the minute between two readings.
const SOON: Duration = Duration::from_secs(20);

fn taught() -> Learned {
    let tier = published::tier("chat");
    let mut seen = Observation::unknown("no pods are listed");
    seen.load.mean_input_tokens = Some(900.0);
    seen.load.mean_uncached_input_tokens = Some(700.0);
    seen.load.mean_output_tokens = Some(120.0);
    let mut memory = Memory::default();
    memory.learn(&published::policy(&tier), &seen, "2026-12-01T09:00:00Z".parse().unwrap());
    memory.learned()
}

/// What a scaler publishes of one tier that has learned this.
fn publishes(learned: Learned, forecast: Option<Forecast>) -> (published::Publisher, Published) {
    let (mut publisher, published) = published::publisher();
    let tier = published::tier("chat");
    let policy = Policy { forecast: Some(ForecastPolicy::default()), ..published::policy(&tier) };
    let mut status = published::status(policy, Answer::Required(2), publisher.clock.now());
    status.learned = Arc::new(learned);
    status.forecast = forecast.map(Arc::new);
    publisher.publish(|snapshot| {
        snapshot.tiers.insert(tier, Arc::new(status));
    });
    (publisher, published)
}

/// A memory whose forecast has watched so many bins of a load from this second on.
fn watched(from: i64, bins: i64) -> Memory {
    let terms = Terms::new(205.0, 210.0, 5.0, 30.0);
    let mut forecast = Forecast::default();
    for bin in 0..=bins {
        forecast.learn((from + 15 * bin) * 1000, Some(45.0), 4, &terms);
    }
    let tier = published::tier("chat");
    let policy = Policy { forecast: Some(ForecastPolicy::default()), ..published::policy(&tier) };
    let mut memory = Memory::default();
    assert!(memory.take_forecast(&policy, forecast));
    memory
}

/// A scaler's HTTP port, with one tier that has learned this.
async fn holder(learned: Learned) -> String {
    holder_with(learned, None).await
}

async fn holder_with(learned: Learned, forecast: Option<Forecast>) -> String {
    let (publisher, published) = publishes(learned, forecast);
    let router = http::router(published, Arc::new(String::new), publisher.clock);
    let port = PagePort::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = port.local_addr().to_string();
    tokio::spawn(port.serve(router));
    address
}

fn held_at(name: &str, address: Option<&str>) -> Leadership {
    Leadership::Peer { name: name.to_owned(), http_address: address.map(str::to_owned) }
}

struct Follower {
    leadership: watch::Sender<Leadership>,
    taken: mpsc::Receiver<PeerLearned>,
    counters: Counters,
    stop: CancellationToken,
    /// Keeps what it publishes.
    _publisher: published::Publisher,
}

fn follower(leadership: Leadership) -> Follower {
    follower_with(leadership, Learned::default())
}

fn follower_with(leadership: Leadership, own: Learned) -> Follower {
    // Another test of this process may have installed it.
    drop(rustls::crypto::ring::default_provider().install_default());
    let (leads, who_leads) = watch::channel(leadership);
    let (learned, taken) = mpsc::channel(1);
    let (counters, stop) = (Counters::default(), CancellationToken::new());
    let (publisher, published) = publishes(own, None);
    tokio::spawn(peers::run(who_leads, published.snapshot, learned, counters.clone(), stop.clone()));
    Follower { leadership: leads, taken, counters, stop, _publisher: publisher }
}

/// What comes of one tier without a forecast.
fn small(learned: Learned) -> PeerLearned {
    PeerLearned { learned: vec![(published::tier("chat"), learned)], forecasts: Vec::new() }
}

#[tokio::test]
async fn what_the_holder_has_learned_is_taken_at_once() {
    let learned = taught();
    assert_ne!(learned, Learned::default(), "there is something to take");
    let address = holder(learned.clone()).await;
    let mut follower = follower(held_at("a", Some(&address)));
    let taken = tokio::time::timeout(SOON, follower.taken.recv()).await.unwrap();
    assert_eq!(taken, Some(small(learned)));
    follower.stop.cancel();
}

#[tokio::test]
async fn another_holder_is_asked_at_once() {
    let (first, second) = (holder(Learned::default()).await, holder(taught()).await);
    let mut follower = follower(held_at("a", Some(&first)));
    tokio::time::timeout(SOON, follower.taken.recv()).await.unwrap();
    follower.leadership.send_replace(held_at("b", Some(&second)));
    let taken = tokio::time::timeout(SOON, follower.taken.recv()).await.unwrap();
    assert_eq!(taken, Some(small(taught())));
}

#[tokio::test]
async fn a_holder_that_is_dead_or_something_else_is_counted_and_nothing_is_taken() {
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let page = axum::Router::new().fallback(|| async { "<html>hello</html>" });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, page).await });
    for address in [dead, other] {
        let mut follower = follower(held_at("a", Some(&address)));
        let failed = async {
            while follower.counters.peers().failed == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(SOON, failed).await.expect("the failure is counted");
        assert_eq!(follower.counters.peers().succeeded, 0);
        assert!(follower.taken.try_recv().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_while_the_lease_is_this_scaler_s_or_its_holder_has_no_address() {
    for leadership in [Leadership::Own, Leadership::Unknown, held_at("a", None)] {
        let mut follower = follower(leadership);
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(follower.taken.try_recv().is_err());
        assert_eq!(follower.counters.peers(), keda_vllm_scaler::telemetry::PeerReadings::default());
    }
}

#[tokio::test]
async fn the_holder_s_forecast_is_taken_by_one_who_begins_and_by_nobody_who_watched_as_long() {
    let theirs = watched(0, 50);
    let address = holder_with(theirs.learned(), theirs.forecast().cloned()).await;
    let mut beginner = follower(held_at("a", Some(&address)));
    let first = tokio::time::timeout(SOON, beginner.taken.recv()).await.unwrap();
    assert_eq!(first, Some(small(theirs.learned())));
    let second = tokio::time::timeout(SOON, beginner.taken.recv()).await.unwrap().unwrap();
    assert_eq!((second.learned.len(), second.forecasts.len()), (0, 1));
    let own = published::policy(&published::tier("chat"));
    let own = Policy { forecast: Some(ForecastPolicy::default()), ..own };
    let mut memory = Memory::default();
    assert!(memory.take_forecast(&own, second.forecasts.into_iter().next().unwrap().1));
    assert_eq!(memory.learned(), theirs.learned(), "from here on both know the same");
    assert_eq!(memory.forecast().unwrap().outlook(), theirs.forecast().unwrap().outlook());
    assert_eq!((beginner.counters.peers().succeeded, beginner.counters.peers().failed), (1, 0));

    let equal = watched(0, 49);
    let mut follower = follower_with(held_at("a", Some(&address)), equal.learned());
    let first = tokio::time::timeout(SOON, follower.taken.recv()).await.unwrap();
    assert_eq!(first, Some(small(theirs.learned())));
    let nothing = tokio::time::timeout(Duration::from_millis(300), follower.taken.recv()).await;
    assert!(nothing.is_err(), "{nothing:?}");
}

#[tokio::test]
async fn a_forecast_that_is_too_large_or_gone_is_counted_and_the_rest_is_taken() {
    let theirs = watched(0, 50);
    let reply = serde_json::json!({
        "tiers": [{"tier": published::tier("chat"), "learned": theirs.learned()}]
    });
    for body in [vec![b' '; 3 << 20], Vec::new()] {
        let reply = reply.clone();
        let router = axum::Router::new()
            .route("/v1/learned", axum::routing::get(move || async move { axum::Json(reply) }))
            .fallback(move || async move { body });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let mut follower = follower(held_at("a", Some(&address)));
        let first = tokio::time::timeout(SOON, follower.taken.recv()).await.unwrap();
        assert_eq!(first, Some(small(theirs.learned())));
        let failed = async {
            while follower.counters.peers().failed == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(SOON, failed).await.expect("the failure is counted");
        assert!(follower.taken.try_recv().is_err());
    }
}
