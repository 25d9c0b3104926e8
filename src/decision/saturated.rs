//! What replicas really serve while requests wait at them: the check on what they are thought to carry.
//!
//! A replica at which requests wait serves all it can, whatever the law of its steps says that it should: its batch is
//! as full as prompts of uneven length let it be. So its token rates then, over what a replica is thought to carry, tell
//! by how much that is wrong. What is kept are tokens and seconds, not the quotient: it stays true when the cost of
//! tokens is learned anew.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::memory::exact;
use super::policy::TokenRates;

/// Replica-seconds with requests waiting before anything is said: ten minutes.
const FEWEST_SECONDS: f64 = 600.0;

/// Half-life of what is remembered: a day, as that of the cost of a step.
const HALF_LIFE_SECONDS: f64 = 86_400.0;

/// What a replica serves beyond these, over what it is thought to carry, corrects nothing: an engine that hangs with
/// requests waiting serves none of them, and must not make all others look half as fast.
const SMALLEST: f64 = 0.4;
/// See [`SMALLEST`].
const LARGEST: f64 = 2.0;

/// What a replica served for some time with requests waiting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Served {
    /// Uncached input tokens a second.
    pub(super) input: f64,
    /// Output tokens a second.
    pub(super) output: f64,
    /// For so long.
    pub(super) lasted: Duration,
}

/// Tokens served by replicas with requests waiting, and the seconds that took, both fading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Saturated {
    #[serde(with = "exact")]
    input_tokens: f64,
    #[serde(with = "exact")]
    output_tokens: f64,
    #[serde(with = "exact")]
    seconds: f64,
    /// The instant of the sums, seconds of watched time.
    #[serde(with = "exact")]
    at: f64,
}

impl Saturated {
    /// Takes in what a replica served; it is thought to carry `thought`. `at`: seconds of watched time.
    pub(super) fn add(&mut self, served: Served, thought: TokenRates, at: f64) {
        let Served { input, output, lasted } = served;
        if !(SMALLEST..=LARGEST).contains(&work(input, output, thought)) {
            return;
        }
        let fades = (-(at - self.at).max(0.0) / HALF_LIFE_SECONDS).exp2();
        let seconds = lasted.as_secs_f64();
        self.input_tokens = self.input_tokens * fades + input * seconds;
        self.output_tokens = self.output_tokens * fades + output * seconds;
        self.seconds = self.seconds * fades + seconds;
        self.at = self.at.max(at);
    }

    /// What replicas served over what they would with these rates; None while too little was seen.
    pub(super) fn factor(&self, rates: TokenRates) -> Option<f64> {
        if self.seconds < FEWEST_SECONDS {
            return None;
        }
        Some((work(self.input_tokens, self.output_tokens, rates) / self.seconds).clamp(SMALLEST, LARGEST))
    }

    /// Replica-minutes that it rests on.
    pub(super) fn minutes(&self) -> f64 {
        self.seconds / 60.0
    }

    /// The same with its clock moved by so many seconds: watched time is a process's own.
    pub(super) fn moved(self, seconds: f64) -> Self {
        Self { at: self.at + seconds, ..self }
    }

    /// It can be calculated with.
    pub(super) fn is_sane(&self) -> bool {
        let numbers = [self.input_tokens, self.output_tokens, self.seconds];
        self.at.is_finite() && numbers.iter().all(|number| number.is_finite() && *number >= 0.0)
    }
}

/// Replica-seconds that tokens take.
fn work(input: f64, output: f64, rates: TokenRates) -> f64 {
    input / rates.input_tokens_per_second + output / rates.output_tokens_per_second
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: TokenRates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 800.0 };

    fn served(input: f64, output: f64) -> Served {
        Served { input, output, lasted: Duration::from_mins(1) }
    }

    fn after(minutes: u32, input: f64, output: f64) -> Saturated {
        let mut saturated = Saturated::default();
        for minute in 1..=minutes {
            saturated.add(served(input, output), RATES, f64::from(minute) * 60.0);
        }
        saturated
    }

    #[test]
    fn ten_minutes_with_requests_waiting_tell_what_a_replica_carries() {
        // Half of its time for input, 0.3 of it for output: 0.8 of what it should carry.
        assert_eq!(after(9, 4000.0, 240.0).factor(RATES), None);
        let factor = after(11, 4000.0, 240.0).factor(RATES).unwrap();
        assert!((factor - 0.8).abs() < 1e-9, "{factor}");
    }

    #[test]
    fn what_is_kept_stays_true_when_tokens_get_another_price() {
        let twice = TokenRates { input_tokens_per_second: 4000.0, output_tokens_per_second: 400.0 };
        let factor = after(11, 4000.0, 240.0).factor(twice).unwrap();
        assert!((factor - 1.6).abs() < 1e-9, "{factor}");
    }

    #[test]
    fn a_day_later_half_of_it_counts() {
        let mut saturated = after(20, 4000.0, 240.0);
        for minute in 1..=20 {
            saturated.add(served(4000.0, 400.0), RATES, 86_400.0 + 600.0 + f64::from(minute) * 60.0);
        }
        let factor = saturated.factor(RATES).unwrap();
        assert!((factor - (0.8 + 2.0 * 1.0) / 3.0).abs() < 0.001, "{factor}");
        assert!((29.7..30.0).contains(&saturated.minutes()), "{}", saturated.minutes());
    }

    #[test]
    fn a_replica_that_hangs_with_requests_waiting_teaches_nothing() {
        let mut saturated = after(20, 4000.0, 240.0);
        for minute in 21..=60 {
            saturated.add(served(10.0, 1.0), RATES, f64::from(minute) * 60.0);
        }
        assert!((saturated.factor(RATES).unwrap() - 0.8).abs() < 1e-9);
        assert_eq!(after(20, 80_000.0, 0.0).factor(RATES), None);
    }
}
