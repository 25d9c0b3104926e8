//! The traffic of one weekday: a quiet night, a sharp ramp at nine, a lunch dip, an evening. Pure and seeded.
//!
//! Arrivals are Poisson with a rate that is constant for a second. Each second draws from its own generator, made from the
//! seed and the second's number, so that the same seed and the same changes of the load give the same arrivals, whatever
//! is served by whom in between.

use std::collections::VecDeque;
use std::f64::consts::TAU;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::engine_model::Request;
use super::moment::Moment;

/// Hours of the day, and the load as a share of the peak's; in between it is linear.
///
/// The shape is drawn by hand after the public facts of weekday LLM traffic: peak to trough near 10 in Microsoft's
/// published 2024 week of coding requests, and a start of work that doubles the load within two or three minutes.
const WEEKDAY: [(f64, f64); 21] = [
    (0.0, 0.10),
    (2.0, 0.06),
    (5.0, 0.05),
    (6.5, 0.08),
    (8.0, 0.14),
    (8.75, 0.20),
    (9.0, 0.25),
    (9.1, 0.80),
    (9.5, 0.90),
    (11.0, 1.00),
    (12.0, 0.95),
    (12.5, 0.62),
    (13.2, 0.62),
    (13.75, 0.92),
    (15.0, 0.97),
    (17.0, 0.80),
    (18.0, 0.50),
    (19.5, 0.38),
    (20.5, 0.45),
    (22.5, 0.25),
    (24.0, 0.10),
];

/// The load at a time of day, as a share of the peak's.
#[must_use]
pub fn weekday_share(since_midnight: Duration) -> f64 {
    let hour = since_midnight.as_secs_f64() / 3600.0 % 24.0;
    let after = WEEKDAY.iter().position(|(h, _)| *h > hour).unwrap_or(WEEKDAY.len() - 1).max(1);
    let ((h0, s0), (h1, s1)) = (WEEKDAY[after - 1], WEEKDAY[after]);
    s0 + (s1 - s0) * (hour - h0) / (h1 - h0)
}

/// A lognormal number of tokens, cut off at both ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenCount {
    /// Half of the requests have at most this many.
    pub median: f64,
    /// Sigma of the logarithm.
    pub sigma: f64,
    /// Never more.
    pub most: u32,
}

impl TokenCount {
    /// Azure's public conversation trace of 2023: mean 1155, median 1020.
    pub const CONVERSATION_INPUT: Self = Self { median: 1020.0, sigma: 0.5, most: 6144 };
    /// The same trace's outputs: mean 211.
    pub const CONVERSATION_OUTPUT: Self = Self { median: 148.0, sigma: 0.85, most: 1536 };

    fn draw(self, rng: &mut StdRng) -> u32 {
        let (u, v): (f64, f64) = (rng.random(), rng.random());
        let normal = (-2.0 * (1.0 - u).ln()).sqrt() * (TAU * v).cos();
        (self.median * (self.sigma * normal).exp()).round().clamp(1.0, f64::from(self.most)) as u32
    }
}

/// What arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrafficSettings {
    /// The same seed, the same requests.
    pub seed: u64,
    /// The time of day at which the world begins.
    pub starts_at: Duration,
    /// Requests a second at the day's peak.
    pub peak_per_second: f64,
    /// Prompt tokens.
    pub input: TokenCount,
    /// Output tokens.
    pub output: TokenCount,
}

/// An endless stream of requests.
#[derive(Clone, Debug)]
pub struct Traffic {
    settings: TrafficSettings,
    factor: f64,
    /// The second that is drawn next.
    second: u64,
    drawn: VecDeque<Request>,
    next_id: u64,
}

impl Traffic {
    /// From the beginning of the world.
    #[must_use]
    pub fn new(settings: TrafficSettings) -> Self {
        Self { settings, factor: 1.0, second: 0, drawn: VecDeque::new(), next_id: 0 }
    }

    /// How it was made.
    #[must_use]
    pub fn settings(&self) -> &TrafficSettings {
        &self.settings
    }

    /// Multiplies the load from the next second on.
    pub fn set_factor(&mut self, factor: f64) {
        self.factor = factor.max(0.0);
    }

    /// The multiplier in force.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Requests drawn so far that have arrived.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        self.next_id - self.drawn.len() as u64
    }

    /// Expected requests a second at an instant.
    #[must_use]
    pub fn rate(&self, at: Moment) -> f64 {
        let time_of_day = self.settings.starts_at + at.since(Moment::START);
        self.settings.peak_per_second * weekday_share(time_of_day) * self.factor
    }

    /// The next request that arrives at or before `until`.
    pub fn next(&mut self, until: Moment) -> Option<Request> {
        while self.drawn.is_empty() && Moment::from_seconds(self.second as f64) <= until {
            self.draw_second();
        }
        self.drawn.pop_front_if(|request| request.arrived <= until)
    }

    fn draw_second(&mut self) {
        let second = self.second;
        self.second += 1;
        let rate = self.rate(Moment::from_seconds(second as f64));
        if rate <= 0.0 {
            return;
        }
        let mut rng = StdRng::seed_from_u64(self.settings.seed ^ second.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut offset = 0.0;
        loop {
            // Exponential gaps forget the past: beginning anew each second is still Poisson.
            let uniform: f64 = rng.random();
            offset -= (1.0 - uniform).ln() / rate;
            if offset >= 1.0 {
                return;
            }
            let request = Request {
                id: self.next_id,
                arrived: Moment::from_seconds(second as f64 + offset),
                input: self.settings.input.draw(&mut rng),
                cached: 0,
                output: self.settings.output.draw(&mut rng),
            };
            self.next_id += 1;
            self.drawn.push_back(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(seed: u64) -> Traffic {
        Traffic::new(TrafficSettings {
            seed,
            starts_at: Duration::from_secs(11 * 3600),
            peak_per_second: 20.0,
            input: TokenCount::CONVERSATION_INPUT,
            output: TokenCount::CONVERSATION_OUTPUT,
        })
    }

    fn all(mut traffic: Traffic, seconds: f64) -> Vec<Request> {
        std::iter::from_fn(|| traffic.next(Moment::from_seconds(seconds))).collect()
    }

    #[test]
    fn the_day_has_a_quiet_night_a_sharp_ramp_and_a_lunch_dip() {
        let share = |hours: f64| weekday_share(Duration::from_secs_f64(hours * 3600.0));
        assert!(share(4.0) < 0.1);
        assert!(share(9.1) / share(9.0) > 3.0);
        assert!(share(12.75) < 0.7 && share(11.0) > 0.99 && share(15.0) > 0.95);
        assert!((share(24.0) - share(0.0)).abs() < 1e-9);
        assert!((share(23.999) - share(0.0)).abs() < 1e-3);
    }

    #[test]
    fn the_mix_has_the_public_means_and_the_rate_is_kept() {
        let requests = all(traffic(7), 1800.0);
        let count = requests.len() as f64;
        assert!((count / 36_000.0 - 1.0).abs() < 0.03, "{count}");
        let mean = |f: fn(&Request) -> u32| requests.iter().map(|r| f64::from(f(r))).sum::<f64>() / count;
        assert!((mean(|r| r.input) / 1155.0 - 1.0).abs() < 0.02, "{}", mean(|r| r.input));
        assert!((mean(|r| r.output) / 211.0 - 1.0).abs() < 0.02, "{}", mean(|r| r.output));
    }

    #[test]
    fn the_same_seed_gives_the_same_requests_however_it_is_asked() {
        let at_once = all(traffic(1), 60.0);
        let mut asked_often = traffic(1);
        let mut bit_by_bit = Vec::new();
        for tenth in 1..=600 {
            let until = Moment::from_seconds(f64::from(tenth) / 10.0);
            bit_by_bit.extend(std::iter::from_fn(|| asked_often.next(until)));
        }
        assert_eq!(at_once, bit_by_bit);
        assert_ne!(at_once, all(traffic(2), 60.0));
        assert!(at_once.is_sorted_by_key(|request| request.arrived));
    }
}
