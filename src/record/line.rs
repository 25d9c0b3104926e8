//! The lines of a recording: JSON, one value a line. Pure.
//!
//! ```text
//! {"record":  format, version, when the file begins}
//! {"begin":   a tier's policy, and its memory before its next decision}
//! {"decided": what was seen of it, and what it was answered}
//! {"end":     why the file ends, and how many decisions are missing after it}
//! ```
//!
//! Lines of tiers are mixed as they were decided. Every line but the first has its number `n`, so that one that was
//! taken out is missed. A file without `end` is one whose process was killed.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::decision::{Memory, Observation, Policy, TierId};

/// Of the form of the lines. A file of another one is not replayed.
pub const FORMAT: u32 = 1;

/// A line that was read. The decision stays as it was written, byte for byte.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line<'a> {
    /// The first line.
    Record(Head),
    /// A tier's state from here on.
    #[serde(borrow)]
    Begin(Begin<'a>),
    /// One decision.
    #[serde(borrow)]
    Decided(Decided<'a>),
    /// The last line.
    End(End),
}

/// The first line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// [`FORMAT`].
    pub format: u32,
    /// The version of the scaler: another one may decide otherwise.
    pub version: String,
    /// When the file begins.
    pub at: DateTime<Utc>,
    /// Decisions of this process that are in no file, up to here.
    pub lost: u64,
}

/// A tier's state.
#[derive(Debug, Deserialize)]
pub struct Begin<'a> {
    /// The number of the line.
    pub n: u64,
    /// Which tier.
    pub tier: TierId,
    /// Its policy.
    pub policy: Box<Policy>,
    /// What [`Memory::to_bytes`] wrote.
    #[serde(borrow)]
    pub memory: &'a RawValue,
}

/// One decision.
#[derive(Debug, Deserialize)]
pub struct Decided<'a> {
    /// The number of the line.
    pub n: u64,
    /// Which tier.
    pub tier: TierId,
    /// The time that was passed to the decision.
    pub at: DateTime<Utc>,
    /// What was seen.
    pub observation: Box<Observation>,
    /// What was decided, as it was written.
    #[serde(borrow)]
    pub decision: &'a RawValue,
}

/// The last line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The number of the line.
    pub n: u64,
    /// Why.
    pub why: EndReason,
    /// Decisions after it that are in no file.
    pub lost: u64,
}

/// Why a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EndReason {
    /// It was large enough; another one goes on.
    Rotated,
    /// The writer didn't keep up: decisions are missing.
    Lost,
    /// The scaler stopped, or recording was switched off.
    Stopped,
}

/// A line on its way out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Written<'a> {
    Record(Head),
    Begin {
        n: u64,
        tier: &'a TierId,
        policy: &'a Policy,
        memory: Box<RawValue>,
    },
    Decided {
        n: u64,
        tier: &'a TierId,
        at: DateTime<Utc>,
        observation: &'a Observation,
        decision: Box<RawValue>,
    },
    End(End),
}

/// A memory as a part of a line.
pub(super) fn memory_text(memory: &Memory) -> serde_json::Result<Box<RawValue>> {
    let text = String::from_utf8(memory.to_bytes()).unwrap_or_default();
    RawValue::from_string(text)
}
