//! What an observation teaches.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::watched::{Watched, millis};
use super::{Memory, ReplicaMemory, SignalMemory};
use crate::decision::asks::latency;
use crate::decision::capacity::ReplicaCapacity;
use crate::decision::cold_start::Horizon;
use crate::decision::floors::FloorPlan;
use crate::decision::load::{backlog, refused, tokens};
use crate::decision::observation::{Observation, ReplicaObservation, ReplicaState};
use crate::decision::policy::Policy;
use crate::decision::saturated::Served;
use crate::decision::shape::{RequestShape, sane};
use crate::decision::sight::{Sight, replica_count};
use crate::forecast::LONGEST_HOLD;
use crate::units::{earlier, since};

/// A replica younger than this doesn't teach what a step costs: its first requests compile kernels and fill caches.
const WARM_UP: Duration = Duration::from_mins(2);

/// Pages closer together than this are the same page.
const SAME_PAGE: TimeDelta = TimeDelta::milliseconds(500);

/// Between pages further apart anything may have happened.
const LONGEST_GAP: Duration = Duration::from_mins(1);

impl Memory {
    /// Takes an observation in. Once before each decide.
    pub fn learn(&mut self, policy: &Policy, observation: &Observation, now: DateTime<Utc>) {
        let at = self.clock.advance(now);
        if !policy.floors_only {
            self.cold_starts.learn(policy, observation, now, at);
        }
        let horizon = self.horizon(policy, at);
        let Horizon { lead, hold, .. } = horizon;
        if !self.floors.holds(policy, lead, now) {
            self.floors = FloorPlan::of(policy, lead, now);
        }
        if policy.floors_only {
            return;
        }
        self.learn_since_start(hold, observation, at);
        // A rule of the forecast may hold for longer than the tier.
        let longest = if policy.forecast.is_some() { hold.max(LONGEST_HOLD) } else { hold };
        self.needs.forget(at, longest);
        self.blind_answers.forget(at, hold);
        self.answers.forget(at, hold);
        if let Some(shape) = RequestShape::observed(&observation.load) {
            self.shape = Some(shape);
        }
        let sight = Sight::of(observation, self);
        match sight {
            Sight::Known => self.known_count = Some(replica_count(observation)),
            Sight::Zero if observation.authoritative => self.known_count = Some(replica_count(observation)),
            Sight::Zero => self.known_count = Some(0),
            Sight::Blind(_) => {}
        }
        if sight == Sight::Zero || is_empty(observation) {
            // Zero replicas carry nothing: their signals aren't missing.
            self.signals = [SignalMemory::default(); 5];
        }
        self.learn_waiting(observation, now);
        if let Some(queued) = observation.activator.as_ref().and_then(|activator| sane(activator.queued)) {
            self.activator_queued = Some(queued);
        }
        self.learn_latency(policy, observation, at);
        self.learn_replicas(policy, observation, now, at);
        self.learn_forecast(policy, observation, &horizon, now);
    }

    fn learn_since_start(&mut self, hold: Duration, observation: &Observation, at: Watched) {
        let Some(started) = self.started else { return };
        if at.saturating_sub(started) >= millis(hold) {
            self.started = None;
            return;
        }
        if observation.replicas_unknown.is_none() {
            self.seen_since_start = self.seen_since_start.max(replica_count(observation));
        }
    }

    /// Counts scrapes, not calls: one more only when every page on which requests wait is newer than the last count.
    fn learn_waiting(&mut self, observation: &Observation, now: DateTime<Utc>) {
        let waits = |replica: &&ReplicaObservation| {
            replica.load.as_ref().and_then(backlog).is_some_and(|waiting| waiting > 0.0)
        };
        let oldest = observation.replicas.iter().filter(waits).map(|replica| page_at(replica, now)).min();
        let Some(oldest) = oldest else {
            self.waiting_scrapes = 0;
            self.waiting_counted = None;
            return;
        };
        // A count that lies ahead was made before the clock was set back.
        if self.waiting_counted.is_none_or(|counted| oldest > counted || counted > now) {
            self.waiting_counted = Some(now);
            self.waiting_scrapes = self.waiting_scrapes.saturating_add(1);
        }
    }

    fn learn_latency(&mut self, policy: &Policy, observation: &Observation, at: Watched) {
        let Some(now) = latency::ratio(&policy.signals.latency, &observation.load) else {
            self.latency_ratio = None;
            return;
        };
        let passed = at.saturating_sub(self.latency_at) as f64 / millis(latency::SMOOTHED_OVER) as f64;
        self.latency_at = at;
        self.latency_ratio = Some(match self.latency_ratio {
            Some(smoothed) => now + (smoothed - now) * (-passed).exp(),
            None => now,
        });
    }

    fn learn_replicas(
        &mut self,
        policy: &Policy,
        observation: &Observation,
        now: DateTime<Utc>,
        at: Watched,
    ) {
        let mut new_rows = false;
        let mut saturated = Vec::new();
        for replica in &observation.replicas {
            if matches!(replica.state, ReplicaState::Starting | ReplicaState::Blocked) {
                // It begins anew: what it carried is gone, and it has to warm up again.
                self.replicas.remove(&replica.id);
            }
            let Some(load) = &replica.load else { continue };
            if !matches!(replica.state, ReplicaState::Ready | ReplicaState::Terminating) {
                continue;
            }
            if !self.replicas.contains_key(&replica.id) {
                self.replicas.insert(replica.id.clone(), ReplicaMemory::default());
            }
            let Some(kept) = self.replicas.get_mut(&replica.id) else { continue };
            let (input, output) = tokens(load);
            // A part that one page lacks stays as it was last seen.
            kept.kv_usage = sane(load.kv_usage).or(kept.kv_usage);
            kept.input_tokens = input.or(kept.input_tokens);
            kept.output_tokens = output.or(kept.output_tokens);
            kept.running = sane(load.running).or(kept.running);
            kept.waiting = backlog(load).or(kept.waiting);
            kept.refused = refused(load).or(kept.refused);
            self.refusals_told |= kept.refused.is_some();
            if replica.state != ReplicaState::Ready {
                continue;
            }
            let ready_since = *kept.ready_since.get_or_insert(at);
            let age = match replica.since {
                Some(ready_at) => since(now, ready_at),
                None => Duration::from_millis(at.saturating_sub(ready_since)),
            };
            let page = page_at(replica, now);
            let waits = backlog(load).is_some_and(|waiting| waiting > 0.0);
            if let Some(lasted) = kept.queued_for(page, waits, load.rates_over)
                && let (Some(input), Some(output)) = (input, output)
                && policy.capacity.learn
                && age >= WARM_UP
            {
                saturated.push(Served { input, output, lasted });
            }
            let is_new = kept.taught.is_none_or(|taught| (page - taught).abs() > SAME_PAGE);
            let Some(sample) =
                load.steps.as_ref().filter(|_| policy.capacity.learn && age >= WARM_UP && is_new)
            else {
                continue;
            };
            kept.taught = Some(page);
            if let Some(row) = kept.pending.add(sample) {
                self.fit.add(row, at as f64 / 1000.0);
                new_rows = true;
            }
        }
        if new_rows {
            self.fit.judge();
        }
        if !saturated.is_empty() {
            let shape = self.shape.unwrap_or(RequestShape::ASSUMED);
            let thought = ReplicaCapacity::before_the_check(policy, observation, self, &shape).rates;
            for served in saturated {
                self.fit.saturated.add(served, thought, at as f64 / 1000.0);
            }
        }
        // Whoever left the list is gone; while nobody can say who is on it, nobody leaves.
        if observation.replicas_unknown.is_none() && self.replicas.len() > observation.replicas.len() {
            let present: std::collections::BTreeSet<&str> =
                observation.replicas.iter().map(|replica| replica.id.as_str()).collect();
            self.replicas.retain(|id, _| present.contains(id.as_str()));
        }
    }
}

impl ReplicaMemory {
    /// Takes a page in on which requests wait, or don't. How long since the page before, where they have waited on each
    /// page for as long as its rates are means over.
    fn queued_for(
        &mut self,
        page: DateTime<Utc>,
        waits: bool,
        rates_over: Option<Duration>,
    ) -> Option<Duration> {
        let lasted = match self.page {
            Some(before) if (page - before).abs() <= SAME_PAGE => return None,
            Some(before) => since(page, before),
            None => Duration::ZERO,
        };
        self.page = Some(page);
        if !waits || lasted > LONGEST_GAP {
            self.queued_since = None;
        }
        if !waits {
            return None;
        }
        let queued = since(page, *self.queued_since.get_or_insert(page));
        rates_over.is_some_and(|over| !over.is_zero() && queued >= over).then_some(lasted)
    }
}

/// When the newest page of a replica was read.
fn page_at(replica: &ReplicaObservation, now: DateTime<Utc>) -> DateTime<Utc> {
    earlier(now, replica.page_age.unwrap_or(Duration::ZERO))
}

/// The source says that there is nobody who carries, or will carry, anything. Blocked replicas may have carried it until
/// they crashed.
fn is_empty(observation: &Observation) -> bool {
    observation.authoritative
        && observation.replicas_unknown.is_none()
        && observation.replicas.iter().all(|replica| replica.state == ReplicaState::Asleep)
}
