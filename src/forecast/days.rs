//! What the last days were like, by the minute: the load, and where the forecast was wrong.

use serde::{Deserialize, Serialize};

use super::{BINS_A_DAY, packed};

/// Bins of 15 s in a minute.
const BINS_A_MINUTE: i64 = 4;

/// Minutes in a day.
const MINUTES_A_DAY: usize = BINS_A_DAY / BINS_A_MINUTE as usize;

/// Days of load that are kept: the same time of day is looked up for the last seven.
const LOAD_DAYS: usize = 8;

/// Minutes of errors that are kept: a day, and what is looked at around its end.
const ERROR_MINUTES: usize = MINUTES_A_DAY + 60;

/// One number a minute, for the last so many minutes. Minutes that nobody saw are NaN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct Minutes {
    #[serde(with = "packed")]
    values: Vec<f32>,
}

impl Minutes {
    fn unseen(minutes: usize) -> Self {
        Self { values: vec![f32::NAN; minutes] }
    }

    fn place(&self, minute: i64) -> usize {
        minute.rem_euclid(self.values.len() as i64) as usize
    }
}

/// The days. Bins are numbered from the epoch, so that a gap leaves a gap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Days {
    /// Mean load of each minute, replicas.
    load: Minutes,
    /// Mean absolute error of the forecasts for each minute, replicas.
    error: Minutes,
    /// Largest error of each minute in spreads.
    surprise: Minutes,
    /// Largest rise within one lead that ended in the minute, replicas.
    rise: Minutes,
    /// The minute that is being filled, and how many bins of each kind are in it.
    minute: Option<i64>,
    loads: u32,
    errors: u32,
    /// Mean load of the last day, as of the last whole minute; None before.
    day_mean: Option<f64>,
}

/// What a bin adds to its minute.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// The load; None where nobody saw it.
    pub(super) load: Option<f64>,
    /// The forecast's error: absolute in replicas, signed in spreads, and the rise since it was made.
    pub(super) error: Option<(f64, f64, f64)>,
}

impl Days {
    pub(super) fn new() -> Self {
        Self {
            load: Minutes::unseen(LOAD_DAYS * MINUTES_A_DAY),
            error: Minutes::unseen(ERROR_MINUTES),
            surprise: Minutes::unseen(ERROR_MINUTES),
            rise: Minutes::unseen(ERROR_MINUTES),
            minute: None,
            loads: 0,
            errors: 0,
            day_mean: None,
        }
    }

    /// Takes a bin in. Bins come in order; those left out stay unknown.
    pub(super) fn push(&mut self, bin: i64, seen: Seen) {
        let minute = bin.div_euclid(BINS_A_MINUTE);
        if self.minute != Some(minute) {
            self.turn_to(minute);
        }
        if let Some(load) = seen.load {
            let at = self.load.place(minute);
            let before = f64::from(self.load.values[at]);
            let sum = if self.loads == 0 { 0.0 } else { before * f64::from(self.loads) };
            self.loads += 1;
            self.load.values[at] = ((sum + load) / f64::from(self.loads)) as f32;
        }
        if let Some((absolute, spreads, rise)) = seen.error {
            let at = self.error.place(minute);
            let before = f64::from(self.error.values[at]);
            let sum = if self.errors == 0 { 0.0 } else { before * f64::from(self.errors) };
            self.errors += 1;
            self.error.values[at] = ((sum + absolute) / f64::from(self.errors)) as f32;
            let largest = |list: &mut Minutes, value: f64| {
                // NaN gives way.
                list.values[at] = list.values[at].max(value as f32);
            };
            largest(&mut self.surprise, spreads);
            largest(&mut self.rise, rise);
        }
    }

    fn turn_to(&mut self, minute: i64) {
        let from = self.minute.map_or(minute, |last| last.saturating_add(1).min(minute));
        // More minutes than are kept need not be forgotten one by one.
        let from = from.max(minute - self.load.values.len() as i64 + 1);
        for unseen in from..=minute {
            for list in [&mut self.load, &mut self.error, &mut self.surprise, &mut self.rise] {
                let at = list.place(unseen);
                list.values[at] = f32::NAN;
            }
        }
        let last_day = minute - MINUTES_A_DAY as i64..minute;
        let known = last_day.map(|m| self.load.values[self.load.place(m)]).filter(|load| !load.is_nan());
        let (sum, count) = known.fold((0.0, 0_u32), |(sum, count), load| (sum + f64::from(load), count + 1));
        self.day_mean = (count > 0).then(|| sum / f64::from(count));
        (self.minute, self.loads, self.errors) = (Some(minute), 0, 0);
    }

    /// Mean load of the last day.
    pub(super) fn day_mean(&self) -> Option<f64> {
        self.day_mean
    }

    /// Mean load of the bins `from..to`, as far as they were seen.
    pub(super) fn load(&self, from: i64, to: i64) -> Option<f64> {
        self.mean(&self.load, from, to)
    }

    /// Mean absolute error of the bins `from..to`.
    pub(super) fn error(&self, from: i64, to: i64) -> Option<f64> {
        self.mean(&self.error, from, to)
    }

    /// Largest error of the bins `from..to` in spreads, and the largest rise.
    pub(super) fn surprise(&self, from: i64, to: i64) -> Option<(f64, f64)> {
        let (first, last) = (from.div_euclid(BINS_A_MINUTE), (to - 1).div_euclid(BINS_A_MINUTE));
        let largest = |list: &Minutes| {
            let known = (first..=last).filter(|m| self.keeps(list, *m)).map(|m| list.values[list.place(m)]);
            known.filter(|value| !value.is_nan()).reduce(f32::max).map(f64::from)
        };
        largest(&self.surprise).zip(largest(&self.rise))
    }

    /// Is the minute still in the list, and not the one of a later day at the same place?
    fn keeps(&self, list: &Minutes, minute: i64) -> bool {
        self.minute.is_some_and(|now| minute <= now && minute > now - list.values.len() as i64)
    }

    fn mean(&self, list: &Minutes, from: i64, to: i64) -> Option<f64> {
        let (first, last) = (from.div_euclid(BINS_A_MINUTE), (to - 1).div_euclid(BINS_A_MINUTE));
        let (mut sum, mut bins) = (0.0, 0_i64);
        for minute in (first..=last).filter(|minute| self.keeps(list, *minute)) {
            let value = f64::from(list.values[list.place(minute)]);
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

    /// Of the right size; anything else was not written by us.
    pub(super) fn is_sane(&self) -> bool {
        let errors = [&self.error, &self.surprise, &self.rise];
        self.load.values.len() == LOAD_DAYS * MINUTES_A_DAY
            && errors.into_iter().all(|list| list.values.len() == ERROR_MINUTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = BINS_A_DAY as i64;

    fn load(load: f64) -> Seen {
        Seen { load: Some(load), error: None }
    }

    #[test]
    fn a_window_is_the_mean_of_what_was_seen_in_it() {
        let mut days = Days::new();
        for bin in 0..40 {
            days.push(bin, load(if bin < 20 { 1.0 } else { 3.0 }));
        }
        assert_eq!(days.load(0, 20), Some(1.0));
        assert_eq!(days.load(16, 24), Some(2.0));
        assert_eq!(days.load(400, 440), None);
    }

    #[test]
    fn a_gap_stays_unknown_and_a_day_that_comes_round_takes_the_old_ones_place() {
        let mut days = Days::new();
        for bin in 0..8 {
            days.push(bin, load(5.0));
        }
        days.push(400, load(1.0));
        assert_eq!(days.load(8, 400), None);
        let next_round = LOAD_DAYS as i64 * DAY;
        days.push(next_round, load(2.0));
        assert_eq!(days.load(0, 4), None, "eight days ago is forgotten");
        assert_eq!(days.load(next_round, next_round + 4), Some(2.0));
    }

    #[test]
    fn the_largest_surprise_of_a_window_is_kept_for_a_day() {
        let mut days = Days::new();
        days.push(100, Seen { load: Some(4.0), error: Some((1.0, 2.5, 3.0)) });
        days.push(101, Seen { load: Some(4.0), error: Some((0.5, 4.5, 1.0)) });
        assert_eq!(days.surprise(90, 110), Some((4.5, 3.0)));
        assert_eq!(days.error(100, 104), Some(0.75));
        days.push(100 + DAY + 240, load(4.0));
        assert_eq!(days.surprise(90, 110), None);
    }
}
