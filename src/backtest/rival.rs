//! What a rival sees of a fleet, and what it may answer: one trait for both models of the fleet. Pure.
//!
//! A model of the fleet calls [`Rival::wish`] once a slot, in order, with the state of [`Rival::metric_age`] ago. A rival
//! keeps its own windows and its own period; between its periods it wishes nothing. What it wishes goes through the
//! actuation chain ([`crate::simulate::autoscaler`]) or, for those that write replica counts themselves, straight to the
//! fleet, bounded by the tier's `min` and `max`.
//!
//! A field is None where this model of the fleet has no such thing: a fluid has no KV cache. A rival that needs it is not
//! played there.

use std::time::Duration;

use crate::simulate::Moment;
use crate::simulate::autoscaler::{AutoscalerSettings, Signal};

/// A fleet at the end of a slot, as its metrics tell it.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// When this was so: the end of a slot.
    pub at: Moment,
    /// `spec.replicas`.
    pub spec: u32,
    /// `status.replicas`: pods that exist, but for those that go, as a ReplicaSet counts.
    pub status: u32,
    /// The replicas that serve, the oldest first, each with what its own page tells.
    pub ready: Vec<SeenReplica>,
    /// What arrived in the slot, as a router before the fleet counts it.
    pub offered: Rates,
    /// What the fleet served in the slot.
    pub served: Rates,
    /// 95th percentile of the time to first token of the last minute, seconds; told to those that go by it.
    pub first_token_p95_seconds: Option<f64>,
    /// Mean time between tokens of the last minute, seconds.
    pub inter_token_seconds: Option<f64>,
}

/// One serving replica.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SeenReplica {
    /// `vllm:num_requests_waiting`. A fluid spreads its queue evenly.
    pub waiting: f64,
    /// `vllm:num_requests_running`.
    pub running: Option<f64>,
    /// `vllm:kv_cache_usage_perc`, 0 to 1.
    pub kv_usage: Option<f64>,
    /// Tokens that the KV cache holds at most.
    pub kv_tokens: Option<f64>,
    /// Prompt tokens of its waiting requests.
    pub waiting_prompt_tokens: f64,
    /// Share of the slot in which the engine ran a step, 0 to 1. In a fluid: what it served over what it could.
    pub busy: f64,
}

/// Tokens and requests a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Requests a second.
    pub requests: f64,
    /// Prompt tokens a second.
    pub input_tokens: f64,
    /// Output tokens a second.
    pub output_tokens: f64,
    /// The same as work: replicas at full load.
    pub replicas: f64,
}

impl Seen {
    /// Waiting requests of all replicas.
    #[must_use]
    pub fn waiting(&self) -> f64 {
        self.ready.iter().map(|replica| replica.waiting).sum()
    }

    /// Requests in running batches of all replicas.
    #[must_use]
    pub fn running(&self) -> Option<f64> {
        self.ready.iter().map(|replica| replica.running).sum()
    }

    /// KV usage summed over the replicas, 1 a full one.
    #[must_use]
    pub fn kv_usage(&self) -> Option<f64> {
        self.ready.iter().map(|replica| replica.kv_usage).sum()
    }

    /// GPU utilisation summed over the replicas, 1 a busy one.
    #[must_use]
    pub fn busy(&self) -> f64 {
        self.ready.iter().map(|replica| replica.busy).sum()
    }
}

/// What a rival wants done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing new.
    Keep,
    /// Metrics of the HPA behind it, for its next sync; it takes the largest proposal. None: that metric is an error.
    Metrics(Vec<Option<Signal>>),
    /// `spec.replicas`, written past any HPA.
    Replicas(u32),
}

/// A policy from elsewhere, by its published rule.
pub trait Rival {
    /// How old the metrics are when it reads them: 15 s behind a usual Prometheus, less where it reads pages itself.
    fn metric_age(&self) -> Duration;

    /// The HPA behind it; None for those that write replica counts themselves.
    fn chain(&self, min: u32, max: u32) -> Option<AutoscalerSettings>;

    /// Does it go by [`Seen::first_token_p95_seconds`]? It isn't told to anybody else: a percentile of a minute's requests
    /// in every slot costs as much as their engines.
    fn goes_by_first_tokens(&self) -> bool {
        false
    }

    /// One slot: what it wants, from what is seen now and what it remembers.
    fn wish(&mut self, now: Moment, seen: &Seen) -> Wish;
}
