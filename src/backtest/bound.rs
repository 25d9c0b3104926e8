//! What a clairvoyant would have paid. Pure, and exact on the quantised work.
//!
//! It knows all arrivals, pays the same cold start for each replica that it adds, and lets nothing queue longer than the
//! acceptable time. `x` are the ready replicas of a slot, `q` what is queued at its beginning:
//!
//! ```text
//! V_t(p, q) = min over x of  slot x + start max(0, x - p) + V_t+1(x, q'),   q' = max(0, q + w_t - x),   q' <= allowance(x)
//! ```
//!
//! from the last slot back to the first, whose replicas are free of a start, as they are for every policy. The minimum is
//! taken over `x <= p` as a running one upward and over `x >= p` as a running one downward, so a slot costs as many steps
//! as there are states. Work is in whole units, so no queue is ever rounded.
//!
//! The recursion is that of dynamic right-sizing with start-up cost (Lu and Chen, arXiv 1112.0442; Albers and Quedenfeld,
//! arXiv 1807.05112), with the queue as a second state.

use std::sync::atomic::{AtomicU64, Ordering};

use super::SLOT_SECONDS;
use super::fleet::{TELL_EVERY, Terms};
use super::work::Work;

/// Values of the states of one slot: a row a number of replicas, from one on, a column a unit of queue.
struct Table {
    rows: Vec<Vec<f64>>,
}

/// What a slot and a replica come to.
struct Price {
    capacity: u64,
    allowances: Vec<u64>,
    start_seconds: f64,
}

/// States that a slot has with so many replicas.
pub(super) fn states(work: &Work, terms: &Terms, most: u32) -> u64 {
    (1..=most).map(|replicas| work.allowance(replicas, terms.acceptable_seconds) + 1).sum()
}

/// The least replica-seconds, from order to release, with up to `most` replicas. Infinite when even those are late.
pub(super) fn replica_seconds(work: &Work, terms: &Terms, most: u32, done: &AtomicU64) -> f64 {
    let price = Price {
        capacity: u64::from(work.units_per_slot),
        allowances: (1..=most).map(|x| work.allowance(x, terms.acceptable_seconds)).collect(),
        start_seconds: f64::from(terms.cold_start_slots) * SLOT_SECONDS,
    };
    let empty =
        || Table { rows: price.allowances.iter().map(|most| vec![0.0; *most as usize + 1]).collect() };
    let (mut next, mut here) = (empty(), empty());
    let widest = price.allowances.last().map_or(0, |most| *most as usize + 1);
    let mut best = vec![0.0; widest];
    for (slot, arriving) in work.slots().iter().enumerate().skip(1).rev() {
        price.step_back(u64::from(arriving.units), &next, &mut here, &mut best);
        std::mem::swap(&mut next, &mut here);
        if slot % TELL_EVERY == 0 {
            done.fetch_add(TELL_EVERY as u64, Ordering::Relaxed);
        }
    }
    done.fetch_add((work.len() % TELL_EVERY) as u64, Ordering::Relaxed);
    let first = work.slots().first().map_or(0, |slot| u64::from(slot.units));
    let begins = (0..price.allowances.len()).map(|row| {
        let queued = first.saturating_sub((row as u64 + 1) * price.capacity) as usize;
        slot_seconds(row) + next.rows[row].get(queued).copied().unwrap_or(f64::INFINITY)
    });
    begins.fold(f64::INFINITY, f64::min)
}

/// Replica-seconds of a slot with the replicas of this row.
fn slot_seconds(row: usize) -> f64 {
    (row + 1) as f64 * SLOT_SECONDS
}

impl Price {
    /// One slot: from the values after it to those before it. `best` is room to work in.
    fn step_back(&self, arriving: u64, next: &Table, here: &mut Table, best: &mut [f64]) {
        best.fill(f64::INFINITY);
        for (row, values) in here.rows.iter_mut().enumerate() {
            // All queues: a row above may come down to this one.
            self.lower(row, arriving, &next.rows[row], best, slot_seconds(row));
            let queues = values.len();
            values.copy_from_slice(&best[..queues]);
        }
        best.fill(f64::INFINITY);
        for (row, values) in here.rows.iter_mut().enumerate().rev() {
            let started = self.start_seconds * (row + 1) as f64;
            // Rows below have no longer queues.
            let queues = &mut best[..values.len()];
            self.lower(row, arriving, &next.rows[row], queues, slot_seconds(row) + started);
            for (value, up) in values.iter_mut().zip(queues) {
                let up = *up - started;
                if up < *value {
                    *value = up;
                }
            }
        }
    }

    /// Lowers `best` to what this row comes to, queue by queue, where it isn't late.
    fn lower(&self, row: usize, arriving: u64, after: &[f64], best: &mut [f64], price: f64) {
        let served = (row as u64 + 1) * self.capacity;
        // Queues up to here are empty at the slot's end.
        let emptied = served.saturating_sub(arriving) as usize;
        // Beyond that, what is left is so many columns from where it was.
        let added = arriving.saturating_sub(served) as usize;
        let split = if arriving <= served { (emptied + 1).min(best.len()) } else { 0 };
        let (empty, rest) = best.split_at_mut(split);
        let none = price + after[0];
        for value in empty {
            if none < *value {
                *value = none;
            }
        }
        let left_from = if arriving <= served { 1 } else { added };
        for (value, after) in rest.iter_mut().zip(after.get(left_from..).unwrap_or(&[])) {
            let sum = price + after;
            if sum < *value {
                *value = sum;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::trace::{Arrivals, Trace};
    use crate::decision::policy::TokenRates;

    const RATES: TokenRates = TokenRates { input_tokens_per_second: 1.0, output_tokens_per_second: 1.0 };

    /// The clairvoyant by trying every schedule.
    fn by_trying_all(work: &Work, terms: &Terms, most: u32) -> f64 {
        fn rest(work: &Work, terms: &Terms, most: u32, slot: usize, before: Option<u32>, queued: u64) -> f64 {
            let Some(arriving) = work.slots().get(slot) else { return 0.0 };
            let start = f64::from(terms.cold_start_slots) * SLOT_SECONDS;
            let mut least = f64::INFINITY;
            for x in 1..=most {
                let there = queued + u64::from(arriving.units);
                let left = there.saturating_sub(u64::from(x * work.units_per_slot));
                if left as f64 * work.unit_seconds() > terms.acceptable_seconds * f64::from(x) + 1e-9 {
                    continue;
                }
                let starts = before.map_or(0, |before| x.saturating_sub(before));
                let price = f64::from(x) * SLOT_SECONDS + start * f64::from(starts);
                least = least.min(price + rest(work, terms, most, slot + 1, Some(x), left));
            }
            least
        }
        rest(work, terms, most, 0, None, 0)
    }

    fn work(input_tokens: &[f64], peak: u32) -> Option<Work> {
        let slot = |tokens: &f64| Arrivals { requests: 1.0, input_tokens: *tokens, output_tokens: 0.0 };
        let trace = Trace { slots: input_tokens.iter().map(slot).collect(), bin_seconds: 5.0 };
        Work::of(&trace, RATES, peak, 5.0)
    }

    fn least(work: &Work, terms: &Terms, most: u32) -> f64 {
        replica_seconds(work, terms, most, &AtomicU64::new(0))
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]
        #[test]
        fn the_bound_is_what_trying_every_schedule_finds(
            tokens in proptest::collection::vec(0.0_f64..10.0, 2..7),
            cold_start_slots in 0_u32..5,
            acceptable in 0_u32..4,
            most in 1_u32..5,
        ) {
            let acceptable_seconds = f64::from(acceptable) * 3.0;
            let terms = Terms { cold_start_slots, acceptable_seconds, initial: 1 };
            let Some(work) = work(&tokens, 2) else { return Ok(()) };
            proptest::prop_assert_eq!(least(&work, &terms, most), by_trying_all(&work, &terms, most));
        }
    }

    #[test]
    fn a_gap_shorter_than_a_cold_start_is_bridged_and_a_longer_one_is_not() {
        let terms = Terms { cold_start_slots: 6, acceptable_seconds: 0.0, initial: 1 };
        let with_gap = |slots: usize| {
            let mut tokens = vec![10.0; 12];
            tokens.extend(vec![5.0; slots]);
            tokens.extend(vec![10.0; 12]);
            let work = work(&tokens, 2).unwrap();
            least(&work, &terms, 3) / SLOT_SECONDS
        };
        assert_eq!(with_gap(5), 2.0 * 29.0, "kept");
        assert_eq!(with_gap(7), 2.0 * 24.0 + 7.0 + 6.0, "given back, and started again");
    }

    #[test]
    fn what_may_queue_is_not_bought() {
        let tokens = [[5.0; 12], [6.0; 12]].concat();
        let work = work(&tokens, 2).unwrap();
        let terms = |acceptable_seconds| Terms { cold_start_slots: 36, acceptable_seconds, initial: 1 };
        let strict = least(&work, &terms(0.0), 4);
        let lenient = least(&work, &terms(60.0), 4);
        assert!(lenient < strict, "{lenient} {strict}");
    }
}
