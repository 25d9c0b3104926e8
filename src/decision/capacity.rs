//! What one replica can serve: its token rates, and the batch that it can run.

use std::fmt;

use super::explanation::Capacity;
use super::fit::{Fit, StepCost};
use super::memory::Memory;
use super::observation::{Observation, ReplicaLoad};
use super::policy::{Policy, TokenRates};
use super::saturated::Saturated;
use super::shape::{RequestShape, sane};

/// The largest batch that a replica can run, and why no larger one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BatchBound {
    /// Sequences.
    pub(super) size: f64,
    /// What binds.
    pub(super) binds: Binds,
}

/// What bounds a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binds {
    /// A larger batch would decode slower than the inter-token latency allows.
    InterTokenLatency,
    /// A larger batch wouldn't fit into the KV cache.
    KvTokens,
    /// `--max-num-seqs`.
    MaxRunning,
}

impl fmt::Display for Binds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InterTokenLatency => "inter-token latency",
            Self::KvTokens => "KV tokens / mean context",
            Self::MaxRunning => "max-num-seqs",
        })
    }
}

/// What a replica of the tier can do.
#[derive(Clone, Debug)]
pub(super) struct ReplicaCapacity {
    pub(super) rates: TokenRates,
    /// KV tokens of a replica: the mean over the pages that tell, else as configured.
    pub(super) kv_tokens: Option<f64>,
    pub(super) batch: Option<BatchBound>,
    /// For the explanation.
    pub(super) told: Capacity,
}

impl ReplicaCapacity {
    pub(super) fn of(
        policy: &Policy,
        observation: &Observation,
        memory: &Memory,
        shape: &RequestShape,
    ) -> Self {
        let mut capacity = Self::before_the_check(policy, observation, memory, shape);
        if policy.capacity.learn {
            capacity.told = capacity.told.checked(&memory.fit.saturated);
            capacity.rates = capacity.told.rates;
        }
        capacity
    }

    /// By the law of its steps or the configuration alone.
    pub(super) fn before_the_check(
        policy: &Policy,
        observation: &Observation,
        memory: &Memory,
        shape: &RequestShape,
    ) -> Self {
        let mean = |of: fn(&ReplicaLoad) -> Option<f64>| mean_over_replicas(observation, of);
        let kv_tokens =
            mean(|load| load.kv_tokens).or(sane(policy.capacity.kv_tokens).filter(|tokens| *tokens > 0.0));
        let engines = mean(|load| load.engines).unwrap_or(1.0).max(1.0);
        let learned = if policy.capacity.learn { memory.fit.accepted() } else { None };
        let batch = batch_bound(policy, kv_tokens, shape, learned, engines);
        let told = told(policy, &memory.fit, learned, batch, engines);
        Self { rates: told.rates, kv_tokens, batch, told }
    }
}

/// The mean over the replicas that tell a number above zero.
fn mean_over_replicas(observation: &Observation, of: fn(&ReplicaLoad) -> Option<f64>) -> Option<f64> {
    let (mut sum, mut told) = (0.0, 0_u32);
    for replica in &observation.replicas {
        if let Some(number) = sane(replica.load.as_ref().and_then(of)).filter(|number| *number > 0.0) {
            sum += number;
            told += 1;
        }
    }
    (told > 0).then(|| sum / f64::from(told))
}

/// `B* = min(batch at the inter-token latency, KV tokens / mean context, max-num-seqs)`; None when none of them is known.
///
/// A full batch of `B` finishes `B / output` requests a step, and so prefills `B x input / output` tokens a step. Put
/// into the step law, the batch at a latency is `(latency - alpha) / (beta x input / output + delta)`. The step law is an
/// engine's, the bound is a replica's: with several engines it is so many times the batch.
fn batch_bound(
    policy: &Policy,
    kv_tokens: Option<f64>,
    shape: &RequestShape,
    learned: Option<&StepCost>,
    engines: f64,
) -> Option<BatchBound> {
    let signal = &policy.signals.batch;
    let at_latency = signal.inter_token_latency.zip(learned).map(|(latency, cost)| {
        let per_sequence = cost.beta * shape.uncached_input / shape.output + cost.delta;
        engines * (latency.as_secs_f64() - cost.alpha) / per_sequence.max(f64::MIN_POSITIVE)
    });
    let bounds = [
        (at_latency, Binds::InterTokenLatency),
        (kv_tokens.map(|tokens| tokens / shape.mean_context()), Binds::KvTokens),
        (sane(signal.max_running), Binds::MaxRunning),
    ];
    bounds
        .into_iter()
        .filter_map(|(size, binds)| Some(BatchBound { size: size?.clamp(1.0, 1e9), binds }))
        .min_by(|a, b| a.size.total_cmp(&b.size))
}

/// The rates in use: learned before configured.
///
/// An input token costs `beta` seconds of a replica. An output token's cost depends on how many share its step: at batch
/// `B` it is `alpha / B + delta`. It is priced at the batch that the replica is meant to run, `B*`, where the capacity
/// of a full replica is asked for; at the largest batch seen where no bound is known. A replica of several engines serves
/// so many times what one does, each with its share of the batch.
fn told(
    policy: &Policy,
    fit: &Fit,
    learned: Option<&StepCost>,
    batch: Option<BatchBound>,
    engines: f64,
) -> Capacity {
    let prior = |fit: String| Capacity {
        rates: usable(policy.capacity.prior),
        source: policy.capacity.prior_source.clone(),
        fit,
    };
    if !policy.capacity.learn {
        return prior("learning is off".to_owned());
    }
    let Some(cost) = learned else { return prior(fit.refusal()) };
    let (at_batch, binds) = match batch {
        Some(bound) => ((bound.size / engines).max(1.0), Some(bound.binds)),
        None => (fit.largest_batch().max(1.0), None),
    };
    let rates = usable(TokenRates {
        input_tokens_per_second: engines / cost.beta,
        output_tokens_per_second: engines / (cost.alpha / at_batch + cost.delta),
    });
    let of_engines = if engines > 1.0 { format!(" x {engines:.0} engines") } else { String::new() };
    let mut words = format!(
        "step = {:.2} ms + {:.1} us a prefill token + {:.1} us a sequence, priced at batch {at_batch:.0} ({}){of_engines}",
        cost.alpha * 1e3,
        cost.beta * 1e6,
        cost.delta * 1e6,
        binds.map_or_else(|| "largest seen".to_owned(), |binds| binds.to_string()),
    );
    let refusal = fit.refusal();
    if !refusal.is_empty() {
        words.push_str("; newest rows: ");
        words.push_str(&refusal);
    }
    Capacity { rates, source: "learned".to_owned(), fit: words }
}

impl Capacity {
    /// As much as replicas really serve while requests wait at them, where that was seen.
    fn checked(mut self, saturated: &Saturated) -> Self {
        let Some(factor) = saturated.factor(self.rates) else { return self };
        self.rates = usable(TokenRates {
            input_tokens_per_second: self.rates.input_tokens_per_second * factor,
            output_tokens_per_second: self.rates.output_tokens_per_second * factor,
        });
        let seen = saturated.minutes();
        self.fit = format!(
            "{}; x {factor:.2}, as served in {seen:.0} replica-minutes with requests waiting",
            self.fit
        );
        self
    }
}

/// Rates that can be divided by.
fn usable(rates: TokenRates) -> TokenRates {
    let usable = |rate: f64| if rate.is_finite() { rate.clamp(1e-3, 1e12) } else { 1e12 };
    TokenRates {
        input_tokens_per_second: usable(rates.input_tokens_per_second),
        output_tokens_per_second: usable(rates.output_tokens_per_second),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::decision::fixtures;

    const COST: StepCost = StepCost { alpha: 0.010, beta: 50e-6, delta: 100e-6 };
    const SHAPE: RequestShape = RequestShape { input: 1000.0, uncached_input: 1000.0, output: 250.0 };

    #[test]
    fn the_smallest_bound_binds_and_is_named() {
        let mut policy = fixtures::policy();
        policy.signals.batch.max_running = Some(256.0);
        let bound = batch_bound(&policy, Some(100_000.0), &SHAPE, None, 1.0).unwrap();
        assert_eq!(bound.binds, Binds::KvTokens);
        assert!((bound.size - 100_000.0 / 1125.0).abs() < 1e-9);

        policy.signals.batch.max_running = Some(16.0);
        assert_eq!(
            batch_bound(&policy, Some(100_000.0), &SHAPE, None, 1.0).unwrap().binds,
            Binds::MaxRunning
        );
    }

    #[test]
    fn the_batch_at_a_latency_carries_its_own_prefill() {
        let mut policy = fixtures::policy();
        policy.signals.batch.inter_token_latency = Some(Duration::from_millis(25));
        let bound = batch_bound(&policy, None, &SHAPE, Some(&COST), 1.0).unwrap();
        assert_eq!(bound.binds, Binds::InterTokenLatency);
        // At 50 sequences: 50 x 1000 / 250 = 200 prefill tokens a step, 10 + 10 + 5 = 25 ms.
        assert!((bound.size - 50.0).abs() < 1e-9, "{}", bound.size);
        assert!((COST.step_seconds(200.0, 50.0) - 0.025).abs() < 1e-12);
    }

    #[test]
    fn no_known_bound_is_no_bound() {
        assert_eq!(batch_bound(&fixtures::policy(), None, &SHAPE, None, 1.0), None);
    }

    #[test]
    fn an_output_token_is_priced_at_the_batch_that_a_replica_is_meant_to_run() {
        let batch = Some(BatchBound { size: 50.0, binds: Binds::KvTokens });
        let capacity = told(&fixtures::policy(), &Fit::default(), Some(&COST), batch, 1.0);
        assert_eq!(capacity.source, "learned");
        assert!((capacity.rates.input_tokens_per_second - 20_000.0).abs() < 1e-6);
        // 10 ms / 50 + 0.1 ms = 0.3 ms.
        assert!((capacity.rates.output_tokens_per_second - 1.0 / 0.0003).abs() < 1e-6);
        assert!(capacity.fit.starts_with("step = 10.00 ms + 50.0 us a prefill token"), "{}", capacity.fit);
    }

    #[test]
    fn a_replica_of_several_engines_serves_so_many_times_as_much() {
        let one = told(
            &fixtures::policy(),
            &Fit::default(),
            Some(&COST),
            Some(BatchBound { size: 50.0, binds: Binds::KvTokens }),
            1.0,
        );
        let four = told(
            &fixtures::policy(),
            &Fit::default(),
            Some(&COST),
            Some(BatchBound { size: 200.0, binds: Binds::KvTokens }),
            4.0,
        );
        assert!((four.rates.input_tokens_per_second / one.rates.input_tokens_per_second - 4.0).abs() < 1e-9);
        assert!(
            (four.rates.output_tokens_per_second / one.rates.output_tokens_per_second - 4.0).abs() < 1e-9
        );
    }

    #[test]
    fn a_refused_fit_leaves_the_prior_and_says_why() {
        let capacity = told(&fixtures::policy(), &Fit::default(), None, None, 1.0);
        assert_eq!(capacity.source, "configured");
        assert_eq!(capacity.fit, "no inter-token times seen yet");
    }
}
