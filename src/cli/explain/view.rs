//! What `explain` reads of the API's JSON. Every field that an older or newer scaler may lack has a default: the command
//! must help most on the day of an upgrade.

use chrono::{DateTime, Utc};
use serde::Deserialize;

use crate::decision::StartPath;
use crate::forecast::{BudgetUse, Frontier};
use crate::supply::Stage;
use crate::telemetry::AskedBy;

#[derive(Debug, Deserialize)]
pub(super) struct Error {
    pub(super) error: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tiers {
    pub(super) at: DateTime<Utc>,
    #[serde(default)]
    pub(super) config: Config,
    #[serde(default)]
    pub(super) store: Store,
    #[serde(default)]
    pub(super) record: Record,
    #[serde(default)]
    pub(super) refused: Vec<Refused>,
    #[serde(default)]
    pub(super) waiting: Vec<Id>,
    #[serde(default)]
    #[serde(rename = "tiers")]
    pub(super) decided: Vec<Status>,
}

impl Tiers {
    /// All tiers, with a decision or not.
    pub(super) fn ids(&self) -> impl Iterator<Item = &Id> {
        self.decided.iter().map(|status| &status.decision.tier).chain(&self.waiting)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tier {
    pub(super) at: DateTime<Utc>,
    #[serde(default)]
    pub(super) config: Config,
    #[serde(default)]
    pub(super) store: Store,
    #[serde(default)]
    pub(super) record: Record,
    #[serde(flatten)]
    pub(super) status: Status,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) policy: Policy,
    pub(super) decision: Decision,
    pub(super) observation: Observation,
    #[serde(default)]
    pub(super) floors_ahead: Vec<FloorAhead>,
    #[serde(default)]
    pub(super) declared_by_metadata: bool,
    #[serde(default)]
    pub(super) warnings: Vec<String>,
    #[serde(default)]
    pub(super) asked: Option<Vec<AskedBy>>,
    #[serde(default)]
    pub(super) history_minutes: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Refused {
    pub(super) scaled_object: String,
    pub(super) why: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Config {
    pub(super) file: String,
    pub(super) rejected: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Store {
    pub(super) alarm: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Record {
    pub(super) alarm: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Id {
    pub(super) namespace: String,
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Policy {
    pub(super) min: u32,
    pub(super) max: u32,
    #[serde(default)]
    pub(super) cold_start_seconds: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Decision {
    pub(super) tier: Id,
    pub(super) answer: Answer,
    #[serde(default)]
    pub(super) asks: Vec<Ask>,
    pub(super) demand: Option<f64>,
    pub(super) ahead: Option<f64>,
    pub(super) forecast: Option<Forecast>,
    #[serde(default)]
    pub(super) bounds: Vec<Bound>,
    pub(super) winner: Reason,
    pub(super) held: Option<Reason>,
    pub(super) capacity: Capacity,
    pub(super) known: Known,
    #[serde(default)]
    pub(super) lead_seconds: f64,
    pub(super) cold_start: Option<ColdStart>,
    #[serde(default)]
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ColdStart {
    pub(super) in_effect_seconds: f64,
    #[serde(default)]
    pub(super) because: String,
    pub(super) path: Option<StartPath>,
    #[serde(default)]
    pub(super) paths: Vec<PathStarts>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PathStarts {
    pub(super) path: StartPath,
    pub(super) starts: u32,
    pub(super) censored: u32,
    pub(super) p50_seconds: f64,
    pub(super) p90_seconds: f64,
    #[serde(default)]
    pub(super) stages: Vec<StageTime>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StageTime {
    pub(super) stage: Stage,
    pub(super) p50_seconds: f64,
    pub(super) p90_seconds: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Answer {
    Required(u32),
    Unknown { why: String },
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Forecast {
    pub(super) because: String,
    pub(super) frontier: Option<Frontier>,
    pub(super) budget: Option<BudgetUse>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ask {
    pub(super) signal: String,
    pub(super) replicas: Option<f64>,
    #[serde(default)]
    pub(super) weight: f64,
    #[serde(default)]
    pub(super) saturated: bool,
    #[serde(default)]
    pub(super) kept: bool,
    #[serde(default)]
    pub(super) because: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Bound {
    pub(super) kind: String,
    pub(super) replicas: u32,
    pub(super) because: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Reason {
    pub(super) kind: String,
    pub(super) because: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Capacity {
    pub(super) rates: Rates,
    #[serde(default)]
    pub(super) source: String,
    #[serde(default)]
    pub(super) fit: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rates {
    pub(super) input_tokens_per_second: f64,
    pub(super) output_tokens_per_second: f64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Known {
    pub(super) expected: u32,
    pub(super) known: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Observation {
    #[serde(default)]
    pub(super) replicas: Vec<Replica>,
    pub(super) replicas_unknown: Option<String>,
    pub(super) current: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Replica {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) since: Option<DateTime<Utc>>,
    pub(super) start: Option<Start>,
    pub(super) load: Option<Load>,
    pub(super) page_age_seconds: Option<f64>,
    pub(super) error: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Start {
    pub(super) stage: Option<Stage>,
    pub(super) blocked: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Load {
    pub(super) running: Option<f64>,
    pub(super) waiting: Option<f64>,
    pub(super) kv_usage: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FloorAhead {
    pub(super) name: String,
    pub(super) replicas: u32,
    #[serde(default)]
    pub(super) timezone: String,
    pub(super) opens_at: DateTime<Utc>,
    pub(super) answered_from: DateTime<Utc>,
    pub(super) closes_at: Option<DateTime<Utc>>,
}
