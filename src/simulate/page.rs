//! The `/metrics` page of a simulated replica: families, labels, bucket bounds, order and number format of vLLM 0.32's
//! Python front end (one engine, one API server), in Prometheus text. Pure.
//!
//! Help texts are our own words. Left out is what a simulation can't know: `python_*`, `http_*`, and of `process_*` all
//! but the start time. `tests/simulated_pages.rs` compares the page with one of a real server.

use std::fmt::Write as _;

use super::distribution::Distribution;
use super::engine_metrics::EngineMetrics;
use super::profile::{BLOCK_TOKENS, EngineSettings};

mod text;

pub use text::python_float;
use text::{Extra, PageWriter, Unit};

/// What vLLM's Python front end says of its pages.
pub const CONTENT_TYPE: &str = "text/plain; version=1.0.0; charset=utf-8";

/// What a page says besides the engine's numbers.
#[derive(Clone, Debug)]
pub struct PageIdentity<'a> {
    /// The label `model_name`.
    pub model: &'a str,
    /// When the process began, Unix seconds.
    pub process_start_seconds: f64,
    /// When the counters began, Unix seconds: after the imports and before the model was ready.
    pub created_seconds: f64,
}

/// Renders the page.
#[must_use]
pub fn render(identity: &PageIdentity<'_>, settings: &EngineSettings, metrics: &EngineMetrics) -> String {
    let mut page = PageWriter::new(identity.model, identity.created_seconds);
    page.plain_gauge(
        "process_start_time_seconds",
        "When the process began, Unix seconds.",
        identity.process_start_seconds,
    );
    for what in ["flops", "read_bytes", "write_bytes"] {
        page.counter(&format!("estimated_{what}_per_gpu"), "Estimate for utilisation; 0 unless enabled.", 0);
    }
    gauges(&mut page, settings, metrics);
    counters(&mut page, metrics);
    histograms(&mut page, metrics);
    cache_config(&mut page, settings);
    page.http_requests(metrics.finished);
    page.finish()
}

fn gauges(page: &mut PageWriter<'_>, settings: &EngineSettings, metrics: &EngineMetrics) {
    let gauges = metrics.gauges;
    let waiting = f64::from(gauges.waiting);
    page.gauge(
        "num_requests_running",
        "Requests in the running batch.",
        &[(None, f64::from(gauges.running))],
    );
    page.gauge("num_requests_waiting", "Requests that wait.", &[(None, waiting)]);
    page.gauge(
        "num_requests_waiting_by_reason",
        "Requests that wait, by reason.",
        &[(Some(Extra("reason", "capacity")), waiting), (Some(Extra("reason", "deferred")), 0.0)],
    );
    page.gauge(
        "engine_sleep_state",
        "1 for the state that the engine is in.",
        &[
            (Some(Extra("sleep_state", "awake")), 1.0),
            (Some(Extra("sleep_state", "weights_offloaded")), 0.0),
            (Some(Extra("sleep_state", "discard_all")), 0.0),
        ],
    );
    let usage = f64::from(gauges.used_blocks) / f64::from(settings.usable_blocks().max(1));
    page.gauge("kv_cache_usage_perc", "Share of the KV blocks in use, 0 to 1.", &[(None, usage)]);
}

fn counters(page: &mut PageWriter<'_>, metrics: &EngineMetrics) {
    page.counter("prefix_cache_queries", "Tokens looked up in the prefix cache.", metrics.prefix_queries);
    page.counter("prefix_cache_hits", "Tokens found in the prefix cache.", metrics.prefix_hits);
    page.counter("external_prefix_cache_queries", "Tokens looked up in another instance's cache.", 0);
    page.counter("external_prefix_cache_hits", "Tokens found in another instance's cache.", 0);
    page.counter("mm_cache_queries", "Items looked up in the multi-modal cache.", 0);
    page.counter("mm_cache_hits", "Items found in the multi-modal cache.", 0);
    page.counter("num_preemptions", "Requests preempted for want of KV blocks.", metrics.preemptions);
    page.counter("prompt_tokens", "Prompt tokens, cached ones included.", metrics.prompt_tokens);
    let cached = metrics.cached_prompt_tokens;
    page.counters(
        "prompt_tokens_by_source",
        "Prompt tokens by where their keys and values came from.",
        &[
            (Extra("source", "local_compute"), metrics.prompt_tokens - cached),
            (Extra("source", "local_cache_hit"), cached),
            (Extra("source", "external_kv_transfer"), 0),
        ],
    );
    page.counter("prompt_tokens_cached", "Prompt tokens found in a cache.", cached);
    page.counters(
        "prompt_tokens_cached_by_source",
        "Prompt tokens found in a cache, by its tier.",
        &[
            (Extra("source", "device"), cached),
            (Extra("source", "host"), 0),
            (Extra("source", "p2p"), 0),
            (Extra("source", "disk"), 0),
            (Extra("source", "external_unspecified"), 0),
        ],
    );
    page.counter("generation_tokens", "Output tokens.", metrics.generation_tokens);
    page.counters(
        "request_success",
        "Requests that ended, by reason.",
        &[
            (Extra("finished_reason", "stop"), metrics.finished),
            (Extra("finished_reason", "length"), 0),
            (Extra("finished_reason", "abort"), 0),
            (Extra("finished_reason", "error"), 0),
            (Extra("finished_reason", "repetition"), 0),
        ],
    );
    page.model_counters(
        "admission_rejections",
        "Requests refused by a queue limit.",
        &[
            (Extra("reason", "max_num_queued_reqs"), metrics.refused),
            (Extra("reason", "max_num_queued_tokens"), 0),
        ],
    );
}

fn histograms(page: &mut PageWriter<'_>, m: &EngineMetrics) {
    let families: [(&str, &str, &Distribution, Unit); 16] = [
        ("request_prompt_tokens", "Prompt tokens of a request.", &m.request_prompt_tokens, Unit::Count),
        (
            "request_generation_tokens",
            "Output tokens of a request.",
            &m.request_generation_tokens,
            Unit::Count,
        ),
        ("iteration_tokens_total", "Tokens of a scheduler step.", &m.iteration_tokens, Unit::Count),
        (
            "request_max_num_generation_tokens",
            "Largest output asked for by a request.",
            &m.request_generation_tokens,
            Unit::Count,
        ),
        ("request_params_n", "The parameter n of a request.", &m.request_params_n, Unit::Count),
        (
            "request_params_max_tokens",
            "The parameter max_tokens of a request.",
            &m.request_generation_tokens,
            Unit::Count,
        ),
        ("time_to_first_token_seconds", "Arrival to first token.", &m.time_to_first_token, Unit::Picoseconds),
        ("inter_token_latency_seconds", "Time between output tokens.", &m.inter_token, Unit::Picoseconds),
        (
            "request_time_per_output_token_seconds",
            "Mean time between output tokens of a request.",
            &m.time_per_output_token,
            Unit::Picoseconds,
        ),
        ("e2e_request_latency_seconds", "Arrival to last token.", &m.e2e, Unit::Picoseconds),
        ("request_queue_time_seconds", "Arrival to the running batch.", &m.queue_time, Unit::Picoseconds),
        (
            "request_inference_time_seconds",
            "Running batch to last token.",
            &m.inference_time,
            Unit::Picoseconds,
        ),
        ("request_prefill_time_seconds", "Running batch to first token.", &m.prefill_time, Unit::Picoseconds),
        ("request_decode_time_seconds", "First to last token.", &m.decode_time, Unit::Picoseconds),
        ("request_num_preemptions", "Preemptions of a request.", &m.request_preemptions, Unit::Count),
        (
            "request_prefill_kv_computed_tokens",
            "Prompt tokens computed for a request.",
            &m.prefill_kv_computed,
            Unit::Count,
        ),
    ];
    for (name, help, distribution, unit) in families {
        page.histogram(name, help, distribution, unit);
    }
}

/// `cache_config_info`: the fields of vLLM 0.32's `CacheConfig` as labels, in the order of their names.
fn cache_config(page: &mut PageWriter<'_>, settings: &EngineSettings) {
    let tokens = settings.kv_blocks * BLOCK_TOKENS;
    let mut max_concurrency = String::new();
    // Writing to a String can't fail.
    if write!(max_concurrency, "{:?}", f64::from(tokens) / f64::from(settings.max_model_len.max(1))).is_err()
    {
        return;
    }
    let (block, blocks, tokens) =
        (BLOCK_TOKENS.to_string(), settings.kv_blocks.to_string(), tokens.to_string());
    page.info(
        "cache_config_info",
        "How the KV cache is configured.",
        &[
            ("_block_size_resolved", "True"),
            ("block_size", &block),
            ("cache_dtype", "auto"),
            ("cache_hit_alignment_tokens", "None"),
            ("effective_attention_block_size", &block),
            ("enable_mamba_shared_prefix_checkpoint", "False"),
            ("enable_prefix_caching", "True"),
            ("engine", "0"),
            ("gpu_memory_utilization", "0.92"),
            ("hash_block_size", "None"),
            ("is_attention_free", "False"),
            ("kv_cache_dtype_skip_layers", "[]"),
            ("kv_cache_layout", "None"),
            ("kv_cache_max_concurrency", &max_concurrency),
            ("kv_cache_memory_bytes", "None"),
            ("kv_cache_size_tokens", &tokens),
            ("kv_offloading_backend", "native"),
            ("kv_offloading_size", "None"),
            ("kv_sharing_fast_prefill", "False"),
            ("mamba_block_size", "None"),
            ("mamba_cache_dtype", "auto"),
            ("mamba_cache_mode", "none"),
            ("mamba_page_size_padded", "None"),
            ("mamba_ssm_cache_dtype", "auto"),
            ("num_cpu_blocks", "None"),
            ("num_gpu_blocks", &blocks),
            ("num_gpu_blocks_override", "None"),
            ("prefix_cache_retention_interval", "0"),
            ("prefix_caching_hash_algo", "sha256"),
            ("prefix_match_unit", "None"),
            ("replayssm_buffer_len", "16"),
            ("skip_page_size_padded", "None"),
            ("sliding_window", "None"),
            ("swa_bounded_replay", "True"),
            ("use_kda_recoverssm", "False"),
            ("use_replayssm", "False"),
            ("user_specified_block_size", "False"),
        ],
    );
}
