//! What keeps an answer from falling: up fast, down slow, and never on what nobody has seen.

use std::time::Duration;

use super::Blindness;
use super::asks::{Considered, replicas};
use super::bounds::{Bounds, Settled};
use super::cold_start::Horizon;
use super::explanation::BoundKind;
use super::floors::FloorNow;
use super::memory::Memory;
use super::memory::watched::{Watched, millis};
use super::observation::Observation;
use super::policy::{Policy, Step};
use super::sight::{may_be_at_zero, replica_count};
use super::whole;
use crate::units::format_span;

/// The way down.
pub(super) struct Descent<'a> {
    pub(super) policy: &'a Policy,
    pub(super) observation: &'a Observation,
    pub(super) memory: &'a Memory,
    pub(super) horizon: Horizon,
    pub(super) watched: Watched,
    /// How long a lower number must have been enough: the horizon's, or that of the rule which leads the forecast.
    pub(super) hold: Duration,
}

impl Descent<'_> {
    /// Enough is known. `high` is what would be needed if every unknown replica were full; `credited` says that what is
    /// under way was taken off the asks but not off this.
    pub(super) fn seen(&self, bounds: &mut Bounds, high: u32, credited: bool, considered: &[Considered]) {
        if let Some(last) = self.memory.last {
            bounds.hold(BoundKind::UnknownLoad, high, last, |kept| {
                let view = if credited {
                    "what is under way gives nothing back, and what is unknown counts as full, which"
                } else {
                    "replicas of unknown load count as full, which"
                };
                format!("kept at {kept}: {view} would need {high}")
            });
            n_minus_one(bounds, last, considered);
            self.hold(bounds, last);
            self.max_step(bounds, last);
        }
        self.just_started(bounds, replica_count(self.observation).max(self.memory.seen_since_start));
    }

    /// Too little is known: `max(last answer, floor, what the known replicas prove)` for a bounded time, and then no
    /// answer; except that a floor above the last known replica count is still answered, because a promise doesn't need
    /// to know the demand.
    pub(super) fn blind(
        &self,
        bounds: &mut Bounds,
        blind: &Blindness,
        floor: Option<&FloorNow>,
    ) -> Option<Settled> {
        let last = self.memory.last;
        let blind_for = self.watched.saturating_sub(self.memory.blind_since.unwrap_or(self.watched));
        let bounded = !blind.too_long && blind_for < millis(self.policy.hold_unknown);
        // An earlier process's last answer may be lower than what the tier has by now: it binds from below, and is no
        // answer by itself.
        let answered_here = last.is_some() && self.memory.known_here;
        if bounded && (answered_here || self.observation.current.is_some()) {
            let last = last.unwrap_or(0);
            bounds.need(
                BoundKind::TooFewKnown,
                last,
                format!("the last answer of {last} is kept for {}: {}", self.left(blind_for), blind.why),
            );
            self.just_started(bounds, self.observation.current.unwrap_or(0));
            return Some(bounds.settle());
        }
        let because = match last {
            Some(last) => format!("not below the last answer of {last}: {}", blind.why),
            None => blind.why.clone(),
        };
        bounds.need(BoundKind::TooFewKnown, last.unwrap_or(0), because);
        if self.policy.min == 0 && self.queued_at_activator() && may_be_at_zero(self.observation, self.memory)
        {
            // Requests wait at the door of a tier that may be at zero, where its own source can't say anything: without
            // an answer nobody would ever start it. It is not below the last answer.
            return Some(bounds.settle());
        }
        let floor = floor?;
        let count = self.last_known_count()?;
        if floor.replicas.min(self.policy.max) <= count {
            return None;
        }
        Some(bounds.settle())
    }

    /// A lower number counts once it has been enough for the whole hold. What was only answered, because too little was known,
    /// counts for the tier's own hold: see `Memory::blind_answers`.
    fn hold(&self, bounds: &mut Bounds, last: u32) {
        let needs = self.memory.needs.largest(self.watched, self.hold);
        let blind = self.memory.blind_answers.largest(self.watched, self.horizon.hold);
        let Some(needed) = needs.max(blind) else { return };
        let hold = if blind > needs { self.horizon.hold } else { self.hold };
        bounds.hold(BoundKind::Hold, needed, last, |kept| {
            format!("{kept} were needed within the hold of {}", format_span(hold))
        });
    }

    /// Within any one hold the answer falls by no more than one step from the largest answer in it.
    fn max_step(&self, bounds: &mut Bounds, last: u32) {
        let hold = self.horizon.hold;
        let Some(largest) = self.memory.answers.largest(self.watched, hold) else { return };
        let step = match self.policy.scale_down.max_step {
            Step::Share(share) => {
                let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 1.0 };
                ((f64::from(largest) * share + super::ROUNDING).floor() as u32).max(1)
            }
            Step::Replicas(n) => n.max(1),
        };
        bounds.hold(BoundKind::MaxStep, largest.saturating_sub(step), last, |kept| {
            format!(
                "not below {kept}: a step down from {largest} is at most {step} in a hold of {}",
                format_span(hold)
            )
        });
    }

    /// A scaler that has just begun knows less than the one it replaced: until it has watched one hold, it answers no
    /// less than what it finds.
    fn just_started(&self, bounds: &mut Bounds, seen: u32) {
        let Some(started) = self.memory.started else { return };
        let hold = self.horizon.hold;
        let watched_for = self.watched.saturating_sub(started);
        if watched_for >= millis(hold) {
            return;
        }
        let (found, how) = match self.observation.current {
            Some(current) => (current, "now"),
            None => (seen, "seen"),
        };
        bounds.hold(BoundKind::JustStarted, found, u32::MAX, |kept| {
            let left = hold.saturating_sub(Duration::from_millis(watched_for));
            format!(
                "{} {how}; nothing is lowered for another {} after the start",
                replicas(kept),
                format_span(left)
            )
        });
    }

    fn left(&self, blind_for: Watched) -> String {
        format_span(self.policy.hold_unknown.saturating_sub(Duration::from_millis(blind_for)))
    }

    fn queued_at_activator(&self) -> bool {
        self.observation
            .activator
            .as_ref()
            .and_then(|activator| activator.queued)
            .is_some_and(|queued| queued > 0.0)
    }

    /// How many replicas the tier had when it was last known, or has as far as the source lists them.
    fn last_known_count(&self) -> Option<u32> {
        let memory = self.memory;
        let listed = Some(replica_count(self.observation)).filter(|n| *n > 0);
        let known = memory.known_count.max(memory.known_answer);
        known.or(self.observation.current).or(listed)
    }
}

/// The load spread over fewer replicas must stay under every target that has a weight, not only under their blend.
fn n_minus_one(bounds: &mut Bounds, last: u32, considered: &[Considered]) {
    let asked = considered.iter().filter(|c| c.weight > 0.0).filter_map(|c| Some((c, c.asked.as_ref()?)));
    let Some((signal, ask)) = asked.max_by(|(_, a), (_, b)| a.high.total_cmp(&b.high)) else { return };
    bounds.hold(BoundKind::NMinusOne, whole(ask.high), last, |kept| {
        format!("spread over fewer than {kept}, {} would be above its target", signal.signal.name())
    });
}
