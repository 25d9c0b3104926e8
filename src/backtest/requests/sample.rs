//! What a scrape of a simulated replica gives. Pure.
//!
//! Two ways to the same [`EnginePage`]: through the text of its `/metrics` page and the server's own reader, and straight
//! from the engine's numbers, which is a hundred times cheaper. A test holds them equal.

use chrono::{DateTime, Utc};

use crate::aggregate::{FailureKind, PageFailure};
use crate::engines::{Dialect, EnginePage, EngineSample, Histogram, read_page};
use crate::simulate::distribution::Distribution;
use crate::simulate::page::CONTENT_TYPE;
use crate::simulate::profile::BLOCK_TOKENS;
use crate::simulate::replica::{Life, Replica};

/// The unit of a distribution.
#[derive(Clone, Copy)]
enum Unit {
    Tokens,
    Picoseconds,
}

/// A scrape through the text of the page.
///
/// # Errors
/// What a scraper would tell of a replica without a page.
pub fn by_page(replica: &Replica, model: &str, begins: DateTime<Utc>) -> Result<EnginePage, PageFailure> {
    let page = replica.page(model, begins).ok_or_else(|| nobody_listens(replica))?;
    read_page(page.as_bytes(), Some(CONTENT_TYPE), Some(model))
        .map_err(|error| PageFailure { kind: FailureKind::BadPage, message: error.to_string() })
}

/// A scrape without the text.
///
/// # Errors
/// What a scraper would tell of a replica without a page.
pub fn direct(replica: &Replica, model: &str, begins: DateTime<Utc>) -> Result<EnginePage, PageFailure> {
    let engine = replica.engine().ok_or_else(|| nobody_listens(replica))?;
    let metrics = engine.metrics();
    let usable = f64::from(engine.settings().usable_blocks().max(1));
    let waiting = f64::from(metrics.gauges.waiting);
    let count = |value: u64| Some(value as f64);
    let tokens = |distribution: &Distribution| Some(histogram(distribution, Unit::Tokens));
    let seconds = |distribution: &Distribution| Some(histogram(distribution, Unit::Picoseconds));
    let process_start =
        replica.process_start().map(|moment| begins.timestamp_millis() as f64 / 1000.0 + moment.seconds());
    Ok(EnginePage {
        dialect: Dialect::VllmV1,
        model: Some(model.to_owned()),
        process_start_seconds: process_start,
        engines: vec![EngineSample {
            engine: "0".to_owned(),
            running: Some(f64::from(metrics.gauges.running)),
            waiting: Some(waiting),
            waiting_for_capacity: Some(waiting),
            waiting_deferred: Some(0.0),
            kv_usage: Some(f64::from(metrics.gauges.used_blocks) / usable),
            prompt_tokens_total: count(metrics.prompt_tokens),
            computed_prompt_tokens_total: count(metrics.prompt_tokens - metrics.cached_prompt_tokens),
            generation_tokens_total: count(metrics.generation_tokens),
            preemptions_total: count(metrics.preemptions),
            finished_total: count(metrics.finished),
            time_to_first_token: seconds(&metrics.time_to_first_token),
            inter_token: seconds(&metrics.inter_token),
            queue_time: seconds(&metrics.queue_time),
            request_prompt_tokens: tokens(&metrics.request_prompt_tokens),
            request_generation_tokens: tokens(&metrics.request_generation_tokens),
            iteration_tokens: tokens(&metrics.iteration_tokens),
        }],
        kv_tokens_per_engine: Some(f64::from(engine.settings().kv_blocks * BLOCK_TOKENS)),
        awake: Some(true),
        rejected_total: count(metrics.refused),
        speculative: false,
        missing: Vec::new(),
    })
}

fn nobody_listens(replica: &Replica) -> PageFailure {
    let kind = match replica.life() {
        Life::Pending { .. } => FailureKind::NoAddress,
        _ => FailureKind::Refused,
    };
    PageFailure { kind, message: String::new() }
}

fn histogram(distribution: &Distribution, unit: Unit) -> Histogram {
    let shown = |value: f64| match unit {
        Unit::Tokens => value,
        Unit::Picoseconds => value / 1e12,
    };
    let (bounds, cumulative) =
        distribution.cumulative().map(|(bound, count)| (shown(bound as f64), count as f64)).unzip();
    let (count, sum) = (distribution.count() as f64, shown(distribution.sum() as f64));
    Histogram { bounds, cumulative, count, sum }
}
