//! What the control loop publishes and everybody else reads: one immutable value behind a watch channel.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};

mod unreadable;

pub use unreadable::Unreadable;

use crate::decision::{Decision, Learned, Observation, Policy, TierId};
use crate::forecast::Forecast;
use crate::history::HistoryPoint;
use crate::telemetry::Asked;

/// Everything that can be answered, at one instant.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When it was published.
    pub at: DateTime<Utc>,
    /// When this process began.
    pub started_at: DateTime<Utc>,
    /// ScaledObjects that get no answer whatever is known of the load, and why.
    pub refused: Vec<RefusedAsker>,
    /// Every tier with a first decision. A tier of the file that isn't here yet is in `waiting`.
    pub tiers: BTreeMap<TierId, Arc<TierStatus>>,
    /// Tiers that are configured and have no decision yet.
    pub waiting: Vec<TierId>,
    /// The configuration that is in force.
    pub config: ConfigStatus,
    /// The store.
    pub store: StoreStatus,
    /// The recording of what was decided.
    pub record: RecordStatus,
    /// True once a valid configuration had its first round; never false again before shutdown.
    pub ready: bool,
}

/// One tier.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TierStatus {
    /// What is asked of it.
    pub policy: Arc<Policy>,
    /// What it is answered, and why.
    pub decision: Decision,
    /// What was seen.
    pub observation: Observation,
    /// The last six hours, a point a minute, oldest first.
    #[serde(skip)]
    pub recent: Arc<Vec<HistoryPoint>>,
    /// Floors open now or opening within a day.
    pub floors_ahead: Vec<FloorAhead>,
    /// Declared by a ScaledObject's metadata instead of the file.
    pub declared_by_metadata: bool,
    /// Unknown metadata keys and the like.
    pub warnings: Vec<String>,
    /// Who asked about it, and when; noted by the servers while the snapshot stands.
    pub asked: Asked,
    /// A ScaledObject should ask about it, and has not for minutes; the warnings say which.
    pub unasked: bool,
    /// Minutes of demand history in the store.
    pub history_minutes: u64,
    /// What the tier has learned, at most a minute old: for peers, by `GET /v1/learned`.
    #[serde(skip)]
    pub learned: Arc<Learned>,
    /// Its forecast, as old: for peers, by `GET /v1/learned/{namespace}/{name}/forecast`.
    #[serde(skip)]
    pub forecast: Option<Arc<Forecast>>,
}

/// A ScaledObject that is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedAsker {
    /// `namespace/name`.
    pub scaled_object: String,
    /// What KEDA is told.
    pub why: String,
}

/// A window of a floor.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FloorAhead {
    /// The floor's name.
    pub name: String,
    /// Promised replicas.
    pub replicas: u32,
    /// The window's own: people say its times in it.
    pub timezone: chrono_tz::Tz,
    /// When the window opens; in the past for an open one.
    pub opens_at: DateTime<Utc>,
    /// When the answer rises for it: one lead earlier.
    pub answered_from: DateTime<Utc>,
    /// When it closes, where it ever does.
    pub closes_at: Option<DateTime<Utc>>,
}

/// The configuration in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigStatus {
    /// The file.
    pub file: String,
    /// When it was taken.
    pub loaded_at: Option<DateTime<Utc>>,
    /// Why a newer file was refused, every problem; the one before it stays in force.
    pub rejected: Option<String>,
    /// What is legal but wrong.
    pub warnings: Vec<String>,
    /// ScaledObjects may declare tiers by their metadata.
    pub allow_metadata_tiers: bool,
}

/// The store.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreStatus {
    /// Where it is; None without one.
    pub path: Option<String>,
    /// Why it is not used, or what was lost; None while all is well.
    pub alarm: Option<String>,
    /// Its size.
    pub size_bytes: u64,
}

/// The recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordStatus {
    /// Where it is; None while nothing is recorded.
    pub path: Option<String>,
    /// Why decisions are not recorded; None while all is well.
    pub alarm: Option<String>,
    /// Its size.
    pub size_bytes: u64,
    /// Decisions that could not be recorded, since recording was switched on.
    pub lost: u64,
}

/// A ScaledObject's metadata that declares a tier, sent to the control loop, which decides it at once.
#[derive(Debug)]
pub struct Declare {
    /// The tier that was declared.
    pub policy: Policy,
    /// Told on the page and by `explain`.
    pub warnings: Vec<String>,
    /// Answered when a snapshot with the tier has been published.
    pub done: oneshot::Sender<()>,
}

/// The name of a declared tier whose own name is in use by another declaration: two triggers of one ScaledObject that
/// declare different things, or one that was edited a moment ago.
#[must_use]
pub fn second_name(policy: &Policy) -> TierId {
    let mut hasher = DefaultHasher::new();
    // Equal terms are written alike; the tier's own name is part of them, so no two tiers share a second name.
    format!("{policy:?}").hash(&mut hasher);
    TierId::new(&policy.tier.namespace, format!("{}~{:08x}", policy.tier.name, hasher.finish() as u32))
}

/// What the servers hold of the control loop.
#[derive(Clone, Debug)]
pub struct Published {
    /// The newest snapshot.
    pub snapshot: watch::Receiver<Arc<Snapshot>>,
    /// Where declarations go.
    pub declare: mpsc::Sender<Declare>,
}

impl Published {
    /// The newest snapshot. Cheap; never held over an await.
    #[must_use]
    pub fn now(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.borrow())
    }
}
