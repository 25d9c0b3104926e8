//! Rounds over the replicas of one tier: one fetch a replica and interval, each result streamed as it comes.
//!
//! Invariants:
//! - A replica has at most one fetch in flight; one that hangs costs its own rounds and nobody else's.
//! - Each interval ends with exactly one [`TierEvent::RoundDone`], at the latest when the next one begins: a decision
//!   never waits for a replica.
//! - What a source says of the replicas is passed on at once. While it knows nothing, those known before are still
//!   fetched: a source that lost its sight must not blind the tier.
//! - Nothing outlives [`run`].

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::aggregate::PageFailure;
use crate::clock::Clock;
use crate::config::{ActivatorSettings, ScrapeSettings};
use crate::decision::TierId;
use crate::engines::EnginePage;
use crate::supply::Discovered;

mod activation;
mod fetching;

use activation::watch_activator;
use fetching::Fetching;

/// The share of the interval over which fetches begin. The rest is room for slow pages, so that a round ends before the
/// next one begins.
const SPREAD: f64 = 0.5;

/// One tier's rounds.
#[derive(Clone, Debug)]
pub struct RoundsConfig {
    /// Whose replicas.
    pub tier: TierId,
    /// How they are fetched.
    pub settings: ScrapeSettings,
    /// The model to read where a page has several.
    pub model: Option<String>,
    /// The gateway in front of the tier.
    pub activator: Option<ActivatorSettings>,
    /// Intervals are its time; network time-outs are real time.
    pub clock: Clock,
}

/// What the control loop hears of a tier.
#[derive(Clone, Debug, PartialEq)]
pub enum TierEvent {
    /// Who the replicas are, as of now.
    Discovered(Discovered),
    /// One replica's page, or why there is none.
    Page {
        /// [`crate::supply::Target::id`].
        target: String,
        /// When its last byte came.
        at: DateTime<Utc>,
        /// As read.
        result: Result<EnginePage, PageFailure>,
    },
    /// The activator's queue, in requests.
    Activator {
        /// When it was read.
        at: DateTime<Utc>,
        /// An error is never zero.
        result: Result<f64, String>,
    },
    /// Decide now: the round is over, or requests began to wait at the activator.
    RoundDone {
        /// When.
        at: DateTime<Utc>,
    },
}

/// Runs until `stop`, or until nobody listens to `out`.
pub async fn run(
    config: RoundsConfig,
    discovered: watch::Receiver<Discovered>,
    out: mpsc::Sender<(TierId, TierEvent)>,
    stop: CancellationToken,
) {
    let events = Events { tier: config.tier.clone(), out };
    let (page_read_at, last_page) = watch::channel(None);
    let mut fetching = Fetching::new(&config, &events, page_read_at);
    let work =
        async { tokio::try_join!(fetching.run(discovered), watch_activator(&config, &events, last_page)) };
    tokio::select! {
        () = stop.cancelled() => {}
        // Nobody listens any more, which is an end like any other.
        _closed = work => {}
    }
    fetching.stop().await;
}

/// The way to the control loop.
struct Events {
    tier: TierId,
    out: mpsc::Sender<(TierId, TierEvent)>,
}

/// The control loop is gone.
struct Closed;

impl Events {
    /// Waits while the control loop is behind: rounds are then skipped, never queued up.
    async fn send(&self, event: TierEvent) -> Result<(), Closed> {
        self.out.send((self.tier.clone(), event)).await.map_err(|_| Closed)
    }
}

/// The shortest real interval, so that no factor of the clock makes a timer of zero.
const MIN_REAL_INTERVAL: Duration = Duration::from_millis(1);
