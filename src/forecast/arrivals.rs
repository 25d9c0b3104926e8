//! From what was offered up to each round to loads of whole bins.
//!
//! Bins lie on the grid of the wall clock, so that two scalers which see the same replicas see the same bins.

use serde::{Deserialize, Serialize};

use super::{SLOT_SECONDS, SLOTS_A_BIN};

/// Milliseconds of a slot.
const SLOT_MILLIS: i64 = (SLOT_SECONDS * 1000.0) as i64;

/// Rounds further apart than this saw nothing of what was between them, in milliseconds.
const UNSEEN_AFTER: i64 = 60_000;

/// A gap of more bins than this isn't filled: what is remembered of the time before it is of another time. An hour.
pub(super) const LONGEST_GAP: i64 = 240;

/// A bin that is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bin {
    /// Counted from the epoch.
    pub(super) number: i64,
    /// Work that was offered in each of its slots, replica-seconds.
    pub(super) slots: [f64; SLOTS_A_BIN],
    /// All of it was seen.
    pub(super) seen: bool,
}

impl Bin {
    /// One that nobody saw.
    pub(super) fn unseen(number: i64) -> Self {
        Self { number, slots: [0.0; SLOTS_A_BIN], seen: false }
    }

    /// Mean load, replicas.
    pub(super) fn load(&self) -> f64 {
        self.slots.iter().sum::<f64>() / (SLOT_SECONDS * SLOTS_A_BIN as f64)
    }
}

/// What was offered, slot by slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Arrivals {
    /// When it was looked last, in milliseconds since the epoch.
    last: Option<i64>,
    /// The bin that is being filled.
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Open {
    number: i64,
    slots: [f64; SLOTS_A_BIN],
    seen: bool,
}

impl Arrivals {
    /// The clock was set back since the last round.
    pub(super) fn is_behind(&self, at: i64) -> bool {
        self.last.is_some_and(|last| at < last)
    }

    /// `work` was offered since the last round; None where nobody can say. Gives the bins that are over, oldest first.
    pub(super) fn add(&mut self, at: i64, work: Option<f64>, mut over: impl FnMut(Bin)) {
        let Some(last) = self.last.filter(|last| *last <= at) else {
            // The first round, or the clock was set back: nothing is known of what was before.
            *self = Self { last: Some(at), open: Some(Open::unseen(bin_of(at))) };
            return;
        };
        let seen = work.is_some() && at - last <= UNSEEN_AFTER;
        if bin_of(at) - bin_of(last) > LONGEST_GAP {
            *self = Self { last: Some(at), open: Some(Open::unseen(bin_of(at))) };
            return;
        }
        let rate = work.unwrap_or(0.0).max(0.0) / (at - last).max(1) as f64;
        let mut from = last;
        loop {
            let slot = from.div_euclid(SLOT_MILLIS);
            let until = ((slot + 1) * SLOT_MILLIS).min(at);
            let number = slot.div_euclid(SLOTS_A_BIN as i64);
            let mut open = self.open.take().unwrap_or_else(|| Open::unseen(number));
            if open.number != number {
                over(open.into_bin());
                open = Open { number, slots: [0.0; SLOTS_A_BIN], seen: true };
            }
            open.seen &= seen || until == from;
            open.slots[slot.rem_euclid(SLOTS_A_BIN as i64) as usize] += rate * (until - from) as f64;
            self.open = Some(open);
            from = until;
            if from >= at {
                break;
            }
        }
        // A round at the very end of a bin closes it.
        if let Some(open) = self.open.filter(|open| open.number < bin_of(at)) {
            over(open.into_bin());
            self.open = Some(Open { number: bin_of(at), slots: [0.0; SLOTS_A_BIN], seen: true });
        }
        self.last = Some(at);
    }

    pub(super) fn millis_since(&self, at: i64) -> Option<i64> {
        self.last.map(|last| at - last).filter(|passed| *passed >= 0)
    }

    /// See `Loads::rescale`.
    pub(super) fn rescale(&mut self, times: f64) {
        if let Some(open) = &mut self.open {
            open.slots.iter_mut().for_each(|work| *work *= times);
        }
    }

    /// Another process looks from here on.
    pub(super) fn resume(&mut self) {
        self.last = None;
    }
}

impl Open {
    fn unseen(number: i64) -> Self {
        Self { number, slots: [0.0; SLOTS_A_BIN], seen: false }
    }

    fn into_bin(self) -> Bin {
        Bin { number: self.number, slots: self.slots, seen: self.seen }
    }
}

pub(super) fn bin_of(at: i64) -> i64 {
    at.div_euclid(SLOT_MILLIS * SLOTS_A_BIN as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(arrivals: &mut Arrivals, at: f64, work: Option<f64>) -> Vec<Bin> {
        let mut bins = Vec::new();
        arrivals.add((at * 1000.0) as i64, work, |bin| bins.push(bin));
        bins
    }

    #[test]
    fn work_falls_into_the_slots_between_two_rounds() {
        let mut arrivals = Arrivals::default();
        assert!(take(&mut arrivals, 30.0, Some(99.0)).is_empty(), "before the first round nothing is known");
        assert!(take(&mut arrivals, 35.0, Some(5.0)).is_empty());
        assert!(take(&mut arrivals, 42.5, Some(15.0)).is_empty());
        // The first bin began with the first round, so nobody knows that it saw all of it.
        let bins = take(&mut arrivals, 47.5, Some(10.0));
        assert_eq!(bins, [Bin { number: 2, slots: [5.0, 10.0, 10.0], seen: false }]);
        let bins = take(&mut arrivals, 60.0, Some(12.5));
        assert_eq!(bins, [Bin { number: 3, slots: [7.5, 5.0, 5.0], seen: true }]);
        assert!((bins[0].load() - 17.5 / 15.0).abs() < 1e-12);
    }

    #[test]
    fn what_nobody_saw_makes_bins_that_were_not_seen() {
        let mut arrivals = Arrivals::default();
        take(&mut arrivals, 0.0, None);
        take(&mut arrivals, 15.0, Some(15.0));
        let unseen: Vec<bool> = take(&mut arrivals, 45.0, None).iter().map(|bin| bin.seen).collect();
        assert_eq!(unseen, [false, false]);
        let late: Vec<bool> = take(&mut arrivals, 120.0, Some(900.0)).iter().map(|bin| bin.seen).collect();
        assert_eq!(late, [false; 5], "a lump after more than a minute says nothing of when it came");
        assert!(take(&mut arrivals, 135.0, Some(15.0))[0].seen);
    }

    #[test]
    fn a_clock_that_jumps_begins_anew() {
        let mut arrivals = Arrivals::default();
        take(&mut arrivals, 1000.0, None);
        assert!(take(&mut arrivals, 10.0, Some(1.0)).is_empty());
        assert!(take(&mut arrivals, 9_000_000.0, Some(1.0)).is_empty());
        assert_eq!(take(&mut arrivals, 9_000_030.0, Some(30.0)).len(), 2);
    }
}
