//! A fleet of fluid replicas before one queue, and the loop in which a controller sizes it. Pure.
//!
//! A replica that is ordered in a slot is paid from that slot on and ready one cold start later. Giving back is immediate:
//! the newest go first, so those that still start. Work arrives in a slot, waits in one queue, and is served in order.

use std::sync::atomic::{AtomicU64, Ordering};

use super::SLOT_SECONDS;
use super::score::{Score, Tally};
use super::work::Work;

/// How often a job tells how far it is, in slots.
pub(super) const TELL_EVERY: usize = 4096;

/// What a fleet is played under.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// Slots from an order until the replica is ready.
    pub(super) cold_start_slots: u32,
    /// Work that queues longer is late, seconds.
    pub(super) acceptable_seconds: f64,
    /// Replicas that are ready when the trace begins.
    pub(super) initial: u32,
}

/// One replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replica {
    /// Counted over the run; never used again.
    pub(super) serial: u64,
    /// The slot of its order; None for those that were there when the trace began.
    pub(super) ordered: Option<usize>,
    /// From this slot on it serves.
    pub(super) ready: usize,
}

/// The replicas of a tier, the oldest first.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    replicas: Vec<Replica>,
    ready: usize,
    next_serial: u64,
    cold_start_slots: usize,
}

impl Fleet {
    pub(super) fn new(terms: &Terms) -> Self {
        let initial = u64::from(terms.initial);
        let there = |serial| Replica { serial, ordered: None, ready: 0 };
        Self {
            replicas: (0..initial).map(there).collect(),
            ready: initial as usize,
            next_serial: initial,
            cold_start_slots: terms.cold_start_slots as usize,
        }
    }

    /// All that are paid for.
    pub(super) fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// Paid replicas.
    pub(super) fn size(&self) -> u32 {
        self.replicas.len() as u32
    }

    /// Replicas that serve.
    pub(super) fn ready(&self) -> u32 {
        self.ready as u32
    }

    /// Replicas ordered so far.
    fn starts(&self, initial: u32) -> u64 {
        self.next_serial - u64::from(initial)
    }

    pub(super) fn begin(&mut self, slot: usize) {
        while self.replicas.get(self.ready).is_some_and(|replica| replica.ready <= slot) {
            self.ready += 1;
        }
    }

    /// Orders up to so many, or gives back down to so many.
    pub(super) fn scale(&mut self, replicas: u32, slot: usize) {
        self.replicas.truncate(replicas as usize);
        self.ready = self.ready.min(self.replicas.len());
        while self.replicas.len() < replicas as usize {
            let ready = slot + self.cold_start_slots;
            self.replicas.push(Replica { serial: self.next_serial, ordered: Some(slot), ready });
            self.next_serial += 1;
        }
        // Without a cold start they serve at once.
        self.begin(slot);
    }
}

/// Whoever sizes a fleet.
pub(super) trait Controller {
    /// The replicas to have from the beginning of this slot on. What arrived and was served before it has happened.
    fn replicas(&mut self, slot: usize, fleet: &Fleet) -> u32;

    /// A slot is over: what was served in it, what is queued at its end.
    fn served(&mut self, slot: usize, ended: Ended);
}

/// The end of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// Units served.
    pub(super) served: u64,
    /// Units that wait.
    pub(super) queued: u64,
    /// Replicas that served.
    pub(super) ready: u32,
}

/// Plays all of the work. `done` counts slots.
pub(super) fn play(
    work: &Work,
    terms: &Terms,
    controller: &mut impl Controller,
    mut tally: Tally,
    done: &AtomicU64,
) -> Score {
    let mut fleet = Fleet::new(terms);
    let mut queued = 0_u64;
    for (slot, arriving) in work.slots().iter().enumerate() {
        fleet.begin(slot);
        let wanted = controller.replicas(slot, &fleet);
        if wanted != fleet.size() {
            fleet.scale(wanted, slot);
        }
        let ready = fleet.ready();
        let there = queued + u64::from(arriving.units);
        let served = there.min(u64::from(ready) * u64::from(work.units_per_slot));
        queued = there - served;
        controller.served(slot, Ended { served, queued, ready });
        tally.note(work, slot, queued, ready, fleet.size());
        if (slot + 1) % TELL_EVERY == 0 {
            done.fetch_add(TELL_EVERY as u64, Ordering::Relaxed);
        }
    }
    done.fetch_add((work.len() % TELL_EVERY) as u64, Ordering::Relaxed);
    tally.score(work.len() as f64 * SLOT_SECONDS, fleet.starts(terms.initial))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { cold_start_slots: 36, acceptable_seconds: 5.0, initial: 2 };

    #[test]
    fn an_order_is_paid_at_once_and_serves_one_cold_start_later() {
        let mut fleet = Fleet::new(&TERMS);
        fleet.scale(5, 10);
        assert_eq!((fleet.size(), fleet.ready(), fleet.starts(2)), (5, 2, 3));
        fleet.begin(45);
        assert_eq!(fleet.ready(), 2);
        fleet.begin(46);
        assert_eq!(fleet.ready(), 5);
    }

    #[test]
    fn those_that_start_are_given_back_first() {
        let mut fleet = Fleet::new(&TERMS);
        fleet.scale(4, 0);
        fleet.scale(3, 5);
        assert_eq!((fleet.size(), fleet.ready()), (3, 2));
        fleet.scale(1, 6);
        assert_eq!((fleet.size(), fleet.ready()), (1, 1));
        fleet.scale(2, 7);
        assert_eq!(fleet.replicas()[1], Replica { serial: 4, ordered: Some(7), ready: 43 });
    }
}
