//! What a run came to: its price, and who waited. Pure.
//!
//! The queue time of a slot's work is the queue at the slot's end over what is ready: the time that the last of it waits
//! if nothing changes. Work is late, and so are its slot and its minute, when that is longer than the acceptable queue
//! time. The clairvoyant is held to the same measure.

use serde::Serialize;

use super::SLOT_SECONDS;
use super::work::Work;
use crate::simulate::distribution::Distribution;

/// Slots of a minute.
pub(super) const MINUTE_SLOTS: usize = 12;

/// Minutes of a week.
pub(super) const WEEK_MINUTES: f64 = 7.0 * 24.0 * 60.0;

/// Bounds of the queue times: 0, and from a hundredth of a second by steps of 2 % to beyond a day. A quantile is the bound
/// at or above it, so it is at most 2 % too long.
const FIRST_BOUND_MILLIS: f64 = 10.0;
/// See [`FIRST_BOUND_MILLIS`].
const BOUND_GROWTH: f64 = 1.02;
/// See [`FIRST_BOUND_MILLIS`].
const BOUNDS: i32 = 820;

/// Price and lateness of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Score {
    /// Replicas times hours, from order to release.
    pub gpu_hours: f64,
    /// Share of the work that queued longer than acceptable, 0 to 1.
    pub late_work: f64,
    /// Minutes with late work, a week.
    pub late_minutes_a_week: f64,
    /// Replicas ordered.
    pub starts: u64,
    /// Queue times of the work.
    pub queue_seconds: QueueTimes,
    /// Times to the first token; None where the model of the fleet has no tokens.
    #[serde(rename = "firstTokenSeconds", skip_serializing_if = "Option::is_none")]
    pub first_token: Option<QueueTimes>,
    /// Requests that were never answered; None where the model of the fleet loses none.
    #[serde(rename = "lostRequests", skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}

/// Quantiles of the queue time over the work, seconds. At most 2 % too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct QueueTimes {
    /// Half of the work waits no longer.
    pub p50: f64,
    /// 95 % of it.
    pub p95: f64,
    /// 99 % of it.
    pub p99: f64,
}

/// A score on its way.
pub(super) struct Tally {
    acceptable_seconds: f64,
    /// Nothing before this slot is counted.
    from: usize,
    /// Paid replicas of the slot before.
    paid_before: u32,
    /// Replicas ordered before `from`.
    starts_before: u64,
    paid_slots: u64,
    late_units: u64,
    units: u64,
    late_minutes: u64,
    /// The last minute that was counted late.
    last_late: Option<usize>,
    times: Distribution,
}

impl Tally {
    /// Counts queue times longer than this as late.
    pub(super) fn new(acceptable_seconds: f64) -> Self {
        let above = (0..BOUNDS).map(|n| (FIRST_BOUND_MILLIS * BOUND_GROWTH.powi(n)).round() as u64);
        Self {
            acceptable_seconds,
            from: 0,
            paid_before: 0,
            starts_before: 0,
            paid_slots: 0,
            late_units: 0,
            units: 0,
            late_minutes: 0,
            last_late: None,
            times: Distribution::new(std::iter::once(0).chain(above).collect()),
        }
    }

    /// Counts from this slot on, in a run that begins with so many replicas.
    pub(super) fn from(self, slot: usize, initial: u32) -> Self {
        Self { from: slot, paid_before: initial, ..self }
    }

    /// The end of a slot: units queued, replicas that are ready, and all that are paid.
    pub(super) fn note(&mut self, work: &Work, slot: usize, queued: u64, ready: u32, paid: u32) {
        if slot < self.from {
            // A slot orders or gives back, never both.
            self.starts_before += u64::from(paid.saturating_sub(self.paid_before));
            self.paid_before = paid;
            return;
        }
        let arrived = u64::from(work.slots()[slot].units);
        self.paid_slots += u64::from(paid);
        self.units += arrived;
        if queued > work.allowance(ready, self.acceptable_seconds) {
            self.late_units += arrived;
            let minute = slot / MINUTE_SLOTS;
            if self.last_late != Some(minute) {
                self.last_late = Some(minute);
                self.late_minutes += 1;
            }
        }
        let millis = 1e3 * queued as f64 * work.unit_seconds() / f64::from(ready.max(1));
        self.times.observe(millis.round() as u64, arrived);
    }

    /// Over a run of so many seconds, those that are not counted included.
    pub(super) fn score(self, seconds: f64, starts: u64) -> Score {
        let seconds = seconds - self.from as f64 * SLOT_SECONDS;
        Score {
            gpu_hours: self.paid_slots as f64 * SLOT_SECONDS / 3600.0,
            late_work: self.late_units as f64 / self.units.max(1) as f64,
            late_minutes_a_week: self.late_minutes as f64 * WEEK_MINUTES * 60.0 / seconds.max(SLOT_SECONDS),
            starts: starts.saturating_sub(self.starts_before),
            queue_seconds: QueueTimes {
                p50: quantile(&self.times, 0.5),
                p95: quantile(&self.times, 0.95),
                p99: quantile(&self.times, 0.99),
            },
            first_token: None,
            lost: None,
        }
    }
}

/// The bound at or above a quantile, seconds.
fn quantile(times: &Distribution, q: f64) -> f64 {
    let rank = (times.count() as f64 * q).ceil() as u64;
    let mut last = 0;
    for (bound, below) in times.cumulative() {
        last = bound;
        if below >= rank {
            break;
        }
    }
    last as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::trace::{Arrivals, Trace};
    use crate::backtest::work::Size;
    use crate::decision::policy::TokenRates;

    /// 24 slots of one replica's work each: 20 units.
    fn steady() -> Work {
        let slot = Arrivals { requests: 1.0, input_tokens: 800.0, output_tokens: 70.0 };
        let trace = Trace { slots: vec![slot; 24], bin_seconds: 5.0, ..Trace::default() };
        let rates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };
        Work::of(&trace, rates, Size::Peak(1), 5.0).unwrap()
    }

    #[test]
    fn work_is_late_beyond_the_acceptable_queue_and_its_minute_counts_once() {
        let (work, mut tally) = (steady(), Tally::new(5.0));
        for slot in 0..24 {
            // Two replicas: 5 s are 40 units.
            let queued = if (3..9).contains(&slot) { 41 } else { 40 };
            tally.note(&work, slot, queued, 2, 3);
        }
        let score = tally.score(120.0, 7);
        assert!((score.late_work - 0.25).abs() < 1e-9);
        assert!((score.late_minutes_a_week - 10_080.0 / 2.0).abs() < 1e-6);
        assert!((score.gpu_hours - 3.0 * 120.0 / 3600.0).abs() < 1e-9);
        assert_eq!(score.starts, 7);
        assert!((5.0..5.11).contains(&score.queue_seconds.p50), "{:?}", score.queue_seconds);
        assert!((5.125..5.23).contains(&score.queue_seconds.p99), "{:?}", score.queue_seconds);
    }

    #[test]
    fn what_came_before_the_first_scored_slot_is_not_counted() {
        let (work, mut tally) = (steady(), Tally::new(5.0).from(12, 2));
        for slot in 0..24 {
            let paid = if slot < 6 { 3 } else { 4 };
            tally.note(&work, slot, if slot < 12 { 100 } else { 0 }, 2, paid);
        }
        let score = tally.score(120.0, 2 + 5);
        assert_eq!((score.late_work, score.late_minutes_a_week), (0.0, 0.0));
        assert!((score.gpu_hours - 4.0 * 60.0 / 3600.0).abs() < 1e-9);
        assert_eq!(score.starts, 5, "two were ordered before");
    }

    #[test]
    fn without_a_queue_nothing_waits() {
        let (work, mut tally) = (steady(), Tally::new(5.0));
        (0..24).for_each(|slot| tally.note(&work, slot, 0, 1, 1));
        let score = tally.score(120.0, 0);
        assert_eq!((score.late_work, score.late_minutes_a_week), (0.0, 0.0));
        assert_eq!(score.queue_seconds, QueueTimes::default());
    }
}
