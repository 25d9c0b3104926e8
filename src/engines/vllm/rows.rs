//! The rows of a page, gathered per engine in one pass.

use crate::engines::PageError;
use crate::exposition::{Event, Sample, ScanError, Scanner, line_number, unescape};

use super::cache::CacheRows;
use super::histogram::HistogramRows;
use super::names::{FIRST_HISTOGRAM, METRICS, Metric};

/// More schedulers than one API server fronts (wide expert parallelism: up to a few hundred ranks): a bound on memory.
const MAX_ENGINES: usize = 1024;

/// More values of one distinguishing label (`reason`, `finished_reason`) than vLLM knows: a bound on time and memory.
const MAX_REASONS: usize = 64;

/// How many models a message lists.
const MAX_MODELS: usize = 16;

/// The name of the only engine of a page without the label `engine`.
const ONLY_ENGINE: &[u8] = b"0";

/// What is known of a family as a whole.
#[expect(clippy::struct_excessive_bools, reason = "four facts about a family, each told by another line")]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FamilyRows {
    /// Its `# TYPE` line stands.
    pub(super) typed: bool,
    /// It has a sample.
    pub(super) sampled: bool,
    /// It has a sample that belongs to an engine.
    pub(super) of_engines: bool,
    /// It has a sample without the label `model_name`: not vLLM's own (a router re-exports such names).
    pub(super) foreign: bool,
}

impl FamilyRows {
    /// The page has this family.
    pub(super) fn present(self) -> bool {
        self.typed || self.sampled
    }
}

/// The rows of one engine.
#[derive(Debug)]
pub(super) struct EngineRows<'p> {
    /// The label as written.
    name: &'p [u8],
    /// The label.
    pub(super) label: String,
    /// One value per metric that is no histogram; sums over reasons are summed up.
    pub(super) values: [Option<f64>; FIRST_HISTOGRAM],
    pub(super) waiting_deferred: Option<f64>,
    pub(super) histograms: [HistogramRows; METRICS - FIRST_HISTOGRAM],
    /// The metrics with any row of this engine, one bit each.
    touched: u32,
    finished_reasons: Vec<&'p [u8]>,
}

impl<'p> EngineRows<'p> {
    fn new(name: &'p [u8], label: String) -> Self {
        Self {
            name,
            label,
            values: [None; FIRST_HISTOGRAM],
            waiting_deferred: None,
            histograms: std::array::from_fn(|_| HistogramRows::default()),
            touched: 0,
            finished_reasons: Vec::new(),
        }
    }

    pub(super) fn value(&self, metric: Metric) -> Option<f64> {
        self.values[metric as usize]
    }

    /// None where the page doesn't tell.
    pub(super) fn awake(&self) -> Option<bool> {
        self.value(Metric::SleepState).map(|awake| awake > 0.0)
    }

    /// The Rust front end always has these counters; they move only with speculative decoding.
    pub(super) fn speculates(&self) -> bool {
        [Metric::SpeculativeDrafts, Metric::SpeculativeDraftTokens]
            .iter()
            .any(|metric| self.value(*metric).is_some_and(|drafts| drafts > 0.0))
    }

    pub(super) fn has_rows_of(&self, metric: Metric) -> bool {
        self.touched & (1 << metric as u32) != 0
    }
}

/// Everything wanted on a page.
#[derive(Debug)]
pub(super) struct Rows<'p> {
    page: &'p [u8],
    asked_model: Option<&'p str>,
    /// Every `model_name`, as written, in the order of the page.
    pub(super) models: Vec<&'p [u8]>,
    pub(super) engines: Vec<EngineRows<'p>>,
    pub(super) families: [FamilyRows; METRICS],
    pub(super) cache: CacheRows<'p>,
    pub(super) rejected: Option<f64>,
    rejected_reasons: Vec<&'p [u8]>,
    /// `process_start_time_seconds`; NaN where several processes contradict each other.
    pub(super) process_start: Option<f64>,
    pub(super) has_engine_labels: bool,
    /// Where the page ended, if in a wanted family.
    pub(super) last_family: Option<Metric>,
    pub(super) openmetrics_names: bool,
    newest_engine: usize,
}

impl<'p> Rows<'p> {
    /// Gathers the rows of one page; only those of one model where one is asked for.
    pub(super) fn gather(
        page: &'p [u8],
        mut scanner: Scanner<'p, '_>,
        asked_model: Option<&'p str>,
    ) -> Result<Self, PageError> {
        let mut rows = Self {
            page,
            asked_model,
            models: Vec::new(),
            engines: Vec::new(),
            families: [FamilyRows::default(); METRICS],
            cache: CacheRows::default(),
            rejected: None,
            rejected_reasons: Vec::new(),
            process_start: None,
            has_engine_labels: false,
            last_family: None,
            openmetrics_names: false,
            newest_engine: 0,
        };
        while let Some(event) = scanner.next_event()? {
            match event {
                Event::Type { family } => rows.families[family].typed = true,
                Event::Sample(sample) => rows.add(&sample, &scanner)?,
            }
        }
        rows.last_family = scanner.last_family().map(Metric::at);
        rows.openmetrics_names = scanner.saw_openmetrics_names();
        Ok(rows)
    }

    fn add(&mut self, sample: &Sample<'p>, scanner: &Scanner<'p, '_>) -> Result<(), PageError> {
        let metric = Metric::at(sample.family);
        self.families[sample.family].sampled = true;
        match metric {
            Metric::ProcessStart => return self.add_process_start(sample),
            Metric::CacheConfig => return self.cache.add(self.page, sample, scanner),
            _ => {}
        }
        let Some(model) = scanner.label("model_name") else {
            self.families[sample.family].foreign = true;
            return Ok(());
        };
        if !self.takes(model, sample)? {
            return Ok(());
        }
        if metric == Metric::Rejected {
            return self.add_rejected(sample, scanner);
        }
        self.families[sample.family].of_engines = true;
        let label = scanner.label("engine");
        self.has_engine_labels |= label.is_some();
        let page = self.page;
        let engine = self.engine(label.unwrap_or(ONLY_ENGINE), sample)?;
        engine.touched |= 1 << metric as u32;
        if let Some(place) = sample.family.checked_sub(FIRST_HISTOGRAM) {
            return engine.histograms[place].add(page, metric.name(), sample, scanner.label("le"));
        }
        let value = match metric {
            Metric::KvUsage | Metric::KvUsageOld => share_of(metric.name(), sample)?,
            _ => count_of(metric.name(), sample)?,
        };
        let slot = match metric {
            Metric::WaitingByReason => match scanner.label("reason") {
                Some(b"capacity") => &mut engine.values[sample.family],
                Some(b"deferred") => &mut engine.waiting_deferred,
                _ => return Ok(()),
            },
            Metric::SleepState if scanner.label("sleep_state") != Some(b"awake") => return Ok(()),
            Metric::PromptTokensBySource if scanner.label("source") != Some(b"local_compute") => {
                return Ok(());
            }
            Metric::Finished => {
                // Other servers with vLLM's names (llm-d's simulator) write `finish_reason`.
                let reason = scanner.label("finished_reason").or_else(|| scanner.label("finish_reason"));
                let reason = reason.unwrap_or_default();
                note_reason(page, metric, sample, &mut engine.finished_reasons, reason)?;
                *engine.values[sample.family].get_or_insert(0.0) += value;
                return Ok(());
            }
            _ => &mut engine.values[sample.family],
        };
        if slot.replace(value).is_some() {
            return Err(duplicate(page, metric.name(), sample));
        }
        Ok(())
    }

    fn add_process_start(&mut self, sample: &Sample<'_>) -> Result<(), PageError> {
        let value = count_of(Metric::ProcessStart.name(), sample)?;
        let before = self.process_start.replace(value);
        if before.is_some_and(|before| before.to_bits() != value.to_bits()) {
            self.process_start = Some(f64::NAN);
        }
        Ok(())
    }

    fn add_rejected(&mut self, sample: &Sample<'p>, scanner: &Scanner<'p, '_>) -> Result<(), PageError> {
        let value = count_of(Metric::Rejected.name(), sample)?;
        let reason = scanner.label("reason").unwrap_or_default();
        note_reason(self.page, Metric::Rejected, sample, &mut self.rejected_reasons, reason)?;
        *self.rejected.get_or_insert(0.0) += value;
        Ok(())
    }

    /// Notes the model, and says whether its rows are wanted. Without a model asked for they are the first one's: should
    /// another turn up, the page is refused in the end.
    fn takes(&mut self, written: &'p [u8], sample: &Sample<'_>) -> Result<bool, PageError> {
        let known = self.models.contains(&written);
        if !known && unescape(written).is_none() {
            return Err(malformed(self.page, sample, "a model_name that is not UTF-8"));
        }
        let room = self.models.len() < MAX_MODELS;
        let Some(asked) = self.asked_model else {
            if !known && room {
                self.models.push(written);
            }
            return Ok(self.models.first() == Some(&written));
        };
        let taken = unescape(written).is_some_and(|model| model == asked);
        if !known && (taken || room) {
            self.models.push(written);
        }
        Ok(taken)
    }

    fn engine(&mut self, name: &'p [u8], sample: &Sample<'_>) -> Result<&mut EngineRows<'p>, PageError> {
        // Most rows follow one of the same engine.
        if self.engines.get(self.newest_engine).is_none_or(|newest| newest.name != name) {
            let known = self.engines.iter().position(|engine| engine.name == name);
            if known.is_none() && self.engines.len() == MAX_ENGINES {
                return Err(malformed(self.page, sample, "more than 1024 engines"));
            }
            self.newest_engine = known.unwrap_or(self.engines.len());
            if known.is_none() {
                let text = unescape(name)
                    .ok_or_else(|| malformed(self.page, sample, "an engine label that is not UTF-8"))?;
                self.engines.push(EngineRows::new(name, text.into_owned()));
            }
        }
        Ok(&mut self.engines[self.newest_engine])
    }
}

/// Refuses the same reason twice: a sum over it would count twice.
fn note_reason<'p>(
    page: &[u8],
    metric: Metric,
    sample: &Sample<'_>,
    known: &mut Vec<&'p [u8]>,
    reason: &'p [u8],
) -> Result<(), PageError> {
    if known.contains(&reason) {
        return Err(duplicate(page, metric.name(), sample));
    }
    if known.len() == MAX_REASONS {
        return Err(malformed(page, sample, "more than 64 reasons"));
    }
    known.push(reason);
    Ok(())
}

/// A count, a sum or a time: finite and not negative.
pub(super) fn count_of(name: &str, sample: &Sample<'_>) -> Result<f64, PageError> {
    if sample.value.is_finite() && sample.value >= 0.0 {
        // `-0` is zero.
        return Ok(sample.value.abs());
    }
    Err(impossible(name, sample))
}

/// A share, 0 to 1. vLLM's is a quotient of doubles, which may miss 1 by a rounding.
fn share_of(name: &str, sample: &Sample<'_>) -> Result<f64, PageError> {
    let share = count_of(name, sample)?;
    if share > 1.0 + 1e-6 { Err(impossible(name, sample)) } else { Ok(share.min(1.0)) }
}

fn impossible(name: &str, sample: &Sample<'_>) -> PageError {
    PageError::Impossible {
        name: name.to_owned(),
        value: String::from_utf8_lossy(sample.written).into_owned(),
    }
}

pub(super) fn duplicate(page: &[u8], name: &'static str, sample: &Sample<'_>) -> PageError {
    PageError::Duplicate { line: line_number(page, sample.offset), name }
}

pub(super) fn malformed(page: &[u8], sample: &Sample<'_>, what: &'static str) -> PageError {
    PageError::Malformed { line: line_number(page, sample.offset), what }
}

impl From<ScanError> for PageError {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::Empty => Self::Empty,
            ScanError::NotExposition(beginning) => Self::NotExposition(beginning),
            ScanError::Truncated => Self::Truncated,
            ScanError::Malformed { line, what } => Self::Malformed { line, what },
        }
    }
}
