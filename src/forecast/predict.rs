//! One number for the load one lead from now, one for its spread, and how often what comes is beyond both.
//!
//! What is predicted is the *need*: the load that a constant fleet must carry so that nothing queues for longer than is
//! acceptable. It is the largest mean over the last bins, with what may queue taken off. The queue slack is in here, once.
//!
//! ```text
//! need(i)     largest over k of  k x 15 s x mean of the last k bins / (k x 15 s + slack)
//! expected    mean of the last minute + scale x (weights . features), learned by recursive least squares
//! spread      weights . (mean errors over five spans, and how much the load moves now), learned the same way
//! beyond      share of errors above so many spreads, and by how much that differs at this level of load
//! jump        what came at this time yesterday and was far beyond the spread, where such jumps come again
//! ```

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::days::{Error, Errors, Loads};
use super::least_squares::LeastSquares;
use super::tail::Tail;
use super::track::{Track, TrackPoint};
use super::{BIN_SECONDS, BINS_A_DAY, Terms};

const FEATURES: usize = 10;
const SPREAD_FEATURES: usize = 8;

/// Of the spread's features, those that are means of errors; the others say how much the load moves.
const ERROR_MEANS: usize = 6;

/// Bins that the need is looked for in: a burst of one, up to four minutes.
const NEED_BINS: [usize; 8] = [1, 2, 3, 4, 6, 8, 12, 16];

/// Bins of which the loads are kept one by one.
const RECENT: usize = 120;

/// Bins of the last ten minutes, by which a forecast is learned.
const LOOKED_AT: u64 = 40;

/// Bins of them that nobody may have seen. A replica that begins to serve hides one until its second page: were none
/// forgiven, nothing would be learned after any start, on real loads a quarter of the time, and that of the jumps.
const MOST_UNSEEN: u32 = 6;

/// The longest lead, in bins: an hour and a quarter.
pub(super) const MOST_LEAD: usize = 300;

/// Bins around the end of the lead, a day ago, that are looked at.
const AROUND: i64 = 4;

/// Levels of load, against the tier's mean need, at which the tail is counted apart.
const LEVELS: [f64; 2] = [0.55, 1.15];

/// Errors that a level must have seen to count as much as the tail of all levels.
const LEVEL_WEIGHT: f64 = 2000.0;

/// An error beyond so many spreads is a jump.
const JUMP: f64 = 3.0;

/// One that may come again tomorrow.
const REMEMBERED_JUMP: f64 = 3.5;

/// Remembered jumps are heeded while they came again in at least this share of the bins that they covered lately.
const RECURS: f64 = 0.06;

/// What is known of the next lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outlook {
    /// The need one lead from now, replicas.
    pub expected: f64,
    /// The mean error of that, replicas.
    pub spread: f64,
    /// Load of the last bin, replicas.
    pub now: f64,
    /// Mean load of the last two.
    pub lately: f64,
    /// Need of the last bin.
    pub need: f64,
    /// What a jump that comes again would need; 0 where none is remembered.
    pub jump: f64,
    /// By how many spreads it surprised.
    pub jump_spreads: f64,
    /// The tier's usual need, replicas: what "the whole tier" is in the price of a late minute.
    pub usual: f64,
}

/// A forecast that was made, until its time has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    bin: i64,
    features: [f64; FEATURES],
    spread_features: [f64; SPREAD_FEATURES],
    /// Mean load of the minute before it was made, and the scale of its features.
    base: f64,
    scale: f64,
    expected: f64,
    spread: f64,
    jump: f64,
    level: usize,
    /// Every bin that it was made from was seen.
    sure: bool,
}

/// The predictor's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Predictor {
    /// Loads of the last bins, the newest last.
    recent: VecDeque<f64>,
    /// The last 64 bins, the newest in the lowest bit: set where nobody saw it.
    #[serde(default)]
    unseen: u64,
    /// Bins taken in.
    bins: u64,
    errors: Errors,
    made: VecDeque<Made>,
    model: LeastSquares<FEATURES>,
    spread_model: LeastSquares<SPREAD_FEATURES>,
    /// Forecasts whose time has come.
    scored: u64,
    /// Mean errors: over 5 min, 30 min, 4 h, 2 days.
    mean_errors: [f64; 4],
    /// Mean error as a share of the load.
    relative_error: f64,
    mean_need: f64,
    tail: Tail,
    level_tails: [Tail; 3],
    level: usize,
    /// Share of the bins with a remembered jump in which it came again.
    recurrence: f64,
    #[serde(default = "Track::new")]
    track: Track,
    outlook: Outlook,
}

impl Predictor {
    pub(super) fn new() -> Self {
        let mut spread_weights = [1.0 / ERROR_MEANS as f64; SPREAD_FEATURES];
        spread_weights[ERROR_MEANS..].fill(0.0);
        Self {
            recent: VecDeque::new(),
            unseen: 0,
            bins: 0,
            errors: Errors::new(),
            made: VecDeque::new(),
            model: LeastSquares::new(2.0 * BINS_A_DAY as f64, [0.0; FEATURES]),
            spread_model: LeastSquares::new(3.0 * BINS_A_DAY as f64, spread_weights),
            scored: 0,
            mean_errors: [0.0; 4],
            relative_error: 0.0,
            mean_need: 0.0,
            tail: Tail::with_prior(1500.0),
            level_tails: std::array::from_fn(|_| Tail::empty()),
            level: 0,
            recurrence: 0.1,
            track: Track::new(),
            outlook: Outlook::default(),
        }
    }

    pub(super) fn outlook(&self) -> &Outlook {
        &self.outlook
    }

    /// The forecasts of the last hours against what came.
    pub(super) fn track(&self) -> Vec<TrackPoint> {
        self.track.points()
    }

    /// Mean load of the last so many bins, as far as there are any.
    pub(super) fn last(&self, bins: usize) -> f64 {
        let bins = bins.min(self.recent.len());
        if bins == 0 {
            return 0.0;
        }
        self.recent.iter().rev().take(bins).sum::<f64>() / bins as f64
    }

    /// Share of needs that go beyond the expected one by more than so many spreads, here and now.
    pub(super) fn beyond(&self, spreads: f64) -> f64 {
        if spreads <= 0.0 {
            return 1.0;
        }
        let all = self.tail.beyond(spreads);
        let level = &self.level_tails[self.level];
        let prior = all + 1e-6;
        let seen = level.beyond(spreads) * level.known() + prior * LEVEL_WEIGHT;
        let ratio = seen / (level.known() + LEVEL_WEIGHT) / prior;
        (all * ratio.clamp(0.1, 10.0)).min(1.0)
    }

    /// Takes a bin in. `load` is None where nobody saw it: it neither teaches nor scares. `days` are the loads of before.
    pub(super) fn push(&mut self, bin: i64, load: Option<f64>, days: &Loads, terms: &Terms) {
        let lead = terms.lead_bins.clamp(1, MOST_LEAD);
        let seen = load.is_some();
        self.unseen = self.unseen << 1 | u64::from(!seen);
        // What nobody saw is taken to be as it was.
        let load = load.unwrap_or_else(|| self.last(4));
        self.recent.push_back(load);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        self.bins += 1;
        let need = self.need(terms.slack_seconds);
        let unseen = (self.unseen & ((1 << LOOKED_AT) - 1)).count_ones();
        let sure = seen && self.bins > LOOKED_AT && unseen <= MOST_UNSEEN;

        let yesterday = terms.days_before(bin, 1);
        let was = days.load(yesterday - 39, yesterday + 1);
        let (m2, m4, m12, m40) = (self.last(2), self.last(4), self.last(12), self.last(40));
        let scale = m40.max(0.25 * days.day_mean().unwrap_or(m40)).max(0.05);
        let features = self.features(bin, need, scale, days, terms);

        let due = self.made.len().checked_sub(lead).and_then(|at| self.made.get(at)).cloned();
        let due = due.filter(|made| sure && made.sure && made.bin + lead as i64 == bin);
        let error = due.map(|due| {
            self.track.push(bin, due.expected, due.spread, need);
            self.score(&due, need)
        });
        let expected = m4 + scale * self.model.predict(&features).clamp(-0.7, 1.0);
        self.errors.push(bin, error);

        let ahead = yesterday + lead as i64;
        let same_time = self.errors.error(ahead - 20, ahead + 21).unwrap_or(self.mean_errors[3]);
        let [five_minutes, half_hour, four_hours, two_days] = self.mean_errors;
        let relative = m4.max(0.5) * self.relative_error;
        let errors =
            [five_minutes, half_hour, four_hours, two_days, relative, same_time].map(|e| e.max(1e-3));
        let mut spread_features = [0.0; SPREAD_FEATURES];
        spread_features[..ERROR_MEANS].copy_from_slice(&errors);
        spread_features[ERROR_MEANS..].copy_from_slice(&[(m2 - m12).abs(), (m4 - m40).abs()]);
        let mean = errors.iter().sum::<f64>() / ERROR_MEANS as f64;
        let spread = (mean * self.spread_model.predict(&spread_features.map(|x| x / mean))).max(0.4 * mean);

        let share = (1.0 - 0.5_f64.powf(1.0 / (3.5 * BINS_A_DAY as f64))).max(1.0 / self.bins as f64);
        self.mean_need += share * (need - self.mean_need);
        let (jump, jump_spreads) = self.jump(ahead, bin, m4, m40, was);
        let level = expected / self.mean_need.max(0.5);
        self.level = LEVELS.iter().filter(|limit| level >= **limit).count();
        self.made.push_back(Made {
            bin,
            features,
            spread_features,
            base: m4,
            scale,
            expected,
            spread,
            jump: if jump_spreads > REMEMBERED_JUMP { jump } else { 0.0 },
            level: self.level,
            sure,
        });
        while self.made.len() > lead.max(MOST_LEAD.min(lead + lead / 2)) {
            self.made.pop_front();
        }
        let heeded = self.recurrence >= RECURS;
        self.outlook = Outlook {
            expected,
            spread,
            now: load,
            lately: m2,
            need,
            jump: if heeded { jump } else { 0.0 },
            jump_spreads: if heeded { jump_spreads } else { 0.0 },
            usual: (1.15 * self.mean_need).max(1.0),
        };
    }

    fn need(&self, slack: f64) -> f64 {
        let of_last = |bins: usize| {
            let bins = bins.min(self.recent.len());
            let seconds = bins as f64 * BIN_SECONDS;
            self.last(bins) * seconds / (seconds + slack)
        };
        NEED_BINS.into_iter().map(of_last).fold(0.0, f64::max)
    }

    /// What the next lead is told from: how the load moves, and what the same time of day did.
    fn features(&self, bin: i64, need: f64, scale: f64, days: &Loads, terms: &Terms) -> [f64; FEATURES] {
        let m4 = self.last(4);
        let beside = |value: f64| (value - m4) / scale;
        let (now, m40) = (self.last(1), self.last(40));
        let recent = [now, need, self.last(2), self.last(12), m40, self.last(120)].map(beside);
        let same_time = |ago: RangeInclusive<usize>, least_ratio: f64| {
            let (then, now, was) = same_time(bin, days, terms, ago)?;
            // Of several days these are sums, and the ratio makes a mean of them.
            let ratio = (m40 / was.max(f64::MIN_POSITIVE)).clamp(least_ratio, 2.5);
            Some([
                ((then - now) * ratio / scale).clamp(-1.0, 1.5),
                ((then * ratio - m4) / scale).clamp(-1.0, 1.0),
            ])
        };
        let yesterday = same_time(1..=1, 0.4).unwrap_or_default();
        let week = same_time(2..=7, 0.0).unwrap_or_default();
        let mut features = [0.0; FEATURES];
        features[..6].copy_from_slice(&recent);
        features[6..8].copy_from_slice(&yesterday);
        features[8..].copy_from_slice(&week);
        features
    }

    /// The time of a forecast has come: what it teaches. Gives its error: absolute, in spreads, and the rise.
    fn score(&mut self, due: &Made, need: f64) -> Error {
        let target = ((need - due.base) / due.scale).clamp(-1.5, 1.5);
        self.model.learn(&due.features, target);
        let error = need - due.expected;
        let absolute = error.abs();
        let mean = due.spread_features[..ERROR_MEANS].iter().sum::<f64>() / ERROR_MEANS as f64;
        self.spread_model.learn(&due.spread_features.map(|x| x / mean), (absolute / mean).min(6.0));
        let spreads = error / due.spread;
        // What a remembered jump covers is no error.
        let beyond = (need - due.expected.max(due.jump)) / due.spread;
        if due.jump > 0.0 {
            let came = if spreads > JUMP { 1.0 } else { 0.0 };
            self.recurrence += (1.0 - 0.5_f64.powf(1.0 / 300.0)) * (came - self.recurrence);
        }
        self.tail.add(beyond);
        self.level_tails[due.level].add(beyond);
        self.scored += 1;
        let first = 1.0 / self.scored as f64;
        let toward = |mean: &mut f64, value: f64, half_life: f64| {
            *mean += (1.0 - 0.5_f64.powf(1.0 / half_life)).max(first) * (value - *mean);
        };
        for (mean, half_life) in self.mean_errors.iter_mut().zip([20.0, 120.0, 960.0, 11_520.0]) {
            toward(mean, absolute, half_life);
        }
        toward(&mut self.relative_error, absolute / due.base.max(0.5), BINS_A_DAY as f64);
        Error { absolute, spreads, rise: need - due.base }
    }

    /// What would be needed if what surprised us yesterday around the end of the lead came again.
    fn jump(&self, ahead: i64, bin: i64, m4: f64, m40: f64, was: Option<f64>) -> (f64, f64) {
        let Some((spreads, rise)) = self.errors.surprise(ahead - 8, (ahead + 9).min(bin + 1)) else {
            return (0.0, 0.0);
        };
        let ratio = was.filter(|was| *was > 0.0).map_or(1.0, |was| (m40 / was).clamp(0.4, 2.5));
        (m4 + rise.max(0.0) * ratio, spreads.max(0.0))
    }

    /// See [`Loads::rescale`]. Models and tails are told in shares and spreads, which have no unit.
    pub(super) fn rescale(&mut self, times: f64) {
        self.recent.iter_mut().for_each(|load| *load *= times);
        self.errors.rescale(times);
        self.track.rescale(times);
        for made in &mut self.made {
            for number in
                [&mut made.base, &mut made.scale, &mut made.expected, &mut made.spread, &mut made.jump]
            {
                *number *= times;
            }
            made.spread_features.iter_mut().for_each(|feature| *feature *= times);
        }
        self.mean_errors.iter_mut().for_each(|error| *error *= times);
        self.mean_need *= times;
        let Outlook { expected, spread, now, lately, need, jump, jump_spreads: _, usual } = &mut self.outlook;
        for number in [expected, spread, now, lately, need, jump, usual] {
            *number *= times;
        }
    }

    /// Makes what isn't written.
    pub(super) fn rebuild(&mut self) {
        self.tail.rebuild();
        self.level_tails.iter_mut().for_each(Tail::rebuild);
    }

    /// Can it be calculated with?
    pub(super) fn is_sane(&self) -> bool {
        let numbers = [self.mean_need, self.relative_error, self.recurrence, self.outlook.expected];
        self.errors.is_sane()
            && self.track.is_sane()
            && self.tail.is_sane()
            && self.level_tails.iter().all(Tail::is_sane)
            && self.level < self.level_tails.len()
            && self.recent.len() <= RECENT
            && self.made.len() <= MOST_LEAD
            && self.made.iter().all(|made| made.level < self.level_tails.len())
            && numbers.iter().chain(&self.mean_errors).chain(&self.recent).all(|n| n.is_finite())
    }
}

/// What the load came to one lead after this time of day, around this time, and before it: sums over some days ago.
fn same_time(bin: i64, days: &Loads, terms: &Terms, ago: RangeInclusive<usize>) -> Option<(f64, f64, f64)> {
    let (mut then, mut now, mut was, mut known) = (0.0, 0.0, 0.0, false);
    for day in ago {
        let at = terms.days_before(bin, day);
        let ahead = at + terms.lead_bins as i64;
        let loads = days
            .load(at - 39, at + 1)
            .zip(days.load(at - 8, at + 9))
            .zip(days.load(ahead - AROUND, ahead + AROUND + 1));
        let Some(((before, around), came)) = loads else { continue };
        then += came;
        now += around;
        was += before;
        known = true;
    }
    known.then_some((then, now, was))
}
