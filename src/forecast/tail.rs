//! How often the load goes beyond its forecast, and by how much: a decayed histogram of errors, in spreads.

use serde::{Deserialize, Serialize};

use super::packed;

/// Width of a class, in spreads.
const WIDTH: f64 = 0.02;

/// Classes: errors of up to 30 spreads; whatever is beyond counts as that.
const CLASSES: usize = 1500;

/// Bins of 15 s after which an error counts half: three days.
const HALF_LIFE: f64 = 3.0 * super::BINS_A_DAY as f64;

/// The tail beyond the last so much of the errors is taken as exponential: fewer are too few to count.
const COUNTED_TO: f64 = 0.005;

/// Before anything was seen: one error in a hundred goes beyond three spreads.
const PRIOR_DECAY: f64 = 1.535_056_728_662_697;

/// Errors by size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tail {
    #[serde(with = "packed")]
    classes: Vec<f32>,
    /// Sum of the classes.
    all: f64,
    /// Weight of the next error; it grows, so that the others count less.
    weight: f64,
    /// The tail is smoothed beyond what can be counted.
    smoothed: bool,
    /// Share of errors beyond each class. Made from the classes.
    #[serde(skip)]
    beyond: Vec<f32>,
}

impl Tail {
    /// A tail that knows the usual shape already, as if it had seen so many errors of it.
    pub(super) fn with_prior(errors: f64) -> Self {
        let share = |class: usize| {
            let from = class as f64 * WIDTH;
            (-PRIOR_DECAY * from).exp() - (-PRIOR_DECAY * (from + WIDTH)).exp()
        };
        let classes: Vec<f32> = (0..CLASSES).map(|class| (errors * share(class)) as f32).collect();
        let all = classes.iter().copied().map(f64::from).sum::<f64>() + 1e-9;
        let mut tail = Self { classes, all, weight: 1.0, smoothed: true, beyond: Vec::new() };
        tail.rebuild();
        tail
    }

    /// A tail that knows nothing, and shows only what was counted.
    pub(super) fn empty() -> Self {
        let classes = vec![0.0; CLASSES];
        let mut tail = Self { classes, all: 1e-9, weight: 1.0, smoothed: false, beyond: Vec::new() };
        tail.rebuild();
        tail
    }

    /// One more error, in spreads; a forecast that was too high is no error.
    pub(super) fn add(&mut self, error: f64) {
        self.weight /= 0.5_f64.powf(1.0 / HALF_LIFE);
        let class = ((error.max(0.0) / WIDTH) as usize).min(CLASSES - 1);
        self.classes[class] += self.weight as f32;
        self.all += self.weight;
        // Long before single precision could no longer tell a new error.
        if self.weight > 1e4 {
            self.classes.iter_mut().for_each(|count| *count /= self.weight as f32);
            self.all /= self.weight;
            self.weight = 1.0;
        }
        self.rebuild();
    }

    /// Makes what isn't written.
    pub(super) fn rebuild(&mut self) {
        self.beyond.resize(CLASSES + 1, 0.0);
        let (mut count, mut sum, mut cut, mut mean) = (0.0, 0.0, CLASSES - 1, 1.0);
        for class in (0..CLASSES).rev() {
            count += f64::from(self.classes[class]);
            sum += count * WIDTH;
            self.beyond[class] = (count / self.all) as f32;
            if count / self.all < COUNTED_TO {
                cut = class;
                mean = sum / count.max(1e-9);
            }
        }
        self.beyond[CLASSES] = 0.0;
        if self.smoothed {
            let at_cut = f64::from(self.beyond[cut]);
            for class in cut..=CLASSES {
                let decayed = (-((class - cut) as f64 * WIDTH) / mean.max(0.05)).exp();
                self.beyond[class] = (at_cut * decayed) as f32;
            }
        }
    }

    /// Share of the errors that go beyond so many spreads.
    pub(super) fn beyond(&self, spreads: f64) -> f64 {
        f64::from(self.beyond[((spreads / WIDTH) as usize).min(CLASSES)])
    }

    /// How many errors it knows, those of long ago for less.
    pub(super) fn known(&self) -> f64 {
        self.all / self.weight
    }

    /// Of the right size; anything else was not written by us.
    pub(super) fn is_sane(&self) -> bool {
        self.classes.len() == CLASSES
            && self.classes.iter().all(|count| count.is_finite() && *count >= 0.0)
            && self.all.is_finite()
            && self.all > 0.0
            && self.weight.is_finite()
            && self.weight > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prior_has_one_in_a_hundred_beyond_three_spreads() {
        let tail = Tail::with_prior(1500.0);
        assert!((tail.beyond(3.0) - 0.01).abs() < 0.001, "{}", tail.beyond(3.0));
        assert!((tail.beyond(0.0) - 1.0).abs() < 1e-3);
        assert!(tail.beyond(1e9) < 1e-9);
    }

    #[test]
    fn what_is_seen_takes_the_place_of_the_prior_and_old_errors_fade() {
        let mut tail = Tail::with_prior(1500.0);
        for n in 0..30_000 {
            tail.add(if n % 10 == 0 { 8.0 } else { 0.1 });
        }
        assert!((tail.beyond(5.0) - 0.1).abs() < 0.01, "{}", tail.beyond(5.0));
        for _ in 0..(6 * super::super::BINS_A_DAY) {
            tail.add(0.1);
        }
        assert!((tail.beyond(5.0) - 0.025).abs() < 0.01, "{}", tail.beyond(5.0));
    }

    #[test]
    fn beyond_never_rises() {
        let mut tail = Tail::with_prior(1500.0);
        (0..500).for_each(|n| tail.add(f64::from(n % 50)));
        assert!(tail.beyond.windows(2).all(|pair| pair[1] <= pair[0] + 1e-6));
    }
}
