//! Demand history and what was learned, in one embedded store that survives restarts.
//!
//! - [`MinuteAccumulator`] makes a [`HistoryPoint`] a minute of what is observed and decided. Pure.
//! - [`Store`] keeps the points and a snapshot of what was learned: one durable commit a minute for all tiers.
//! - [`HistoryHandle`] is the store on its own thread: nobody waits for a disk.
//! - [`look`] reads a store that nobody has open.
//!
//! A store that can't be used costs memory, never correctness: it goes on in memory, says so in its alarm, and takes the
//! disk up again when that works. Unknown is not-a-number, on disk as in memory.

use serde::{Deserialize, Serialize};

mod block;
mod disk;
mod folder;
mod look;
mod minute;
mod store;
mod writer;

pub use look::look;
pub use minute::MinuteAccumulator;
pub use store::{DEFAULT_RETENTION, MAX_TIERS, Store};
pub use writer::HistoryHandle;

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
