//! How much later a tier is than virtual fleets say, by the queue times of its own requests.
//!
//! A virtual fleet has one queue. A real one has one for each replica: a request that came to the wrong one waits while others
//! are free, and a replica that joins gets all that arrives until it has caught up. Where pages tell how long requests
//! queued, that shows, and late minutes of all rules are counted so many times.

use serde::{Deserialize, Serialize};

use super::BINS_A_DAY;
use super::budget::Queued;

/// Bins after which a late minute counts half, as in the accounts of rules: three and a half days.
const HALF_LIFE: f64 = 3.5 * BINS_A_DAY as f64;

/// So many late minutes of either are taken to have been there: one or two tell nothing.
const PRIOR: f64 = 5.0;

/// Beyond, it isn't the queues: capacity is wrong, or something else that spare doesn't mend.
const MOST: f64 = 4.0;

/// Of a minute's requests, the share above which the minute is late.
const LATE_MINUTE: f64 = 0.01;

const BINS_A_MINUTE: i64 = 4;

/// Counts late minutes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LateMinutes {
    minute: Option<i64>,
    queued: Queued,
}

impl LateMinutes {
    /// 1 with the bin in which more than a hundredth of the minute's requests became late.
    pub(super) fn add(&mut self, bin: i64, told: Queued) -> f64 {
        let minute = bin.div_euclid(BINS_A_MINUTE);
        if self.minute != Some(minute) {
            (self.minute, self.queued) = (Some(minute), Queued::default());
        }
        let is_late = |queued: &Queued| queued.late > LATE_MINUTE * queued.requests;
        let before = is_late(&self.queued);
        self.queued.requests += told.requests;
        self.queued.late += told.late;
        f64::from(u8::from(!before && is_late(&self.queued)))
    }
}

/// Late minutes of the tier beside those of the virtual fleet whose rule it followed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Lateness {
    minutes: LateMinutes,
    /// Of the tier, decayed.
    real: f64,
    /// Of the virtual fleet.
    counted: f64,
}

impl Lateness {
    /// A bin, with the late minutes of the virtual fleet that leads.
    pub(super) fn add(&mut self, bin: i64, told: Queued, counted: f64) {
        let decay = 0.5_f64.powf(1.0 / HALF_LIFE);
        self.real = self.real * decay + self.minutes.add(bin, told);
        self.counted = self.counted * decay + counted;
    }

    /// How many times as late; never fewer: what holds more replicas than the forecast asks for makes a tier less late than its
    /// virtual fleets, and is no reason to ask for less.
    pub(super) fn times(&self) -> f64 {
        ((self.real + PRIOR) / (self.counted + PRIOR)).clamp(1.0, MOST)
    }

    pub(super) fn is_sane(&self) -> bool {
        [self.real, self.counted].iter().all(|minutes| minutes.is_finite() && *minutes >= 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::LateCount;
    use super::*;

    fn told(late: f64) -> Queued {
        Queued { requests: 100.0, late, by: LateCount::QueueTimes }
    }

    #[test]
    fn a_minute_is_late_once_with_more_than_a_hundredth_of_its_requests() {
        let mut minutes = LateMinutes::default();
        let late = [(0, 0.0), (1, 1.0), (2, 30.0), (3, 30.0), (4, 0.0)];
        let sum: f64 = late.iter().map(|(bin, late)| minutes.add(*bin, told(*late))).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn a_tier_that_is_late_for_three_times_the_minutes_counts_them_so() {
        let mut lateness = Lateness::default();
        assert!((lateness.times() - 1.0).abs() < 1e-9);
        // Thirty late minutes an hour apart, ten of which the virtual fleet saw.
        for hour in 0..30 {
            lateness.add(hour * 240, told(50.0), if hour % 3 == 0 { 1.0 } else { 0.0 });
        }
        let times = lateness.times();
        assert!((times - 35.0 / 15.0).abs() < 0.05, "{times}");
        (30..10_000).for_each(|hour| lateness.add(hour * 240, told(50.0), 0.0));
        assert!((lateness.times() - MOST).abs() < 1e-9, "bounded");
    }

    #[test]
    fn one_that_is_less_late_asks_for_no_less() {
        let mut lateness = Lateness::default();
        (0..100).for_each(|bin| lateness.add(bin, told(0.0), 1.0));
        assert!((lateness.times() - 1.0).abs() < 1e-9);
    }
}
