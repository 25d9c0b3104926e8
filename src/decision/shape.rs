//! What a request of this tier is like: how long it is, what it costs, and how much KV cache it takes.

use serde::{Deserialize, Serialize};

use super::memory::exact;
use super::observation::TierLoad;
use super::policy::TokenRates;

/// Numbers above this are no loads: it keeps every product of two of them finite.
const LARGEST_SANE: f64 = 1e12;

/// A number that can be calculated with: finite, not negative, and below [`LARGEST_SANE`].
pub(super) fn sane(value: Option<f64>) -> Option<f64> {
    value.filter(|v| v.is_finite() && *v >= 0.0).map(|v| v.min(LARGEST_SANE))
}

/// Mean lengths of a request, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RequestShape {
    /// Input tokens.
    #[serde(with = "exact")]
    pub(super) input: f64,
    /// Input tokens that have to be computed.
    #[serde(with = "exact")]
    pub(super) uncached_input: f64,
    /// Output tokens.
    #[serde(with = "exact")]
    pub(super) output: f64,
}

impl RequestShape {
    /// Stands in until a tier's own lengths are known: the means of the conversation service in the Azure LLM inference
    /// trace of 2023 (1,155 input and 211 output tokens).
    pub(super) const ASSUMED: Self = Self { input: 1155.0, uncached_input: 1155.0, output: 211.0 };

    /// The lengths of the last minutes, where requests finished in them.
    pub(super) fn observed(load: &TierLoad) -> Option<Self> {
        let input = sane(load.mean_input_tokens).filter(|tokens| *tokens > 0.0)?;
        let output = sane(load.mean_output_tokens).filter(|tokens| *tokens > 0.0)?;
        let uncached_input = sane(load.mean_uncached_input_tokens).unwrap_or(input).min(input);
        Some(Self { input, uncached_input, output })
    }

    /// Lengths that can be calculated with.
    pub(super) fn is_sane(&self) -> bool {
        let is_length = |tokens: f64| sane(Some(tokens)) == Some(tokens);
        self.input > 0.0
            && self.output > 0.0
            && self.uncached_input <= self.input
            && [self.input, self.uncached_input, self.output].into_iter().all(is_length)
    }

    /// What a request costs, in replica-seconds: each of its tokens at 1 / the rate of its kind.
    pub(super) fn cost(&self, rates: TokenRates) -> f64 {
        self.uncached_input / rates.input_tokens_per_second + self.output / rates.output_tokens_per_second
    }

    /// What a request that runs still costs, in replica-seconds, as a mean over its life: half of its output.
    pub(super) fn left_while_running(&self, rates: TokenRates) -> f64 {
        self.output / 2.0 / rates.output_tokens_per_second
    }

    /// The KV cache that a request takes, in tokens, as a mean over its life: its input, and half of its output.
    pub(super) fn mean_context(&self) -> f64 {
        self.input + self.output / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_costs_its_tokens_at_their_rates() {
        let shape = RequestShape { input: 1000.0, uncached_input: 800.0, output: 70.0 };
        let rates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };
        assert!((shape.cost(rates) - 0.2).abs() < 1e-12);
        assert!((shape.mean_context() - 1035.0).abs() < 1e-12);
    }

    #[test]
    fn lengths_need_both_ends() {
        let load = TierLoad { mean_input_tokens: Some(10.0), ..TierLoad::default() };
        assert_eq!(RequestShape::observed(&load), None);
    }

    #[test]
    fn what_is_no_number_is_not_a_load() {
        for value in [f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(sane(Some(value)), None);
        }
        assert_eq!(sane(Some(1e300)), Some(LARGEST_SANE));
    }
}
