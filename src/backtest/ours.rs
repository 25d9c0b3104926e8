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

use super::changes::Changes;
use super::fleet::{Controller, Ended, Fleet, Replica, Terms};
use super::queue::{Queue, Tokens};
use super::rivals::moment;
use super::work::Work;
use super::{Contender, SLOT_SECONDS, SYNC_SLOTS};
use crate::aggregate::slope;
use crate::decision::policy::TokenRates;
use crate::decision::{
    BoundKind, CountedTotals, Decision, Memory, Observation, Policy, ReplicaLoad, ReplicaObservation,
    ReplicaState, TierLoad, decide,
};
use crate::simulate::Moment;
use crate::simulate::autoscaler::{Autoscaler, Metric};
use crate::supply::{Stage, Start};

/// Slots that rates are means over: `scrape.rateWindow` is 30 s by default.
pub(super) const RATE_SLOTS: usize = 6;

/// Slots that the mean lengths of requests are means over: ten minutes, as the server's.
const LENGTH_SLOTS: usize = 120;

/// How long before the trace the first replicas got ready. They are as old as that, nothing else.
const READY_BEFORE: TimeDelta = TimeDelta::hours(1);

/// Where a scaler plays.
#[derive(Clone, Copy)]
pub(super) struct World<'a> {
    pub(super) work: &'a Work,
    pub(super) terms: Terms,
    /// What a replica of this world truly serves.
    pub(super) rates: TokenRates,
    /// The wall-clock time of the first slot.
    pub(super) begins: DateTime<Utc>,
    /// Of the fleet.
    pub(super) cold_start: Duration,
}

impl World<'_> {
    /// What the work of a slot is made of.
    fn arrivals(&self, slot: usize) -> Tokens {
        let arriving = self.work.slots()[slot];
        let seconds = f64::from(arriving.units) * self.work.unit_seconds();
        Tokens {
            input: seconds * arriving.input_share * self.rates.input_tokens_per_second,
            output: seconds * (1.0 - arriving.input_share) * self.rates.output_tokens_per_second,
            requests: arriving.requests,
        }
    }
}

/// What a scaler is given that nobody has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Insight {
    /// Its answer is the fleet's size in the same slot, without an HPA.
    pub(super) at_once: bool,
    /// Instead of what is served it sees what truly arrives, so many slots ahead.
    pub(super) arriving: Option<usize>,
}

/// The scaler, its HPA, and what it sees.
pub(super) struct Scaler<'a> {
    world: World<'a>,
    policy: &'a Policy,
    insight: Insight,
    autoscaler: Autoscaler,
    memory: Memory,
    /// The last answer; None where there was none.
    answer: Option<u32>,
    /// What the last decision needs for its load and its promises, before anything holds it.
    needed: u32,
    /// Where the answers are wanted with their reasons.
    changes: Option<Changes>,
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
    pub(super) fn new(world: &World<'a>, contender: &'a Contender, insight: Insight) -> Self {
        Self {
            world: *world,
            policy: &contender.policy,
            insight,
            autoscaler: Autoscaler::new(contender.chain.clone(), Moment::START),
            memory: Memory::started(world.begins),
            answer: None,
            needed: 0,
            changes: None,
            waiting: Queue::new(world.work, world.rates),
            seen: Observation::listed(Vec::new()),
            serials: Vec::new(),
            each_served: VecDeque::new(),
            totals: VecDeque::from([Tokens::default()]),
            was_waiting: VecDeque::from([0.0]),
        }
    }

    /// Keeps its answers with their reasons.
    pub(super) fn telling(self, changes: Changes) -> Self {
        Self { changes: Some(changes), ..self }
    }

    /// What it has learned.
    pub(super) fn into_memory(self) -> Memory {
        self.memory
    }

    /// See [`Scaler::telling`].
    pub(super) fn into_changes(self) -> Option<Changes> {
        self.changes
    }

    /// What the last decision needs, before anything holds it up or makes more of it for the HPA.
    pub(super) fn needed(&self) -> u32 {
        self.needed
    }

    fn at(&self, slot: usize) -> DateTime<Utc> {
        self.world.begins + TimeDelta::milliseconds((slot as f64 * SLOT_SECONDS * 1e3).round() as i64)
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
        self.needed = needed(&decision, self.policy);
        if let Some(changes) = &mut self.changes {
            changes.note(slot, &decision);
        }
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
        if let Some(ahead) = self.insight.arriving {
            self.show_arriving(slot + ahead);
        }
        let counted = self.totals.back().copied().unwrap_or_default();
        self.seen.totals = CountedTotals {
            input_tokens: counted.input,
            uncached_input_tokens: counted.input,
            output_tokens: counted.output,
            requests: counted.requests,
            rejected: 0.0,
            queue_times: None,
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
            let ready = self.world.begins - READY_BEFORE;
            (crate::units::earlier(ready, self.world.cold_start), Some(ready))
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

    /// What arrives from this slot on, instead of what is served, as if nothing ever queued.
    fn show_arriving(&mut self, slot: usize) {
        let until = (slot + RATE_SLOTS).min(self.world.work.len());
        let from = until.saturating_sub(RATE_SLOTS);
        let slots = from..until;
        let arriving = slots.clone().fold(Tokens::default(), |sum, slot| sum.plus(self.world.arrivals(slot)));
        let ready = self.seen.replicas.iter().filter(|seen| seen.state == ReplicaState::Ready).count();
        let each = arriving.times(1.0 / (slots.len().max(1) as f64 * SLOT_SECONDS * ready.max(1) as f64));
        for seen in self.seen.replicas.iter_mut().filter(|seen| seen.state == ReplicaState::Ready) {
            seen.load = Some(ReplicaLoad {
                waiting: Some(0.0),
                input_tokens_per_second: Some(each.input),
                uncached_input_tokens_per_second: Some(each.input),
                output_tokens_per_second: Some(each.output),
                requests_per_second: Some(each.requests),
                rates_over: rates_over(RATE_SLOTS),
                ..ReplicaLoad::default()
            });
        }
        self.seen.load.waiting_growth_per_second = Some(0.0);
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
        if self.insight.at_once {
            let size = fleet.size();
            self.observe(slot, fleet, size);
            self.decide(slot);
            return self.answer.unwrap_or(size).max(1);
        }
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

/// The largest need of a decision: neither what holds an answer up nor what the HPA's tolerance makes of it.
fn needed(decision: &Decision, policy: &Policy) -> u32 {
    let is_need = |kind: BoundKind| {
        !kind.holds() && !matches!(kind, BoundKind::Max | BoundKind::DeadBand | BoundKind::Refused)
    };
    let needs = decision.bounds.iter().filter(|bound| is_need(bound.kind)).map(|bound| bound.replicas);
    needs.max().unwrap_or(0).clamp(policy.min.max(1), policy.max.max(1))
}

fn keep<T>(last: &mut VecDeque<T>, newest: T, most: usize) {
    if last.len() == most {
        last.pop_front();
    }
    last.push_back(newest);
}

#[cfg(test)]
mod tests;
