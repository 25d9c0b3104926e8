//! What a clairvoyant would have paid. Pure, and exact on the quantised work.
//!
//! It knows all arrivals, pays the same cold start for each replica that it adds, and lets nothing queue longer than the
//! acceptable time. `x` are the ready replicas of a slot, `q` what is queued at its beginning:
//!
//! ```text
//! V_t(p, q) = min over x of  x + start max(0, x - p) + V_t+1(x, q'),   q' = max(0, q + w_t - x),   q' <= allowance(x)
//! ```
//!
//! from the last slot back to the first, whose replicas are free of a start, as they are for every policy. The minimum is
//! taken over `x <= p` as a running one upward and over `x >= p` as a running one downward, so a slot costs as many steps
//! as there are states. Work is in whole units, so no queue is ever rounded.
//!
//! With a budget of late minutes the rule `q' <= allowance(x)` has a price instead: the first late slot of a minute costs
//! it, those after it in the same minute cost nothing more, as in [`super::score`]. The least of price and replicas, `D`,
//! gives a lower bound on what any schedule with at most `m` late minutes pays: `D - price m` (Lagrangian duality), the
//! best of several prices being the one to show. Queues longer than the longest that is on time count as that long, which
//! only lowers the bound.
//!
//! Values are counted in replica-slots, whole numbers, and kept small by taking out what all have in common: they are
//! exact in single precision, which is twice as fast.
//!
//! The recursion is that of dynamic right-sizing with start-up cost (Lu and Chen, arXiv 1112.0442; Albers and Quedenfeld,
//! arXiv 1807.05112), with the queue as a second state.

use std::sync::atomic::{AtomicU64, Ordering};

use super::fleet::{TELL_EVERY, Terms};
use super::score::MINUTE_SLOTS;
use super::work::Work;

/// What the clairvoyant is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Question {
    /// The most replicas that it may use.
    pub(super) most: u32,
    /// The first slot that is paid for and must be on time; a whole minute.
    pub(super) from: usize,
    /// What a late minute costs, in replica-slots; None where none is allowed. Whole numbers keep the sums exact.
    pub(super) late_minute: Option<f32>,
}

/// States that a slot has with so many replicas: each with any queue that is on time for the most of them.
pub(super) fn states(work: &Work, terms: &Terms, most: u32) -> u64 {
    let widest = work.allowance(most, terms.acceptable_seconds) + 1;
    u64::from(most) * widest
}

/// The least replica-slots, from order to release, late minutes at their price. Infinite when even the most replicas are
/// late and none may be.
pub(super) fn replica_slots(work: &Work, terms: &Terms, question: Question, done: &AtomicU64) -> f64 {
    let shape = Shape::new(work, terms, question);
    shape.solve(work, terms, question, MINUTE_SLOTS, done)
}

/// The table's size, and what a slot of each row can do. A row is a number of replicas, from one on, a column a unit of
/// queue at the slot's beginning.
struct Shape {
    rows: usize,
    columns: usize,
    /// Units that one replica serves in a slot.
    capacity: isize,
    /// The longest queue of each row that is on time.
    allowances: Vec<isize>,
}

/// Values of the states after a slot.
struct After<'a> {
    /// Nothing in this minute has been late.
    on_time: &'a [f32],
    /// Something has: with the price of that; None where nothing may be late.
    late: Option<(&'a [f32], f32)>,
}

impl Shape {
    fn new(work: &Work, terms: &Terms, question: Question) -> Self {
        let allowance =
            |replicas| (work.allowance(replicas, terms.acceptable_seconds) as usize).cast_signed();
        let allowances: Vec<isize> = (1..=question.most).map(allowance).collect();
        let widest = allowances.last().map_or(0, |most| *most as usize);
        Self {
            rows: allowances.len(),
            columns: widest + 1,
            capacity: (work.units_per_slot as usize).cast_signed(),
            allowances,
        }
    }

    fn solve(
        &self,
        work: &Work,
        terms: &Terms,
        question: Question,
        minute_slots: usize,
        done: &AtomicU64,
    ) -> f64 {
        let table = || vec![0.0_f32; self.rows * self.columns];
        let is_priced = question.late_minute.is_some();
        // The values after a slot: where its minute is on time so far, and where it is late already.
        let (mut on_time, mut late) = (table(), if is_priced { table() } else { Vec::new() });
        let (mut next_on_time, mut next_late, mut chosen) = (table(), late.clone(), table());
        let mut best = vec![0.0; self.columns];
        let mut taken_out = 0.0;
        let mut least = 0.0;
        for (slot, arriving) in work.slots().iter().enumerate().skip(question.from).rev() {
            let units = (arriving.units as usize).cast_signed();
            let start = start_slots(terms, slot, question.from);
            let after =
                After { on_time: &on_time, late: question.late_minute.map(|price| (&late[..], price)) };
            self.choose(units, &after, &mut chosen);
            if slot == question.from {
                let empty = chosen.iter().step_by(self.columns);
                least = taken_out + f64::from(empty.copied().fold(f32::INFINITY, least_of));
            }
            self.cheapest(&chosen, start, &mut next_on_time, &mut best);
            if is_priced && !slot.is_multiple_of(minute_slots) {
                let after = After { on_time: &late, late: Some((&late, 0.0)) };
                self.choose(units, &after, &mut chosen);
                self.cheapest(&chosen, start, &mut next_late, &mut best);
            }
            std::mem::swap(&mut on_time, &mut next_on_time);
            std::mem::swap(&mut late, &mut next_late);
            if slot.is_multiple_of(minute_slots) {
                taken_out += take_out(&mut on_time);
                if is_priced {
                    // The minute before begins its account anew.
                    late.copy_from_slice(&on_time);
                }
            }
            if slot.is_multiple_of(TELL_EVERY) {
                done.fetch_add(TELL_EVERY as u64, Ordering::Relaxed);
            }
        }
        least
    }

    /// What each number of replicas comes to in this slot and after it, for each queue at its beginning.
    fn choose(&self, arriving: isize, after: &After<'_>, chosen: &mut [f32]) {
        for row in 0..self.rows {
            let of_row = row * self.columns..(row + 1) * self.columns;
            let shift = arriving - (row + 1).cast_signed() * self.capacity;
            let out = &mut chosen[of_row.clone()];
            let late = after.late.map(|(values, price)| (&values[of_row.clone()], price));
            one_row(out, shift, self.allowances[row], (row + 1) as f32, &after.on_time[of_row], late);
        }
    }

    /// From what each choice comes to, the cheapest from each state: down to fewer replicas for nothing, up at a start each.
    fn cheapest(&self, chosen: &[f32], start: f32, here: &mut [f32], best: &mut [f32]) {
        best.fill(f32::INFINITY);
        for (chosen, here) in chosen.chunks_exact(self.columns).zip(here.chunks_exact_mut(self.columns)) {
            for ((best, chosen), here) in best.iter_mut().zip(chosen).zip(here) {
                *best = least_of(*best, *chosen);
                *here = *best;
            }
        }
        best.fill(f32::INFINITY);
        let rows = chosen.chunks_exact(self.columns).zip(here.chunks_exact_mut(self.columns));
        for (chosen, here) in rows.rev() {
            for ((best, chosen), here) in best.iter_mut().zip(chosen).zip(here) {
                *best = least_of(*best + start, *chosen);
                *here = least_of(*here, *best);
            }
        }
    }
}

/// One row of [`Shape::choose`]: queue `q` becomes `q + shift`, which is empty below one, on time up to the allowance, and
/// late beyond it.
fn one_row(
    out: &mut [f32],
    shift: isize,
    allowance: isize,
    price: f32,
    on_time: &[f32],
    late: Option<(&[f32], f32)>,
) {
    let columns = out.len();
    let up_to = |queue: isize| (queue - shift + 1).clamp(0, columns.cast_signed()) as usize;
    let (emptied, kept) = (up_to(0), up_to(allowance));
    out[..emptied].fill(price + on_time[0]);
    add(&mut out[emptied..kept], on_time, emptied.saturating_add_signed(shift), price);
    let Some((values, late_price)) = late else {
        out[kept..].fill(f32::INFINITY);
        return;
    };
    let told = up_to(columns.cast_signed() - 1).max(kept);
    add(&mut out[kept..told], values, kept.saturating_add_signed(shift), price + late_price);
    out[told..].fill(price + late_price + values[columns - 1]);
}

/// `out = values from here on + price`.
fn add(out: &mut [f32], values: &[f32], from: usize, price: f32) {
    if out.is_empty() {
        return;
    }
    for (out, value) in out.iter_mut().zip(&values[from..]) {
        *out = *value + price;
    }
}

/// The smaller. `f32::min` also orders NaN, which there is none of here, at the price of the vector instruction.
#[inline]
fn least_of(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// Subtracts the least from all, and tells it: values stay small.
fn take_out(values: &mut [f32]) -> f64 {
    let least = values.iter().copied().fold(f32::INFINITY, least_of);
    if least.is_finite() {
        for value in values.iter_mut() {
            *value -= least;
        }
        f64::from(least)
    } else {
        0.0
    }
}

/// Slots that a replica is paid for before it is ready in this one: of a start before the first paid slot only the part
/// after it. At the beginning of the trace nobody can have ordered before.
fn start_slots(terms: &Terms, slot: usize, from: usize) -> f32 {
    if from == 0 {
        return terms.cold_start_slots as f32;
    }
    terms.cold_start_slots.min((slot - from) as u32) as f32
}

#[cfg(test)]
mod tests;
