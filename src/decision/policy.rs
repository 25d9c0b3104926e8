//! What an operator asks of a tier, resolved and checked. Made by [`crate::config`]; every value here is usable as it is.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::schedule::{Window, Zone};
use crate::units::seconds;

/// Names a tier: one scale target, one ScaledObject, one HPA.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TierId {
    /// The Kubernetes namespace; a ScaledObject may ask only for tiers in its own.
    pub namespace: String,
    /// Unique in the namespace.
    pub name: String,
}

impl TierId {
    /// A tier's name in a namespace.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for TierId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A tier's policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Whose policy.
    pub tier: TierId,
    /// Never fewer. 0 allows zero where an activator or an authoritative source can tell idle from unknown.
    pub min: u32,
    /// Never more.
    pub max: u32,
    /// Decision to ready: the prior until it is learned.
    #[serde(rename = "coldStartSeconds", with = "seconds")]
    pub cold_start: Duration,
    /// Learn the cold start from the pods' own times and prefer it once enough starts were seen.
    pub learn_cold_start: bool,
    /// What passes between a new number here and a new pod: age of the data, KEDA's poll or push, the HPA's sync and
    /// the steps of its scale-up rate limit. With `cold_start` it makes the [`Policy::lead`].
    #[serde(rename = "controlDelaySeconds", with = "seconds")]
    pub control_delay: Duration,
    /// How long a replica that is told to go still works.
    #[serde(rename = "drainSeconds", with = "seconds")]
    pub drain: Duration,
    /// What may queue before it counts as late.
    pub acceptable_queue: QueueAllowance,
    /// Weights and targets of the asks.
    pub signals: Signals,
    /// How the asks become one demand.
    pub combine: Combine,
    /// What a replica can serve.
    pub capacity: CapacityPolicy,
    /// Scheduled floors.
    pub floors: Vec<Floor>,
    /// The ramp that the operator declares.
    pub max_ramp: Option<Ramp>,
    /// Learns what the load will need one lead from now; None answers what is asked now.
    #[serde(default)]
    pub forecast: Option<ForecastPolicy>,
    /// How capacity is given back.
    pub scale_down: ScaleDown,
    /// How long an answer is held when too few replicas are known.
    #[serde(rename = "holdUnknownSeconds", with = "seconds")]
    pub hold_unknown: Duration,
    /// The HPA's dead band.
    pub dead_band: DeadBand,
    /// A tier without a source of load: declared by a ScaledObject's metadata. It answers its floors.
    pub floors_only: bool,
}

impl Policy {
    /// What the configuration's defaults make of a tier that says nothing but its maximum and its capacity.
    #[must_use]
    pub fn with_defaults(tier: TierId, max: u32, configured: TokenRates) -> Self {
        let (weight, target) = (1.0, 0.8);
        Self {
            tier,
            min: 1,
            max,
            cold_start: Duration::from_mins(3),
            learn_cold_start: true,
            control_delay: Duration::from_secs(25),
            drain: Duration::from_secs(30),
            acceptable_queue: QueueAllowance::Seconds(5.0),
            signals: Signals {
                kv_cache: TargetSignal { weight, target },
                tokens: TargetSignal { weight, target },
                waiting: WaitingSignal { weight, drain: Duration::from_mins(1) },
                batch: BatchSignal { weight: 0.0, inter_token_latency: None, max_running: None },
                latency: LatencySignal { weight: 0.0, queue_time_p95: None, time_to_first_token_p95: None },
            },
            combine: Combine::Max,
            capacity: CapacityPolicy {
                prior: configured,
                prior_source: "configured".to_owned(),
                learn: true,
                kv_tokens: None,
            },
            floors: Vec::new(),
            max_ramp: None,
            forecast: Some(ForecastPolicy::default()),
            scale_down: ScaleDown { hold: Hold::Auto, max_step: Step::Share(0.5) },
            hold_unknown: Duration::from_mins(10),
            dead_band: DeadBand { tolerance: 0.1, inside: InsideBand::Exceed },
            floors_only: false,
        }
    }

    /// One lead time with the configured cold start: from the load as it was measured to capacity that is ready for it.
    /// The one in effect is in [`Decision::lead`](super::Decision::lead).
    #[must_use]
    pub fn lead(&self) -> Duration {
        self.lead_with(self.cold_start)
    }

    /// One lead time with this cold start.
    #[must_use]
    pub fn lead_with(&self, cold_start: Duration) -> Duration {
        cold_start + self.control_delay
    }

    /// How long a request may queue, where that is a time.
    #[must_use]
    pub fn acceptable_queue_time(&self) -> Option<Duration> {
        match self.acceptable_queue {
            QueueAllowance::Seconds(seconds) => Duration::try_from_secs_f64(seconds).ok(),
            QueueAllowance::Requests(_) | QueueAllowance::Tokens(_) => None,
        }
    }

    /// The same policy, whatever the tiers are called and whether they have a source of load by now.
    #[must_use]
    pub fn same_terms(&self, other: &Self) -> bool {
        let Self { tier, floors_only, .. } = other;
        self == other || Self { tier: tier.clone(), floors_only: *floors_only, ..self.clone() } == *other
    }

    /// How long a lower number must have been enough before it is answered, with the configured cold start.
    #[must_use]
    pub fn hold(&self) -> Duration {
        self.hold_with(self.cold_start)
    }

    /// The same with this cold start.
    ///
    /// Auto is the longer of one lead time and drain + cold start: giving a replica back and needing it again costs both.
    #[must_use]
    pub fn hold_with(&self, cold_start: Duration) -> Duration {
        match self.scale_down.hold {
            Hold::Fixed(span) => span,
            Hold::Auto => self.lead_with(cold_start).max(self.drain + cold_start),
        }
    }
}

/// What may queue before it counts as late.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum QueueAllowance {
    /// So many seconds of the demand of now.
    Seconds(f64),
    /// So many requests.
    Requests(f64),
    /// So many tokens, input and output together.
    Tokens(f64),
}

/// Weights of the blend and targets of the signals. A weight of 0 turns a signal off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Signals {
    /// KV cache usage.
    pub kv_cache: TargetSignal,
    /// Offered token work.
    pub tokens: TargetSignal,
    /// The backlog.
    pub waiting: WaitingSignal,
    /// Size of the running batch.
    pub batch: BatchSignal,
    /// Queue time or time to first token.
    pub latency: LatencySignal,
}

/// A signal with a utilisation target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetSignal {
    /// In the blend.
    pub weight: f64,
    /// Above 0, at most 1.
    pub target: f64,
}

/// The waiting signal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingSignal {
    /// In the blend.
    pub weight: f64,
    /// In how long the backlog should be gone.
    #[serde(rename = "drainSeconds", with = "seconds")]
    pub drain: Duration,
}

/// The batch signal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchSignal {
    /// In the blend.
    pub weight: f64,
    /// The inter-token latency to keep, which bounds the batch once the cost of a step is known.
    #[serde(rename = "interTokenLatencySeconds", with = "seconds::option")]
    pub inter_token_latency: Option<Duration>,
    /// `--max-num-seqs` of the engine (vLLM doesn't export it), per replica.
    pub max_running: Option<f64>,
}

/// The latency signal: off unless a target is given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LatencySignal {
    /// In the blend.
    pub weight: f64,
    /// Target of the 95th percentile of the queue time.
    #[serde(rename = "queueTimeP95Seconds", with = "seconds::option")]
    pub queue_time_p95: Option<Duration>,
    /// Target of the 95th percentile of the time to first token.
    #[serde(rename = "timeToFirstTokenP95Seconds", with = "seconds::option")]
    pub time_to_first_token_p95: Option<Duration>,
}

/// How the asks become one demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Combine {
    /// The largest ask with a weight above 0.
    Max,
    /// The weighted mean of the present asks, never below a saturated signal's ask.
    Weighted,
}

/// What one replica can serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityPolicy {
    /// As configured, or from the table of declared hardware.
    pub prior: TokenRates,
    /// Where `prior` came from, for people: `configured`, `profile h100-8b` or `conservative default`.
    pub prior_source: String,
    /// Learn the cost of a step from inter-token times and prefer it when it is well conditioned.
    pub learn: bool,
    /// KV tokens of one replica where its page doesn't tell.
    pub kv_tokens: Option<f64>,
}

/// Tokens a second that a replica serves when it does only the one; a token costs 1 / its rate of a replica-second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenRates {
    /// Uncached input tokens.
    pub input_tokens_per_second: f64,
    /// Output tokens.
    pub output_tokens_per_second: f64,
}

/// A scheduled floor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Floor {
    /// For people: the name given, else `start`-`end` as written.
    pub name: String,
    /// When it holds.
    pub window: Window,
    /// How many replicas are promised.
    pub replicas: u32,
}

/// The steepest growth that the operator expects: the load multiplies by `factor` within `within`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ramp {
    /// Above 1.
    pub factor: f64,
    /// Above 0.
    #[serde(rename = "withinSeconds", with = "seconds")]
    pub within: Duration,
}

/// Insurance against the spread of the forecast: by a price, or so that a budget of late work is kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForecastPolicy {
    /// What a late minute is worth, in time of the whole tier: one in which more waits than is acceptable. With a budget
    /// it is what a safety of 1 stands for.
    #[serde(rename = "shortageCostSeconds", with = "seconds")]
    pub shortage_cost: Duration,
    /// Share of the work that may queue for longer than is acceptable, above 0 and at most 1; None goes by the price.
    #[serde(default)]
    pub late_budget: Option<f64>,
    /// Where the people are whose days the load follows; None is UTC.
    #[serde(default)]
    pub timezone: Option<Zone>,
}

impl Default for ForecastPolicy {
    fn default() -> Self {
        Self { shortage_cost: Duration::from_mins(30), late_budget: None, timezone: None }
    }
}

/// How capacity is given back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleDown {
    /// How long a lower number must have been enough.
    pub hold: Hold,
    /// The largest step down in one hold.
    pub max_step: Step,
}

/// See [`Policy::hold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Hold {
    /// From the lead time and the drain.
    Auto,
    /// As configured.
    #[serde(rename = "fixedSeconds")]
    Fixed(#[serde(with = "seconds")] Duration),
}

/// A step down.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// A share of the present answer, 0 to 1; at least one replica.
    Share(f64),
    /// A number of replicas, at least 1.
    Replicas(u32),
}

/// What the HPA's tolerance swallows, and what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadBand {
    /// `behavior.scaleUp.tolerance` of the HPA: 0.1 unless set.
    pub tolerance: f64,
    /// What to answer inside the band.
    pub inside: InsideBand,
}

/// What to answer when the HPA would ignore the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InsideBand {
    /// Upward the smallest number that moves the HPA: a floor is a promise.
    Exceed,
    /// The number as it is.
    Stay,
}
