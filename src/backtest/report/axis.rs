//! Axes: round steps, places in percent, times of day. Pure.

use chrono::{DateTime, TimeDelta, Timelike as _, Utc};

/// Steps that look round on an axis, smallest first; beyond them powers of ten.
const ROUND_STEPS: [f64; 3] = [1.0, 2.0, 5.0];

/// How many steps an axis of numbers has at most.
const MOST_STEPS: f64 = 5.0;

/// How many times stand below a plot at most: so many fit a phone.
const MOST_TIMES: i64 = 7;

/// Hours between two times below a plot, the shortest first.
const TIME_STEPS: [i64; 10] = [1, 2, 3, 6, 12, 24, 48, 168, 336, 672];

/// An axis of numbers from 0 on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) top: f64,
    pub(super) step: f64,
}

impl Axis {
    /// With room for the largest.
    pub(super) fn up_to(largest: f64) -> Self {
        let needed = if largest.is_finite() { largest.max(1e-6) * 1.05 } else { 1.0 };
        let mut power = 10_f64.powf(needed.log10().floor() - 1.0);
        loop {
            for round in ROUND_STEPS {
                let step = round * power;
                if needed <= step * MOST_STEPS {
                    return Self { top: (needed / step).ceil() * step, step };
                }
            }
            power *= 10.0;
        }
    }

    pub(super) fn ticks(&self) -> impl Iterator<Item = f64> {
        let (step, count) = (self.step, (self.top / self.step).round() as u32);
        (0..=count).map(move |n| f64::from(n) * step)
    }

    /// Share of the axis below a value, 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        (value / self.top).clamp(0.0, 1.0)
    }
}

/// A logarithmic axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LogAxis {
    low: f64,
    high: f64,
}

/// Numbers that are marked in every power of ten.
const LOG_MARKS: [f64; 6] = [1.0, 1.5, 2.0, 3.0, 5.0, 7.0];

impl LogAxis {
    /// With room around both.
    pub(super) fn between(low: f64, high: f64) -> Self {
        let low = if low.is_finite() { low.max(1e-6) * 0.8 } else { 1.0 };
        let high = if high.is_finite() { high.max(low) * 1.2 } else { low * 10.0 };
        Self { low, high }
    }

    pub(super) fn ticks(&self) -> impl Iterator<Item = f64> {
        let Self { low, high } = *self;
        let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let marks = powers.flat_map(|power| LOG_MARKS.map(|mark| mark * 10_f64.powi(power)));
        marks.filter(move |mark| (low..=high).contains(mark))
    }

    /// Share of the axis below a value, 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        ((value.max(self.low) / self.low).ln() / (self.high / self.low).ln()).clamp(0.0, 1.0)
    }
}

/// Times below a plot: the share of its width, and the text.
pub(super) fn times(begins: DateTime<Utc>, seconds: f64) -> Vec<(f64, String)> {
    let hours = seconds / 3600.0;
    let fits = |step: &&i64| hours / (**step as f64) <= MOST_TIMES as f64;
    let step = TIME_STEPS.iter().find(fits).copied().unwrap_or_else(|| (hours / 7.0).ceil() as i64);
    // From midnight on, so that days begin where days begin.
    let midnight = begins - TimeDelta::seconds(i64::from(begins.num_seconds_from_midnight()));
    let first = (begins - midnight).num_hours() / step;
    (first..first + 2 * MOST_TIMES + 2)
        .map(|n| midnight + TimeDelta::hours(n * step))
        .map(|at| ((at - begins).num_seconds() as f64 / seconds, at))
        // The text at the very edge would be cut.
        .filter(|(share, _)| (0.02..=0.97).contains(share))
        .map(|(share, at)| (share, at.format(if step < 24 { "%H:%M" } else { "%-d %b" }).to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_few() {
        for (largest, step, top) in [(4.0, 1.0, 5.0), (9.0, 2.0, 10.0), (38.0, 10.0, 40.0), (0.3, 0.1, 0.4)] {
            let axis = Axis::up_to(largest);
            assert!((axis.step - step).abs() < 1e-9 && (axis.top - top).abs() < 1e-9, "{largest}: {axis:?}");
        }
        assert_eq!(Axis::up_to(0.0).share(0.0), 0.0);
        assert!(Axis::up_to(f64::NAN).top > 0.0);
    }

    #[test]
    fn a_logarithmic_axis_has_room_around_its_ends() {
        let axis = LogAxis::between(672.5, 2736.0);
        let ticks: Vec<f64> = axis.ticks().collect();
        assert_eq!(ticks, [700.0, 1000.0, 1500.0, 2000.0, 3000.0]);
        assert!(axis.share(672.5) > 0.05 && axis.share(2736.0) < 0.95);
        assert_eq!((axis.share(0.0), axis.share(1e9)), (0.0, 1.0));
        assert!(LogAxis::between(f64::INFINITY, f64::NAN).ticks().count() > 3);
    }

    #[test]
    fn days_are_marked_at_midnight_and_hours_within_a_day() {
        let begins: DateTime<Utc> = "2024-01-01T06:00:00Z".parse().unwrap();
        let week = times(begins, 7.0 * 86_400.0);
        assert_eq!((week[0].1.as_str(), week.len()), ("2 Jan", 7));
        assert!((week[0].0 - 18.0 / 168.0).abs() < 1e-9);
        assert_eq!(times(begins, 6.0 * 3600.0)[0].1, "07:00");
        assert!(times(begins, 400.0 * 86_400.0).len() <= 15);
    }
}
