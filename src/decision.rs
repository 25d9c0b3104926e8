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
//! saturated  what it serves when requests wait
//! cold_start how long a start takes           coming   what is under way already
//! asks       what each signal alone needs
//! blend      one demand of now
//! ahead      what the lead time may add       floors   what is promised for it
//! descent    what keeps the answer from falling
//! bounds     one number, and what set it      dead_band   what the HPA would ignore
//! blocked    what was ordered and can't come  learned     what another scaler may take
//! ```

use std::time::Duration;

use chrono::{DateTime, Utc};

pub mod explanation;
pub mod memory;
pub mod observation;
pub mod policy;

mod ahead;
mod asks;
mod blend;
mod blocked;
mod bounds;
mod capacity;
mod cold_start;
mod coming;
mod dead_band;
mod descent;
mod fit;
mod floors;
mod learned;
mod load;
mod notes;
mod saturated;
mod shape;
mod sight;

#[cfg(test)]
pub(crate) mod fixtures;

pub use ahead::forecast::Forecasted;
pub use blocked::{BlockedCapacity, BlockedReason};
pub use cold_start::{ColdStart, PathStarts, StageTime, StartPath};
pub use explanation::{Answer, Ask, Bound, BoundKind, Capacity, Decision, Known, Reason, SignalKind};
pub use learned::Learned;
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
use cold_start::Horizon;
use coming::Coming;
use descent::Descent;
use floors::{FloorNow, FloorPlan};
use load::Load;
use policy::DeadBand;
use shape::RequestShape;
use sight::Sight;

/// Sums of fractions that are whole but for rounding are whole.
const ROUNDING: f64 = 1e-9;

/// Decides. Pure, deterministic, and never fails: not knowing is an [`Answer`] too.
#[must_use]
pub fn decide(policy: &Policy, observation: &Observation, memory: &Memory, now: DateTime<Utc>) -> Decision {
    let watched = memory.watched_at(now);
    let horizon = memory.horizon(policy, watched);
    let floor = floor_now(policy, memory, horizon.lead, now);
    if policy.floors_only {
        return floors_only(policy, observation, memory, floor, &horizon, now);
    }
    let sight = Sight::of(observation, memory);
    let shape = RequestShape::observed(&observation.load).or(memory.shape);
    let lengths = shape.unwrap_or(RequestShape::ASSUMED);
    let capacity = ReplicaCapacity::of(policy, observation, memory, &lengths);
    let load = Load::of(observation, memory, &capacity, &sight);
    let coming = Coming::of(observation, memory, &horizon, now, watched);
    let forecast = ahead::forecast::Asked {
        policy,
        observation,
        memory,
        load: &load,
        shape: &lengths,
        rates: capacity.rates,
        horizon: &horizon,
    };
    let forecast = forecast.ask(now, watched);
    let scene = Scene {
        policy,
        observation,
        memory,
        load: &load,
        capacity: &capacity,
        shape: &lengths,
        coming: &coming,
        token_target: ahead::forecast::token_target(forecast.as_ref(), policy),
    };
    let considered = asks::all(&scene, watched);
    let demand = demand(policy, observation, &load, &considered);
    let forecast_counts = forecast.as_ref().filter(|forecast| forecast.counts(&load));
    let ahead = demand.as_ref().and_then(|demand| {
        let grows = blend::load_demand(policy.combine, &considered, demand);
        ahead::ahead(policy, horizon.lead, &grows, &lengths, capacity.rates)
    });

    let mut bounds = Bounds::new(policy.max);
    // Of a tier that nobody sees, a demand of nothing is not known either.
    let seen = |demand: &&Demand| demand.low > 0.0 || !matches!(sight, Sight::Blind(_));
    if let Some(demand) = demand.as_ref().filter(seen) {
        bounds.need(BoundKind::Demand, whole(demand.low), demand.because.clone());
    }
    if let Some(ahead) = &ahead {
        bounds.need(BoundKind::WarmPool, whole(ahead.low), ahead.because.clone());
    }
    if let Some(forecast) = forecast_counts.filter(|_| !matches!(sight, Sight::Blind(_))) {
        bounds.need(BoundKind::Forecast, forecast.replicas, forecast.because.clone());
    }
    if let Some(FloorNow { replicas, because }) = &floor {
        bounds.need(BoundKind::Floor, *replicas, because.clone());
    }
    if policy.min > 0 {
        bounds.need(BoundKind::Min, policy.min, format!("min {}", policy.min));
    }
    in_use(&mut bounds, observation, memory, &load);

    let blind = blindness(&sight, &load, &considered, demand.as_ref());
    let hold = ahead::forecast::hold(forecast.as_ref(), horizon.hold);
    let descent = Descent { policy, observation, memory, horizon, watched, hold };
    let settled = if let Some(blind) = &blind {
        descent.blind(&mut bounds, blind, floor.as_ref())
    } else {
        let high = demand.as_ref().map_or(0.0, |d| d.high).max(ahead.as_ref().map_or(0.0, |a| a.high));
        let high = whole(high).max(forecast_counts.map_or(0, |forecast| forecast.replicas));
        descent.seen(&mut bounds, high, coming.credits(), &considered);
        Some(bounds.settle())
    };

    let blocked = blocked::of(observation);
    let mut notes = notes::of(observation, &sight, &load, &considered, &coming, shape.is_some());
    notes.extend(notes::of_the_cluster(policy, observation, &blocked));
    let (answer, winner, held) = if let Some(refusal) = refused(observation, &mut bounds) {
        refusal
    } else if let Some(settled) = settled {
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
        forecast,
        asks: considered.into_iter().map(Considered::shown).collect(),
        bounds: bounds.into_list(),
        winner,
        held,
        capacity: capacity.told,
        known: sight::known(observation),
        lead: horizon.lead,
        cold_start: memory.cold_starts.told(policy, &horizon, tells_starts(observation)),
        blocked,
        notes,
    }
}

/// Does the source know when replicas started? One of addresses doesn't; without a replica nobody can say yet.
fn tells_starts(observation: &Observation) -> bool {
    observation.replicas.is_empty() || observation.replicas.iter().any(|replica| replica.start.is_some())
}

/// The number of whole replicas that carry a fraction.
fn whole(replicas: f64) -> u32 {
    (replicas - ROUNDING).ceil().max(0.0) as u32
}

fn floor_now(policy: &Policy, memory: &Memory, lead: Duration, now: DateTime<Utc>) -> Option<FloorNow> {
    if policy.floors.is_empty() {
        return None;
    }
    if memory.floors.holds(policy, lead, now) {
        return memory.floors.floor().cloned();
    }
    FloorPlan::of(policy, lead, now).floor().cloned()
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
///
/// A replica that starts is in use however long it takes: it was ordered for somebody. One that is blocked isn't: where an
/// activator says that nobody waits, nobody is served by keeping it. Where no signal is left to say so, it counts as full
/// on the way down (see [`demand`]).
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

/// No number at all, floors included: whatever it were, the HPA would multiply it.
fn refused(observation: &Observation, bounds: &mut Bounds) -> Option<(Answer, Reason, Option<Reason>)> {
    let why = observation.scale.as_ref()?.refused.clone()?;
    bounds.need(BoundKind::Refused, 0, why.clone());
    let winner = Reason { kind: BoundKind::Refused, because: why.clone() };
    Some((Answer::Unknown { why }, winner, None))
}

/// The HPA's tolerance as the ScaledObject sets it, else as configured.
fn dead_band_of(policy: &Policy, observation: &Observation) -> DeadBand {
    let told = observation.scale.as_ref().and_then(|scale| scale.tolerance);
    let tolerance = told.filter(|tolerance| tolerance.is_finite() && *tolerance >= 0.0);
    DeadBand { tolerance: tolerance.unwrap_or(policy.dead_band.tolerance), ..policy.dead_band }
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
    let band = dead_band_of(policy, observation);
    let percent = band.tolerance * 100.0;
    match dead_band::judge(&band, answer, current, policy.max) {
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
    memory: &Memory,
    floor: Option<FloorNow>,
    horizon: &Horizon,
    now: DateTime<Utc>,
) -> Decision {
    let mut bounds = Bounds::new(policy.max);
    if let Some(FloorNow { replicas, because }) = floor {
        bounds.need(BoundKind::Floor, replicas, because);
    }
    bounds.need(BoundKind::Min, policy.min, format!("min {}", policy.min));
    let settled = bounds.settle();
    let mut notes = vec!["declared without a source of load: it answers its floors".to_owned()];
    let blocked = blocked::of(observation);
    notes.extend(notes::of_the_cluster(policy, observation, &blocked));
    let (answer, winner, held) = match refused(observation, &mut bounds) {
        Some(refusal) => refusal,
        None => answered(policy, observation, settled, &mut bounds, &mut notes),
    };
    Decision {
        tier: policy.tier.clone(),
        at: now,
        answer,
        asks: Vec::new(),
        demand: None,
        ahead: None,
        forecast: None,
        bounds: bounds.into_list(),
        winner,
        held,
        capacity: explanation::Capacity {
            rates: policy.capacity.prior,
            source: policy.capacity.prior_source.clone(),
            fit: "no source of load".to_owned(),
        },
        known: sight::known(observation),
        lead: horizon.lead,
        cold_start: memory.cold_starts.told(policy, horizon, tells_starts(observation)),
        blocked,
        notes,
    }
}
