//! Fleets that know what nobody knows: the constant one that is just large enough, and an oracle that sees one cold start
//! ahead. Pure.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::backtest::SLOT_SECONDS;
use crate::backtest::fleet::Terms;
use crate::backtest::rival::{Rival, Seen, Wish};
use crate::backtest::work::Work;
use crate::simulate::Moment;
use crate::simulate::autoscaler::AutoscalerSettings;

/// As many replicas as there were.
pub struct Constant {
    /// How many.
    pub replicas: u32,
}

impl Rival for Constant {
    fn metric_age(&self) -> Duration {
        Duration::ZERO
    }

    fn chain(&self, _: u32, _: u32) -> Option<AutoscalerSettings> {
        None
    }

    fn wish(&mut self, _: Moment, _: &Seen) -> Wish {
        Wish::Replicas(self.replicas)
    }
}

/// The smallest constant fleet without a late slot.
pub(in crate::backtest) fn smallest_constant(work: &Work, terms: &Terms) -> u32 {
    let busiest = work.slots().iter().map(|slot| slot.units).max().unwrap_or(0);
    // So many never queue.
    let (mut late, mut enough) = (0, busiest.div_ceil(work.units_per_slot).max(1));
    while enough - late > 1 {
        let middle = late + (enough - late) / 2;
        if is_late(work, terms, middle) { late = middle } else { enough = middle }
    }
    enough
}

fn is_late(work: &Work, terms: &Terms, replicas: u32) -> bool {
    let capacity = u64::from(replicas * work.units_per_slot);
    let allowance = work.allowance(replicas, terms.acceptable_seconds);
    let mut queued = 0_u64;
    work.slots().iter().any(|slot| {
        queued = (queued + u64::from(slot.units)).saturating_sub(capacity);
        queued > allowance
    })
}

/// Has at any time the smallest fleet with which nothing is late until one cold start later, when what it orders now is
/// ready. It gives back at once what isn't needed until then: later it can be ordered again in time, and a start costs as
/// much as a cold start's hold. It was proposed as a bound for autoscalers (llm-d WVA, issue 1499) without the queue that
/// is acceptable; with it, it pays less.
pub struct Oracle {
    schedule: Arc<[u32]>,
}

impl Oracle {
    /// Plays a schedule of a replica count for each slot of [`SLOT_SECONDS`]; see [`foresee`].
    #[must_use]
    pub fn new(schedule: Arc<[u32]>) -> Self {
        Self { schedule }
    }
}

impl Rival for Oracle {
    fn metric_age(&self) -> Duration {
        Duration::ZERO
    }

    fn chain(&self, _: u32, _: u32) -> Option<AutoscalerSettings> {
        None
    }

    fn wish(&mut self, now: Moment, _: &Seen) -> Wish {
        let slot = (now.seconds() / SLOT_SECONDS + 1e-6) as usize;
        self.schedule.get(slot).map_or(Wish::Keep, |replicas| Wish::Replicas(*replicas))
    }
}

/// The oracle's schedule, slot by slot, on a fleet of fluid replicas that starts with what the first slot needs.
pub(in crate::backtest) fn foresee(work: &Work, terms: &Terms, most: u32) -> Arc<[u32]> {
    let mut eye = Eye { work, terms, ready: VecDeque::new(), queued: 0 };
    // The first are there when the trace begins.
    let first = eye.smallest(0, 1, most, 0);
    eye.ready.resize(first as usize, 0);
    let mut schedule = Vec::with_capacity(work.len());
    for slot in 0..work.len() {
        let wanted = eye.smallest(
            slot,
            schedule.last().copied().unwrap_or(first),
            most,
            terms.cold_start_slots as usize,
        );
        eye.ready.resize(wanted as usize, slot + terms.cold_start_slots as usize);
        eye.pass(slot);
        schedule.push(wanted);
    }
    schedule.into()
}

/// The oracle at work.
struct Eye<'a> {
    work: &'a Work,
    terms: &'a Terms,
    /// The slot in which each replica gets ready, rising.
    ready: VecDeque<usize>,
    queued: u64,
}

impl Eye<'_> {
    /// The smallest fleet that is not late until one cold start from now, where those that are ordered now get ready
    /// after `start` slots. Found by steps from a guess: it is seldom far.
    fn smallest(&self, slot: usize, guess: u32, most: u32, start: usize) -> u32 {
        let mut replicas = guess.clamp(1, most);
        let is_enough = |replicas| self.is_enough(slot, replicas, start);
        if is_enough(replicas) {
            while replicas > 1 && is_enough(replicas - 1) {
                replicas -= 1;
            }
            return replicas;
        }
        while replicas < most && !is_enough(replicas) {
            replicas += 1;
        }
        replicas
    }

    fn is_enough(&self, slot: usize, replicas: u32, start: usize) -> bool {
        let until = (slot + self.terms.cold_start_slots as usize + 1).min(self.work.len());
        let kept = self.ready.len().min(replicas as usize);
        let mut ready = 0;
        let mut queued = self.queued;
        for at in slot..until {
            while ready < kept && self.ready[ready] <= at {
                ready += 1;
            }
            let ordered = if at >= slot + start { replicas as usize - kept } else { 0 };
            let serving = (ready + ordered) as u32;
            queued = self.after(at, queued, serving);
            if queued > self.work.allowance(serving, self.terms.acceptable_seconds) {
                return false;
            }
        }
        true
    }

    /// What is queued after a slot.
    fn after(&self, slot: usize, queued: u64, serving: u32) -> u64 {
        let capacity = u64::from(serving) * u64::from(self.work.units_per_slot);
        (queued + u64::from(self.work.slots()[slot].units)).saturating_sub(capacity)
    }

    /// Serves a slot.
    fn pass(&mut self, slot: usize) {
        let serving = self.ready.iter().take_while(|ready| **ready <= slot).count() as u32;
        self.queued = self.after(slot, self.queued, serving);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::work;
    use super::*;

    const TERMS: Terms = Terms { cold_start_slots: 36, acceptable_seconds: 5.0, initial: 5 };

    #[test]
    fn the_constant_fleet_is_the_smallest_that_is_never_late() {
        let mut load = vec![2.0; 200];
        load[60..72].fill(10.0);
        let work = work(&load, 10);
        let enough = smallest_constant(&work, &TERMS);
        assert!(!is_late(&work, &TERMS, enough));
        assert!(is_late(&work, &TERMS, enough - 1));
        // 10 for a minute: 9 replicas lack 60 replica-seconds at its end, and may lack 45.
        assert_eq!(enough, 10);
    }

    #[test]
    fn the_oracle_orders_one_cold_start_ahead_and_gives_back_at_once() {
        let mut load = vec![2.0; 300];
        load[100..160].fill(6.0);
        let work = work(&load, 6);
        let schedule = foresee(&work, &TERMS, 20);
        // What is ordered at 64 is ready at 100. The first 5 s of queue are acceptable, so that not all are needed at once.
        assert_eq!(schedule[62..68], [2, 2, 3, 5, 5, 6]);
        assert_eq!(schedule[150], 6);
        assert_eq!(schedule[160..163], [4, 3, 2], "as fast as the queue is served");
        assert_eq!((schedule[0], schedule[299]), (2, 2));
    }

    #[test]
    fn the_oracle_keeps_what_it_needs_again_within_a_cold_start() {
        let gap = |slots: usize| {
            let mut load = vec![6.0; 200];
            load[100..100 + slots].fill(2.0);
            let schedule = foresee(&work(&load, 6), &TERMS, 20);
            schedule[100..100 + slots].iter().copied().min()
        };
        assert_eq!((gap(30), gap(60)), (Some(6), Some(2)));
    }
}
