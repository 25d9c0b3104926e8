//! Requests in the order of time: from the slots of a trace, or by name. Pure, seeded and streaming.
//!
//! A slot of a trace is a number of requests and their tokens. Which requests those are is drawn: instants are uniform in
//! the slot, lengths are lognormal and then scaled so that they add up to the slot's tokens. Whole requests and whole
//! tokens are made by error diffusion: what a slot loses by rounding, the next one gets. Each slot draws from a generator
//! of its own, made from the seed and the slot's number.

use std::collections::VecDeque;
use std::f64::consts::TAU;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::backtest::SLOT_SECONDS;
use crate::backtest::trace::Arrivals;
use crate::decision::policy::TokenRates;
use crate::simulate::Moment;
use crate::simulate::prefix::PrefixHashes;
use crate::simulate::traffic::TokenCount;

/// Slots of a minute.
const MINUTE_SLOTS: usize = 12;

/// A request of the traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrivingRequest {
    /// When it reaches the router.
    pub at: Moment,
    /// Prompt tokens.
    pub input: u32,
    /// Output tokens.
    pub output: u32,
    /// Prompt tokens that its replica's prefix cache has; None where nothing is said of it.
    pub cached: Option<u32>,
    /// Hashes of its prompt's blocks, where they are known: then the replicas' caches decide.
    pub prefix: Option<PrefixHashes>,
}

/// How long requests are: lognormal, with these means and the spreads of the conversation service in the Azure LLM
/// inference trace of 2023 (`AzurePublicDataset`, CC-BY-4.0).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lengths {
    /// Mean prompt tokens.
    pub mean_input: f64,
    /// Mean output tokens.
    pub mean_output: f64,
    /// Prompt and output together are at most so many: the engine's `max_model_len`.
    pub longest: u32,
}

impl Lengths {
    /// That conversation service itself, for traces without tokens.
    #[must_use]
    pub fn conversation(longest: u32) -> Self {
        Self { mean_input: 1155.0, mean_output: 211.0, longest }
    }

    /// Two unbounded lengths, in tokens.
    fn draw(&self, rng: &mut StdRng) -> (f64, f64) {
        let (u, v): (f64, f64) = (rng.random(), rng.random());
        // Box and Muller's normal variates come in independent pairs.
        let radius = (-2.0 * (1.0 - u).ln()).sqrt();
        let (sin, cos) = (TAU * v).sin_cos();
        let lognormal = |mean: f64, shape: TokenCount, normal: f64| {
            mean * (shape.sigma * normal - shape.sigma * shape.sigma / 2.0).exp()
        };
        (
            lognormal(self.mean_input, TokenCount::CONVERSATION_INPUT, radius * cos),
            lognormal(self.mean_output, TokenCount::CONVERSATION_OUTPUT, radius * sin),
        )
    }

    /// One request's lengths in whole tokens.
    pub(super) fn draw_whole(&self, rng: &mut StdRng) -> (u32, u32) {
        let (input, output) = self.draw(rng);
        let output = bounded(output, self.longest / 2);
        (bounded(input, self.longest.saturating_sub(output)), output)
    }
}

/// What a trace is like as a whole, from one pass over its slots.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TraceShape {
    /// Requests in all.
    pub requests: f64,
    /// Prompt tokens in all.
    pub input_tokens: f64,
    /// Output tokens in all.
    pub output_tokens: f64,
    /// Slots.
    pub slots: usize,
}

impl TraceShape {
    /// Adds up the slots of a trace.
    #[must_use]
    pub fn of(slots: impl Iterator<Item = Arrivals>) -> Self {
        slots.fold(Self::default(), |shape, slot| Self {
            requests: shape.requests + slot.requests,
            input_tokens: shape.input_tokens + slot.input_tokens,
            output_tokens: shape.output_tokens + slot.output_tokens,
            slots: shape.slots + 1,
        })
    }

    /// It says nothing of tokens.
    #[must_use]
    pub fn lacks_tokens(&self) -> bool {
        self.input_tokens + self.output_tokens <= 0.0
    }

    /// The trace's own mean lengths; the conversation's where it has none.
    #[must_use]
    pub fn lengths(&self, longest: u32) -> Lengths {
        if self.lacks_tokens() || self.requests <= 0.0 {
            return Lengths::conversation(longest);
        }
        Lengths {
            mean_input: (self.input_tokens / self.requests).max(1.0),
            mean_output: (self.output_tokens / self.requests).max(1.0),
            longest,
        }
    }

    /// By what the slots' numbers have to be multiplied so that the busiest minute is the work of so many replicas with
    /// these rates; of a trace shorter than a minute its mean counts. None where nothing arrives.
    #[must_use]
    pub fn scale(
        &self,
        slots: impl Iterator<Item = Arrivals>,
        rates: TokenRates,
        replicas: f64,
    ) -> Option<f64> {
        let conversation = Lengths::conversation(0);
        let work_of = |slot: Arrivals| {
            let (input, output) = if self.lacks_tokens() {
                (slot.requests * conversation.mean_input, slot.requests * conversation.mean_output)
            } else {
                (slot.input_tokens, slot.output_tokens)
            };
            input / rates.input_tokens_per_second + output / rates.output_tokens_per_second
        };
        let window = MINUTE_SLOTS.min(self.slots).max(1);
        let (mut last, mut busiest): (VecDeque<f64>, f64) = (VecDeque::with_capacity(window + 1), 0.0);
        for slot in slots {
            last.push_back(work_of(slot));
            if last.len() > window {
                last.pop_front();
            }
            if last.len() == window {
                busiest = busiest.max(last.iter().sum());
            }
        }
        let busiest = busiest / (window as f64 * SLOT_SECONDS);
        (busiest > 0.0 && busiest.is_finite()).then(|| replicas / busiest)
    }
}

/// The requests of a trace's slots.
#[derive(Clone, Debug)]
pub struct SlotArrivals<I> {
    slots: I,
    lengths: Lengths,
    /// Lengths are drawn freely: the trace has no tokens to add up to.
    free: bool,
    scale: f64,
    seed: u64,
    /// The slot that is drawn next.
    slot: u64,
    /// What is owed by rounding.
    owed: Arrivals,
    drawn: VecDeque<ArrivingRequest>,
}

impl<I: Iterator<Item = Arrivals>> SlotArrivals<I> {
    /// The slots' numbers times `scale`, as requests of these lengths.
    pub fn new(slots: I, shape: &TraceShape, longest: u32, scale: f64, seed: u64) -> Self {
        Self {
            slots,
            lengths: shape.lengths(longest),
            free: shape.lacks_tokens(),
            scale,
            seed,
            slot: 0,
            owed: Arrivals::default(),
            drawn: VecDeque::new(),
        }
    }

    fn draw(&mut self, slot: Arrivals) {
        let begins = self.slot as f64 * SLOT_SECONDS;
        let mut rng = StdRng::seed_from_u64(self.seed ^ self.slot.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        self.slot += 1;
        self.owed.requests += slot.requests * self.scale;
        self.owed.input_tokens += slot.input_tokens * self.scale;
        self.owed.output_tokens += slot.output_tokens * self.scale;
        // A hair below a whole number is that number: sums of thirds are.
        let count = (self.owed.requests + 1e-9).floor().max(0.0) as usize;
        if count == 0 {
            return;
        }
        self.owed.requests -= count as f64;
        let mut offsets: Vec<f64> = (0..count).map(|_| rng.random::<f64>() * SLOT_SECONDS).collect();
        offsets.sort_unstable_by(f64::total_cmp);
        let lengths = self.lengths_of(count, &mut rng);
        self.drawn.extend(offsets.into_iter().zip(lengths).map(|(offset, (input, output))| {
            let at = Moment::from_seconds(begins + offset);
            ArrivingRequest { at, input, output, cached: None, prefix: None }
        }));
    }

    fn lengths_of(&mut self, count: usize, rng: &mut StdRng) -> Vec<(u32, u32)> {
        if self.free {
            return (0..count).map(|_| self.lengths.draw_whole(rng)).collect();
        }
        let drawn: Vec<(f64, f64)> = (0..count).map(|_| self.lengths.draw(rng)).collect();
        let longest = self.lengths.longest;
        let outputs = Diffused::new(self.owed.output_tokens, drawn.iter().map(|(_, output)| *output).sum());
        let inputs = Diffused::new(self.owed.input_tokens, drawn.iter().map(|(input, _)| *input).sum());
        let (mut inputs, mut outputs) = (inputs, outputs);
        let whole = drawn.into_iter().map(|(input, output)| {
            let output = outputs.next(output, longest / 2);
            (inputs.next(input, longest.saturating_sub(output)), output)
        });
        let whole: Vec<(u32, u32)> = whole.collect();
        (self.owed.input_tokens, self.owed.output_tokens) = (inputs.owed, outputs.owed);
        whole
    }
}

impl<I: Iterator<Item = Arrivals>> Iterator for SlotArrivals<I> {
    type Item = ArrivingRequest;

    fn next(&mut self) -> Option<ArrivingRequest> {
        while self.drawn.is_empty() {
            let slot = self.slots.next()?;
            self.draw(slot);
        }
        self.drawn.pop_front()
    }
}

/// Numbers scaled to a sum and made whole.
struct Diffused {
    factor: f64,
    /// Of the sum, what is not given out yet.
    owed: f64,
    /// The scaled numbers that are not given out yet, less what was rounded away.
    carried: f64,
}

impl Diffused {
    fn new(sum: f64, of_drawn: f64) -> Self {
        Self { factor: if of_drawn > 0.0 { (sum / of_drawn).max(0.0) } else { 0.0 }, owed: sum, carried: 0.0 }
    }

    fn next(&mut self, drawn: f64, longest: u32) -> u32 {
        let exact = drawn * self.factor + self.carried;
        let whole = bounded(exact, longest);
        // What a bound cuts off is owed to later slots, not to the next request alone.
        self.carried = (exact - f64::from(whole)).clamp(-1.0, 1.0);
        self.owed -= f64::from(whole);
        whole
    }
}

fn bounded(tokens: f64, longest: u32) -> u32 {
    tokens.round().clamp(1.0, f64::from(longest.max(1))) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: u32 = 32_768;

    fn slot(requests: f64, input_tokens: f64, output_tokens: f64) -> Arrivals {
        Arrivals { requests, input_tokens, output_tokens }
    }

    fn of(slots: &[Arrivals], scale: f64, seed: u64) -> Vec<ArrivingRequest> {
        let shape = TraceShape::of(slots.iter().copied());
        SlotArrivals::new(slots.iter().copied(), &shape, LONGEST, scale, seed).collect()
    }

    fn sums(requests: &[ArrivingRequest]) -> (f64, f64, f64) {
        let input: u64 = requests.iter().map(|request| u64::from(request.input)).sum();
        let output: u64 = requests.iter().map(|request| u64::from(request.output)).sum();
        (requests.len() as f64, input as f64, output as f64)
    }

    #[test]
    fn every_slot_has_its_requests_and_its_tokens() {
        let slots: Vec<Arrivals> = (0..50)
            .map(|n| slot(f64::from(n % 7) * 3.0, f64::from(n % 7) * 3600.0, f64::from(n % 7) * 600.0))
            .collect();
        let requests = of(&slots, 1.0, 5);
        for (n, slot) in slots.iter().enumerate() {
            let begins = n as f64 * SLOT_SECONDS;
            let inside: Vec<ArrivingRequest> = requests
                .iter()
                .filter(|r| (begins..begins + SLOT_SECONDS).contains(&r.at.seconds()))
                .cloned()
                .collect();
            let (count, input, output) = sums(&inside);
            assert_eq!(count, slot.requests, "slot {n}");
            assert!((input - slot.input_tokens).abs() <= 1.0, "slot {n}: {input}");
            assert!((output - slot.output_tokens).abs() <= 1.0, "slot {n}: {output}");
        }
        assert!(requests.is_sorted_by_key(|request| request.at));
    }

    #[test]
    fn parts_of_requests_and_tokens_are_carried_over_and_none_is_lost() {
        let slots: Vec<Arrivals> = (0..3000).map(|_| slot(0.7, 800.3, 150.1)).collect();
        let (count, input, output) = sums(&of(&slots, 0.37, 1));
        assert!((count - 3000.0 * 0.7 * 0.37).abs() <= 1.0);
        // What belongs to the request that isn't whole yet stays with it.
        assert!((input / (3000.0 * 800.3 * 0.37) - 1.0).abs() < 0.01, "{input}");
        assert!((output / (3000.0 * 150.1 * 0.37) - 1.0).abs() < 0.01, "{output}");
    }

    #[test]
    fn what_is_longer_than_an_engine_takes_is_cut_and_given_to_later_requests() {
        let slots: Vec<Arrivals> = (0..200).map(|_| slot(4.0, 4.0 * 1500.0, 400.0)).collect();
        let shape = TraceShape::of(slots.iter().copied());
        let requests: Vec<_> = SlotArrivals::new(slots.iter().copied(), &shape, 2500, 1.0, 9).collect();
        assert!(requests.iter().all(|request| request.input + request.output <= 2500));
        let (_, input, output) = sums(&requests);
        assert!((input / (200.0 * 6000.0) - 1.0).abs() < 0.01, "{input}");
        assert!((output / (200.0 * 400.0) - 1.0).abs() < 0.01, "{output}");
    }

    #[test]
    fn a_trace_without_tokens_gets_the_conversation() {
        let slots: Vec<Arrivals> = (0..500).map(|_| slot(20.0, 0.0, 0.0)).collect();
        let (count, input, output) = sums(&of(&slots, 1.0, 2));
        assert_eq!(count, 10_000.0);
        assert!((input / count / 1155.0 - 1.0).abs() < 0.03, "{}", input / count);
        assert!((output / count / 211.0 - 1.0).abs() < 0.03, "{}", output / count);
    }

    #[test]
    fn a_slot_draws_from_its_own_seed() {
        let slots: Vec<Arrivals> = (0..20).map(|_| slot(5.0, 5000.0, 900.0)).collect();
        let mut changed = slots.clone();
        changed[3] = slot(11.0, 11_000.0, 1900.0);
        let late = |requests: Vec<ArrivingRequest>| -> Vec<_> {
            requests.into_iter().filter(|request| request.at.seconds() >= 20.0).map(|r| r.at).collect()
        };
        assert_eq!(late(of(&slots, 1.0, 4)), late(of(&changed, 1.0, 4)));
        assert_ne!(of(&slots, 1.0, 4), of(&slots, 1.0, 5));
    }

    #[test]
    fn the_busiest_minute_is_scaled_to_the_replicas() {
        let mut slots = vec![slot(1.0, 1000.0, 0.0); 100];
        slots[40..52].fill(slot(4.0, 4000.0, 0.0));
        let rates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };
        let shape = TraceShape::of(slots.iter().copied());
        let scale = shape.scale(slots.iter().copied(), rates, 20.0).unwrap();
        assert!((scale * 4000.0 / 5.0 / 8000.0 - 20.0).abs() < 1e-9, "{scale}");
        let idle = [slot(0.0, 0.0, 0.0)];
        assert_eq!(TraceShape::of(idle.iter().copied()).scale(idle.iter().copied(), rates, 20.0), None);
    }
}
