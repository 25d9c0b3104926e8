//! Arrivals as work: scaled, and quantised once, so that every policy and the clairvoyant get the same. Pure.
//!
//! A token costs 1 / its rate of a replica-second, as in the decision. The trace is scaled so that its busiest minute is
//! the work of so many replicas. Work is then rounded to units by error diffusion: what a slot loses by rounding, the next
//! one gets, so that nothing is lost over the trace and the clairvoyant's table has no rounding of its own.

use super::SLOT_SECONDS;
use super::trace::Trace;
use crate::decision::policy::TokenRates;

/// Slots of the busiest minute.
const MINUTE_SLOTS: usize = 12;

/// Lengths of a request where the trace has no tokens: the means of the conversation service in the Azure LLM inference
/// trace of 2023.
const ASSUMED_INPUT: f64 = 1155.0;
/// See [`ASSUMED_INPUT`].
const ASSUMED_OUTPUT: f64 = 211.0;

/// Units in what one replica does in a slot, the finest first. All divide a slot's capacity, so that it is whole.
const UNITS_PER_SLOT: [u32; 6] = [20, 10, 5, 4, 2, 1];

/// The finest unit is taken for which `units x peak replicas squared x acceptable queue in slots` stays below this: it is
/// the size of the clairvoyant's table. Twenty replicas with a queue of 5 s get the finest, a quarter of a replica-second.
const MOST_UNITS: f64 = 40_000.0;

/// How large the load is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// The busiest minute is the work of so many full replicas.
    Peak(u32),
    /// Arrivals are multiplied by this.
    Scale(f64),
}

impl Size {
    /// What arrivals are multiplied by, and the busiest minute after it in full replicas. `busiest` is that of the trace
    /// as it is.
    #[must_use]
    pub fn of(self, busiest: f64) -> (f64, f64) {
        match self {
            Self::Peak(replicas) => (f64::from(replicas) / busiest, f64::from(replicas)),
            Self::Scale(scale) => (scale, busiest * scale),
        }
    }
}

/// What arrives in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkSlot {
    /// Work, in units.
    pub units: u32,
    /// The part of it that is input tokens.
    pub input_share: f64,
    /// The requests that make it.
    pub requests: f64,
}

/// The work of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    slots: Vec<WorkSlot>,
    /// Units that arrive before each slot, and in all.
    before: Vec<u64>,
    /// Units that one replica does in a slot.
    pub units_per_slot: u32,
    /// What the arrivals of the trace were multiplied by.
    pub scale: f64,
    /// The busiest minute, in full replicas.
    pub peak: f64,
    /// The trace has no tokens: requests were given the assumed lengths.
    pub assumed_lengths: bool,
}

/// The work of each slot in replica-seconds, input and output apart, with its requests; and whether lengths were assumed.
fn parts(trace: &Trace, rates: TokenRates) -> (Vec<([f64; 2], f64)>, bool) {
    let assumed_lengths = trace.slots.iter().all(|slot| slot.input_tokens + slot.output_tokens == 0.0);
    let parts = trace.slots.iter().map(|slot| {
        let (input, output) = if assumed_lengths {
            (slot.requests * ASSUMED_INPUT, slot.requests * ASSUMED_OUTPUT)
        } else {
            (slot.input_tokens, slot.output_tokens)
        };
        let work = [input / rates.input_tokens_per_second, output / rates.output_tokens_per_second];
        (work, slot.requests)
    });
    (parts.collect(), assumed_lengths)
}

/// The work of the busiest minute of a trace as it is, in full replicas.
#[must_use]
pub fn busiest(trace: &Trace, rates: TokenRates) -> f64 {
    busiest_minute(&parts(trace, rates).0)
}

impl Work {
    /// None when nothing arrives.
    #[must_use]
    pub fn of(trace: &Trace, rates: TokenRates, size: Size, acceptable_seconds: f64) -> Option<Self> {
        let (parts, assumed_lengths) = parts(trace, rates);
        let busiest = busiest_minute(&parts);
        if busiest <= 0.0 || !busiest.is_finite() {
            return None;
        }
        let (scale, peak) = size.of(busiest);
        let units_per_slot = finest_unit(peak, acceptable_seconds);
        let unit = SLOT_SECONDS / f64::from(units_per_slot);
        let (mut slots, mut before, mut sum) = (Vec::with_capacity(parts.len()), vec![0], 0);
        // What is not in a slot yet.
        let (mut input, mut output, mut requests) = (0.0, 0.0, 0.0);
        for ([slot_input, slot_output], slot_requests) in parts {
            input += slot_input * scale;
            output += slot_output * scale;
            requests += slot_requests * scale;
            let units = ((input + output) / unit + 1e-9).floor();
            let mut slot = WorkSlot { units: units as u32, ..WorkSlot::default() };
            if slot.units > 0 {
                let taken = (units * unit / (input + output)).min(1.0);
                slot.input_share = input / (input + output);
                slot.requests = requests * taken;
                input *= 1.0 - taken;
                output *= 1.0 - taken;
                requests *= 1.0 - taken;
            }
            sum += u64::from(slot.units);
            before.push(sum);
            slots.push(slot);
        }
        Some(Self { slots, before, units_per_slot, scale, peak, assumed_lengths })
    }

    /// Slots.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True without a slot, which no work has that was made of a trace.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// What arrives in each slot.
    #[must_use]
    pub fn slots(&self) -> &[WorkSlot] {
        &self.slots
    }

    /// Replica-seconds of a unit.
    #[must_use]
    pub fn unit_seconds(&self) -> f64 {
        SLOT_SECONDS / f64::from(self.units_per_slot)
    }

    /// Units that arrive in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.before.last().copied().unwrap_or(0)
    }

    /// The mean work of these slots, in replicas; 0 for none.
    #[must_use]
    pub fn mean(&self, from: usize, until: usize) -> f64 {
        let until = until.min(self.len());
        if from >= until {
            return 0.0;
        }
        let units = self.before[until] - self.before[from];
        units as f64 / ((until - from) as f64 * f64::from(self.units_per_slot))
    }

    /// The mean work of the first minute, in replicas.
    #[must_use]
    pub fn first_minute(&self) -> f64 {
        self.mean(0, MINUTE_SLOTS)
    }

    /// Units that may be queued before so many replicas are late.
    #[must_use]
    pub fn allowance(&self, replicas: u32, acceptable_seconds: f64) -> u64 {
        (f64::from(replicas) * acceptable_seconds / self.unit_seconds() + 1e-9).floor() as u64
    }
}

/// The most work of a minute, in replicas; of a trace that is shorter, its mean.
fn busiest_minute(parts: &[([f64; 2], f64)]) -> f64 {
    let window = MINUTE_SLOTS.min(parts.len()).max(1);
    let sums = parts.windows(window).map(|slots| slots.iter().map(|([i, o], _)| i + o).sum::<f64>());
    sums.fold(0.0, f64::max) / (window as f64 * SLOT_SECONDS)
}

fn finest_unit(peak: f64, acceptable_seconds: f64) -> u32 {
    let table = peak * peak * (acceptable_seconds / SLOT_SECONDS).max(1.0);
    UNITS_PER_SLOT.into_iter().find(|units| f64::from(*units) * table <= MOST_UNITS).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::super::trace::Arrivals;
    use super::*;

    const RATES: TokenRates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };

    fn trace(input_tokens: &[f64]) -> Trace {
        let slot = |input_tokens: &f64| Arrivals {
            requests: 1.0,
            input_tokens: *input_tokens,
            output_tokens: input_tokens * 0.0875,
        };
        Trace {
            slots: input_tokens.iter().map(slot).collect(),
            bin_seconds: SLOT_SECONDS,
            ..Trace::default()
        }
    }

    #[test]
    fn the_busiest_minute_is_the_work_of_the_peak() {
        let mut slots = vec![400.0; 40];
        slots[13..25].fill(1_000.0);
        let work = Work::of(&trace(&slots), RATES, Size::Peak(20), 5.0).unwrap();
        assert!((work.mean(13, 25) - 20.0).abs() < 0.05, "{}", work.mean(13, 25));
        assert!((work.mean(0, 13) - 8.0).abs() < 0.05);
        assert!((work.slots()[3].input_share - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_scale_multiplies_what_arrives() {
        let mut slots = vec![400.0; 40];
        slots[13..25].fill(1_000.0);
        let as_peak = Work::of(&trace(&slots), RATES, Size::Peak(20), 5.0).unwrap();
        let scaled = Work::of(&trace(&slots), RATES, Size::Scale(as_peak.scale), 5.0).unwrap();
        assert!((scaled.peak - 20.0).abs() < 1e-9);
        assert_eq!(scaled.total(), as_peak.total());
        assert!((busiest(&trace(&slots), RATES) * as_peak.scale - 20.0).abs() < 1e-9);
    }

    #[test]
    fn rounding_loses_no_work_and_no_request() {
        let slots: Vec<f64> = (0..1_000).map(|n| f64::from(n * n % 97) + 0.3).collect();
        let work = Work::of(&trace(&slots), RATES, Size::Peak(3), 5.0).unwrap();
        let exact = slots.iter().map(|t| (t / 8000.0 + t * 0.0875 / 700.0) * work.scale).sum::<f64>();
        let rounded = work.total() as f64 * work.unit_seconds();
        assert!((exact - rounded).abs() <= work.unit_seconds(), "{exact} {rounded}");
        let requests = work.slots().iter().map(|slot| slot.requests).sum::<f64>();
        assert!((requests / (1_000.0 * work.scale) - 1.0).abs() < 0.01);
    }

    #[test]
    fn requests_without_tokens_get_the_assumed_lengths() {
        let slots = vec![Arrivals { requests: 2.0, ..Arrivals::default() }; 24];
        let work =
            Work::of(&Trace { slots, bin_seconds: 5.0, ..Trace::default() }, RATES, Size::Peak(4), 5.0)
                .unwrap();
        assert!(work.assumed_lengths);
        let input = 1155.0 / 8000.0;
        assert!((work.slots()[5].input_share - input / (input + 211.0 / 700.0)).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_no_work() {
        let idle = Trace { slots: vec![Arrivals::default(); 20], bin_seconds: 5.0, ..Trace::default() };
        assert_eq!(Work::of(&idle, RATES, Size::Peak(4), 5.0), None);
    }

    #[test]
    fn units_get_coarser_with_the_fleet_and_the_queue() {
        assert_eq!(finest_unit(20.0, 5.0), 20);
        assert_eq!(finest_unit(100.0, 5.0), 4);
        assert_eq!(finest_unit(20.0, 60.0), 5);
        assert_eq!(finest_unit(500.0, 60.0), 1);
    }
}
