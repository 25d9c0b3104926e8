//! Queue time, or time to first token.

use std::time::Duration;

use super::{Asked, Reading, Scene};
use crate::decision::load::Load;
use crate::decision::observation::TierLoad;
use crate::decision::policy::LatencySignal;
use crate::decision::shape::sane;
use crate::quantile::Quantile;

/// The most that latency may multiply by: at the knee one sample can show tens of times the target (llm-d clamps at 2).
const LARGEST_RATIO: f64 = 2.0;

/// Time constant of the smoothing (llm-d smooths over 45 s).
pub(in crate::decision) const SMOOTHED_OVER: Duration = Duration::from_secs(45);

/// `ready x p95 / target`, the ratio clamped to 2 and smoothed.
///
/// Latency lags: it tells of requests that have finished. So it corrects and doesn't drive: it is off unless a target
/// is given, it enters only when it asks for more than what is ready, and what is coming is taken off it (upward), because
/// that much of the answer to this latency is already under way.
pub(super) fn ask(scene: &Scene<'_>) -> Reading {
    let Scene { policy, load, observation, memory, coming, .. } = scene;
    let signal = &policy.signals.latency;
    if signal.queue_time_p95.is_none() && signal.time_to_first_token_p95.is_none() {
        return Reading::Silent("no target".to_owned());
    }
    let Some(now) = ratio(signal, &observation.load) else {
        return untold(load);
    };
    let estimated = estimated(signal, &observation.load);
    let smoothed = memory.latency_ratio.unwrap_or(now);
    if smoothed <= 1.0 {
        return Reading::Silent(format!("p95 at {smoothed:.2} of its target{estimated}: nothing to correct"));
    }
    let asked = f64::from(load.ready) * smoothed;
    let cost = scene.shape.cost(scene.capacity.rates);
    let growth = observation.load.waiting_growth_per_second.map(|requests| requests * cost);
    let low = coming.guard(asked, load.ready, growth);
    let high = f64::from(load.ready + load.unknown) * smoothed;
    let credit = match coming.replicas {
        _ if low >= asked => String::new(),
        0 => ", which is of requests that waited for what has come".to_owned(),
        coming => format!(", less the {coming} that are coming"),
    };
    Reading::Asks(Asked {
        low,
        high,
        saturated: false,
        because: format!("{} ready x {smoothed:.2} of the p95 target{estimated}{credit}", load.ready),
    })
}

/// No p95. It tells of requests that finished, so none is missed of an idle tier. But where requests are under way and
/// none finishes, or replicas can't be read, users may be waiting as before.
fn untold(load: &Load) -> Reading {
    if load.ready > 0 && load.finished.is_none_or(|finished| finished > 0.0) {
        return Reading::Missing("requests finish, and no replica tells their latency".to_owned());
    }
    if load.unknown > 0 {
        return Reading::Lapsed("some replicas can't be read, and the others finish nothing".to_owned());
    }
    if load.running.high > 0.0 || load.waiting.high > 0.0 || load.maybe_in_use {
        return Reading::Lapsed("requests may be under way, and none finishes".to_owned());
    }
    Reading::Silent("no request finished lately".to_owned())
}

/// A target below the histogram's first bound can't be told from its half: the ratio is an estimate, and says so.
fn estimated(signal: &LatencySignal, load: &TierLoad) -> String {
    let targeted = [
        signal.queue_time_p95.and(load.queue_time_p95_seconds),
        signal.time_to_first_token_p95.and(load.time_to_first_token_p95_seconds),
    ];
    let bound = targeted.into_iter().flatten().find_map(|quantile| quantile.at_most);
    bound.map_or_else(String::new, |bound| format!(" (estimated in a first bucket of {bound} s)"))
}

/// How far the p95 is above its target; the larger one where two targets are given.
pub(in crate::decision) fn ratio(signal: &LatencySignal, load: &TierLoad) -> Option<f64> {
    let over = |seen: Option<Quantile>, target: Option<Duration>| {
        sane(seen.map(|seen| seen.value))
            .zip(target)
            .map(|(seen, target)| seen / target.as_secs_f64().max(1e-3))
    };
    let queue = over(load.queue_time_p95_seconds, signal.queue_time_p95);
    let first_token = over(load.time_to_first_token_p95_seconds, signal.time_to_first_token_p95);
    match (queue, first_token) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (one, other) => one.or(other),
    }
    .map(|ratio| ratio.min(LARGEST_RATIO))
}
