//! The asks: the replicas that each signal alone would need.
//!
//! All are in one unit, fractions of a replica, so that they can be weighed, compared and shown. Each is one function in
//! a file of its own, with its formula above it, and gives two numbers: one with replicas of unknown load as idle, one
//! with them as full (see [`super::load`]).

use std::time::Duration;

use super::capacity::ReplicaCapacity;
use super::coming::Coming;
use super::explanation::{Ask, SignalKind};
use super::load::Load;
use super::memory::{Memory, SignalMemory};
use super::observation::Observation;
use super::policy::{Policy, Signals};
use super::shape::RequestShape;
use crate::units::format_span;

mod batch;
mod kv_cache;
pub(super) mod latency;
mod tokens;
mod waiting;

/// No ask is larger: it keeps sums and products finite, and is far above any maximum.
const LARGEST_ASK: f64 = 1e9;

/// Everything that an ask is made from.
pub(super) struct Scene<'a> {
    pub(super) policy: &'a Policy,
    pub(super) observation: &'a Observation,
    pub(super) memory: &'a Memory,
    pub(super) load: &'a Load,
    pub(super) capacity: &'a ReplicaCapacity,
    pub(super) shape: &'a RequestShape,
    pub(super) coming: &'a Coming,
    /// The share of a replica's capacity to aim at: the configured target, or all of it where the forecast asks for what
    /// may come on top.
    pub(super) token_target: f64,
}

impl Scene<'_> {
    /// The waiting requests that a replica which is ordered now would find: the upward view of the backlog.
    fn backlog(&self) -> f64 {
        let cost = self.shape.cost(self.capacity.rates);
        let growth = self.observation.load.waiting_growth_per_second;
        self.coming.leaves(self.load.waiting.low, cost, growth)
    }

    /// How many of those that wait it won't find, in words; empty where it will find all.
    fn under_way(&self) -> String {
        let fewer = self.load.waiting.low - self.backlog();
        if fewer < 0.5 {
            return String::new();
        }
        format!(", less {fewer:.0} that are served before a new replica could be ready")
    }
}

/// What a signal says.
pub(super) enum Reading {
    /// It is there.
    Asks(Asked),
    /// It should be there and isn't.
    Missing(String),
    /// It has no more to say, and nobody knows that all is well: its last ask is kept as if it were missing, but when
    /// that has gone on for too long it leaves the sum, and the tier answers without it.
    Lapsed(String),
    /// It has nothing to say, and that is as it should be.
    Silent(String),
}

/// An ask in its two views.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    /// With replicas of unknown load as idle.
    pub(super) low: f64,
    /// With them as full.
    pub(super) high: f64,
    /// The signal is at its end.
    pub(super) saturated: bool,
    /// The arithmetic.
    pub(super) because: String,
}

/// A signal's place in the blend.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Considered {
    pub(super) signal: SignalKind,
    pub(super) weight: f64,
    /// None when the signal leaves the sum.
    pub(super) asked: Option<Asked>,
    /// Of an earlier round, because the signal is missing: for how long, and is that too long?
    pub(super) kept: Option<Kept>,
    /// Why there is no ask.
    pub(super) absent: String,
}

/// An ask that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) missing_for: Duration,
    pub(super) too_long: bool,
}

impl Considered {
    /// For the explanation.
    pub(super) fn shown(self) -> Ask {
        let Self { signal, weight, asked, kept, absent } = self;
        let (replicas, high, saturated, because) = match asked {
            Some(asked) => (Some(asked.low), Some(asked.high), asked.saturated, asked.because),
            None => (None, None, false, absent),
        };
        Ask { signal, replicas, if_unknown_is_full: high, weight, saturated, kept: kept.is_some(), because }
    }
}

/// All asks, in the order of [`SignalKind::ALL`].
pub(super) fn all(scene: &Scene<'_>, watched: u64) -> Vec<Considered> {
    let consider = |signal, reading| consider(scene, signal, reading, watched);
    let kv_cache = consider(SignalKind::KvCache, kv_cache::ask(scene));
    let tokens = consider(SignalKind::Tokens, tokens::ask(scene));
    let waiting = consider(SignalKind::Waiting, waiting::ask(scene, tokens.asked.as_ref()));
    let batch = consider(SignalKind::Batch, batch::ask(scene));
    let latency = consider(SignalKind::Latency, latency::ask(scene));
    vec![kv_cache, tokens, waiting, batch, latency]
}

fn consider(scene: &Scene<'_>, signal: SignalKind, reading: Reading, watched: u64) -> Considered {
    let weight = weight(&scene.policy.signals, signal);
    match reading {
        Reading::Asks(asked) => {
            Considered { signal, weight, asked: Some(bounded(asked)), kept: None, absent: String::new() }
        }
        Reading::Silent(absent) => Considered { signal, weight, asked: None, kept: None, absent },
        Reading::Missing(why) => keep(scene, signal, weight, why, watched),
        Reading::Lapsed(why) => {
            let kept = keep(scene, signal, weight, why.clone(), watched);
            if kept.kept.is_some_and(|kept| kept.too_long) {
                return Considered { signal, weight, asked: None, kept: None, absent: why };
            }
            kept
        }
    }
}

/// A signal that was there and is missing keeps its last ask; one that never was leaves the sum.
fn keep(scene: &Scene<'_>, signal: SignalKind, weight: f64, why: String, watched: u64) -> Considered {
    let SignalMemory { last_ask: Some(last), saturated, missing_since } =
        scene.memory.signals[signal as usize]
    else {
        return Considered { signal, weight, asked: None, kept: None, absent: why };
    };
    let missing_for = Duration::from_millis(watched.saturating_sub(missing_since.unwrap_or(watched)));
    let kept = Kept { missing_for, too_long: missing_for >= scene.policy.hold_unknown };
    // Replica by replica it went missing, and each counted as full from then on: see `Memory::record`.
    let whose = if scene.memory.known_here { "its last ask" } else { "its last ask, an earlier process's," };
    let because = format!(
        "missing for {} ({why}): {whose} is kept, {last:.2} with replicas that could not be read as full",
        format_span(missing_for)
    );
    let asked = Asked { low: last, high: last, saturated, because };
    Considered { signal, weight, asked: Some(bounded(asked)), kept: Some(kept), absent: String::new() }
}

fn bounded(asked: Asked) -> Asked {
    let bound = |value: f64| if value.is_nan() { LARGEST_ASK } else { value.clamp(0.0, LARGEST_ASK) };
    let low = bound(asked.low);
    Asked { low, high: bound(asked.high).max(low), ..asked }
}

fn weight(signals: &Signals, signal: SignalKind) -> f64 {
    match signal {
        SignalKind::KvCache => signals.kv_cache.weight,
        SignalKind::Tokens => signals.tokens.weight,
        SignalKind::Waiting => signals.waiting.weight,
        SignalKind::Batch => signals.batch.weight,
        SignalKind::Latency => signals.latency.weight,
    }
}

/// `1 replica`, `3 replicas`.
pub(super) fn replicas(n: u32) -> String {
    if n == 1 { "1 replica".to_owned() } else { format!("{n} replicas") }
}

#[cfg(test)]
mod tests;
