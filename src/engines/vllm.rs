//! Reads a page of vLLM's, of every generation still in use. Pure.
//!
//! Rules, beside those of [`crate::engines`]:
//! - A series that stands twice is an error ([`PageError::Duplicate`]): summing would count twice, choosing would guess.
//! - A classic page may have been cut at the end of a line, and nothing on it tells. So the family that such a page ends
//!   in is taken row by row only: no zero for engines without a row, no sum over reasons, no histogram with a part
//!   missing. An engine that is known from that family alone makes the page [`PageError::Truncated`].
//! - Rows without the label `model_name` aren't an engine's: routers re-export vLLM's names with labels of their own.

use std::borrow::Cow;

use crate::exposition::{Format, Scanner, Walk, check_whole, unescape};

use super::{Dialect, EnginePage, EngineSample, Histogram, MissingMetric, PageError};

mod cache;
mod histogram;
mod names;
mod rows;

use names::{FIRST_HISTOGRAM, INCOMPLETE, MAY_BE_CUT, METRICS, Metric, NOTHING_OBSERVED, WANTED, why_absent};
use rows::{EngineRows, Rows};

/// Reads a page. `model` chooses among several models on one page by their label `model_name`.
///
/// # Errors
/// See [`PageError`].
pub fn read_page(
    page: &[u8],
    content_type: Option<&str>,
    model: Option<&str>,
) -> Result<EnginePage, PageError> {
    let format = check_whole(page, content_type)?;
    let scanner = Scanner::suitable(page, &WANTED);
    let walk = scanner.walk();
    let mut rows = Rows::gather(page, scanner, model)?;
    let lacks_load = [Metric::Running, Metric::Waiting].iter().any(|m| !rows.families[*m as usize].present());
    if walk == Walk::Families && lacks_load {
        // Before the load counts as unknown: families that don't stand under a `# TYPE` line of their own.
        rows = Rows::gather(page, Scanner::new(page, &WANTED, Walk::Lines), model)?;
    }
    if format == Format::Classic && rows.openmetrics_names {
        return Err(PageError::Truncated);
    }
    Reading { rows, format }.finish(page, model)
}

/// The rows of a page, and what may be concluded from rows that aren't there.
struct Reading<'p> {
    rows: Rows<'p>,
    format: Format,
}

impl Reading<'_> {
    fn finish(mut self, page: &[u8], asked_model: Option<&str>) -> Result<EnginePage, PageError> {
        let model = self.model(asked_model)?;
        if self.rows.engines.is_empty() {
            return Err(PageError::NoEngineSeries);
        }
        let engine_is_certain = |m: &Metric| self.rows.families[*m as usize].of_engines && self.settled(*m);
        if !all_metrics().any(|metric| engine_is_certain(&metric)) {
            return Err(PageError::Truncated);
        }
        let mut engines = Vec::with_capacity(self.rows.engines.len());
        for mut engine in std::mem::take(&mut self.rows.engines) {
            engines.push((engine.awake(), engine.speculates(), self.sample(&mut engine)?));
        }
        let awake = if engines.iter().any(|(awake, _, _)| *awake == Some(false)) {
            Some(false)
        } else {
            let all_known = engines.iter().all(|(awake, _, _)| awake.is_some());
            (all_known && self.settled(Metric::SleepState)).then_some(true)
        };
        let speculative = engines.iter().any(|(_, speculative, _)| *speculative);
        let mut engines: Vec<EngineSample> = engines.into_iter().map(|(_, _, sample)| sample).collect();
        engines.sort_by(|one, other| {
            let number = |sample: &EngineSample| sample.engine.parse::<u64>().unwrap_or(u64::MAX);
            number(one).cmp(&number(other)).then_with(|| one.engine.cmp(&other.engine))
        });
        let mut read = EnginePage {
            dialect: self.dialect(page),
            model: Some(model),
            process_start_seconds: self.rows.process_start.filter(|start| !start.is_nan()),
            kv_tokens_per_engine: self.kv_tokens_per_engine(engines.len()),
            awake,
            rejected_total: self.rejected_total(),
            speculative,
            missing: Vec::new(),
            engines,
        };
        read.missing = self.missing(&read);
        Ok(read)
    }

    fn model(&self, asked: Option<&str>) -> Result<String, PageError> {
        let mut models: Vec<String> =
            self.rows.models.iter().filter_map(|written| unescape(written).map(Cow::into_owned)).collect();
        let listed = |models: &[String]| models.join(", ");
        match (asked, models.len()) {
            (_, 0) => Err(PageError::NoEngineSeries),
            (Some(asked), _) if models.iter().any(|model| model == asked) => Ok(asked.to_owned()),
            (Some(asked), _) => {
                Err(PageError::NoSuchModel { wanted: asked.to_owned(), present: listed(&models) })
            }
            (None, 1) => Ok(models.swap_remove(0)),
            (None, _) => Err(PageError::SeveralModels(listed(&models))),
        }
    }

    /// Nothing more of this family can have been cut off.
    fn settled(&self, metric: Metric) -> bool {
        self.format == Format::OpenMetrics || self.rows.last_family != Some(metric)
    }

    /// The zero that a `# TYPE` line without rows of this engine means.
    fn zero(&self, engine: &EngineRows<'_>, metric: Metric) -> Option<f64> {
        let family = self.rows.families[metric as usize];
        let zero = family.typed && !family.foreign && !engine.has_rows_of(metric) && self.settled(metric);
        zero.then_some(0.0)
    }

    fn value(&self, engine: &EngineRows<'_>, metric: Metric) -> Option<f64> {
        engine.value(metric).or_else(|| self.zero(engine, metric))
    }

    fn sample(&self, engine: &mut EngineRows<'_>) -> Result<EngineSample, PageError> {
        let kv_usage = [Metric::KvUsage, Metric::KvUsageOld];
        let mut histograms = std::mem::take(&mut engine.histograms);
        let mut histogram = |metric: Metric| -> Result<Option<Histogram>, PageError> {
            std::mem::take(&mut histograms[metric as usize - FIRST_HISTOGRAM]).finish(metric.name())
        };
        let older_inter_token = histogram(Metric::InterTokenOld)?;
        Ok(EngineSample {
            engine: std::mem::take(&mut engine.label),
            running: self.value(engine, Metric::Running),
            waiting: self.value(engine, Metric::Waiting),
            waiting_for_capacity: self.value(engine, Metric::WaitingByReason),
            waiting_deferred: engine.waiting_deferred.or_else(|| self.zero(engine, Metric::WaitingByReason)),
            kv_usage: (kv_usage.iter().find_map(|metric| engine.value(*metric)))
                .or_else(|| kv_usage.iter().find_map(|metric| self.zero(engine, *metric))),
            prompt_tokens_total: self.value(engine, Metric::PromptTokens),
            computed_prompt_tokens_total: self.computed_prompt_tokens(engine),
            generation_tokens_total: self.value(engine, Metric::GenerationTokens),
            preemptions_total: self.value(engine, Metric::Preemptions),
            finished_total: self.value(engine, Metric::Finished).filter(|_| self.settled(Metric::Finished)),
            time_to_first_token: histogram(Metric::TimeToFirstToken)?,
            inter_token: histogram(Metric::InterToken)?.or(older_inter_token),
            queue_time: histogram(Metric::QueueTime)?,
            request_prompt_tokens: histogram(Metric::RequestPromptTokens)?,
            request_generation_tokens: histogram(Metric::RequestGenerationTokens)?,
            iteration_tokens: histogram(Metric::IterationTokens)?,
        })
    }

    fn computed_prompt_tokens(&self, engine: &EngineRows<'_>) -> Option<f64> {
        if self.rows.families[Metric::PromptTokensBySource as usize].present() {
            return self.value(engine, Metric::PromptTokensBySource);
        }
        // In every version the sources stand between prompt and generation tokens: without the latter the page may have
        // been cut before the former, and the difference would count tokens from other replicas' caches as computed.
        self.value(engine, Metric::GenerationTokens)?;
        let hits = self
            .value(engine, Metric::PrefixCacheHits)
            .or_else(|| self.value(engine, Metric::PrefixCacheHitsOld))?;
        Some((self.value(engine, Metric::PromptTokens)? - hits).max(0.0))
    }

    fn kv_tokens_per_engine(&self, engines: usize) -> Option<f64> {
        // Its rows don't name the model, so on a page of several nobody can say whose cache it is.
        let attributable = self.rows.models.len() == 1;
        // A row is whole or not there: with one for each engine nothing can have been cut off.
        let whole = self.settled(Metric::CacheConfig) || self.rows.cache.count() == engines;
        self.rows.cache.tokens_per_engine().filter(|_| attributable && whole)
    }

    fn rejected_total(&self) -> Option<f64> {
        let family = self.rows.families[Metric::Rejected as usize];
        if !self.settled(Metric::Rejected) {
            return None;
        }
        self.rows.rejected.or_else(|| (family.typed && !family.sampled).then_some(0.0))
    }

    fn dialect(&self, page: &[u8]) -> Dialect {
        let has = |metric: Metric| self.rows.families[metric as usize].present();
        // Python's OpenMetrics page writes its samples with `vllm_`; the Rust front end keeps the colon.
        let keeps_colon = || memchr::memmem::find(page, b"\nvllm:num_requests_running{").is_some();
        if self.format == Format::OpenMetrics && keeps_colon() {
            return Dialect::VllmRust;
        }
        if !self.rows.has_engine_labels && (has(Metric::KvUsageOld) || !has(Metric::KvUsage)) {
            return Dialect::VllmV0;
        }
        Dialect::VllmV1
    }

    fn missing(&self, read: &EnginePage) -> Vec<MissingMetric> {
        all_metrics()
            .filter(|metric| is_missing(*metric, read))
            .filter_map(|metric| Some(MissingMetric { name: metric.name(), why: self.why_missing(metric)? }))
            .collect()
    }

    fn why_missing(&self, metric: Metric) -> Option<&'static str> {
        let older_name = match metric {
            Metric::KvUsage => Some(Metric::KvUsageOld),
            Metric::InterToken => Some(Metric::InterTokenOld),
            _ => None,
        };
        let present = [Some(metric), older_name]
            .into_iter()
            .flatten()
            .find(|metric| self.rows.families[*metric as usize].present());
        let Some(present) = present else {
            return why_absent(metric);
        };
        let is_histogram = metric as usize >= FIRST_HISTOGRAM;
        if !self.settled(present) {
            Some(MAY_BE_CUT)
        } else if is_histogram && !self.rows.families[present as usize].sampled {
            Some(NOTHING_OBSERVED)
        } else {
            Some(INCOMPLETE)
        }
    }
}

fn all_metrics() -> impl Iterator<Item = Metric> {
    (0..METRICS).map(Metric::at)
}

/// Some engine's value of this metric, or the page's, is unknown.
fn is_missing(metric: Metric, read: &EnginePage) -> bool {
    let any = |absent: fn(&EngineSample) -> bool| read.engines.iter().any(absent);
    match metric {
        Metric::Running => any(|e| e.running.is_none()),
        Metric::Waiting => any(|e| e.waiting.is_none()),
        Metric::WaitingByReason => any(|e| e.waiting_for_capacity.is_none() || e.waiting_deferred.is_none()),
        Metric::KvUsage => any(|e| e.kv_usage.is_none()),
        Metric::SleepState => read.awake.is_none(),
        Metric::Preemptions => any(|e| e.preemptions_total.is_none()),
        Metric::PromptTokens => any(|e| e.prompt_tokens_total.is_none()),
        Metric::PromptTokensBySource => any(|e| e.computed_prompt_tokens_total.is_none()),
        Metric::GenerationTokens => any(|e| e.generation_tokens_total.is_none()),
        Metric::Finished => any(|e| e.finished_total.is_none()),
        Metric::Rejected => read.rejected_total.is_none(),
        Metric::CacheConfig => read.kv_tokens_per_engine.is_none(),
        Metric::ProcessStart => read.process_start_seconds.is_none(),
        Metric::TimeToFirstToken => any(|e| e.time_to_first_token.is_none()),
        Metric::InterToken => any(|e| e.inter_token.is_none()),
        Metric::QueueTime => any(|e| e.queue_time.is_none()),
        Metric::RequestPromptTokens => any(|e| e.request_prompt_tokens.is_none()),
        Metric::RequestGenerationTokens => any(|e| e.request_generation_tokens.is_none()),
        Metric::IterationTokens => any(|e| e.iteration_tokens.is_none()),
        Metric::KvUsageOld
        | Metric::PrefixCacheHits
        | Metric::PrefixCacheHitsOld
        | Metric::SpeculativeDrafts
        | Metric::SpeculativeDraftTokens
        | Metric::InterTokenOld => false,
    }
}

#[cfg(test)]
mod tests;
