//! Whatever arrives, summed in slots. The one place that bounds how long a trace may be.

use super::{Arrivals, MOST_SLOTS, SLOT_SECONDS, Trace};

/// Shares of a bin below this are rounding.
const NO_SHARE: f64 = 1e-9;

/// Is there room for more?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    More,
    NoMore,
}

/// A trace that grows.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Arrivals>,
    /// Slots that are wanted; later ones are passed over.
    wanted: usize,
}

impl Slots {
    pub(super) fn new(wanted: Option<usize>) -> Self {
        Self { slots: Vec::new(), wanted: wanted.unwrap_or(usize::MAX) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn into_trace(self, bin_seconds: f64, rows: u64) -> Trace {
        Trace { slots: self.slots, bin_seconds, rows, begins: None }
    }

    /// Does this time, seconds, lie after all that is wanted?
    pub(super) fn is_past(&self, seconds: f64) -> bool {
        (seconds / SLOT_SECONDS + NO_SHARE).floor() as usize >= self.wanted
    }

    /// What arrived evenly between two times, seconds.
    pub(super) fn spread(&mut self, start: f64, end: f64, arrivals: Arrivals) -> Result<Wants, String> {
        let mut slot = (start / SLOT_SECONDS + NO_SHARE).floor() as usize;
        loop {
            let (from, to) = (slot as f64 * SLOT_SECONDS, (slot + 1) as f64 * SLOT_SECONDS);
            let share = (end.min(to) - start.max(from)) / (end - start);
            if share <= NO_SHARE {
                return Ok(Wants::More);
            }
            if slot >= self.wanted {
                return Ok(Wants::NoMore);
            }
            self.add(slot, arrivals, share)?;
            slot += 1;
        }
    }

    /// What arrived at an instant, seconds.
    pub(super) fn at(&mut self, seconds: f64, arrivals: Arrivals) -> Result<Wants, String> {
        let slot = (seconds / SLOT_SECONDS).floor() as usize;
        if slot >= self.wanted {
            return Ok(Wants::NoMore);
        }
        self.add(slot, arrivals, 1.0)?;
        Ok(Wants::More)
    }

    fn add(&mut self, slot: usize, arrivals: Arrivals, share: f64) -> Result<(), String> {
        if slot >= MOST_SLOTS {
            return Err("the trace is longer than 400 days: take a part of it with --days".to_owned());
        }
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, Arrivals::default());
        }
        let here = &mut self.slots[slot];
        here.requests += arrivals.requests * share;
        here.input_tokens += arrivals.input_tokens * share;
        here.output_tokens += arrivals.output_tokens * share;
        Ok(())
    }
}
