//! The token-velocity guide of llm-d: prompt tokens in flight over what a replica prefills a second. Pure.
//!
//! Source: llm-d's guide on KEDA with token velocity; the idea is TokenScale's (arXiv 2512.03416). Two triggers of type
//! `AverageValue`, the larger counts: the seconds of prefill in flight, 1.5 a replica, and the sum of KV usage, 0.8 a
//! replica. Where nobody tells KV usage the first is alone. Prometheus scrapes every 15 s; the HPA has its defaults.
//!
//! In flight are the prompts that wait and those that are being prefilled; the latter by Little's law, arrivals times the
//! time that the mean prompt takes.

use std::time::Duration;

use super::{SCRAPE_AGE, external};
use crate::backtest::rival::{Rival, Seen, Wish};
use crate::simulate::Moment;
use crate::simulate::autoscaler::AutoscalerSettings;

/// Seconds of prefill in flight that a replica should have.
const SECONDS: f64 = 1.5;
/// KV usage that a replica should have.
const KV: f64 = 0.8;

/// With the velocity of one replica.
pub(super) struct TokenVelocity {
    /// Prompt tokens a second of one replica, from the guide's calibration.
    prefill: f64,
}

impl TokenVelocity {
    pub(super) fn new(prefill: f64) -> Self {
        Self { prefill }
    }

    fn in_flight(&self, seen: &Seen) -> f64 {
        let waiting: f64 = seen.ready.iter().map(|replica| replica.waiting_prompt_tokens).sum();
        let served = seen.served;
        if served.requests <= 0.0 {
            return waiting;
        }
        waiting + served.input_tokens * (served.input_tokens / served.requests / self.prefill)
    }
}

impl Rival for TokenVelocity {
    fn metric_age(&self) -> Duration {
        SCRAPE_AGE
    }

    fn chain(&self, min: u32, max: u32) -> Option<AutoscalerSettings> {
        Some(AutoscalerSettings::defaults(min, max))
    }

    fn wish(&mut self, _: Moment, seen: &Seen) -> Wish {
        let mut signals = vec![Some(external(self.in_flight(seen) / self.prefill, SECONDS))];
        signals.extend(seen.kv_usage().map(|usage| Some(external(usage, KV))));
        Wish::Metrics(signals)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{kv, uniform, wish};
    use super::*;
    use crate::backtest::rival::{Rates, SeenReplica};

    #[test]
    fn waiting_prompts_count_at_once_and_those_in_prefill_by_their_time() {
        let mut rival = TokenVelocity::new(8000.0);
        let quiet = SeenReplica::default();
        // 16 requests a second of 1000 tokens: each is prefilled for an eighth of a second, 2000 tokens are in flight.
        let served = Rates { requests: 16.0, input_tokens: 16_000.0, ..Rates::default() };
        let steady = Seen { served, ..uniform(0.0, 4, quiet) };
        assert_eq!(wish(&mut rival, &steady), Wish::Metrics(vec![Some(external(0.25, 1.5))]));
        let waiting = SeenReplica { waiting_prompt_tokens: 12_000.0, ..quiet };
        assert_eq!(
            wish(&mut rival, &uniform(0.0, 4, waiting)),
            Wish::Metrics(vec![Some(external(6.0, 1.5))])
        );
    }

    #[test]
    fn kv_usage_is_the_second_trigger_where_it_is_told() {
        let wished = wish(&mut TokenVelocity::new(8000.0), &uniform(0.0, 4, kv(0.9, 0.0)));
        assert_eq!(wished, Wish::Metrics(vec![Some(external(0.0, 1.5)), Some(external(3.6, 0.8))]));
    }
}
