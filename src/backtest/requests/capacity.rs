//! The largest steady load that one simulated replica serves with no late minute: what "so many replicas' worth" means.
//! Pure and seeded.
//!
//! Requests of the mix arrive as a Poisson process of a constant rate for half an hour (less where that would be hundreds of
//! thousands of them), and the rate is bisected. Every
//! rate gets the same requests and the same gaps, stretched, so that the answer is a step and not a cloud.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::arrivals::Lengths;
use super::score::{Lateness, work_picos};
use crate::decision::policy::TokenRates;
use crate::simulate::engine_model::EventKind;
use crate::simulate::{EngineModel, EngineSettings, Moment, Request};

/// How long a rate is tried: late minutes that come less often than that are of the bursts, not of the rate.
const TRIED_SECONDS: f64 = 1800.0;

/// Requests by which a rate is tried at most: replicas that serve thousands a second have their bursts within a minute.
const MOST_TRIED: f64 = 300_000.0;

/// A late minute needs a minute.
const LEAST_TRIED_SECONDS: f64 = 60.0;

/// Halvings: the rate is found to a thousandth.
const HALVINGS: u32 = 10;

/// Doublings from a request in 100 s until something is late; no replica serves 160,000 requests a second.
const DOUBLINGS: u32 = 24;

/// What one replica carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Requests of the mix a second.
    pub requests_per_second: f64,
    /// The same as token rates: so many input tokens a second of a replica that had no output to make, and the other way
    /// round. A load of the mix at the capacity is one replica-second a second.
    pub rates: TokenRates,
}

impl Capacity {
    /// Finds it. `hit_rate` is the share of each prompt that is cached.
    #[must_use]
    pub fn find(
        engine: EngineSettings,
        lengths: &Lengths,
        hit_rate: f64,
        acceptable_queue: Duration,
        seed: u64,
    ) -> Self {
        let tried = |rate: f64| is_late(engine, lengths, hit_rate, acceptable_queue, seed, rate);
        let (mut fine, mut late) = (0.0, 0.01);
        for _ in 0..DOUBLINGS {
            if tried(late) {
                break;
            }
            (fine, late) = (late, late * 2.0);
        }
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(fine, late);
            if tried(middle) { late = middle } else { fine = middle }
        }
        // A replica that is late with anything still has to have a size.
        Self::at(engine, lengths, hit_rate, if fine > 0.0 { fine } else { late })
    }

    /// At a rate that is known. The cost of a token of each kind is in the proportion that the engine gives them.
    #[must_use]
    pub fn at(engine: EngineSettings, lengths: &Lengths, hit_rate: f64, requests_per_second: f64) -> Self {
        let input_rate = engine.input_tokens_per_second() / (1.0 - hit_rate).max(0.01);
        let context = lengths.mean_input + lengths.mean_output / 2.0;
        let output_rate = engine.output_tokens_per_second(context, 0.8);
        let work = lengths.mean_input / input_rate + lengths.mean_output / output_rate;
        let factor = requests_per_second * work;
        Self {
            requests_per_second,
            rates: TokenRates {
                input_tokens_per_second: input_rate * factor,
                output_tokens_per_second: output_rate * factor,
            },
        }
    }
}

fn tried_seconds(rate: f64) -> f64 {
    (MOST_TRIED / rate).clamp(LEAST_TRIED_SECONDS, TRIED_SECONDS)
}

/// Is any minute late at this rate?
fn is_late(
    engine: EngineSettings,
    lengths: &Lengths,
    hit_rate: f64,
    acceptable_queue: Duration,
    seed: u64,
    rate: f64,
) -> bool {
    let rates = Capacity::at(engine, lengths, hit_rate, rate).rates;
    let tried_seconds = tried_seconds(rate);
    let mut rng = StdRng::seed_from_u64(seed ^ 0x00CA_9AC1_7100);
    let mut lateness = Lateness::new(rates, acceptable_queue);
    let mut replica = EngineModel::new(engine, Moment::START);
    let mut seconds = 0.0;
    let mut id = 0;
    loop {
        let uniform: f64 = rng.random();
        seconds -= (1.0 - uniform).ln() / rate;
        if seconds >= tried_seconds {
            break;
        }
        let at = Moment::from_seconds(seconds);
        let (input, output) = lengths.draw_whole(&mut rng);
        let cached = (f64::from(input) * hit_rate) as u32;
        let request = Request { id, arrived: at, input, cached, output };
        id += 1;
        lateness.arrived(&request);
        replica.arrive(request, at);
        for event in replica.drain_events() {
            match event.kind {
                EventKind::Admitted => lateness.admitted(&event.request, event.at),
                EventKind::Refused => lateness.admitted(&event.request, event.request.arrived),
                _ => {}
            }
        }
        // Hopelessly behind: the rest would only cost time.
        if replica.never_admitted().next().is_some_and(|since| at.since(since) > acceptable_queue * 4) {
            return true;
        }
    }
    let end = Moment::from_seconds(tried_seconds).plus(acceptable_queue);
    replica.advance(end);
    for event in replica.drain_events().filter(|event| event.kind == EventKind::Admitted) {
        lateness.admitted(&event.request, event.at);
    }
    debug_assert!(work_picos(rates, 1, 1) > 0);
    lateness.late_minutes() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_carries_its_capacity_and_not_a_tenth_more() {
        let engine = EngineSettings::rtx4090_8b();
        let lengths = Lengths::conversation(engine.max_model_len);
        let queue = Duration::from_secs(5);
        let found = Capacity::find(engine, &lengths, 0.0, queue, 1);
        // The steady state of the step law and of 41,408 KV tokens is near three and a half requests a second; the
        // bursts of half an hour take a part of it.
        assert!((2.4..3.8).contains(&found.requests_per_second), "{found:?}");
        assert!(!is_late(engine, &lengths, 0.0, queue, 1, found.requests_per_second));
        assert!(is_late(engine, &lengths, 0.0, queue, 1, found.requests_per_second * 1.1));
        let work = lengths.mean_input / found.rates.input_tokens_per_second
            + lengths.mean_output / found.rates.output_tokens_per_second;
        assert!((work * found.requests_per_second - 1.0).abs() < 1e-9);
        assert_eq!(found, Capacity::find(engine, &lengths, 0.0, queue, 1));
    }

    #[test]
    fn a_rate_is_tried_for_half_an_hour_and_one_of_thousands_a_second_for_less() {
        assert_eq!([5.0, 100.0].map(tried_seconds), [1800.0, 1800.0]);
        assert_eq!([300.0, 25_000.0, 1e6].map(tried_seconds), [1000.0, 60.0, 60.0]);
    }

    #[test]
    fn a_prefix_cache_makes_a_replica_carry_more() {
        let engine = EngineSettings::rtx4090_8b();
        let lengths = Lengths::conversation(engine.max_model_len);
        let queue = Duration::from_secs(5);
        let without = Capacity::find(engine, &lengths, 0.0, queue, 1);
        let with = Capacity::find(engine, &lengths, 0.7, queue, 1);
        assert!(with.requests_per_second > without.requests_per_second * 1.05, "{with:?} {without:?}");
    }
}
