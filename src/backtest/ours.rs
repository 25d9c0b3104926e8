//! The scaler itself in the fluid model: the same `learn`, `decide` and `record` as the server, once a slot. Pure.
//!
//! What an [`Observation`] of the fluid model holds: who the replicas are, with the times of their starts; their input,
//! output and request rates over the server's default window of 30 s; the waiting requests and their growth; the mean
//! lengths of the last ten minutes; the current count. A fluid has no KV cache, no batch, no latency histogram, no step,
//! no refusal and no activator: those are None, and the asks that need them leave the blend.
//!
//! The answer of one slot is what the HPA is told in the next: it is 5 s old then, as with a push that just missed it.

use std::collections::VecDeque;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::fleet::{Controller, Ended, Fleet, Replica};
use super::queue::{Queue, Tokens};
use super::rivals::moment;
use super::work::Work;
use super::{SLOT_SECONDS, SYNC_SLOTS, Settings};
use crate::aggregate::slope;
use crate::decision::{
    CountedTotals, Memory, Observation, Policy, ReplicaLoad, ReplicaObservation, ReplicaState, TierLoad,
    decide,
};
use crate::simulate::Moment;
use crate::simulate::autoscaler::{Autoscaler, Metric};
use crate::supply::{Stage, Start};

/// Slots that rates are means over: `scrape.rateWindow` is 30 s by default.
const RATE_SLOTS: usize = 6;

/// Slots that the mean lengths of requests are means over: ten minutes, as the server's.
const LENGTH_SLOTS: usize = 120;

/// How long before the trace the first replicas got ready. They are as old as that, nothing else.
const READY_BEFORE: TimeDelta = TimeDelta::hours(1);

/// The scaler, its HPA, and what it sees.
pub(super) struct Scaler<'a> {
    policy: &'a Policy,
    begins: DateTime<Utc>,
    cold_start: Duration,
    autoscaler: Autoscaler,
    memory: Memory,
    /// The last answer; None where there was none.
    answer: Option<u32>,
    waiting: Queue<'a>,
    seen: Observation,
    /// The serials of `seen.replicas`.
    serials: Vec<u64>,
    /// What each ready replica served in the last slots, the newest last.
    each_served: VecDeque<Tokens>,
    /// What was served up to the ends of the last slots, the newest last.
    totals: VecDeque<Tokens>,
    /// Waiting requests at the ends of the last slots, the newest last.
    was_waiting: VecDeque<f64>,
}

impl<'a> Scaler<'a> {
    pub(super) fn new(settings: &'a Settings, work: &'a Work) -> Self {
        Self {
            policy: &settings.policy,
            begins: settings.begins,
            cold_start: settings.cold_start,
            autoscaler: Autoscaler::new(settings.chain.clone(), Moment::START),
            memory: Memory::started(settings.begins),
            answer: None,
            waiting: Queue::new(work, settings.policy.capacity.prior),
            seen: Observation::listed(Vec::new()),
            serials: Vec::new(),
            each_served: VecDeque::new(),
            totals: VecDeque::from([Tokens::default()]),
            was_waiting: VecDeque::from([0.0]),
        }
    }

    fn at(&self, slot: usize) -> DateTime<Utc> {
        self.begins + TimeDelta::milliseconds((slot as f64 * SLOT_SECONDS * 1e3).round() as i64)
    }

    /// The HPA's sync with the answer of the slot before.
    fn sync(&mut self, slot: usize, size: u32) -> u32 {
        if !slot.is_multiple_of(SYNC_SLOTS) {
            return size;
        }
        let metric = self
            .answer
            .map(|replicas| Metric { value_milli: i64::from(replicas) * 1000, target_milli: 1000 });
        self.autoscaler.hpa_sync(moment(slot), size, size, metric).unwrap_or(size)
    }

    fn decide(&mut self, slot: usize) {
        let now = self.at(slot);
        self.memory.learn(self.policy, &self.seen, now);
        let decision = decide(self.policy, &self.seen, &self.memory, now);
        self.memory.record(&decision);
        self.answer = decision.required();
    }

    fn observe(&mut self, slot: usize, fleet: &Fleet, size: u32) {
        self.list(slot, fleet, size);
        let ready = self.seen.replicas.iter().filter(|seen| seen.state == ReplicaState::Ready).count();
        let waiting = self.waiting.waiting().requests / (ready.max(1)) as f64;
        for at in 0..self.seen.replicas.len() {
            if self.seen.replicas[at].state != ReplicaState::Ready {
                continue;
            }
            // Complete slots in which it served: rates need two pages.
            let since = fleet.replicas().get(at).map_or(slot, |replica| replica.ready);
            let load = self.load_of(slot - since.min(slot), waiting);
            self.seen.replicas[at].load = Some(load);
        }
        self.seen.current = Some(size);
        self.seen.load = self.tier_load();
        let counted = self.totals.back().copied().unwrap_or_default();
        self.seen.totals = CountedTotals {
            input_tokens: counted.input,
            uncached_input_tokens: counted.input,
            output_tokens: counted.output,
            requests: counted.requests,
            rejected: 0.0,
        };
    }

    /// Who the replicas are after the sync: those of the fleet that stay, and those that were ordered just now.
    fn list(&mut self, slot: usize, fleet: &Fleet, size: u32) {
        let stay = &fleet.replicas()[..fleet.replicas().len().min(size as usize)];
        let same =
            self.serials.iter().zip(stay).take_while(|(serial, there)| **serial == there.serial).count();
        self.serials.truncate(same);
        self.seen.replicas.truncate(same);
        let now = self.at(slot);
        for replica in &stay[same..] {
            self.serials.push(replica.serial);
            let seen = self.started(replica);
            self.seen.replicas.push(seen);
        }
        for (seen, replica) in self.seen.replicas.iter_mut().zip(stay) {
            if seen.state == ReplicaState::Starting && replica.ready <= slot {
                seen.state = ReplicaState::Ready;
                seen.since = Some(now);
                seen.page_age = Some(Duration::ZERO);
                if let Some(start) = &mut seen.start {
                    start.ready = Some(now);
                    start.stage = None;
                }
            }
        }
    }

    /// A replica when it is seen first.
    fn started(&self, replica: &Replica) -> ReplicaObservation {
        let name = format!("r{}", replica.serial);
        let (created, ready) = if let Some(slot) = replica.ordered {
            (self.at(slot), None)
        } else {
            let ready = self.begins - READY_BEFORE;
            (crate::units::earlier(ready, self.cold_start), Some(ready))
        };
        ReplicaObservation {
            id: name.clone(),
            name,
            state: if ready.is_some() { ReplicaState::Ready } else { ReplicaState::Starting },
            since: Some(ready.unwrap_or(created)),
            load: None,
            page_age: ready.map(|_| Duration::ZERO),
            error: None,
            start: Some(Start {
                created,
                scheduled: Some(created),
                initialised: Some(created),
                init_seconds: 0.0,
                container_started: Some(created),
                ready,
                stage: ready.is_none().then_some(Stage::Loading),
                blocked: None,
                restarts: 0,
            }),
        }
    }

    /// The load of a replica that has served for so many slots.
    fn load_of(&self, slots: usize, waiting: f64) -> ReplicaLoad {
        let over = slots.min(self.each_served.len()).min(RATE_SLOTS);
        let rates = (over > 0).then(|| {
            let served =
                self.each_served.iter().rev().take(over).fold(Tokens::default(), |sum, t| sum.plus(*t));
            served.times(1.0 / (over as f64 * SLOT_SECONDS))
        });
        ReplicaLoad {
            waiting: Some(waiting),
            input_tokens_per_second: rates.map(|rates| rates.input),
            uncached_input_tokens_per_second: rates.map(|rates| rates.input),
            output_tokens_per_second: rates.map(|rates| rates.output),
            requests_per_second: rates.map(|rates| rates.requests),
            rates_over: rates_over(over),
            ..ReplicaLoad::default()
        }
    }

    fn tier_load(&self) -> TierLoad {
        let (first, last) = (self.totals.front(), self.totals.back());
        let served = first.zip(last).map(|(first, last)| last.minus(*first)).unwrap_or_default();
        let mean = |tokens: f64| (served.requests > 0.0).then(|| (tokens / served.requests).max(0.0));
        TierLoad {
            waiting_growth_per_second: slope(self.was_waiting.iter().enumerate().map(slot_and_value)),
            rates_over: rates_over(self.each_served.len().min(RATE_SLOTS)),
            mean_input_tokens: mean(served.input),
            mean_uncached_input_tokens: mean(served.input),
            mean_output_tokens: mean(served.output),
            ..TierLoad::default()
        }
    }
}

/// The end of a slot in seconds, and what waited then.
fn slot_and_value((slot, waiting): (usize, &f64)) -> (f64, f64) {
    (slot as f64 * SLOT_SECONDS, *waiting)
}

/// The span of rates over so many slots.
fn rates_over(slots: usize) -> Option<Duration> {
    (slots > 0).then(|| Duration::from_secs_f64(slots as f64 * SLOT_SECONDS))
}

impl Controller for Scaler<'_> {
    fn replicas(&mut self, slot: usize, fleet: &Fleet) -> u32 {
        let size = self.sync(slot, fleet.size());
        self.observe(slot, fleet, size);
        self.decide(slot);
        size
    }

    fn served(&mut self, slot: usize, ended: Ended) {
        self.waiting.arrive(slot);
        let served = self.waiting.serve(ended.served);
        keep(&mut self.each_served, served.times(1.0 / f64::from(ended.ready.max(1))), RATE_SLOTS);
        let total = self.totals.back().copied().unwrap_or_default().plus(served);
        keep(&mut self.totals, total, LENGTH_SLOTS + 1);
        keep(&mut self.was_waiting, self.waiting.waiting().requests, RATE_SLOTS + 1);
    }
}

fn keep<T>(last: &mut VecDeque<T>, newest: T, most: usize) {
    if last.len() == most {
        last.pop_front();
    }
    last.push_back(newest);
}

#[cfg(test)]
mod tests;
