//! vLLM's metric names in every generation still in use, and what their absence means.
//!
//! Source: the metric definitions of vLLM 0.8.5 to 0.33.0 (`vllm/engine/metrics.py`, `vllm/v1/metrics/loggers.py`), and
//! pages recorded from running servers (`tests/fixtures/vllm`).

use std::sync::LazyLock;

use crate::exposition::{Family, Shape, Wanted};

/// A family that is read. Its discriminant is its place in [`WANTED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Metric {
    Running,
    Waiting,
    WaitingByReason,
    /// 0.9.2 and later.
    KvUsage,
    /// Up to 0.11; from 0.9.2 to 0.10.2 both names stand on a page with the same value.
    KvUsageOld,
    SleepState,
    Preemptions,
    PromptTokens,
    /// 0.16 and later.
    PromptTokensBySource,
    PrefixCacheHits,
    /// V1 before 0.9.2.
    PrefixCacheHitsOld,
    GenerationTokens,
    Finished,
    /// 0.32 and later; without the label `engine`.
    Rejected,
    /// V1.
    SpeculativeDrafts,
    /// V0 and V1.
    SpeculativeDraftTokens,
    /// Without the label `model_name`.
    CacheConfig,
    ProcessStart,
    TimeToFirstToken,
    /// 0.10.2 and later.
    InterToken,
    /// Up to 0.15.
    InterTokenOld,
    QueueTime,
    RequestPromptTokens,
    RequestGenerationTokens,
    /// A histogram, for all that its name ends in `_total`.
    IterationTokens,
}

use Metric as M;

/// Every metric, its name (a counter's without `_total`) and its shape, in the order of their discriminants.
const FAMILIES: [(Metric, &str, Shape); 25] = [
    (M::Running, "vllm:num_requests_running", Shape::Gauge),
    (M::Waiting, "vllm:num_requests_waiting", Shape::Gauge),
    (M::WaitingByReason, "vllm:num_requests_waiting_by_reason", Shape::Gauge),
    (M::KvUsage, "vllm:kv_cache_usage_perc", Shape::Gauge),
    (M::KvUsageOld, "vllm:gpu_cache_usage_perc", Shape::Gauge),
    (M::SleepState, "vllm:engine_sleep_state", Shape::Gauge),
    (M::Preemptions, "vllm:num_preemptions", Shape::Counter),
    (M::PromptTokens, "vllm:prompt_tokens", Shape::Counter),
    (M::PromptTokensBySource, "vllm:prompt_tokens_by_source", Shape::Counter),
    (M::PrefixCacheHits, "vllm:prefix_cache_hits", Shape::Counter),
    (M::PrefixCacheHitsOld, "vllm:gpu_prefix_cache_hits", Shape::Counter),
    (M::GenerationTokens, "vllm:generation_tokens", Shape::Counter),
    (M::Finished, "vllm:request_success", Shape::Counter),
    (M::Rejected, "vllm:admission_rejections", Shape::Counter),
    (M::SpeculativeDrafts, "vllm:spec_decode_num_drafts", Shape::Counter),
    (M::SpeculativeDraftTokens, "vllm:spec_decode_num_draft_tokens", Shape::Counter),
    (M::CacheConfig, "vllm:cache_config_info", Shape::Gauge),
    (M::ProcessStart, "process_start_time_seconds", Shape::Gauge),
    (M::TimeToFirstToken, "vllm:time_to_first_token_seconds", Shape::Histogram),
    (M::InterToken, "vllm:inter_token_latency_seconds", Shape::Histogram),
    (M::InterTokenOld, "vllm:time_per_output_token_seconds", Shape::Histogram),
    (M::QueueTime, "vllm:request_queue_time_seconds", Shape::Histogram),
    (M::RequestPromptTokens, "vllm:request_prompt_tokens", Shape::Histogram),
    (M::RequestGenerationTokens, "vllm:request_generation_tokens", Shape::Histogram),
    (M::IterationTokens, "vllm:iteration_tokens_total", Shape::Histogram),
];

/// How many metrics there are.
pub(super) const METRICS: usize = FAMILIES.len();

/// The first histogram: from it on all are.
pub(super) const FIRST_HISTOGRAM: usize = M::TimeToFirstToken as usize;

/// The set for the scanner.
pub(super) static WANTED: LazyLock<Wanted> = LazyLock::new(|| {
    let families: Vec<Family> = FAMILIES.iter().map(|(_, name, shape)| Family::new(*name, *shape)).collect();
    Wanted::new(&families)
});

impl Metric {
    /// The metric at a place of [`WANTED`].
    pub(super) fn at(place: usize) -> Self {
        FAMILIES[place].0
    }

    /// The family's name; a counter's without `_total`.
    pub(super) fn name(self) -> &'static str {
        FAMILIES[self as usize].1
    }
}

/// Why a family's values aren't taken although its `# TYPE` line stands.
pub(super) const MAY_BE_CUT: &str =
    "the page ends within this family, so it may be cut short; it counts as unknown on this page";

/// Why a histogram is unknown whose `# TYPE` line stands without samples.
pub(super) const NOTHING_OBSERVED: &str = "nothing was observed yet";

/// Why a family is unknown that has samples, but not the one that is read.
pub(super) const INCOMPLETE: &str = "its samples lack the labels, or the parts, that are read";

/// What it means that a family is not on the page; None where its absence costs nothing.
pub(super) fn why_absent(metric: Metric) -> Option<&'static str> {
    Some(match metric {
        M::Running | M::Waiting => {
            "every vLLM has it: renamed, filtered out, or not a vLLM server; the load is unknown"
        }
        M::WaitingByReason => {
            "vLLM before 0.20.2 doesn't tell capacity from deferred; all waiting requests count as waiting for capacity"
        }
        M::KvUsage => "neither this name nor gpu_cache_usage_perc (vLLM before 0.12); the KV ask is unknown",
        M::SleepState => {
            "vLLM before 0.11.2 and the Rust front end don't tell; a sleeping engine looks like an idle one"
        }
        M::Preemptions => "preemptions are unknown",
        M::PromptTokens | M::GenerationTokens => "the token ask is unknown",
        M::PromptTokensBySource => {
            "vLLM before 0.16 doesn't tell cached from computed prompt tokens; prompt tokens less prefix cache hits stand in where both exist"
        }
        M::Finished => "the rate of finished requests is unknown until the first one finishes",
        M::Rejected => {
            "vLLM before 0.32 and the Rust front end don't count refused requests; a capped queue hides demand"
        }
        M::CacheConfig => "the Rust front end doesn't tell the KV size; give it in the tier's capacity",
        M::ProcessStart => {
            "absent with several API server processes and on the Rust front end; restarts show only in falling counters"
        }
        M::TimeToFirstToken => "the time to first token is unknown",
        M::InterToken => {
            "neither this name nor time_per_output_token_seconds (vLLM before 0.15.1); inter-token times are unknown"
        }
        M::QueueTime => "the queue time is unknown",
        M::RequestPromptTokens | M::RequestGenerationTokens => "mean lengths of requests are unknown",
        M::IterationTokens => "steps aren't counted, so the cost of a step can't be learned",
        M::KvUsageOld
        | M::PrefixCacheHits
        | M::PrefixCacheHitsOld
        | M::SpeculativeDrafts
        | M::SpeculativeDraftTokens
        | M::InterTokenOld => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_discriminants() {
        for (place, (metric, _, shape)) in FAMILIES.iter().enumerate() {
            assert_eq!(*metric as usize, place);
            assert_eq!(*shape == Shape::Histogram, place >= FIRST_HISTOGRAM);
        }
    }
}
