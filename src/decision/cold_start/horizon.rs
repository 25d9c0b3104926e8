//! How far ahead decisions look: the cold start in effect, and what is made of it.

use std::sync::Arc;
use std::time::Duration;

use super::samples::PathSummary;
use super::told::ColdStart;
use super::{ColdStarts, Millis, StartPath};
use crate::decision::memory::watched::Watched;
use crate::decision::policy::Policy;
use crate::units::format_span;

/// Starts by a path before they are believed rather than the configuration.
const FEWEST_STARTS: u32 = 5;

/// No learned cold start is longer, unless the configured one is: whatever takes longer than an hour isn't bought in time
/// by looking further ahead, and every floor and hold grows with it.
const LONGEST_LEARNED: Duration = Duration::from_hours(1);

/// No learned cold start is shorter: the times of a pod's status have whole seconds.
const SHORTEST_LEARNED: Duration = Duration::from_secs(1);

/// One of ten starts takes longer than the ninth decile. One that takes half as long again is counted on no more: from
/// then on a replica too few costs more than one too many.
const DEADLINE_FACTOR: f64 = 1.5;

/// The spans that a decision is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decision) struct Horizon {
    /// From an order until the replica is ready.
    pub(in crate::decision) cold_start: Duration,
    /// From the load as it was measured until there is capacity for it.
    pub(in crate::decision) lead: Duration,
    /// How long a lower number must have been enough.
    pub(in crate::decision) hold: Duration,
    /// A start that is older isn't counted on any more.
    pub(in crate::decision) deadline: Duration,
}

impl Horizon {
    /// Of a tier whose starts are these.
    pub(in crate::decision) fn of(policy: &Policy, starts: &ColdStarts, at: Watched) -> Self {
        let cold_start = starts.in_effect(policy, at);
        Self {
            cold_start,
            lead: policy.lead_with(cold_start),
            hold: policy.hold_with(cold_start),
            deadline: starts.usual(policy).mul_f64(DEADLINE_FACTOR),
        }
    }
}

/// The path that decides, and what it makes of the cold start.
struct Likely<'a> {
    path: Option<StartPath>,
    /// None where fewer starts than needed are known of it.
    learned: Option<&'a PathSummary>,
    finished: u32,
    cold_start: Duration,
}

impl ColdStarts {
    /// What the next start is expected to take, at its ninth decile: by the slowest of the paths that the last starts
    /// took, because nobody can say which one the next will.
    pub(super) fn expected(&self, policy: &Policy) -> Duration {
        if policy.learn_cold_start { self.likely(policy).cold_start } else { policy.cold_start }
    }

    /// The same without the starts that go on: one that hangs must move neither its own deadline nor what is plausible.
    pub(super) fn usual(&self, policy: &Policy) -> Duration {
        if !policy.learn_cold_start {
            return policy.cold_start;
        }
        let of_path = |summary: &PathSummary| {
            let learned = summary.ended_p90.filter(|_| summary.finished >= FEWEST_STARTS);
            learned.map_or(policy.cold_start, |p90| span(p90).clamp(SHORTEST_LEARNED, longest(policy)))
        };
        let likely = self.known.paths.iter().filter(|summary| self.known.likely.contains(&summary.path));
        likely.map(of_path).max().unwrap_or(policy.cold_start)
    }

    /// The expected one, or what a start that goes on has taken already, or what was in effect until lately.
    pub(super) fn in_effect(&self, policy: &Policy, at: Watched) -> Duration {
        if !policy.learn_cold_start {
            return policy.cold_start;
        }
        let now = self.now(policy);
        let lately = self.in_effect.largest(at, now).map_or(Duration::ZERO, span);
        now.max(lately.min(longest(policy)))
    }

    fn now(&self, policy: &Policy) -> Duration {
        let slowest = self.known.slowest.map_or(Duration::ZERO, span);
        self.expected(policy).max(slowest.min(longest(policy)))
    }

    pub(super) fn hold_in_effect(&mut self, policy: &Policy, at: Watched) {
        let now = self.now(policy);
        self.in_effect.push(at, Millis::try_from(now.as_millis()).unwrap_or(Millis::MAX));
        self.in_effect.forget(at, now);
    }

    fn likely(&self, policy: &Policy) -> Likely<'_> {
        let prior = Likely { path: None, learned: None, finished: 0, cold_start: policy.cold_start };
        let of_path = |path: &StartPath| {
            let summary = self.known.paths.iter().find(|summary| summary.path == *path)?;
            let learned = Some(summary).filter(|summary| summary.finished >= FEWEST_STARTS);
            let cold_start = learned.map_or(policy.cold_start, |summary| {
                span(summary.total.p90).clamp(SHORTEST_LEARNED, longest(policy))
            });
            Some(Likely { path: Some(*path), learned, finished: summary.finished, cold_start })
        };
        self.known.likely.iter().filter_map(of_path).max_by_key(|likely| likely.cold_start).unwrap_or(prior)
    }

    /// For the explanation. `tells_starts`: the source of replicas knows when they started.
    pub(in crate::decision) fn told(
        &self,
        policy: &Policy,
        horizon: &Horizon,
        tells_starts: bool,
    ) -> ColdStart {
        let likely = self.likely(policy);
        let in_effect = horizon.cold_start;
        let expected = self.expected(policy);
        let from = match (likely.learned, likely.path) {
            _ if !policy.learn_cold_start => "configured, learning is off".to_owned(),
            (Some(summary), Some(path)) => {
                let unfinished = if summary.censored > 0 {
                    format!(", {} not seen to their end", summary.censored)
                } else {
                    String::new()
                };
                let capped = if span(summary.total.p90) > longest(policy) { ", capped" } else { "" };
                format!("learned: p90 of {} starts ({}{unfinished}){capped}", summary.finished, path.words())
            }
            (None, Some(path)) => format!(
                "configured: {} of {FEWEST_STARTS} starts seen by the path {}",
                likely.finished,
                path.words()
            ),
            _ if !tells_starts => "configured: this source of replicas tells no starts".to_owned(),
            _ => format!("configured: none of {FEWEST_STARTS} starts seen yet"),
        };
        let slowest = self.known.slowest.map(span).filter(|slowest| *slowest > expected);
        let because = match slowest {
            Some(slowest) if policy.learn_cold_start => format!(
                "a replica has been starting for {} (expected {}, {from})",
                format_span(slowest),
                format_span(expected)
            ),
            _ if in_effect > expected => {
                format!("not shorter yet; now {} ({from})", format_span(expected))
            }
            _ => from,
        };
        ColdStart {
            in_effect,
            learned: policy.learn_cold_start && likely.learned.is_some(),
            because,
            path: likely.path,
            paths: Arc::clone(&self.known.told),
        }
    }
}

fn longest(policy: &Policy) -> Duration {
    LONGEST_LEARNED.max(policy.cold_start)
}

fn span(millis: Millis) -> Duration {
    Duration::from_millis(u64::from(millis))
}
