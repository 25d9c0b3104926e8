//! What the tier carries, seen twice: with replicas of unknown load as idle, and as full.
//!
//! The two views are the direction-safe rule. Going up is decided on the low one: what nobody has seen is no reason to
//! buy. Going down is decided on the high one: what nobody has seen is no reason to give back.

use std::time::Duration;

use super::capacity::ReplicaCapacity;
use super::memory::{Memory, ReplicaMemory};
use super::observation::{Observation, ReplicaLoad, ReplicaObservation, ReplicaState};
use super::policy::TokenRates;
use super::shape::sane;
use super::sight::Sight;

/// Refused requests count as demand only up to so many times the finished ones. Clients that come back at once multiply
/// refusals: in the AWS back-off simulator a hundred contending clients make 3 times the calls without jitter that they
/// make with it.
pub(super) const MOST_REFUSED_PER_FINISHED: f64 = 3.0;

/// One quantity of the whole tier.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Quantity {
    /// Where unknown replicas are idle.
    pub(super) low: f64,
    /// Where they are full, or as loaded as they were last seen, whichever is more.
    pub(super) high: f64,
    /// Replicas that told it.
    pub(super) told: u32,
}

impl Quantity {
    fn add(&mut self, value: Option<f64>, unknown: f64) {
        match value {
            Some(value) => {
                self.low += value;
                self.high += value;
                self.told += 1;
            }
            None => self.high += unknown,
        }
    }
}

/// The load of a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Load {
    /// KV cache in use, in caches of a whole replica.
    pub(super) kv: Quantity,
    /// Token work being served, in replica-seconds a second.
    pub(super) work: Quantity,
    /// How much of `work.low` is not the tier's own mean: what a replica serves that was first read a moment ago, beyond
    /// its share of the span that the tier's rates are means over. In that span others had the work that it has now: the
    /// replicas beside it, or the activator.
    pub(super) work_handed_over: f64,
    /// Requests in the running batches.
    pub(super) running: Quantity,
    /// Requests that wait, those at the activator included.
    pub(super) waiting: Quantity,
    /// Of those, the ones at the activator, where it can be read.
    pub(super) queued_at_activator: Option<f64>,
    /// Uncached input tokens a second, for the explanation.
    pub(super) input_tokens: f64,
    /// Output tokens a second.
    pub(super) output_tokens: f64,
    /// Requests finished a second.
    pub(super) finished: Option<f64>,
    /// Requests refused a second, as far as they count as demand.
    pub(super) refused: Quantity,
    /// Replicas that serve and whose load is known.
    pub(super) ready: u32,
    /// Replicas that should serve and whose load is unknown.
    pub(super) unknown: u32,
    /// Replicas that serve what they have left: see [`ReplicaObservation::is_cut_off`].
    pub(super) cut_off: u32,
    /// Work is known to be there: running, waiting, starting or draining.
    pub(super) in_use: bool,
    /// Nobody can say that there is none.
    pub(super) maybe_in_use: bool,
}

impl Load {
    pub(super) fn of(
        observation: &Observation,
        memory: &Memory,
        capacity: &ReplicaCapacity,
        sight: &Sight,
    ) -> Self {
        let mut load = Self::default();
        let full_batch = capacity.batch.map_or(0.0, |bound| bound.size);
        let longest = observation.load.rates_over.unwrap_or_default();
        for replica in &observation.replicas {
            match (replica.state, &replica.load) {
                (ReplicaState::Ready, Some(seen)) => {
                    load.ready += 1;
                    load.add(replica, seen, memory, capacity.rates, full_batch);
                    load.work_handed_over += handed_over(seen, capacity.rates, longest);
                }
                // At zero the activator has said that there is nothing.
                (ReplicaState::Ready | ReplicaState::Silent, _) if !matches!(sight, Sight::Zero) => {
                    load.unknown += 1;
                    load.maybe_in_use = true;
                    load.add_unknown(memory.replicas.get(&replica.id), capacity.rates, 1.0, full_batch);
                }
                (ReplicaState::Terminating, Some(seen)) => {
                    load.add(replica, seen, memory, capacity.rates, 0.0);
                    load.work_handed_over += handed_over(seen, capacity.rates, longest);
                }
                (ReplicaState::Terminating, None) => {
                    load.maybe_in_use = true;
                    load.add_unknown(memory.replicas.get(&replica.id), capacity.rates, 0.0, 0.0);
                }
                (ReplicaState::Starting, _) => load.in_use = true,
                _ => {}
            }
        }
        load.add_activator(observation, memory.activator_queued);
        load.in_use |= load.running.low > 0.0 || load.waiting.low > 0.0;
        load
    }

    fn add(
        &mut self,
        replica: &ReplicaObservation,
        seen: &ReplicaLoad,
        memory: &Memory,
        rates: TokenRates,
        full_batch: f64,
    ) {
        let full = if replica.state == ReplicaState::Ready { 1.0 } else { 0.0 };
        let (kv, running, waiting) = (sane(seen.kv_usage), sane(seen.running), backlog(seen));
        let (input, output) = tokens(seen);
        let work = input.zip(output).map(|(input, output)| work(input, output, rates));
        let refused = refused(seen);
        // Looked up only where something is missing that was there: the usual page tells everything.
        let missing = kv.is_none()
            || work.is_none()
            || running.is_none()
            || waiting.is_none()
            || (refused.is_none() && memory.refusals_told);
        let remembered = if missing { memory.replicas.get(&replica.id) } else { None };
        let last = LastSeen::of(remembered, rates);
        self.kv.add(kv, last.kv.max(full));
        self.work.add(work, last.work.max(full));
        self.running.add(running, last.running.max(full_batch));
        self.waiting.add(waiting, last.waiting);
        if replica.is_cut_off() {
            // An empty engine that nothing reaches is no reason to give it back.
            self.cut_off += 1;
            self.maybe_in_use = true;
            self.kv.high += (full - kv.unwrap_or(full)).max(0.0);
            self.work.high += (full - work.unwrap_or(full)).max(0.0);
            self.running.high += (full_batch - running.unwrap_or(full_batch)).max(0.0);
        }
        self.maybe_in_use |= running.is_none();
        self.in_use |= seen.waiting.is_some_and(|waiting| waiting > 0.0);
        self.input_tokens += input.unwrap_or(0.0);
        self.output_tokens += output.unwrap_or(0.0);
        self.refused.add(refused, last.refused);
        if let Some(finished) = sane(seen.requests_per_second) {
            self.finished = Some(self.finished.unwrap_or(0.0) + finished);
        }
    }

    fn add_unknown(
        &mut self,
        remembered: Option<&ReplicaMemory>,
        rates: TokenRates,
        full: f64,
        full_batch: f64,
    ) {
        let last = LastSeen::of(remembered, rates);
        self.kv.add(None, last.kv.max(full));
        self.work.add(None, last.work.max(full));
        self.running.add(None, last.running.max(full_batch));
        self.waiting.add(None, last.waiting);
        self.refused.add(None, last.refused);
    }

    /// One that can't be read wakes nothing and lowers nothing: going down, it holds what it held last.
    fn add_activator(&mut self, observation: &Observation, last: Option<f64>) {
        let Some(activator) = &observation.activator else { return };
        let Some(queued) = sane(activator.queued) else {
            self.maybe_in_use = true;
            self.waiting.high += last.unwrap_or(0.0);
            return;
        };
        self.waiting.low += queued;
        self.waiting.high += queued;
        self.queued_at_activator = Some(queued);
    }
}

/// Input tokens that had to be computed, and output tokens, a second. Where cached ones aren't told apart, all count.
pub(super) fn tokens(seen: &ReplicaLoad) -> (Option<f64>, Option<f64>) {
    let input = seen.uncached_input_tokens_per_second.or(seen.input_tokens_per_second);
    (sane(input), sane(seen.output_tokens_per_second))
}

/// Requests that wait and that a further replica would serve. Those that wait for an adapter, a KV transfer or a grammar
/// would wait there too.
pub(super) fn backlog(seen: &ReplicaLoad) -> Option<f64> {
    let waiting = sane(seen.waiting)?;
    Some((waiting - sane(seen.waiting_deferred).unwrap_or(0.0)).max(0.0))
}

/// Refusals that count as demand; None where the engine tells none (vLLM before 0.32).
pub(super) fn refused(seen: &ReplicaLoad) -> Option<f64> {
    let refused = sane(seen.rejected_per_second)?;
    Some(
        sane(seen.requests_per_second)
            .map_or(refused, |finished| refused.min(finished * MOST_REFUSED_PER_FINISHED)),
    )
}

/// See [`Load::work_handed_over`].
fn handed_over(seen: &ReplicaLoad, rates: TokenRates, longest: Duration) -> f64 {
    let ((Some(input), Some(output)), Some(span)) = (tokens(seen), seen.rates_over) else { return 0.0 };
    if span >= longest {
        return 0.0;
    }
    work(input, output, rates) * (1.0 - span.as_secs_f64() / longest.as_secs_f64())
}

fn work(input: f64, output: f64, rates: TokenRates) -> f64 {
    input / rates.input_tokens_per_second + output / rates.output_tokens_per_second
}

/// What a replica carried when it was last seen.
#[derive(Default)]
struct LastSeen {
    kv: f64,
    work: f64,
    running: f64,
    waiting: f64,
    refused: f64,
}

impl LastSeen {
    fn of(remembered: Option<&ReplicaMemory>, rates: TokenRates) -> Self {
        let Some(last) = remembered else { return Self::default() };
        Self {
            kv: last.kv_usage.unwrap_or(0.0),
            work: work(last.input_tokens.unwrap_or(0.0), last.output_tokens.unwrap_or(0.0), rates),
            running: last.running.unwrap_or(0.0),
            waiting: last.waiting.unwrap_or(0.0),
            refused: last.refused.unwrap_or(0.0),
        }
    }
}
