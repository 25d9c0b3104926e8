//! Rounds of one tier, and what they tell. The clock runs 50 times as fast as life: an interval of 5 s takes 100 ms.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "shared by test files, each of which uses a part of it"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::time::Duration;

use chrono::{DateTime, Utc};
use keda_vllm_scaler::aggregate::FailureKind;
use keda_vllm_scaler::clock::Clock;
use keda_vllm_scaler::config::{ScrapeSettings, TlsSettings};
use keda_vllm_scaler::decision::TierId;
use keda_vllm_scaler::scrape::rounds::{self, RoundsConfig, TierEvent};
use keda_vllm_scaler::supply::{Discovered, Phase, Target};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fake_engine::Answer;

const FACTOR: f64 = 50.0;

pub fn config() -> RoundsConfig {
    // As `main` does it; a second test of the process finds it installed.
    let _already = rustls::crypto::ring::default_provider().install_default();
    RoundsConfig {
        tier: TierId::new("serving", "chat-h100"),
        settings: ScrapeSettings {
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_millis(500),
            stale_after: Duration::from_secs(15),
            rate_window: Duration::from_mins(1),
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

pub fn vllm_page() -> Answer {
    let packed = include_bytes!("../../benches/fixtures/vllm-0.32.txt.gz");
    let mut page = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut page).unwrap();
    Answer::page(&page)
}

pub fn target(id: &str, url: String) -> Target {
    Target {
        id: id.to_owned(),
        name: id.to_owned(),
        url: Some(url),
        phase: Phase::Listed,
        since: None,
        start: None,
    }
}

pub fn listed(targets: Vec<Target>) -> Discovered {
    Discovered::Targets { targets, authoritative: false, current: None, scale: None }
}

pub fn unknown() -> Discovered {
    Discovered::Unknown { why: "no answer in time".to_owned() }
}

pub struct Running {
    pub events: mpsc::Receiver<(TierId, TierEvent)>,
    pub discovered: watch::Sender<Discovered>,
    stop: CancellationToken,
    pub task: JoinHandle<()>,
}

impl Running {
    pub fn start(config: RoundsConfig, first: Discovered) -> Self {
        let (discovered, seen) = watch::channel(first);
        let (out, events) = mpsc::channel(64);
        let stop = CancellationToken::new();
        let task = tokio::spawn(rounds::run(config, seen, out, stop.clone()));
        Self { events, discovered, stop, task }
    }

    pub async fn next(&mut self) -> TierEvent {
        let (tier, event) =
            tokio::time::timeout(Duration::from_secs(20), self.events.recv()).await.unwrap().unwrap();
        assert_eq!(tier, TierId::new("serving", "chat-h100"));
        event
    }

    /// Everything up to and with the end of this round.
    pub async fn round(&mut self) -> Vec<TierEvent> {
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

    pub async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(5), self.task).await.unwrap().unwrap();
    }
}

/// The replicas that gave a page, and those that failed with their class.
pub fn pages(events: &[TierEvent]) -> (BTreeSet<&str>, BTreeMap<&str, FailureKind>) {
    let (mut good, mut bad) = (BTreeSet::new(), BTreeMap::new());
    for event in events {
        match event {
            TierEvent::Page { target, result: Ok(_), .. } => {
                assert!(good.insert(target.as_str()), "{target} twice");
            }
            TierEvent::Page { target, result: Err(failure), .. } => {
                bad.insert(target.as_str(), failure.kind);
            }
            _ => {}
        }
    }
    (good, bad)
}

pub async fn until(condition: impl Fn() -> bool) {
    tokio::time::timeout(Duration::from_secs(10), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .expect("the condition never holds");
}
