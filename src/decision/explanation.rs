//! The decision with its reasons. `explain`, the page, the API, the metrics, the log and the backtest show this struct.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::blocked::BlockedCapacity;
use super::cold_start::ColdStart;
use super::policy::{TierId, TokenRates};
use crate::units::seconds;

/// What a tier is answered, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Whose.
    pub tier: TierId,
    /// When it was made.
    pub at: DateTime<Utc>,
    /// The answer.
    pub answer: Answer,
    /// What each signal alone would need.
    pub asks: Vec<Ask>,
    /// What the blend of the asks needs now, in fractions of a replica; None when unknown.
    pub demand: Option<f64>,
    /// What is needed one lead time ahead under the declared ramp; None without one.
    pub ahead: Option<f64>,
    /// What the forecast asks for, where one is wanted and has watched for an hour.
    pub forecast: Option<super::Forecasted>,
    /// Every bound that took part, with what it would have made of the number.
    pub bounds: Vec<Bound>,
    /// The largest need, or what closed or lifted it; what is missing where there is no answer.
    pub winner: Reason,
    /// What kept the answer above what is needed, where something did.
    pub held: Option<Reason>,
    /// What one replica can serve, and how that is known.
    pub capacity: Capacity,
    /// Replicas whose load is known, of those that should serve.
    pub known: Known,
    /// The horizon that everything was sized for.
    #[serde(rename = "leadSeconds", with = "seconds")]
    pub lead: Duration,
    /// The cold start in it, and how that is known.
    pub cold_start: ColdStart,
    /// Capacity that was ordered and can't come.
    pub blocked: Vec<BlockedCapacity>,
    /// What an operator should know and the number alone doesn't say.
    pub notes: Vec<String>,
}

impl Decision {
    /// The replicas answered, where there is an answer.
    #[must_use]
    pub fn required(&self) -> Option<u32> {
        match self.answer {
            Answer::Required(n) => Some(n),
            Answer::Unknown { .. } => None,
        }
    }

    /// What set the answer: what holds it above what is needed, else the largest need.
    #[must_use]
    pub fn binding(&self) -> &Reason {
        self.held.as_ref().unwrap_or(&self.winner)
    }

    /// The answer before the HPA's dead band made more of it; None when there is no answer.
    ///
    /// It is the largest of the lower bounds, capped by the maximum: what holds and steps are measured against.
    #[must_use]
    pub fn before_dead_band(&self) -> Option<u32> {
        let answer = self.required()?;
        if !self.bounds.iter().any(|bound| bound.kind == BoundKind::DeadBand) {
            return Some(answer);
        }
        let lower = |bound: &&Bound| !matches!(bound.kind, BoundKind::DeadBand | BoundKind::Max);
        self.bounds.iter().filter(lower).map(|bound| bound.replicas).max().map(|largest| largest.min(answer))
    }
}

/// What KEDA is told. An answer of at least 1 is active, 0 is not: the two can't contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// So many replicas.
    Required(u32),
    /// Nobody knows: an error, which makes the HPA hold what it has.
    Unknown {
        /// Told to KEDA.
        why: String,
    },
}

/// The signals, in the order of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SignalKind {
    /// KV cache.
    KvCache,
    /// Offered token work.
    Tokens,
    /// Backlog.
    Waiting,
    /// Running batch.
    Batch,
    /// Queue time or time to first token.
    Latency,
}

impl SignalKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::KvCache, Self::Tokens, Self::Waiting, Self::Batch, Self::Latency];

    /// The name in the configuration, in metrics and on the page.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::KvCache => "kvCache",
            Self::Tokens => "tokens",
            Self::Waiting => "waiting",
            Self::Batch => "batch",
            Self::Latency => "latency",
        }
    }
}

/// What one signal alone would need.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ask {
    /// Which signal.
    pub signal: SignalKind,
    /// In fractions of a replica; None when the signal isn't there.
    pub replicas: Option<f64>,
    /// The same with what is unknown as full: the answer falls only as far as this allows.
    pub if_unknown_is_full: Option<f64>,
    /// Its weight in the blend.
    pub weight: f64,
    /// The signal is at its end and can't be averaged away.
    pub saturated: bool,
    /// The ask is an earlier one, kept because the signal is missing now.
    pub kept: bool,
    /// The arithmetic, or why there is none.
    pub because: String,
}

/// A bound on the answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bound {
    /// Which.
    pub kind: BoundKind,
    /// The number that it stands for.
    pub replicas: u32,
    /// In words.
    pub because: String,
}

/// What can set or bound an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum BoundKind {
    /// A signal's ask, or the blend of them.
    Demand,
    /// The declared ramp over one lead time.
    WarmPool,
    /// What was learned of the load, one lead ahead.
    Forecast,
    /// A scheduled floor.
    Floor,
    /// Replicas in use, or requests at the activator: never 0.
    InUse,
    /// `replicas.min`.
    Min,
    /// `replicas.max`.
    Max,
    /// A lower number has not been enough for long enough.
    Hold,
    /// The load spread over fewer replicas would be above the targets.
    NMinusOne,
    /// The largest step down.
    MaxStep,
    /// The scaler has just started and has not watched one hold yet.
    JustStarted,
    /// Replicas or signals whose load is unknown count as full: nothing is lowered on what nobody has seen.
    UnknownLoad,
    /// Too few replicas are known.
    TooFewKnown,
    /// The HPA's tolerance would swallow the number.
    DeadBand,
    /// No number may be answered: the HPA would make another one of it.
    Refused,
}

impl BoundKind {
    /// The name in metrics and on the page.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Demand => "demand",
            Self::WarmPool => "warmPool",
            Self::Forecast => "forecast",
            Self::Floor => "floor",
            Self::InUse => "inUse",
            Self::Min => "min",
            Self::Max => "max",
            Self::Hold => "hold",
            Self::NMinusOne => "nMinusOne",
            Self::MaxStep => "maxStep",
            Self::JustStarted => "justStarted",
            Self::UnknownLoad => "unknownLoad",
            Self::TooFewKnown => "tooFewKnown",
            Self::DeadBand => "deadBand",
            Self::Refused => "refused",
        }
    }

    /// Does it only keep an answer from falling, rather than raise it?
    #[must_use]
    pub fn holds(self) -> bool {
        matches!(
            self,
            Self::UnknownLoad
                | Self::NMinusOne
                | Self::Hold
                | Self::MaxStep
                | Self::JustStarted
                | Self::TooFewKnown
        )
    }
}

/// A kind with its words.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// Which kind.
    pub kind: BoundKind,
    /// In words, with the numbers.
    pub because: String,
}

/// What one replica can serve.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    /// The rates in use.
    pub rates: TokenRates,
    /// Where they come from: `learned`, `configured`, `profile ...`, `conservative default`.
    pub source: String,
    /// Why the fit isn't used, where it isn't.
    pub fit: String,
}

/// How much of the tier is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Known {
    /// Replicas that should serve.
    pub expected: u32,
    /// Of those, the ones with a fresh page.
    pub known: u32,
}
