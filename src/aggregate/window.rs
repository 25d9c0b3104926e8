//! What a tier's requests looked like over the last minutes: latency histograms and mean lengths. Pure.
//!
//! Increases of all replicas are added up in bins of one wall-clock grid, so that the memory of a tier doesn't grow with
//! its replicas, and a replica that vanished leaves behind what its requests told.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::quantiles::Growth;
use super::rates::{Counter, Increase, find, increase};
use crate::decision::observation::TierLoad;
use crate::engines::EnginePage;

/// Over how long the mean lengths of requests are taken. Long enough for a few dozen requests of a quiet tier; short
/// against the hours in which a tier's mix of requests drifts.
const MEAN_WINDOW: Duration = Duration::from_mins(10);

/// Bins in a shape window. Each quantile covers between 7 and 8 of them.
const BINS_IN_SHAPE_WINDOW: u32 = 8;

/// No bin is shorter, whatever the window: the grid is in whole seconds.
const SHORTEST_BIN_SECONDS: i64 = 1;

/// Bins kept at most: [`MEAN_WINDOW`] in bins of a window of 10 s. The oldest go first.
const MAX_BINS: usize = 600;

/// The last minutes of a tier.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    window: Duration,
    bin_seconds: i64,
    bins: BTreeMap<i64, Bin>,
    /// Of the requests that replicas had finished before they were first read: what a request is like until one has
    /// been seen to finish.
    before: Option<Lengths>,
}

/// What all replicas added in one bin.
#[derive(Clone, Debug, Default)]
struct Bin {
    first_token: Growth,
    inter_token: Growth,
    queue_time: Growth,
    lengths: Lengths,
}

/// Sums for the mean lengths. A pair is summed only where a page has both of its parts.
#[derive(Clone, Copy, Debug, Default)]
struct Lengths {
    input: Mean,
    output: Mean,
    /// Input tokens a finished request: stands in where request lengths aren't on the page.
    input_by_finished: Mean,
    /// Output tokens a finished request.
    output_by_finished: Mean,
    /// Computed tokens an input token.
    computed_share: Mean,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, sum: Option<f64>, count: Option<f64>) {
        if let (Some(sum), Some(count)) = (sum, count) {
            self.sum += sum;
            self.count += count;
        }
    }

    fn merge(&mut self, other: Self) {
        self.sum += other.sum;
        self.count += other.count;
    }

    fn value(self) -> Option<f64> {
        (self.count > 0.0).then(|| (self.sum / self.count).max(0.0))
    }
}

impl Shape {
    pub(super) fn new(window: Duration) -> Self {
        let bin_seconds = (window / BINS_IN_SHAPE_WINDOW).as_secs().try_into().unwrap_or(i64::MAX);
        Self {
            window,
            bin_seconds: bin_seconds.max(SHORTEST_BIN_SECONDS),
            bins: BTreeMap::new(),
            before: Some(Lengths::default()),
        }
    }

    /// Takes the first page of a process: its histograms tell of every request since its start.
    pub(super) fn begin(&mut self, page: &EnginePage) {
        if let Some(before) = &mut self.before {
            let nothing = EnginePage { engines: Vec::new(), rejected_total: None, ..page.clone() };
            before.add(&increase(&nothing, page, true));
        }
    }

    /// Adds what the page `now`, read at `at`, counts beyond `before`.
    pub(super) fn add(
        &mut self,
        at: DateTime<Utc>,
        before: &EnginePage,
        now: &EnginePage,
        increase: &Increase,
        absent_was_zero: bool,
    ) {
        let bin = self.bins.entry(at.timestamp().div_euclid(self.bin_seconds)).or_default();
        for engine in &now.engines {
            let was = find(before, &engine.engine);
            for (growth, before, now) in [
                (&mut bin.first_token, was.map(|was| &was.time_to_first_token), &engine.time_to_first_token),
                (&mut bin.inter_token, was.map(|was| &was.inter_token), &engine.inter_token),
                (&mut bin.queue_time, was.map(|was| &was.queue_time), &engine.queue_time),
            ] {
                let before = before.and_then(Option::as_ref);
                if let Some(now) = now
                    && (before.is_some() || absent_was_zero)
                {
                    growth.add(before, now);
                }
            }
        }
        bin.lengths.add(increase);
        if !bin.lengths.is_empty() {
            self.before = None;
        }
        while self.bins.len() > MAX_BINS {
            self.bins.pop_first();
        }
    }

    /// Forgets what is older than any window, and what lies ahead: the clock was set back.
    pub(super) fn expire(&mut self, now: DateTime<Utc>) {
        let newest = self.bin_of(now, Duration::ZERO);
        let oldest = self.bin_of(now, MEAN_WINDOW.max(self.window));
        self.bins.retain(|bin, _| (oldest..=newest).contains(bin));
    }

    /// Writes the quantiles over the shape window and the mean lengths into `load`.
    pub(super) fn describe(&self, now: DateTime<Utc>, load: &mut TierLoad) {
        let opens = self.bin_of(now, self.window) + 1;
        let (mut first_token, mut inter_token, mut queue_time) =
            (Growth::default(), Growth::default(), Growth::default());
        for bin in self.bins.range(opens..).map(|(_, bin)| bin) {
            first_token.merge(&bin.first_token);
            inter_token.merge(&bin.inter_token);
            queue_time.merge(&bin.queue_time);
        }
        load.queue_time_p95_seconds = queue_time.quantile(0.95);
        load.time_to_first_token_p50_seconds = first_token.quantile(0.5);
        load.time_to_first_token_p95_seconds = first_token.quantile(0.95);
        load.inter_token_p50_seconds = inter_token.quantile(0.5);
        load.inter_token_p95_seconds = inter_token.quantile(0.95);

        let mut lengths = Lengths::default();
        for bin in self.bins.range(self.bin_of(now, MEAN_WINDOW) + 1..).map(|(_, bin)| bin) {
            lengths.merge(bin.lengths);
        }
        if let Some(before) = self.before {
            lengths = before;
        }
        load.mean_input_tokens = lengths.input.value().or_else(|| lengths.input_by_finished.value());
        load.mean_output_tokens = lengths.output.value().or_else(|| lengths.output_by_finished.value());
        let computed_share = lengths.computed_share.value().map(|share| share.min(1.0));
        load.mean_uncached_input_tokens =
            load.mean_input_tokens.zip(computed_share).map(|(tokens, share)| tokens * share);
    }

    fn bin_of(&self, now: DateTime<Utc>, ago: Duration) -> i64 {
        crate::units::earlier(now, ago).timestamp().div_euclid(self.bin_seconds)
    }
}

impl Lengths {
    /// No request was seen to finish.
    fn is_empty(&self) -> bool {
        [self.input, self.output, self.input_by_finished, self.output_by_finished]
            .iter()
            .all(|mean| mean.count <= 0.0)
    }

    fn add(&mut self, increase: &Increase) {
        let finished = increase.of(Counter::Finished).or(increase.of(Counter::Measured));
        let (input, output) = (increase.of(Counter::Input), increase.of(Counter::Output));
        if let Some(lengths) = increase.request_input {
            self.input.add(Some(lengths.sum), Some(lengths.count));
        } else {
            self.input_by_finished.add(input, finished);
        }
        if let Some(lengths) = increase.request_output {
            self.output.add(Some(lengths.sum), Some(lengths.count));
        } else {
            self.output_by_finished.add(output, finished);
        }
        self.computed_share.add(increase.of(Counter::Computed), input);
    }

    fn merge(&mut self, other: Self) {
        self.input.merge(other.input);
        self.output.merge(other.output);
        self.input_by_finished.merge(other.input_by_finished);
        self.output_by_finished.merge(other.output_by_finished);
        self.computed_share.merge(other.computed_share);
    }
}
