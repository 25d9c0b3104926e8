//! What a metrics page of an inference engine says, in one vocabulary for all engines. Pure.
//!
//! [`read_page`] turns the bytes of a page into an [`EnginePage`]. Absent is not zero: a gauge is `Some(0.0)` only where
//! the page says so, or where its `# TYPE` line stands without samples (vLLM under data parallelism before the first
//! request). A family that is missing altogether is `None`, and named in [`EnginePage::missing`].

use serde::Serialize;

use crate::quantile::Quantile;

pub mod vllm;

pub use vllm::read_page;

/// Which generation of metric names a page speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// vLLM up to 0.11.1 with the V0 engine: no `engine` label, `gpu_cache_usage_perc`.
    VllmV0,
    /// vLLM with the V1 engine behind the Python front end.
    VllmV1,
    /// vLLM's Rust front end: OpenMetrics text, no `process_*`, no `cache_config_info`.
    VllmRust,
}

/// One page of one replica. A page with several engines (data parallel ranks) has several [`EngineSample`]s.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnginePage {
    /// The generation of names.
    pub dialect: Dialect,
    /// The label `model_name`; one page with several models is an error unless one is asked for.
    pub model: Option<String>,
    /// `process_start_time_seconds`, the best mark of a restart where it exists.
    pub process_start_seconds: Option<f64>,
    /// One for each label `engine` (V0: one, named `0`), ordered by number, then by text.
    pub engines: Vec<EngineSample>,
    /// KV tokens that one engine holds: `kv_cache_size_tokens`, else `block_size * num_gpu_blocks / engines`
    /// (`num_gpu_blocks` is the sum over all engines, repeated on each engine's row).
    pub kv_tokens_per_engine: Option<f64>,
    /// False while the engine sleeps or is paused at level 0; None where the page has no `engine_sleep_state`.
    pub awake: Option<bool>,
    /// Requests refused at admission since the start (`admission_rejections_total`, vLLM 0.32 and later).
    pub rejected_total: Option<f64>,
    /// Speculative decoding is on: inter-token times don't teach the cost of a step.
    pub speculative: bool,
    /// What this page doesn't offer, with the reason: for `read`, `explain` and the log.
    pub missing: Vec<MissingMetric>,
}

/// One scheduler of vLLM. Counters are raw values since its start; rates are made in [`crate::aggregate`].
///
/// A counter is `Some(0.0)` where its `# TYPE` line stands without samples, as vLLM creates some series with the first
/// event. A histogram in that state is `None`: nothing was observed yet, and its bounds are unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineSample {
    /// The label `engine`.
    pub engine: String,
    /// Requests in the running batch.
    pub running: Option<f64>,
    /// Requests that wait, for capacity or deferred.
    pub waiting: Option<f64>,
    /// The part of `waiting` that waits for capacity, where the page tells reasons.
    pub waiting_for_capacity: Option<f64>,
    /// The part of `waiting` that is deferred (adapter budget, KV transfer, grammar), where the page tells reasons.
    pub waiting_deferred: Option<f64>,
    /// Share of the KV blocks in use, 0 to 1.
    pub kv_usage: Option<f64>,
    /// Prompt tokens, cached ones included.
    pub prompt_tokens_total: Option<f64>,
    /// Prompt tokens that were computed (`source="local_compute"`), vLLM 0.16 and later; for older pages prompt tokens
    /// less prefix cache hits, where both exist.
    pub computed_prompt_tokens_total: Option<f64>,
    /// Output tokens.
    pub generation_tokens_total: Option<f64>,
    /// Requests preempted for want of KV blocks.
    pub preemptions_total: Option<f64>,
    /// Requests finished, over all reasons.
    pub finished_total: Option<f64>,
    /// Time to first token, seconds.
    pub time_to_first_token: Option<Histogram>,
    /// Time between output tokens, seconds.
    pub inter_token: Option<Histogram>,
    /// Time from arrival to the running batch, seconds; observed only when a request finishes.
    pub queue_time: Option<Histogram>,
    /// Prompt tokens of a request.
    pub request_prompt_tokens: Option<Histogram>,
    /// Output tokens of a request.
    pub request_generation_tokens: Option<Histogram>,
    /// Tokens of a scheduler step; its count is the number of steps.
    pub iteration_tokens: Option<Histogram>,
}

/// A cumulative histogram as the page has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Histogram {
    /// Upper bounds, ascending, without `+Inf`.
    pub bounds: Vec<f64>,
    /// Observations at or below each bound, as many as `bounds`.
    pub cumulative: Vec<f64>,
    /// Observations in all.
    pub count: f64,
    /// Sum of the observed values.
    pub sum: f64,
}

impl Histogram {
    /// The mean of the observed values; None without observations.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }

    /// The value that a share `q` (0 to 1) of the observations doesn't exceed, interpolated within its bucket from zero
    /// up, the highest finite bound where it lies beyond (the rule of Prometheus' `histogram_quantile`); the first bucket
    /// and what lies beyond are told as such. None without observations or bounds.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Quantile> {
        let highest = *self.bounds.last()?;
        if !self.count.is_finite() || self.count <= 0.0 {
            return None;
        }
        let rank = q.clamp(0.0, 1.0) * self.count;
        let buckets = self.bounds.iter().zip(&self.cumulative);
        let first = *self.bounds.first()?;
        let (mut lower, mut below) = (first.min(0.0), 0.0);
        for (&upper, &cumulative) in buckets {
            if cumulative >= rank && cumulative > below {
                let value = lower + (upper - lower) * (rank - below) / (cumulative - below);
                return Some(if upper <= first {
                    Quantile::in_the_first_bucket(value, upper)
                } else {
                    Quantile::between(value)
                });
            }
            (lower, below) = (upper, cumulative);
        }
        Some(Quantile::above(highest))
    }
}

/// A metric that the page doesn't offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingMetric {
    /// The name that was looked for.
    pub name: &'static str,
    /// Why it may be missing and what that costs.
    pub why: &'static str,
}

/// Why a page can't be used. Each is one value of the label `cause` in the scaler's own metrics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// Nothing at all.
    #[error("the page is empty")]
    Empty,
    /// HTML, JSON or binary with status 200: a wrong port or a proxy's page.
    #[error("not a metrics page (it begins with {0:?}): is this the port of vLLM's API server?")]
    NotExposition(String),
    /// A line that no exposition format allows.
    #[error("line {line}: {what}")]
    Malformed {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The page ends inside a line, or an OpenMetrics page lacks its `# EOF`.
    #[error("the page is cut short")]
    Truncated,
    /// A good page without a series of vLLM's.
    #[error("no vllm: series on the page: another program's page, or vLLM runs with --disable-log-stats")]
    NoEngineSeries,
    /// More than one `model_name`, and the tier names none.
    #[error("several models on one page ({0}): name one in `model`")]
    SeveralModels(String),
    /// The tier names a model that the page doesn't have.
    #[error("model {wanted:?} is not on the page (it has {present})")]
    NoSuchModel {
        /// From the configuration.
        wanted: String,
        /// What the page has.
        present: String,
    },
    /// A series stands twice: several replicas' pages merged into one, or an unknown label tells them apart.
    #[error(
        "line {line}: {name} stands twice with the same model and engine: is this the page of one replica?"
    )]
    Duplicate {
        /// Counted from 1.
        line: usize,
        /// The family.
        name: &'static str,
    },
    /// A value that can't be: a negative count, a usage above 1, NaN where a number is needed.
    #[error("{name} has the value {value}")]
    Impossible {
        /// The series.
        name: String,
        /// As written.
        value: String,
    },
}

impl PageError {
    /// The value of the label `cause`: a fixed, short name.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::NotExposition(_) => "not_exposition",
            Self::Malformed { .. } => "malformed",
            Self::Truncated => "truncated",
            Self::NoEngineSeries => "no_engine_series",
            Self::SeveralModels(_) => "several_models",
            Self::NoSuchModel { .. } => "no_such_model",
            Self::Duplicate { .. } => "duplicate",
            Self::Impossible { .. } => "impossible",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(cumulative: [f64; 3], count: f64) -> Histogram {
        Histogram { bounds: vec![1.0, 2.0, 4.0], cumulative: cumulative.into(), count, sum: 30.0 }
    }

    #[test]
    fn a_quantile_is_interpolated_within_its_bucket() {
        let observed = histogram([10.0, 10.0, 20.0], 20.0);
        assert_eq!(observed.quantile(0.25), Some(Quantile::in_the_first_bucket(0.5, 1.0)));
        assert_eq!(observed.quantile(0.5), Some(Quantile::in_the_first_bucket(1.0, 1.0)));
        assert_eq!(observed.quantile(0.75), Some(Quantile::between(3.0)));
        assert_eq!(observed.quantile(1.0), Some(Quantile::between(4.0)));
        assert_eq!(observed.mean(), Some(1.5));
    }

    #[test]
    fn a_quantile_beyond_the_bounds_is_the_highest_bound() {
        assert_eq!(histogram([0.0, 0.0, 1.0], 20.0).quantile(0.95), Some(Quantile::above(4.0)));
    }

    #[test]
    fn without_observations_there_is_no_quantile_and_no_mean() {
        let nothing = histogram([0.0, 0.0, 0.0], 0.0);
        assert_eq!((nothing.quantile(0.5), nothing.mean()), (None, None));
        assert_eq!(Histogram { count: 3.0, ..Histogram::default() }.quantile(0.5), None);
    }
}
