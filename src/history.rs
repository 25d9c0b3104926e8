//! Demand history and what was learned, in one embedded store that survives restarts.

use serde::{Deserialize, Serialize};

/// One minute of one tier, in raw units. Not-a-number stands for unknown.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryPoint {
    /// Minutes since the epoch.
    pub minute: i64,
    /// Requests finished in the minute.
    pub requests: f32,
    /// Uncached input tokens in the minute.
    pub uncached_input_tokens: f32,
    /// Output tokens in the minute.
    pub output_tokens: f32,
    /// Requests refused in the minute.
    pub rejected: f32,
    /// KV tokens in use, mean.
    pub kv_tokens: f32,
    /// Requests running, mean.
    pub running: f32,
    /// Requests waiting, mean.
    pub waiting: f32,
    /// Replicas ready, mean.
    pub ready: f32,
    /// Replicas that the load of the minute needed (the demand), mean.
    pub demand: f32,
    /// Required replicas answered, largest of the minute.
    pub required: f32,
}
