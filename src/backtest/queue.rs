//! What waits before a fluid fleet, in the order of its arrival, and what it is made of. Pure.

use std::collections::VecDeque;

use super::work::Work;
use crate::decision::policy::TokenRates;

/// Tokens and requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tokens {
    pub(super) input: f64,
    pub(super) output: f64,
    pub(super) requests: f64,
}

impl Tokens {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            input: self.input + other.input,
            output: self.output + other.output,
            requests: self.requests + other.requests,
        }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        self.plus(other.times(-1.0))
    }

    pub(super) fn times(self, factor: f64) -> Self {
        Self { input: self.input * factor, output: self.output * factor, requests: self.requests * factor }
    }

    /// Rounding may leave less than nothing over.
    fn at_least_none(self) -> Self {
        Self { input: self.input.max(0.0), output: self.output.max(0.0), requests: self.requests.max(0.0) }
    }
}

/// What waits.
pub(super) struct Queue<'a> {
    work: &'a Work,
    rates: TokenRates,
    cohorts: VecDeque<Cohort>,
    /// Parts of requests included.
    waiting: Tokens,
}

/// What is left of the arrivals of one slot.
struct Cohort {
    slot: usize,
    left: u32,
}

impl<'a> Queue<'a> {
    /// Empty. A token costs 1 / its rate of a replica-second, as in the work.
    pub(super) fn new(work: &'a Work, rates: TokenRates) -> Self {
        Self { work, rates, cohorts: VecDeque::new(), waiting: Tokens::default() }
    }

    /// What waits now.
    pub(super) fn waiting(&self) -> Tokens {
        self.waiting
    }

    /// Takes what arrives in a slot.
    pub(super) fn arrive(&mut self, slot: usize) -> Tokens {
        let arriving = self.work.slots()[slot];
        if arriving.units == 0 {
            return Tokens::default();
        }
        self.cohorts.push_back(Cohort { slot, left: arriving.units });
        let arrived = self.part(slot, arriving.units);
        self.waiting = self.waiting.plus(arrived);
        arrived
    }

    /// Serves so many units, the oldest first.
    pub(super) fn serve(&mut self, units: u64) -> Tokens {
        let (mut served, mut left) = (Tokens::default(), units);
        while left > 0
            && let Some(first) = self.cohorts.front_mut()
        {
            let (slot, taken) = (first.slot, first.left.min(u32::try_from(left).unwrap_or(u32::MAX)));
            first.left -= taken;
            left -= u64::from(taken);
            if first.left == 0 {
                self.cohorts.pop_front();
            }
            served = served.plus(self.part(slot, taken));
        }
        // An empty queue is empty, whatever rounding left over.
        self.waiting = if self.cohorts.is_empty() {
            Tokens::default()
        } else {
            self.waiting.minus(served).at_least_none()
        };
        served
    }

    /// What so many units of a slot's arrivals are made of.
    fn part(&self, slot: usize, units: u32) -> Tokens {
        let arrived = self.work.slots()[slot];
        let seconds = f64::from(units) * self.work.unit_seconds();
        Tokens {
            input: seconds * arrived.input_share * self.rates.input_tokens_per_second,
            output: seconds * (1.0 - arrived.input_share) * self.rates.output_tokens_per_second,
            requests: arrived.requests * f64::from(units) / f64::from(arrived.units.max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::trace::{Arrivals, Trace};
    use crate::backtest::work::Size;

    #[test]
    fn a_queue_loses_no_request_on_its_way() {
        let rates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };
        let slot = Arrivals { requests: 1.0, input_tokens: 60_000.0, output_tokens: 5_250.0 };
        let trace = Trace { slots: vec![slot; 40], bin_seconds: 5.0, ..Trace::default() };
        let work = Work::of(&trace, rates, Size::Peak(3), 5.0).unwrap();
        let mut queue = Queue::new(&work, rates);
        let (mut arrived, mut served) = (Tokens::default(), Tokens::default());
        for slot in 0..40 {
            arrived = arrived.plus(queue.arrive(slot));
            served = served.plus(queue.serve(47));
        }
        let all: f64 = work.slots().iter().map(|slot| slot.requests).sum();
        assert!((arrived.requests - all).abs() < 1e-6);
        let missing = arrived.minus(served).minus(queue.waiting());
        assert!(missing.requests.abs() < 1e-6 && missing.input.abs() < 1e-3, "{missing:?}");
        queue.serve(u64::MAX);
        assert_eq!((queue.waiting(), queue.cohorts.len()), (Tokens::default(), 0));
    }
}
