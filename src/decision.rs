//! The decision: how many replicas does this tier need, counting what it will need by the time a new one could be ready?
//!
//! `decide` is a pure function of [`Policy`], [`Observation`], [`Memory`] and the time; what is learned changes only in
//! [`Memory::learn`], once before each decide, and [`Memory::record`], once after it. Nothing here may name tokio,
//! reqwest, tonic, a file or a clock.
//!
//! ```text
//! sight      enough known?
//! capacity   what one replica serves          fit      learned from the time of steps
//! load       what the tier carries            shape    what a request is like
//! asks       what each signal alone needs
//! blend      one demand of now
//! ahead      what the lead time may add       floors   what is promised for it
//! descent    what keeps the answer from falling
//! bounds     one number, and what set it      dead_band   what the HPA would ignore
//! ```

use chrono::{DateTime, Utc};

pub mod explanation;
pub mod memory;
pub mod observation;
pub mod policy;

mod ahead;
mod asks;
mod blend;
mod bounds;
mod capacity;
mod dead_band;
mod descent;
mod fit;
mod floors;
mod load;
mod notes;
mod shape;
mod sight;

#[cfg(test)]
pub(crate) mod fixtures;

pub use explanation::{Answer, Ask, Bound, BoundKind, Capacity, Decision, Known, Reason, SignalKind};
pub use memory::Memory;
pub use observation::{
    ActivatorObservation, CountedTotals, Observation, ReplicaLoad, ReplicaObservation, ReplicaState,
    StepSample, TierLoad,
};
pub use policy::{Policy, TierId};

pub(crate) use ahead::warm_pool;
use asks::{Considered, Scene};
use blend::Demand;
use bounds::{Bounds, Settled};
use capacity::ReplicaCapacity;
use descent::Descent;
use floors::{FloorNow, FloorPlan};
use load::Load;
use shape::RequestShape;
use sight::Sight;

/// Sums of fractions that are whole but for rounding are whole.
const ROUNDING: f64 = 1e-9;

/// Decides. Pure, deterministic, and never fails: not knowing is an [`Answer`] too.
#[must_use]
pub fn decide(policy: &Policy, observation: &Observation, memory: &Memory, now: DateTime<Utc>) -> Decision {
    let floor = floor_now(policy, memory, now);
    if policy.floors_only {
        return floors_only(policy, observation, floor, now);
    }
    let watched = memory.watched_at(now);
    let sight = Sight::of(observation, memory);
    let shape = RequestShape::observed(&observation.load).or(memory.shape);
    let lengths = shape.unwrap_or(RequestShape::ASSUMED);
    let capacity = ReplicaCapacity::of(policy, observation, memory, &lengths);
    let load = Load::of(observation, memory, &capacity, &sight);
    let scene = Scene { policy, observation, memory, load: &load, capacity: &capacity, shape: &lengths };
    let considered = asks::all(&scene, watched);
    let demand = demand(policy, observation, &load, &considered);
    let ahead = demand.as_ref().and_then(|demand| {
        let grows = blend::load_demand(policy.combine, &considered, demand);
        ahead::ahead(policy, &grows, &lengths, capacity.rates)
    });

    let mut bounds = Bounds::new(policy.max);
    if let Some(demand) = &demand {
        bounds.need(BoundKind::Demand, whole(demand.low), demand.because.clone());
    }
    if let Some(ahead) = &ahead {
        bounds.need(BoundKind::WarmPool, whole(ahead.low), ahead.because.clone());
    }
    if let Some(FloorNow { replicas, because }) = &floor {
        bounds.need(BoundKind::Floor, *replicas, because.clone());
    }
    if policy.min > 0 {
        bounds.need(BoundKind::Min, policy.min, format!("min {}", policy.min));
    }
    in_use(&mut bounds, observation, memory, &load);

    let blind = blindness(&sight, &load, &considered, demand.as_ref());
    let descent = Descent { policy, observation, memory, watched };
    let settled = if let Some(blind) = &blind {
        descent.blind(&mut bounds, blind, floor.as_ref())
    } else {
        let high = demand.as_ref().map_or(0.0, |d| d.high).max(ahead.as_ref().map_or(0.0, |a| a.high));
        descent.seen(&mut bounds, whole(high), &considered);
        Some(bounds.settle())
    };

    let mut notes = notes::of(observation, &sight, &load, &considered, shape.is_some());
    let (answer, winner, held) = if let Some(settled) = settled {
        answered(policy, observation, settled, &mut bounds, &mut notes)
    } else {
        let why = blind.map(|blind| blind.why).unwrap_or_default();
        let winner = Reason { kind: BoundKind::TooFewKnown, because: why.clone() };
        (Answer::Unknown { why }, winner, None)
    };
    let demand_shown = demand.filter(|_| !matches!(sight, Sight::Blind(_))).map(|demand| demand.low);
    Decision {
        tier: policy.tier.clone(),
        at: now,
        answer,
        demand: demand_shown,
        ahead: ahead.map(|ahead| ahead.low),
        asks: considered.into_iter().map(Considered::shown).collect(),
        bounds: bounds.into_list(),
        winner,
        held,
        capacity: capacity.told,
        known: sight::known(observation),
        lead: policy.lead(),
        notes,
    }
}

/// The number of whole replicas that carry a fraction.
fn whole(replicas: f64) -> u32 {
    (replicas - ROUNDING).ceil().max(0.0) as u32
}

fn floor_now(policy: &Policy, memory: &Memory, now: DateTime<Utc>) -> Option<FloorNow> {
    if policy.floors.is_empty() {
        return None;
    }
    if memory.floors.holds(policy, now) {
        return memory.floors.floor().cloned();
    }
    FloorPlan::of(policy, now).floor().cloned()
}

/// The blend; where no signal is there because no replica serves, nothing is carried. Replicas that are starting, or
/// can't, were ordered for some reason: they count as full when it comes to giving back.
fn demand(
    policy: &Policy,
    observation: &Observation,
    load: &Load,
    considered: &[Considered],
) -> Option<Demand> {
    let blended = blend::blend(policy.combine, considered);
    if blended.is_some() || load.ready + load.unknown > 0 {
        return blended;
    }
    let ordered = observation.count(ReplicaState::Starting) + observation.count(ReplicaState::Blocked);
    let because = if ordered > 0 { "no replica serves yet" } else { "no replica serves, and nothing waits" };
    Some(Demand { low: 0.0, high: f64::from(ordered), because: because.to_owned() })
}

/// A tier in use is never at zero. What is known to be in use raises it to one; what may be in use keeps it there.
fn in_use(bounds: &mut Bounds, observation: &Observation, memory: &Memory, load: &Load) {
    if load.in_use {
        bounds.need(
            BoundKind::InUse,
            1,
            format!(
                "in use: {:.0} running, {:.0} waiting, {} starting",
                load.running.low,
                load.waiting.low,
                observation.count(ReplicaState::Starting)
            ),
        );
        return;
    }
    if memory.last == Some(0) {
        return;
    }
    let activator_says = observation.activator.as_ref().is_some_and(|activator| activator.queued.is_some());
    if load.maybe_in_use {
        bounds.need(BoundKind::InUse, 1, "nobody can say that nothing is in use");
    } else if !observation.authoritative && !activator_says {
        bounds.need(
            BoundKind::InUse,
            1,
            "neither the source nor an activator can say that nothing is in use",
        );
    }
}

/// Why nothing can be said, and whether it has been so for too long already.
struct Blindness {
    why: String,
    too_long: bool,
}

fn blindness(
    sight: &Sight,
    load: &Load,
    considered: &[Considered],
    demand: Option<&Demand>,
) -> Option<Blindness> {
    if let Sight::Blind(why) = sight {
        return Some(Blindness { why: why.clone(), too_long: false });
    }
    let expired = considered.iter().find(|c| c.weight > 0.0 && c.kept.is_some_and(|kept| kept.too_long));
    if let Some(expired) = expired {
        // Without the seconds: the reason reaches Kubernetes events, which are told apart by their text.
        let why =
            format!("{} has been missing for longer than the hold of what is unknown", expired.signal.name());
        return Some(Blindness { why, too_long: true });
    }
    if demand.is_none() {
        let why = format!("none of the signals with a weight is told by the {} replicas", load.ready);
        return Some(Blindness { why, too_long: false });
    }
    None
}

/// The settled number as the HPA will take it.
fn answered(
    policy: &Policy,
    observation: &Observation,
    settled: Settled,
    bounds: &mut Bounds,
    notes: &mut Vec<String>,
) -> (Answer, Reason, Option<Reason>) {
    let Settled { answer, winner, held, beyond_max } = settled;
    if let Some(wanted) = beyond_max {
        notes.push(format!("closed by max {}: would need {wanted}", policy.max));
    }
    let Some(current) = observation.current else { return (Answer::Required(answer), winner, held) };
    let percent = policy.dead_band.tolerance * 100.0;
    match dead_band::judge(&policy.dead_band, answer, current, policy.max) {
        dead_band::Verdict::Follows => {}
        dead_band::Verdict::StaysAbove(surplus) => notes.push(format!(
            "the HPA keeps {current}: {answer} is within its {percent:.0} % tolerance, {surplus} surplus"
        )),
        dead_band::Verdict::StaysBelow => notes.push(format!(
            "the HPA keeps {current}: {answer} is within its {percent:.0} % tolerance, {} short",
            answer - current
        )),
        dead_band::Verdict::Exceed(moves) => {
            let because = format!(
                "{answer} is within the HPA's {percent:.0} % tolerance of {current}: {moves} is the smallest that moves \
                 it ({})",
                held.as_ref().unwrap_or(&winner).because
            );
            bounds.need(BoundKind::DeadBand, moves, because.clone());
            return (Answer::Required(moves), Reason { kind: BoundKind::DeadBand, because }, held);
        }
    }
    (Answer::Required(answer), winner, held)
}

/// A tier without a source of load answers its floors. With `min: 0` that is 0 outside of them: there is no load that it
/// could take away from, and other triggers of the same ScaledObject still count.
fn floors_only(
    policy: &Policy,
    observation: &Observation,
    floor: Option<FloorNow>,
    now: DateTime<Utc>,
) -> Decision {
    let mut bounds = Bounds::new(policy.max);
    if let Some(FloorNow { replicas, because }) = floor {
        bounds.need(BoundKind::Floor, replicas, because);
    }
    bounds.need(BoundKind::Min, policy.min, format!("min {}", policy.min));
    let settled = bounds.settle();
    let mut notes = vec!["declared without a source of load: it answers its floors".to_owned()];
    let (answer, winner, held) = answered(policy, observation, settled, &mut bounds, &mut notes);
    Decision {
        tier: policy.tier.clone(),
        at: now,
        answer,
        asks: Vec::new(),
        demand: None,
        ahead: None,
        bounds: bounds.into_list(),
        winner,
        held,
        capacity: explanation::Capacity {
            rates: policy.capacity.prior,
            source: policy.capacity.prior_source.clone(),
            fit: "no source of load".to_owned(),
        },
        known: sight::known(observation),
        lead: policy.lead(),
        notes,
    }
}
