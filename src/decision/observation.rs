//! What is known of a tier at one instant. Made by [`crate::aggregate`]; every `None` means unknown, never zero.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::quantile::Quantile;
use crate::supply::{ScaleFacts, Start};
use crate::units::seconds;

/// A tier as it is seen now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observation {
    /// The replicas of the tier; with `replicas_unknown` the ones last seen.
    pub replicas: Vec<ReplicaObservation>,
    /// Why nobody can say who the replicas are, where that is so.
    pub replicas_unknown: Option<String>,
    /// An empty `replicas` means zero replicas (a pod list), not unknown (DNS, a fixed list).
    pub authoritative: bool,
    /// The scale target's current replica count, where the source knows it.
    pub current: Option<u32>,
    /// What Kubernetes tells of the scale target; None for other sources.
    pub scale: Option<Arc<ScaleFacts>>,
    /// What the tier as a whole carries.
    pub load: TierLoad,
    /// What the activator says; None where the tier has none.
    pub activator: Option<ActivatorObservation>,
    /// What the replicas have counted since this process began to read them.
    pub totals: CountedTotals,
}

impl Observation {
    /// An observation of nothing: no source has said anything yet.
    #[must_use]
    pub fn unknown(why: impl Into<String>) -> Self {
        Self {
            replicas: Vec::new(),
            replicas_unknown: Some(why.into()),
            authoritative: false,
            current: None,
            scale: None,
            load: TierLoad::default(),
            activator: None,
            totals: CountedTotals::default(),
        }
    }

    /// What a list of pods tells: these replicas and no others. Nothing else is known.
    #[must_use]
    pub fn listed(replicas: Vec<ReplicaObservation>) -> Self {
        Self { replicas, replicas_unknown: None, authoritative: true, ..Self::unknown(String::new()) }
    }

    /// How many replicas are in this state.
    #[must_use]
    pub fn count(&self, state: ReplicaState) -> u32 {
        self.replicas.iter().filter(|r| r.state == state).count() as u32
    }
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaObservation {
    /// The source's identity of it.
    pub id: String,
    /// For people.
    pub name: String,
    /// Its place in the supply.
    pub state: ReplicaState,
    /// Since when it is in that state, as far as known.
    pub since: Option<DateTime<Utc>>,
    /// Its load; None when no fresh page is at hand.
    pub load: Option<ReplicaLoad>,
    /// Age of the newest page, if there ever was one.
    #[serde(rename = "pageAgeSeconds", with = "seconds::option")]
    pub page_age: Option<Duration>,
    /// Why there is no fresh page: the error of the last attempt.
    pub error: Option<String>,
    /// How its pod started; None where the source knows addresses only.
    pub start: Option<Start>,
}

impl ReplicaObservation {
    /// It serves, and Kubernetes doesn't call it ready any more: a probe that fails under load, a node whose lease ran out
    /// while the API server was away. Services send it nothing, so what it carries is what it has left, not what is asked.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.state == ReplicaState::Ready && self.start.as_ref().is_some_and(|start| start.ready.is_none())
    }
}

/// A replica's place in the supply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReplicaState {
    /// Serves, and its page is fresh.
    Ready,
    /// Will serve.
    Starting,
    /// Can't start.
    Blocked,
    /// A listed address at which nothing listens: not started, or gone for long. Only a pod list can tell which.
    Absent,
    /// Is leaving: its load counts, its capacity doesn't.
    Terminating,
    /// Sleeps: holds its GPU, serves nothing.
    Asleep,
    /// Should serve, and its page is missing or stale: its load is unknown.
    Silent,
}

/// What one replica carries. Rates are means over the scrape window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaLoad {
    /// Requests in the running batches, summed over engines.
    pub running: Option<f64>,
    /// Requests waiting, summed over engines.
    pub waiting: Option<f64>,
    /// The part of `waiting` that no further replica would serve sooner (adapter budget, KV transfer, grammar), where
    /// the page tells reasons.
    pub waiting_deferred: Option<f64>,
    /// Share of KV blocks in use, mean over engines.
    pub kv_usage: Option<f64>,
    /// KV tokens that the replica holds in all its engines.
    pub kv_tokens: Option<f64>,
    /// Engines of the replica: data parallel ranks. None counts as one.
    pub engines: Option<f64>,
    /// Input tokens a second, cached ones included.
    pub input_tokens_per_second: Option<f64>,
    /// Input tokens a second that had to be computed.
    pub uncached_input_tokens_per_second: Option<f64>,
    /// Output tokens a second.
    pub output_tokens_per_second: Option<f64>,
    /// Requests finished a second.
    pub requests_per_second: Option<f64>,
    /// Requests refused at admission a second.
    pub rejected_per_second: Option<f64>,
    /// Preemptions a second.
    pub preemptions_per_second: Option<f64>,
    /// Over which span these rates are means: the window of rates, or less for a process that was first read within it.
    #[serde(rename = "ratesOverSeconds", with = "seconds::option")]
    pub rates_over: Option<Duration>,
    /// What the last scrape interval teaches about the cost of a step.
    pub steps: Option<StepSample>,
}

/// One scrape interval of one replica's engines, as a row for the fit of the cost of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepSample {
    /// Scheduler steps in the interval.
    pub steps: f64,
    /// Inter-token times observed in the interval.
    pub inter_token_count: f64,
    /// Their mean, seconds: how long a step took.
    pub inter_token_mean_seconds: f64,
    /// Prompt tokens computed a step.
    pub prefill_tokens_per_step: f64,
    /// Output tokens a step: sequences that decode.
    pub decode_tokens_per_step: f64,
}

/// What the tier carries as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TierLoad {
    /// How fast the number of waiting requests grows, requests a second, those at the activator included; negative while
    /// it shrinks.
    pub waiting_growth_per_second: Option<f64>,
    /// Over which span that and the rates of the replicas are means, the longest of them.
    #[serde(rename = "ratesOverSeconds", with = "seconds::option")]
    pub rates_over: Option<Duration>,
    /// Mean input tokens of a request over the last minutes.
    pub mean_input_tokens: Option<f64>,
    /// Mean uncached input tokens of a request.
    pub mean_uncached_input_tokens: Option<f64>,
    /// Mean output tokens of a request.
    pub mean_output_tokens: Option<f64>,
    /// 95th percentile of the queue time, seconds.
    pub queue_time_p95_seconds: Option<Quantile>,
    /// Median time to first token, seconds.
    pub time_to_first_token_p50_seconds: Option<Quantile>,
    /// 95th percentile of the time to first token, seconds.
    pub time_to_first_token_p95_seconds: Option<Quantile>,
    /// Median inter-token time, seconds.
    pub inter_token_p50_seconds: Option<Quantile>,
    /// 95th percentile of the inter-token time, seconds.
    pub inter_token_p95_seconds: Option<Quantile>,
}

/// Sums of what the counters of all replicas grew by, page by page: exact, whatever the rates are averaged over. What a
/// replica counted between its last page and its end is not in them, nor what it had counted before its first page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CountedTotals {
    /// Input tokens, cached ones included.
    pub input_tokens: f64,
    /// Input tokens that had to be computed; all of them where the page doesn't tell cached ones apart.
    pub uncached_input_tokens: f64,
    /// Output tokens.
    pub output_tokens: f64,
    /// Requests finished.
    pub requests: f64,
    /// Requests refused at admission.
    pub rejected: f64,
    /// How long requests queued; None while no page tells, or where what is acceptable is no time.
    #[serde(default)]
    pub queue_times: Option<QueueTimes>,
}

/// Requests by how long they queued, counted when they leave the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueTimes {
    /// Requests whose queue time was observed.
    pub requests: f64,
    /// Of them, those that queued for longer than is acceptable; in parts where that lies inside a bucket.
    pub late: f64,
}

/// What the activator says: the one signal that exists with zero replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActivatorObservation {
    /// Requests that it holds; None when it can't be read.
    pub queued: Option<f64>,
    /// Age of that number.
    #[serde(rename = "ageSeconds", with = "seconds::option")]
    pub age: Option<Duration>,
    /// Why it can't be read.
    pub error: Option<String>,
}
