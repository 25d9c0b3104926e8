//! What a run looked like over time: a bounded number of buckets, however long the trace. Pure.

use super::SLOT_SECONDS;
use super::fleet::{Controller, Ended, Fleet};
use super::score::MINUTE_SLOTS;
use super::work::Work;

/// Buckets of a run: more than a screen shows are drawn over each other.
const MOST_BUCKETS: usize = 720;

/// Slots in a bucket of a trace of so many: whole minutes, and no more than [`MOST_BUCKETS`] of them.
#[must_use]
pub(super) fn slots_a_bucket(slots: usize) -> usize {
    slots.div_ceil(MOST_BUCKETS).next_multiple_of(MINUTE_SLOTS).max(MINUTE_SLOTS)
}

/// The least, the most and the mean of something.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
    sum: f64,
    count: u32,
}

impl Spread {
    pub(super) fn note(&mut self, value: f64) {
        if self.count == 0 {
            (self.least, self.most) = (value, value);
        }
        self.least = self.least.min(value);
        self.most = self.most.max(value);
        self.sum += value;
        self.count += 1;
    }

    /// The mean; 0 of nothing.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum / f64::from(self.count.max(1))
    }
}

/// Some minutes of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bucket {
    /// Work that arrives in a slot, in full replicas.
    pub demand: Spread,
    /// Replicas that serve.
    pub ready: Spread,
    /// Replicas that are paid.
    pub paid: Spread,
    /// The longest queue time at a slot's end, seconds.
    pub longest_queue_seconds: f64,
    /// Slots in which arriving work was late.
    pub late_slots: u32,
    /// Slots.
    pub slots: u32,
}

/// A run over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Length of a bucket in slots; the last one may be shorter.
    pub slots_a_bucket: usize,
    /// In the order of time, from the beginning of the trace.
    pub buckets: Vec<Bucket>,
}

impl Series {
    pub(super) fn new(slots: usize) -> Self {
        let slots_a_bucket = slots_a_bucket(slots);
        Self { slots_a_bucket, buckets: vec![Bucket::default(); slots.div_ceil(slots_a_bucket)] }
    }

    /// Seconds of a bucket.
    #[must_use]
    pub fn bucket_seconds(&self) -> f64 {
        self.slots_a_bucket as f64 * SLOT_SECONDS
    }
}

/// A controller that is watched while it plays.
pub(super) struct Watched<'a, C> {
    pub(super) controller: C,
    work: &'a Work,
    acceptable_seconds: f64,
    paid: u32,
    series: Option<Series>,
}

impl<'a, C: Controller> Watched<'a, C> {
    /// Keeps a series where one is wanted.
    pub(super) fn new(controller: C, work: &'a Work, acceptable_seconds: f64, keep: bool) -> Self {
        let series = keep.then(|| Series::new(work.len()));
        Self { controller, work, acceptable_seconds, paid: 0, series }
    }

    pub(super) fn into_parts(self) -> (C, Option<Series>) {
        (self.controller, self.series)
    }
}

impl<C: Controller> Controller for Watched<'_, C> {
    fn replicas(&mut self, slot: usize, fleet: &Fleet) -> u32 {
        self.paid = self.controller.replicas(slot, fleet);
        self.paid
    }

    fn served(&mut self, slot: usize, ended: Ended) {
        self.controller.served(slot, ended);
        let Some(series) = &mut self.series else { return };
        let at = slot / series.slots_a_bucket;
        let Some(bucket) = series.buckets.get_mut(at) else { return };
        let units = self.work.slots()[slot].units;
        bucket.demand.note(f64::from(units) / f64::from(self.work.units_per_slot));
        bucket.ready.note(f64::from(ended.ready));
        bucket.paid.note(f64::from(self.paid));
        let queue_seconds = ended.queued as f64 * self.work.unit_seconds() / f64::from(ended.ready.max(1));
        bucket.longest_queue_seconds = bucket.longest_queue_seconds.max(queue_seconds);
        bucket.late_slots +=
            u32::from(ended.queued > self.work.allowance(ended.ready, self.acceptable_seconds));
        bucket.slots += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::backtest::fleet::{Terms, play};
    use crate::backtest::rivals::{Chained, Constant};
    use crate::backtest::score::Tally;
    use crate::backtest::trace::{Arrivals, Trace};
    use crate::backtest::work::Size;
    use crate::decision::policy::TokenRates;

    fn work(slots: usize) -> Work {
        let slot =
            |n: usize| Arrivals { requests: 1.0, input_tokens: 1.0 + (n % 3) as f64, output_tokens: 0.0 };
        let trace = Trace { slots: (0..slots).map(slot).collect(), bin_seconds: 5.0, ..Trace::default() };
        let rates = TokenRates { input_tokens_per_second: 1.0, output_tokens_per_second: 1.0 };
        Work::of(&trace, rates, Size::Peak(2), 5.0).unwrap()
    }

    #[test]
    fn buckets_are_whole_minutes_and_few_however_long_the_trace() {
        assert_eq!(slots_a_bucket(1), 12);
        assert_eq!(slots_a_bucket(720 * 12), 12);
        assert_eq!(slots_a_bucket(720 * 12 + 1), 24);
        for days in [1, 7, 31, 400] {
            let series = Series::new(days * 17_280);
            assert!(
                series.buckets.len() <= MOST_BUCKETS && series.buckets.len() > MOST_BUCKETS / 3,
                "{days}"
            );
        }
    }

    #[test]
    fn a_bucket_holds_the_least_the_most_and_the_late_slots_of_its_minutes() {
        let work = work(24);
        let terms = Terms { cold_start_slots: 36, acceptable_seconds: 5.0, initial: 1 };
        let rates = TokenRates { input_tokens_per_second: 1.0, output_tokens_per_second: 1.0 };
        let constant = Chained::new(Box::new(Constant { replicas: 1 }), &work, rates, (1, 1));
        let mut watched = Watched::new(constant, &work, 5.0, true);
        let score = play(&work, &terms, &mut watched, Tally::new(5.0), &AtomicU64::new(0));
        let (_, series) = watched.into_parts();
        let series = series.unwrap();
        assert_eq!((series.buckets.len(), series.buckets[0].slots), (2, 12));
        let last = series.buckets[1];
        assert_eq!((last.ready.least, last.paid.most), (1.0, 1.0));
        assert!((last.demand.mean() - 2.0).abs() < 0.05 && last.demand.most > last.demand.least);
        assert!(score.late_work > 0.9 && last.late_slots == 12);
        assert!(last.longest_queue_seconds > 100.0);
    }
}
