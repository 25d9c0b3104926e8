//! What one scaler has learned gets to another, over a real socket.

#![allow(clippy::unwrap_used, reason = "what can't be set up fails the test")]

use std::sync::Arc;
use std::time::Duration;

use keda_vllm_scaler::control_loop::PeerLearned;
use keda_vllm_scaler::decision::{Answer, Learned, Memory, Observation};
use keda_vllm_scaler::peers;
use keda_vllm_scaler::serve::http::{self, PagePort};
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

/// A scaler's HTTP port, with one tier that has learned this.
async fn holder(learned: Learned) -> String {
    let (mut publisher, published) = published::publisher();
    let tier = published::tier("chat");
    let mut status = published::status(published::policy(&tier), Answer::Required(2), publisher.clock.now());
    status.learned = Arc::new(learned);
    publisher.publish(|snapshot| {
        snapshot.tiers.insert(tier, Arc::new(status));
    });
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
}

fn follower(leadership: Leadership) -> Follower {
    // Another test of this process may have installed it.
    drop(rustls::crypto::ring::default_provider().install_default());
    let (leads, who_leads) = watch::channel(leadership);
    let (learned, taken) = mpsc::channel(1);
    let (counters, stop) = (Counters::default(), CancellationToken::new());
    tokio::spawn(peers::run(who_leads, learned, counters.clone(), stop.clone()));
    Follower { leadership: leads, taken, counters, stop }
}

#[tokio::test]
async fn what_the_holder_has_learned_is_taken_at_once() {
    let learned = taught();
    assert_ne!(learned, Learned::default(), "there is something to take");
    let address = holder(learned.clone()).await;
    let mut follower = follower(held_at("a", Some(&address)));
    let taken = tokio::time::timeout(SOON, follower.taken.recv()).await.unwrap();
    assert_eq!(taken, Some(vec![(published::tier("chat"), learned)]));
    follower.stop.cancel();
}

#[tokio::test]
async fn another_holder_is_asked_at_once() {
    let (first, second) = (holder(Learned::default()).await, holder(taught()).await);
    let mut follower = follower(held_at("a", Some(&first)));
    tokio::time::timeout(SOON, follower.taken.recv()).await.unwrap();
    follower.leadership.send_replace(held_at("b", Some(&second)));
    let taken = tokio::time::timeout(SOON, follower.taken.recv()).await.unwrap();
    assert_eq!(taken, Some(vec![(published::tier("chat"), taught())]));
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
