//! Counters of one replica's pages made into rates. Pure.
//!
//! Two pages of one process give an increase; the first page of a process gives none. A series that an earlier page of
//! the same process didn't have was 0 then: vLLM's front ends create some series with their first request. A counter
//! that fell, another `process_start_time_seconds` or a lost engine is another process.

use std::collections::VecDeque;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::quantiles::is_sound;
use crate::decision::observation::StepSample;
use crate::engines::{EnginePage, EngineSample, Histogram};
use crate::units::{earlier, since};

/// Readings kept of a replica: a rate window of a minute at a page a second. With more pages in the window the rate is
/// the mean over the newest ones.
const MAX_READINGS: usize = 64;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    Input,
    Computed,
    Output,
    Preemptions,
    Finished,
    /// Requests whose length was observed: they finished, too. Stands in where no finished counter is on the page.
    Measured,
    Rejected,
}

const COUNTERS: usize = 7;

/// One value a counter; None where the page has none.
pub(super) type Counted = [Option<f64>; COUNTERS];

/// Count and sum of a histogram's growth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CountAndSum {
    pub(super) count: f64,
    pub(super) sum: f64,
}

/// What a page counts beyond the page before it, summed over the engines of the replica.
#[derive(Clone, Debug, Default)]
pub(super) struct Increase {
    pub(super) counted: Counted,
    pub(super) inter_token: Option<CountAndSum>,
    pub(super) request_input: Option<CountAndSum>,
    pub(super) request_output: Option<CountAndSum>,
    /// Scheduler steps.
    pub(super) steps: Option<f64>,
}

/// Tokens a second, in and out together, that no replica reaches: a hundred times what a node of eight GPUs computes (`DeepSeek`
/// published 73,700 input tokens a second for one of its own).
const MOST_TOKENS_PER_SECOND: f64 = 1e7;

impl Increase {
    /// Could one replica have done this in that time? An address behind which several processes answer in turn, without a
    /// start time on their pages, shows the difference of two lives as growth.
    pub(super) fn is_plausible(&self, seconds: f64) -> bool {
        let tokens =
            [Counter::Input, Counter::Output].iter().filter_map(|counter| self.of(*counter)).sum::<f64>();
        tokens <= MOST_TOKENS_PER_SECOND * seconds
    }

    /// Nothing that is counted is more than this. One number that no replica can have counted would be all that sums tell from
    /// then on.
    pub(super) fn is_at_most(&self, most: f64) -> bool {
        self.counted.iter().flatten().all(|counted| *counted <= most)
    }

    pub(super) fn of(&self, counter: Counter) -> Option<f64> {
        self.counted[counter as usize]
    }
}

/// The most that a replica counts of anything from one page to another, so many seconds apart. A clock that was set between
/// the two, and pages that were answered late one after the other, tell too short a time: it is no less than a second.
pub(super) fn most_in(seconds: f64) -> f64 {
    MOST_TOKENS_PER_SECOND * seconds.abs().max(1.0)
}

/// How a page follows another one of the same replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continuity {
    /// The same process went on counting.
    Same,
    /// Another process.
    Restarted,
    /// The same process as far as told, but a series is gone: what it counts when it comes back isn't since then.
    SeriesLost,
}

/// Compares a page with the one before it.
pub(super) fn continuity(before: &EnginePage, now: &EnginePage) -> Continuity {
    let another = before.process_start_seconds != now.process_start_seconds
        || before.dialect != now.dialect
        || before.model != now.model;
    if another {
        return Continuity::Restarted;
    }
    let mut lost = falls(before.rejected_total, now.rejected_total);
    for earlier in &before.engines {
        let Some(engine) = find(now, &earlier.engine) else {
            return Continuity::Restarted;
        };
        lost = lost.and(engine_continuity(earlier, engine));
    }
    match lost {
        Fall::Fell => Continuity::Restarted,
        Fall::Gone => Continuity::SeriesLost,
        Fall::None => Continuity::Same,
    }
}

/// Whether something that only grows didn't.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fall {
    None,
    Gone,
    Fell,
}

impl Fall {
    /// The worse of two: a fall proves a restart, a missing series alone doesn't.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Fell, _) | (_, Self::Fell) => Self::Fell,
            (Self::Gone, _) | (_, Self::Gone) => Self::Gone,
            _ => Self::None,
        }
    }
}

fn falls(before: Option<f64>, now: Option<f64>) -> Fall {
    match (before, now) {
        (Some(before), Some(now)) if now < before => Fall::Fell,
        (Some(_), None) => Fall::Gone,
        _ => Fall::None,
    }
}

fn engine_continuity(before: &EngineSample, now: &EngineSample) -> Fall {
    let mut fall = Fall::None;
    for (was, is) in counters(before).into_iter().zip(counters(now)) {
        fall = fall.and(falls(was, is));
    }
    // Made from two counters on older pages (input less cache hits, counted at different moments): it may dip.
    let computed = falls(before.computed_prompt_tokens_total, now.computed_prompt_tokens_total);
    if computed == Fall::Gone {
        fall = fall.and(computed);
    }
    for (was, is) in histograms(before).into_iter().zip(histograms(now)) {
        fall = fall.and(histogram_falls(was, is));
    }
    fall
}

/// Other bounds are another histogram, not another process.
fn histogram_falls(before: Option<&Histogram>, now: Option<&Histogram>) -> Fall {
    let (Some(before), Some(now)) = (before, now) else {
        return if before.is_some() { Fall::Gone } else { Fall::None };
    };
    if before.bounds != now.bounds {
        return Fall::None;
    }
    let fell = now.count < before.count
        || now.cumulative.iter().zip(&before.cumulative).any(|(now, before)| now < before);
    if fell { Fall::Fell } else { Fall::None }
}

fn counters(engine: &EngineSample) -> [Option<f64>; 4] {
    [
        engine.prompt_tokens_total,
        engine.generation_tokens_total,
        engine.preemptions_total,
        engine.finished_total,
    ]
}

fn histograms(engine: &EngineSample) -> [Option<&Histogram>; 6] {
    [
        engine.time_to_first_token.as_ref(),
        engine.inter_token.as_ref(),
        engine.queue_time.as_ref(),
        engine.request_prompt_tokens.as_ref(),
        engine.request_generation_tokens.as_ref(),
        engine.iteration_tokens.as_ref(),
    ]
}

/// The engine with this label.
pub(super) fn find<'a>(page: &'a EnginePage, engine: &str) -> Option<&'a EngineSample> {
    page.engines.iter().find(|sample| sample.engine == engine)
}

/// What `now` counts beyond `before`, two pages of one process. With `absent_was_zero`, a series that `before` lacks
/// counts from 0; else it counts from `now` on.
pub(super) fn increase(before: &EnginePage, now: &EnginePage, absent_was_zero: bool) -> Increase {
    let grown = |before: Option<f64>, now: Option<f64>| match (before, now) {
        (Some(before), Some(now)) => finite(now - before),
        (None, Some(now)) if absent_was_zero => finite(now),
        _ => None,
    };
    let growth =
        |before: Option<&Histogram>, now: Option<&Histogram>| histogram_growth(before, now, absent_was_zero);
    let nothing = EngineSample::default();
    let mut sum = Increase::default();
    sum.counted[Counter::Rejected as usize] = grown(before.rejected_total, now.rejected_total);
    for engine in &now.engines {
        let was = find(before, &engine.engine).unwrap_or(&nothing);
        let input_lengths = growth(was.request_prompt_tokens.as_ref(), engine.request_prompt_tokens.as_ref());
        for (counter, grown) in [
            (Counter::Input, grown(was.prompt_tokens_total, engine.prompt_tokens_total)),
            (Counter::Computed, grown(was.computed_prompt_tokens_total, engine.computed_prompt_tokens_total)),
            (Counter::Output, grown(was.generation_tokens_total, engine.generation_tokens_total)),
            (Counter::Preemptions, grown(was.preemptions_total, engine.preemptions_total)),
            (Counter::Finished, grown(was.finished_total, engine.finished_total)),
            (Counter::Measured, input_lengths.map(|lengths| lengths.count)),
        ] {
            let total = &mut sum.counted[counter as usize];
            *total = plus(*total, grown);
        }
        add(&mut sum.inter_token, growth(was.inter_token.as_ref(), engine.inter_token.as_ref()));
        add(&mut sum.request_input, input_lengths);
        add(
            &mut sum.request_output,
            growth(was.request_generation_tokens.as_ref(), engine.request_generation_tokens.as_ref()),
        );
        let steps = growth(was.iteration_tokens.as_ref(), engine.iteration_tokens.as_ref());
        sum.steps = plus(sum.steps, steps.map(|steps| steps.count));
    }
    sum
}

fn histogram_growth(
    before: Option<&Histogram>,
    now: Option<&Histogram>,
    absent_was_zero: bool,
) -> Option<CountAndSum> {
    let now = now.filter(|now| is_sound(now))?;
    let Some(before) = before else {
        return absent_was_zero.then_some(CountAndSum { count: now.count, sum: now.sum });
    };
    if before.bounds != now.bounds || !is_sound(before) {
        return None;
    }
    // Sums of several processes may be added in another order on each page: the last digits can fall.
    Some(CountAndSum { count: now.count - before.count, sum: (now.sum - before.sum).max(0.0) })
}

fn add(total: &mut Option<CountAndSum>, more: Option<CountAndSum>) {
    if let Some(more) = more {
        let sum = total.get_or_insert_default();
        sum.count += more.count;
        sum.sum += more.sum;
    }
}

/// A number that can be counted with; anything else is unknown.
pub(super) fn finite(number: f64) -> Option<f64> {
    number.is_finite().then_some(number)
}

/// The sum of what is there; None where nothing is.
pub(super) fn plus(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, None) => a,
        (None, b) => b,
    }
}

/// What one interval teaches about the cost of a step: the mean inter-token time against prompt tokens computed and
/// output tokens a step. None where a part is missing, nothing was observed, or the engine decodes speculatively.
pub(super) fn step_sample(before: &EnginePage, now: &EnginePage, increase: &Increase) -> Option<StepSample> {
    let usable = |page: &EnginePage| !page.speculative && page.awake != Some(false);
    if !usable(before) || !usable(now) {
        return None;
    }
    let steps = increase.steps.filter(|steps| *steps > 0.0)?;
    let inter_token = increase.inter_token.filter(|inter_token| inter_token.count > 0.0)?;
    let computed = increase.of(Counter::Computed)?.max(0.0);
    let output = increase.of(Counter::Output)?;
    Some(StepSample {
        steps,
        inter_token_count: inter_token.count,
        inter_token_mean_seconds: inter_token.sum / inter_token.count,
        prefill_tokens_per_step: computed / steps,
        decode_tokens_per_step: output / steps,
    })
}

/// What a replica counted since the first page of its process, at each of its last pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Readings {
    readings: VecDeque<Reading>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: DateTime<Utc>,
    /// Since the first page of the process.
    total: [f64; COUNTERS],
    /// The page had this counter, and it could be compared with the page before.
    present: [bool; COUNTERS],
    waiting: Option<f64>,
}

/// Means over the rate window, a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    per_second: Counted,
}

impl Rates {
    pub(super) fn of(&self, counter: Counter) -> Option<f64> {
        self.per_second[counter as usize]
    }
}

impl Readings {
    /// The first page of a process.
    pub(super) fn begin(&mut self, at: DateTime<Utc>, waiting: Option<f64>) {
        self.readings.clear();
        self.readings.push_back(Reading { at, total: [0.0; COUNTERS], present: [false; COUNTERS], waiting });
    }

    /// A further page of it.
    pub(super) fn go_on(
        &mut self,
        at: DateTime<Utc>,
        increase: &Increase,
        waiting: Option<f64>,
        window: Duration,
    ) {
        let mut total = self.readings.back().map_or([0.0; COUNTERS], |last| last.total);
        for (total, grown) in total.iter_mut().zip(increase.counted) {
            *total += grown.unwrap_or(0.0);
        }
        let present = increase.counted.map(|grown| grown.is_some());
        self.readings.push_back(Reading { at, total, present, waiting });
        let opens = earlier(at, window);
        while self.readings.len() > MAX_READINGS || self.has_two_after_the_first(opens) {
            self.readings.pop_front();
        }
    }

    /// The first reading is before the window and at least two others follow: it isn't needed for a rate any more.
    fn has_two_after_the_first(&self, opens: DateTime<Utc>) -> bool {
        self.readings.len() > 2 && self.readings.front().is_some_and(|first| first.at < opens)
    }

    /// Forgets everything: the clock was set back, and intervals across that mean nothing.
    pub(super) fn clear(&mut self) {
        self.readings.clear();
    }

    /// Between the oldest and the newest reading; None with a single one.
    pub(super) fn span(&self) -> Option<Duration> {
        let (first, last) = self.ends()?;
        Some(since(last.at, first.at)).filter(|span| !span.is_zero())
    }

    /// Rates over that span.
    pub(super) fn rates(&self) -> Option<Rates> {
        let (first, last) = self.ends()?;
        let seconds = self.span()?.as_secs_f64();
        let mut per_second: Counted = std::array::from_fn(|counter| {
            last.present[counter].then(|| (last.total[counter] - first.total[counter]) / seconds)
        });
        let input = per_second[Counter::Input as usize];
        let computed = &mut per_second[Counter::Computed as usize];
        *computed = computed.map(|computed| computed.clamp(0.0, input.unwrap_or(f64::MAX).max(0.0)));
        Some(Rates { per_second })
    }

    /// How fast the waiting requests grow, a second: the slope of the least-squares line.
    pub(super) fn waiting_growth(&self) -> Option<f64> {
        let (first, _) = self.ends()?;
        slope(
            self.readings
                .iter()
                .filter_map(|reading| Some((seconds_between(first.at, reading.at), reading.waiting?))),
        )
    }

    fn ends(&self) -> Option<(&Reading, &Reading)> {
        let (first, last) = (self.readings.front()?, self.readings.back()?);
        (self.readings.len() > 1).then_some((first, last))
    }
}

/// The slope of the least-squares line through points of time and value; None where they make no line.
pub(crate) fn slope(points: impl Iterator<Item = (f64, f64)> + Clone) -> Option<f64> {
    let count = points.clone().count() as f64;
    let mean_time = points.clone().map(|(time, _)| time).sum::<f64>() / count;
    let mean_value = points.clone().map(|(_, value)| value).sum::<f64>() / count;
    let spread: f64 = points.clone().map(|(time, _)| (time - mean_time).powi(2)).sum();
    let together: f64 = points.map(|(time, value)| (time - mean_time) * (value - mean_value)).sum();
    let slope = together / spread;
    (count >= 2.0 && slope.is_finite()).then_some(slope)
}

fn seconds_between(from: DateTime<Utc>, to: DateTime<Utc>) -> f64 {
    (to - from).as_seconds_f64()
}
