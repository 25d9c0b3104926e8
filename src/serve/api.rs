//! The JSON of the published snapshot: everything that a decision was made of, for `explain`, gateways and scripts.
//!
//! Durations carry their unit in the field's name; an unknown number is null, never 0.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::decision::{Learned, TierId};
use crate::history::HistoryPoint;
use crate::snapshot::{ConfigStatus, RecordStatus, RefusedAsker, Snapshot, StoreStatus, TierStatus};

/// `GET /v1/tiers`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TiersReply<'a> {
    /// When the snapshot was published.
    pub at: DateTime<Utc>,
    /// When the process began.
    pub started_at: DateTime<Utc>,
    /// The first round is done.
    pub ready: bool,
    /// The configuration in force, and why a newer one was refused.
    pub config: &'a ConfigStatus,
    /// The store.
    pub store: &'a StoreStatus,
    /// The recording of decisions.
    pub record: &'a RecordStatus,
    /// ScaledObjects that get no answer whatever is known of the load, and why.
    pub refused: &'a [RefusedAsker],
    /// Tiers without a decision yet.
    pub waiting: &'a [TierId],
    /// All others, by namespace and name.
    pub tiers: Vec<&'a TierStatus>,
}

impl<'a> TiersReply<'a> {
    /// All tiers of a snapshot.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot) -> Self {
        Self {
            at: snapshot.at,
            started_at: snapshot.started_at,
            ready: snapshot.ready,
            config: &snapshot.config,
            store: &snapshot.store,
            record: &snapshot.record,
            refused: &snapshot.refused,
            waiting: &snapshot.waiting,
            tiers: snapshot.tiers.values().map(AsRef::as_ref).collect(),
        }
    }
}

/// `GET /v1/tiers/{namespace}/{name}`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TierReply<'a> {
    /// When the snapshot was published.
    pub at: DateTime<Utc>,
    /// When the process began.
    pub started_at: DateTime<Utc>,
    /// The configuration in force, and why a newer one was refused.
    pub config: &'a ConfigStatus,
    /// The store.
    pub store: &'a StoreStatus,
    /// The recording of decisions.
    pub record: &'a RecordStatus,
    /// The tier: policy, decision, observation, floors ahead.
    #[serde(flatten)]
    pub status: &'a TierStatus,
    /// The last six hours.
    pub recent: Recent,
}

impl<'a> TierReply<'a> {
    /// One tier of a snapshot.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot, status: &'a TierStatus) -> Self {
        Self {
            at: snapshot.at,
            started_at: snapshot.started_at,
            config: &snapshot.config,
            store: &snapshot.store,
            record: &snapshot.record,
            status,
            recent: Recent::new(&status.recent),
        }
    }
}

/// A point a minute as one array a value, oldest first; null where the value is unknown. A minute that is missing
/// altogether has no entry in any of them.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recent {
    /// Minutes since the epoch.
    pub minutes_since_epoch: Vec<i64>,
    /// Requests finished in the minute.
    pub requests: Vec<f32>,
    /// Uncached input tokens in the minute.
    pub uncached_input_tokens: Vec<f32>,
    /// Output tokens in the minute.
    pub output_tokens: Vec<f32>,
    /// Requests refused in the minute.
    pub rejected: Vec<f32>,
    /// KV tokens in use, mean.
    pub kv_tokens: Vec<f32>,
    /// Requests running, mean.
    pub running: Vec<f32>,
    /// Requests waiting, mean.
    pub waiting: Vec<f32>,
    /// Replicas ready, mean.
    pub ready: Vec<f32>,
    /// Replicas that the load needed, mean.
    pub demand: Vec<f32>,
    /// Required replicas answered, largest of the minute.
    pub required: Vec<f32>,
}

impl Recent {
    /// Turns points into arrays.
    #[must_use]
    pub fn new(points: &[HistoryPoint]) -> Self {
        let of = |value: fn(&HistoryPoint) -> f32| points.iter().map(value).collect();
        Self {
            minutes_since_epoch: points.iter().map(|p| p.minute).collect(),
            requests: of(|p| p.requests),
            uncached_input_tokens: of(|p| p.uncached_input_tokens),
            output_tokens: of(|p| p.output_tokens),
            rejected: of(|p| p.rejected),
            kv_tokens: of(|p| p.kv_tokens),
            running: of(|p| p.running),
            waiting: of(|p| p.waiting),
            ready: of(|p| p.ready),
            demand: of(|p| p.demand),
            required: of(|p| p.required),
        }
    }
}

/// `GET /v1/learned`: what this scaler has learned, for its peers. The inner form of `learned` is this program's own.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LearnedReply<'a> {
    /// By namespace and name.
    pub tiers: Vec<LearnedTier<'a>>,
}

/// What was learned of a tier.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LearnedTier<'a> {
    /// The tier.
    pub tier: &'a TierId,
    /// At most a minute old.
    pub learned: &'a Learned,
}

impl<'a> LearnedReply<'a> {
    /// All tiers of a snapshot.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let of = |(tier, status): (&'a TierId, &'a Arc<TierStatus>)| LearnedTier {
            tier,
            learned: &status.learned,
        };
        Self { tiers: snapshot.tiers.iter().map(of).collect() }
    }
}

/// An answer that isn't data.
#[derive(Debug, Serialize)]
pub struct ErrorReply {
    /// One line.
    pub error: String,
}
