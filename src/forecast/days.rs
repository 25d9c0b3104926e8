//! What the last days were like, by the minute: the load, and where a forecast was wrong.

use serde::{Deserialize, Serialize};

use super::{BINS_A_DAY, packed};

/// Bins of 15 s in a minute.
const BINS_A_MINUTE: i64 = 4;

/// Minutes in a day.
const MINUTES_A_DAY: usize = BINS_A_DAY / BINS_A_MINUTE as usize;

/// Days of load that are kept: the same time of day is looked up for the last seven.
pub(super) const LOAD_DAYS: usize = 8;

/// Minutes of errors that are kept: a day, an hour by which a change of the clocks moves it, and what is looked at around
/// its end.
const ERROR_MINUTES: usize = MINUTES_A_DAY + 120;

/// One number a minute, for the last so many minutes. Minutes that nobody saw are NaN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Minutes {
    #[serde(with = "packed")]
    values: Vec<f32>,
}

impl Minutes {
    pub(super) fn unseen(minutes: usize) -> Self {
        Self { values: vec![f32::NAN; minutes] }
    }

    fn place(&self, minute: i64) -> usize {
        minute.rem_euclid(self.values.len() as i64) as usize
    }

    /// A new minute, and those that were left out since the last one, are unknown.
    pub(super) fn turn_to(&mut self, last: Option<i64>, minute: i64) {
        let from = last.map_or(minute, |last| last.saturating_add(1).min(minute));
        // More minutes than are kept need not be forgotten one by one.
        for unseen in from.max(minute - self.values.len() as i64 + 1)..=minute {
            let at = self.place(unseen);
            self.values[at] = f32::NAN;
        }
    }

    /// One more value of the minute that is being filled, which holds the mean of so many.
    pub(super) fn average(&mut self, minute: i64, values: &mut u32, value: f64) {
        let at = self.place(minute);
        let sum = if *values == 0 { 0.0 } else { f64::from(self.values[at]) * f64::from(*values) };
        *values += 1;
        self.values[at] = ((sum + value) / f64::from(*values)) as f32;
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The value of a minute, where it is kept and was seen.
    pub(super) fn at(&self, now: Option<i64>, minute: i64) -> Option<f64> {
        let value = f64::from(self.values[self.place(minute)]);
        (self.keeps(now, minute) && !value.is_nan()).then_some(value)
    }

    pub(super) fn rescale(&mut self, times: f64) {
        self.values.iter_mut().for_each(|value| *value = (f64::from(*value) * times) as f32);
    }

    /// Is the minute still in the list, and not the one of a later day at the same place?
    fn keeps(&self, now: Option<i64>, minute: i64) -> bool {
        now.is_some_and(|now| minute <= now && minute > now - self.values.len() as i64)
    }

    /// Mean of the bins `from..to`, as far as their minutes are known.
    fn mean(&self, now: Option<i64>, from: i64, to: i64) -> Option<f64> {
        let (first, last) = (from.div_euclid(BINS_A_MINUTE), (to - 1).div_euclid(BINS_A_MINUTE));
        let (mut sum, mut bins) = (0.0, 0_i64);
        for minute in (first..=last).filter(|minute| self.keeps(now, *minute)) {
            let value = f64::from(self.values[self.place(minute)]);
            if value.is_nan() {
                continue;
            }
            let starts = minute * BINS_A_MINUTE;
            let inside = (starts + BINS_A_MINUTE).min(to) - starts.max(from);
            sum += value * inside as f64;
            bins += inside;
        }
        (bins > 0).then(|| sum / bins as f64)
    }
}

/// The loads. Bins are numbered from the epoch, so that a gap leaves a gap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Loads {
    /// Mean load of each minute, replicas.
    load: Minutes,
    /// The minute that is being filled, and how many bins are in it.
    minute: Option<i64>,
    bins: u32,
    /// Mean load of the last day, as of the last whole minute; None before.
    day_mean: Option<f64>,
}

impl Loads {
    pub(super) fn new() -> Self {
        Self { load: Minutes::unseen(LOAD_DAYS * MINUTES_A_DAY), minute: None, bins: 0, day_mean: None }
    }

    /// Takes the load of a bin in, None where nobody saw it. Bins come in order; those left out stay unknown.
    pub(super) fn push(&mut self, bin: i64, load: Option<f64>) {
        let minute = bin.div_euclid(BINS_A_MINUTE);
        if self.minute != Some(minute) {
            self.load.turn_to(self.minute, minute);
            let last_day = minute - MINUTES_A_DAY as i64..minute;
            let known = last_day.map(|m| self.load.values[self.load.place(m)]).filter(|load| !load.is_nan());
            let (sum, count) =
                known.fold((0.0, 0_u32), |(sum, count), load| (sum + f64::from(load), count + 1));
            self.day_mean = (count > 0).then(|| sum / f64::from(count));
            (self.minute, self.bins) = (Some(minute), 0);
        }
        if let Some(load) = load {
            self.load.average(minute, &mut self.bins, load);
        }
    }

    /// All of it in a unit of which it takes so many times as many.
    pub(super) fn rescale(&mut self, times: f64) {
        self.load.rescale(times);
        self.day_mean = self.day_mean.map(|mean| mean * times);
    }

    /// Mean load of the last day.
    pub(super) fn day_mean(&self) -> Option<f64> {
        self.day_mean
    }

    /// Mean load of the bins `from..to`, as far as they were seen.
    pub(super) fn load(&self, from: i64, to: i64) -> Option<f64> {
        self.load.mean(self.minute, from, to)
    }

    /// Of the right size; anything else was not written by us.
    pub(super) fn is_sane(&self) -> bool {
        self.load.values.len() == LOAD_DAYS * MINUTES_A_DAY
    }
}

/// A forecast's error: absolute in replicas, signed in spreads, and the rise since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Error {
    pub(super) absolute: f64,
    pub(super) spreads: f64,
    pub(super) rise: f64,
}

/// Where forecasts were wrong in the last day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Errors {
    /// Mean absolute error of the forecasts for each minute, replicas.
    absolute: Minutes,
    /// Largest error of each minute in spreads.
    surprise: Minutes,
    /// Largest rise within one lead that ended in the minute, replicas.
    rise: Minutes,
    /// The minute that is being filled, and how many errors are in it.
    minute: Option<i64>,
    count: u32,
}

impl Errors {
    pub(super) fn new() -> Self {
        let unseen = || Minutes::unseen(ERROR_MINUTES);
        Self { absolute: unseen(), surprise: unseen(), rise: unseen(), minute: None, count: 0 }
    }

    /// Takes the error of the forecast for a bin in, None where there was none or nobody saw what came.
    pub(super) fn push(&mut self, bin: i64, error: Option<Error>) {
        let minute = bin.div_euclid(BINS_A_MINUTE);
        if self.minute != Some(minute) {
            for list in [&mut self.absolute, &mut self.surprise, &mut self.rise] {
                list.turn_to(self.minute, minute);
            }
            (self.minute, self.count) = (Some(minute), 0);
        }
        if let Some(Error { absolute, spreads, rise }) = error {
            self.absolute.average(minute, &mut self.count, absolute);
            for (list, value) in [(&mut self.surprise, spreads), (&mut self.rise, rise)] {
                let at = list.place(minute);
                // NaN gives way.
                list.values[at] = list.values[at].max(value as f32);
            }
        }
    }

    /// See [`Loads::rescale`].
    pub(super) fn rescale(&mut self, times: f64) {
        self.absolute.rescale(times);
        self.rise.rescale(times);
    }

    /// Mean absolute error of the bins `from..to`.
    pub(super) fn error(&self, from: i64, to: i64) -> Option<f64> {
        self.absolute.mean(self.minute, from, to)
    }

    /// Largest error of the bins `from..to` in spreads, and the largest rise.
    pub(super) fn surprise(&self, from: i64, to: i64) -> Option<(f64, f64)> {
        let (first, last) = (from.div_euclid(BINS_A_MINUTE), (to - 1).div_euclid(BINS_A_MINUTE));
        let largest = |list: &Minutes| {
            let known = (first..=last).filter(|m| list.keeps(self.minute, *m));
            let values = known.map(|m| list.values[list.place(m)]).filter(|value| !value.is_nan());
            values.reduce(f32::max).map(f64::from)
        };
        largest(&self.surprise).zip(largest(&self.rise))
    }

    /// Of the right size; anything else was not written by us.
    pub(super) fn is_sane(&self) -> bool {
        [&self.absolute, &self.surprise, &self.rise]
            .into_iter()
            .all(|list| list.values.len() == ERROR_MINUTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = BINS_A_DAY as i64;

    #[test]
    fn a_window_is_the_mean_of_what_was_seen_in_it() {
        let mut days = Loads::new();
        for bin in 0..40 {
            days.push(bin, Some(if bin < 20 { 1.0 } else { 3.0 }));
        }
        assert_eq!(days.load(0, 20), Some(1.0));
        assert_eq!(days.load(16, 24), Some(2.0));
        assert_eq!(days.load(400, 440), None);
    }

    #[test]
    fn a_gap_stays_unknown_and_a_day_that_comes_round_takes_the_old_ones_place() {
        let mut days = Loads::new();
        for bin in 0..8 {
            days.push(bin, Some(5.0));
        }
        days.push(400, Some(1.0));
        assert_eq!(days.load(8, 400), None);
        let next_round = LOAD_DAYS as i64 * DAY;
        days.push(next_round, Some(2.0));
        assert_eq!(days.load(0, 4), None, "eight days ago is forgotten");
        assert_eq!(days.load(next_round, next_round + 4), Some(2.0));
    }

    #[test]
    fn the_largest_surprise_of_a_window_is_kept_for_a_day() {
        let mut days = Errors::new();
        days.push(100, Some(Error { absolute: 1.0, spreads: 2.5, rise: 3.0 }));
        days.push(101, Some(Error { absolute: 0.5, spreads: 4.5, rise: 1.0 }));
        assert_eq!(days.surprise(90, 110), Some((4.5, 3.0)));
        assert_eq!(days.error(100, 104), Some(0.75));
        days.push(100 + DAY + 480, None);
        assert_eq!(days.surprise(90, 110), None);
    }
}
