//! What the numbers of a backtest can't tell about its policies. Pure.

use super::work::Work;
use super::{Contender, Settings};
use crate::decision::policy::{Combine, Signals};

/// What is wrong with taking these numbers at their word, policy by policy.
pub(super) fn of(settings: &Settings, work: &Work) -> Vec<String> {
    let mut warnings = Vec::new();
    for Contender { name, policy, .. } in &settings.policies {
        let absent = absent_signals(&policy.signals);
        if policy.signals.tokens.weight <= 0.0 {
            let rests = if absent.is_empty() { "the backlog alone".to_owned() } else { absent.join(", ") };
            warnings.push(format!(
                "{name}: without the tokens signal it rests on {rests}; a fluid has no KV cache, batch or latency, so this row tells nothing about it"
            ));
        } else if policy.combine == Combine::Weighted && !absent.is_empty() {
            warnings.push(format!(
                "{name}: {} can't be seen in a fluid and leave the weighted mean, which is another policy then",
                absent.join(", ")
            ));
        }
        if policy.min == 0 {
            warnings
                .push(format!("{name}: min 0 is played as 1, a fluid has no door at which work could wait"));
        }
        let (believed, real) = (policy.capacity.prior, settings.rates);
        if believed != real {
            warnings.push(format!(
                "{name}: it believes in {} input and {} output tokens/s a replica, the fleet serves {} and {}",
                believed.input_tokens_per_second,
                believed.output_tokens_per_second,
                real.input_tokens_per_second,
                real.output_tokens_per_second
            ));
        }
        if f64::from(policy.max) < work.peak {
            warnings.push(format!(
                "{name}: max {} is below the peak of {:.1}: only the static peak and the bound may go beyond it",
                policy.max, work.peak
            ));
        }
    }
    warnings
}

/// Signals with a weight that a fluid doesn't have.
fn absent_signals(signals: &Signals) -> Vec<&'static str> {
    [
        ("kvCache", signals.kv_cache.weight),
        ("batch", signals.batch.weight),
        ("latency", signals.latency.weight),
    ]
    .into_iter()
    .filter(|(_, weight)| *weight > 0.0)
    .map(|(name, _)| name)
    .collect()
}
