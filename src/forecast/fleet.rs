//! A fleet to judge a rule by: virtual replicas that serve the real arrivals, as late and as dear as real ones would be.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::arrivals::Bin;
use super::{BIN_SECONDS, SLOT_SECONDS, SLOTS_A_BIN, Terms};

/// Slots in a minute: late work is counted by the minute.
const SLOTS_A_MINUTE: i64 = 12;

/// From the last slot that was served to the middle of the bin in which an order that knows it takes effect.
const ORDER_AFTER: i64 = 2;

/// Entries of a window. Both windows are monotone; one that long has seen as many steps within a lead or a hold.
const MOST_ENTRIES: usize = 256;

/// A fleet as a rule sees it, virtual or real.
pub trait Standing {
    /// Replicas that serve.
    fn ready(&self) -> f64;
    /// Replicas that serve or start.
    fn total(&self) -> f64;
    /// Work that waits, replica-seconds.
    fn queued(&self) -> f64;
    /// Replicas that will serve after so many bins, if nothing is ordered.
    fn ready_after(&self, bins: usize) -> f64;
}

/// What will wait one lead from now with what is ready and starting, if the load goes evenly from `from` to `to`
/// replicas. In replica-seconds.
pub(super) fn queued_ahead(standing: &impl Standing, from: f64, to: f64, lead: usize) -> f64 {
    let bins = lead.saturating_sub(1).max(1);
    (0..bins).fold(standing.queued(), |queued, bin| {
        let load = from + (to - from) * (bin as f64 + 0.5) / bins as f64;
        (queued + BIN_SECONDS * (load - standing.ready_after(bin))).max(0.0)
    })
}

/// What a slot or a bin came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Served {
    /// Replica-seconds that were paid.
    pub(super) paid: f64,
    /// Of the work that came, replica-seconds that met a queue longer than may be.
    pub(super) late_work: f64,
    /// Minutes that became late with it.
    pub(super) late_minutes: f64,
}

/// A virtual fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fleet {
    total: u32,
    /// What the slots that are being served were ordered with.
    in_effect: u32,
    /// The asks of the hold, falling from the oldest.
    asks: VecDeque<(i64, u32)>,
    /// Up to which slot no more than so many can serve, because there were no more one cold start before; the counts rise.
    ready: VecDeque<(i64, u32)>,
    queued: f64,
    serving: u32,
    slot: i64,
    late_minute: Option<i64>,
}

impl Fleet {
    /// One with so many replicas, all of them ready.
    pub(super) fn of(replicas: u32, slot: i64) -> Self {
        Self {
            total: replicas,
            in_effect: replicas,
            asks: VecDeque::new(),
            ready: VecDeque::new(),
            queued: 0.0,
            serving: replicas,
            slot,
            late_minute: None,
        }
    }

    /// Serves a slot. It is late when more waits than `slack` seconds of what serves.
    pub(super) fn serve(&mut self, slot: i64, work: f64, start_slots: i64, slack: f64) -> Served {
        let there = self.in_effect;
        while self.ready.back().is_some_and(|back| back.1 >= there) {
            self.ready.pop_back();
        }
        self.ready.push_back((slot + start_slots, there));
        while self.ready.front().is_some_and(|front| front.0 < slot) || self.ready.len() > MOST_ENTRIES {
            self.ready.pop_front();
        }
        self.slot = slot;
        self.serving = self.ready.front().map_or(there, |front| front.1);
        let capacity = f64::from(self.serving);
        self.queued = (self.queued + work - capacity * SLOT_SECONDS).max(0.0);
        let minute = slot.div_euclid(SLOTS_A_MINUTE);
        let late = self.queued > slack * capacity + 1e-9;
        let late_minute = late && self.late_minute != Some(minute);
        if late_minute {
            self.late_minute = Some(minute);
        }
        Served {
            paid: f64::from(there) * SLOT_SECONDS,
            late_work: if late { work } else { 0.0 },
            late_minutes: f64::from(u8::from(late_minute)),
        }
    }

    /// Serves a bin.
    pub(super) fn serve_bin(&mut self, bin: &Bin, terms: &Terms) -> Served {
        let mut sum = Served::default();
        for (at, work) in bin.slots.iter().enumerate() {
            let slot = bin.number * SLOTS_A_BIN as i64 + at as i64;
            let served = self.serve(slot, *work, terms.start_slots, terms.slack_seconds);
            sum.paid += served.paid;
            sum.late_work += served.late_work;
            sum.late_minutes += served.late_minutes;
        }
        sum
    }

    /// Orders for an ask: the largest of the hold.
    pub(super) fn order(&mut self, replicas: u32, slot: i64, hold_slots: i64) {
        while self.asks.back().is_some_and(|back| back.1 <= replicas) {
            self.asks.pop_back();
        }
        self.asks.push_back((slot, replicas));
        while self.asks.front().is_some_and(|front| front.0 + hold_slots < slot)
            || self.asks.len() > MOST_ENTRIES
        {
            self.asks.pop_front();
        }
        self.in_effect = self.total;
        self.total = self.asks.front().map_or(replicas, |front| front.1);
    }

    /// Its work in a unit of which it takes so many times as many. Its replicas stay: they are ordered anew soon.
    pub(super) fn rescale(&mut self, times: f64) {
        self.queued *= times;
    }

    pub(super) fn is_sane(&self) -> bool {
        self.queued.is_finite() && self.ready.len() <= MOST_ENTRIES && self.asks.len() <= MOST_ENTRIES
    }
}

impl Standing for Fleet {
    fn ready(&self) -> f64 {
        f64::from(self.serving)
    }

    fn total(&self) -> f64 {
        f64::from(self.total)
    }

    fn queued(&self) -> f64 {
        self.queued
    }

    fn ready_after(&self, bins: usize) -> f64 {
        let at = self.slot + ORDER_AFTER + (bins * SLOTS_A_BIN) as i64;
        let ready = self.ready.iter().find(|entry| entry.0 >= at).map_or(self.total, |entry| entry.1);
        f64::from(ready.min(self.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 36;

    /// Serves a bin, then orders.
    fn bin(fleet: &mut Fleet, bin: i64, load: f64, ask: u32, hold: i64) -> bool {
        let slots = (0..3)
            .map(|slot| fleet.serve(3 * bin + slot, load * SLOT_SECONDS, START, 5.0).late_minutes > 0.0);
        let late = slots.fold(false, |late, slot| late | slot);
        fleet.order(ask, 3 * bin + 6, hold);
        late
    }

    #[test]
    fn an_order_serves_one_cold_start_after_it_took_effect() {
        let mut fleet = Fleet::of(2, 0);
        bin(&mut fleet, 0, 1.0, 5, START);
        let serving: Vec<u32> = (1..20)
            .map(|n| {
                bin(&mut fleet, n, 1.0, 5, START);
                fleet.serving
            })
            .collect();
        // Ordered at slot 6, so ready at slot 42, which is in bin 14.
        assert_eq!(serving[12], 2, "{serving:?}");
        assert_eq!(serving[13], 5, "{serving:?}");
    }

    #[test]
    fn what_is_given_back_is_gone_at_once_and_only_after_the_hold() {
        let mut fleet = Fleet::of(5, 0);
        bin(&mut fleet, 0, 1.0, 5, 12);
        for n in 1..=5 {
            bin(&mut fleet, n, 1.0, 2, 12);
        }
        assert_eq!(fleet.total, 2, "the five were asked for at slot 6 and held for twelve slots");
        bin(&mut fleet, 6, 1.0, 2, 12);
        bin(&mut fleet, 7, 1.0, 2, 12);
        assert_eq!(fleet.serving, 2);
    }

    #[test]
    fn a_minute_is_late_once_when_more_waits_than_may() {
        let mut fleet = Fleet::of(1, 0);
        let late = (0..8).filter(|n| bin(&mut fleet, *n, 2.0, 1, 12)).count();
        assert_eq!(late, 2, "in each of two minutes");
        assert!((fleet.queued() - 120.0).abs() < 1e-9, "{}", fleet.queued());
    }

    #[test]
    fn work_is_late_when_it_meets_a_queue_that_is_too_long() {
        let mut fleet = Fleet::of(1, 0);
        let late: Vec<f64> = (0..4).map(|slot| fleet.serve(slot, 10.0, START, 5.0).late_work).collect();
        assert_eq!(late, [0.0, 10.0, 10.0, 10.0], "5 s wait after the first slot, 10 s after the second");
    }

    #[test]
    fn what_will_wait_counts_what_is_starting() {
        let mut fleet = Fleet::of(2, 0);
        bin(&mut fleet, 0, 2.0, 4, START);
        bin(&mut fleet, 1, 2.0, 4, START);
        let never = queued_ahead(&fleet, 2.0, 2.0, 14);
        assert!(never < 1e-9, "{never}");
        let grows = queued_ahead(&fleet, 4.0, 4.0, 14);
        assert!(grows > 250.0 && grows < 13.0 * 15.0 * 2.0, "{grows}");
    }
}
