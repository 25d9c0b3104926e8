//! What a tier's decisions remember. It changes in two places only, [`Memory::learn`] before a decision and
//! [`Memory::record`] after it; it serialises, and a decision made with it after a restart is the decision made before.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Deserializer, Serialize};

use super::cold_start::{ColdStarts, Horizon};
use super::explanation::{BoundKind, Decision};
use super::fit::{Fit, Pending};
use super::floors::FloorPlan;
use super::policy::Policy;
use super::shape::RequestShape;
use crate::forecast::Forecast;
use offered::Offered;
use watched::{LargestOver, Watched, WatchedClock};

pub(super) mod exact;
mod learn;
mod offered;
pub(super) mod watched;

/// Of the written form. A memory of another version is not read: what it knew is learned again. Parts may be added under
/// the same version: what an older memory lacks begins empty, and is learned from the next list of pods.
const VERSION: u32 = 1;

/// An answer that is older than this when a process starts says nothing of now.
const LONGEST_ABSENCE: TimeDelta = TimeDelta::minutes(15);

/// One tier's memory. The default is that of a tier of which nothing is known and nothing needs to be watched first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Memory {
    pub(super) clock: WatchedClock,
    /// When this process began with the tier, until it has watched one hold.
    pub(super) started: Option<Watched>,
    /// The most replicas seen since then.
    pub(super) seen_since_start: u32,
    /// The last answer, before the dead band made more of it.
    pub(super) last: Option<u32>,
    /// What the load needed, over the hold.
    pub(super) needs: LargestOver,
    /// What was answered while too little was known. It counts for the tier's own hold, however long a rule of the forecast
    /// holds: else a page that fails now and then keeps for ever what nobody needs.
    #[serde(default)]
    pub(super) blind_answers: LargestOver,
    /// What was answered, over the hold.
    pub(super) answers: LargestOver,
    /// Since when too little is known.
    pub(super) blind_since: Option<Watched>,
    /// The tier's replicas when enough was known last.
    pub(super) known_count: Option<u32>,
    /// The last answer from when enough was known.
    pub(super) known_answer: Option<u32>,
    /// This process has answered from what it saw. Until then `last` is an earlier process's: what was answered meanwhile,
    /// by it or by a peer, may have been more.
    pub(super) known_here: bool,
    /// In the order of the signals.
    pub(super) signals: [SignalMemory; 5],
    /// Scrapes in a row with requests waiting.
    pub(super) waiting_scrapes: u32,
    /// When the last of them was counted.
    pub(super) waiting_counted: Option<DateTime<Utc>>,
    /// Smoothed.
    #[serde(with = "exact")]
    pub(super) latency_ratio: Option<f64>,
    pub(super) latency_at: Watched,
    /// What the activator held when it was last read.
    #[serde(with = "exact")]
    pub(super) activator_queued: Option<f64>,
    /// The last known lengths of a request.
    pub(super) shape: Option<RequestShape>,
    pub(super) fit: Fit,
    /// How long starts take, and which go on.
    pub(super) cold_starts: ColdStarts,
    /// Some replica once told how many requests it refuses.
    pub(super) refusals_told: bool,
    /// By the source's identity of the replica; no more than the observation has.
    pub(super) replicas: BTreeMap<String, ReplicaMemory>,
    /// What the load will need, where the policy wants to know. One of another form is learned again; the rest stays.
    #[serde(deserialize_with = "forecast_or_none")]
    pub(super) forecast: Option<Box<Forecast>>,
    /// What was counted in the last round, for the forecast.
    pub(super) offered: Option<Offered>,
    /// A cache: a decision without it is the same and takes longer.
    #[serde(skip)]
    pub(super) floors: FloorPlan,
}

/// What is kept of a signal that goes missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SignalMemory {
    #[serde(with = "exact")]
    pub(super) last_ask: Option<f64>,
    pub(super) saturated: bool,
    pub(super) missing_since: Option<Watched>,
}

/// What is kept of a replica: what it carried when it was last seen, and what it taught.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ReplicaMemory {
    #[serde(with = "exact")]
    pub(super) kv_usage: Option<f64>,
    #[serde(with = "exact")]
    pub(super) input_tokens: Option<f64>,
    #[serde(with = "exact")]
    pub(super) output_tokens: Option<f64>,
    #[serde(with = "exact")]
    pub(super) running: Option<f64>,
    #[serde(with = "exact")]
    pub(super) waiting: Option<f64>,
    #[serde(with = "exact")]
    pub(super) refused: Option<f64>,
    /// First seen ready, in watched time.
    pub(super) ready_since: Option<Watched>,
    /// Since when requests have waited on each of its pages; the time of the first of these pages.
    pub(super) queued_since: Option<DateTime<Utc>>,
    /// Its newest page so far.
    pub(super) page: Option<DateTime<Utc>>,
    /// The page that it taught from last.
    pub(super) taught: Option<DateTime<Utc>>,
    pub(super) pending: Pending,
}

fn forecast_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<Forecast>>, D::Error> {
    let written = Option::<serde_json::Value>::deserialize(from)?;
    Ok(written.and_then(|written| serde_json::from_value(written).ok()))
}

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    memory: &'a Memory,
}

#[derive(Deserialize)]
struct Read {
    version: u32,
    memory: serde_json::Value,
}

impl Memory {
    /// The memory of a tier that this process begins with. Nothing is lowered until one hold has been watched.
    #[must_use]
    pub fn started(now: DateTime<Utc>) -> Self {
        Self::default().resumed(now)
    }

    /// The memory of an earlier process, taken up by a new one. What was learned stays. Answers stay where they are
    /// fresh enough to be what the tier still has; either way nothing is lowered until one hold has been watched.
    #[must_use]
    pub fn resumed(mut self, now: DateTime<Utc>) -> Self {
        let fresh = self
            .clock
            .last()
            .is_some_and(|last| (TimeDelta::zero()..=LONGEST_ABSENCE).contains(&(now - last)));
        if !fresh {
            self.last = None;
            self.needs.clear();
            self.blind_answers.clear();
            self.answers.clear();
            self.known_count = None;
            self.known_answer = None;
            self.signals = Default::default();
            self.latency_ratio = None;
            self.blind_since = None;
        }
        self.cold_starts.resume(fresh);
        self.offered = None;
        if let Some(forecast) = &mut self.forecast {
            forecast.resume();
        }
        self.known_here = false;
        self.replicas.clear();
        self.waiting_scrapes = 0;
        self.waiting_counted = None;
        self.seen_since_start = 0;
        self.clock.resume(now);
        self.started = Some(self.clock.at(now));
        self
    }

    /// The written form.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Every part of a memory can be written. Were that ever untrue, no bytes are a memory that can't be read, and
        // a tier that learns anew.
        serde_json::to_vec(&Written { version: VERSION, memory: self }).unwrap_or_default()
    }

    /// Reads what [`Memory::to_bytes`] wrote. None for anything else, another version's memory included: the tier then
    /// learns anew, which costs time and no answer.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let read: Read = serde_json::from_slice(bytes).ok()?;
        if read.version != VERSION {
            return None;
        }
        let mut memory: Self = serde_json::from_value(read.memory).ok()?;
        let at = memory.watched_now();
        memory.cold_starts.restore(at);
        memory.forecast = memory.forecast.and_then(|forecast| forecast.restored()).map(Box::new);
        Some(memory)
    }

    /// Watched time at this instant.
    pub(super) fn watched_at(&self, now: DateTime<Utc>) -> Watched {
        self.clock.at(now)
    }

    /// Watched time when an observation was taken in last.
    pub(super) fn watched_now(&self) -> Watched {
        self.clock.watched()
    }

    /// The spans that a decision at this instant is made for.
    pub(super) fn horizon(&self, policy: &Policy, at: Watched) -> Horizon {
        Horizon::of(policy, &self.cold_starts, at)
    }

    /// Takes a decision into account. Once after each decide.
    pub fn record(&mut self, decision: &Decision) {
        let at = self.clock.at(decision.at);
        let blind = decision.bounds.iter().any(|bound| bound.kind == BoundKind::TooFewKnown);
        self.blind_since = if blind { Some(self.blind_since.unwrap_or(at)) } else { None };

        for ask in &decision.asks {
            let signal = &mut self.signals[ask.signal as usize];
            if ask.kept {
                signal.missing_since.get_or_insert(at);
            } else {
                // A signal that has nothing to say takes its last ask back.
                // The full view: a signal may go missing replica by replica, and what is kept must be all of it.
                let last_ask = ask.if_unknown_is_full;
                *signal = SignalMemory { last_ask, saturated: ask.saturated, missing_since: None };
            }
        }

        let answer = decision.before_dead_band();
        let of_load = |kind| {
            matches!(
                kind,
                BoundKind::Demand
                    | BoundKind::WarmPool
                    | BoundKind::Forecast
                    | BoundKind::InUse
                    | BoundKind::UnknownLoad
                    | BoundKind::NMinusOne
            )
        };
        let needed = decision.bounds.iter().filter(|b| of_load(b.kind)).map(|b| b.replicas).max();
        // While too little is known, nobody watches a lower number being enough: the answer itself is what is needed.
        if let Some(needed) = needed {
            self.needs.push(at, needed);
        }
        if let Some(answer) = answer.or(self.last).filter(|_| blind) {
            self.blind_answers.push(at, answer);
        } else if let Some(needed) = needed {
            self.blind_answers.push(at, needed);
        }
        if let Some(answer) = answer {
            self.answers.push(at, answer);
            self.last = Some(answer);
            if !blind {
                self.known_answer = Some(answer);
                self.known_here = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::decision::decide;
    use crate::decision::fixtures::{at, observation, policy, replica};
    use crate::decision::observation::ReplicaState;

    #[test]
    fn what_is_answered_while_nothing_is_known_is_not_a_need_of_the_load() {
        let policy = policy();
        let mut memory = Memory::default();
        let mut round = |state, waiting: f64, now: &str| {
            let mut seen = replica("a", state);
            if let Some(load) = &mut seen.load {
                (load.running, load.waiting, load.kv_usage) = (Some(1.0), Some(waiting), Some(0.1));
            }
            let seen = observation(vec![seen]);
            memory.learn(&policy, &seen, at(now));
            let decision = decide(&policy, &seen, &memory, at(now));
            memory.record(&decision);
            (decision.required(), memory.clone())
        };
        let (many, _) = round(ReplicaState::Ready, 2_000.0, "10:00");
        assert!(many > Some(5), "{many:?}");
        assert_eq!(round(ReplicaState::Ready, 0.0, "10:01").0, many, "held");
        let (blind, memory) = round(ReplicaState::Silent, 0.0, "10:02:30");
        assert_eq!(blind, many);
        // A rule of the forecast may hold for half an hour: what is only held is no reason to begin that anew.
        let at = memory.watched_now();
        assert_eq!(memory.needs.largest(at, Duration::from_mins(1)), Some(1));
        assert_eq!(memory.blind_answers.largest(at, Duration::from_mins(1)), many);
    }

    #[test]
    fn since_when_too_little_is_known_outlasts_a_restart_and_no_long_absence() {
        let mut blind = Memory { blind_since: Some(5), last: Some(3), ..Memory::default() };
        blind.clock.advance(at("10:00"));
        assert_eq!(blind.clone().resumed(at("10:15")).blind_since, Some(5));
        let late = blind.clone().resumed(at("10:15:01"));
        assert_eq!((late.blind_since, late.last), (None, None));
        // Neither does a clock that was set back say how long ago it was.
        assert_eq!(blind.resumed(at("09:59")).blind_since, None);
    }
}
