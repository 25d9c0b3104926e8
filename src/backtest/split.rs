//! Where the money goes: what of a policy's price is paid for which ignorance. Pure.
//!
//! One ignorance after the other is taken away, everything else left as it is, and the difference in GPU-hours is its
//! price. What is left at the end, beside the clairvoyant, is the rule itself.
//!
//! ```text
//! as played         the policy behind its HPA
//! no loop           its answer is the fleet's size at once: no HPA, no sync, no tolerance, no age of the answer
//! release           what it needs for now, given back by somebody who knows when it is needed again: a replica is kept
//!                   through a gap exactly when that is no longer than a start
//! half, whole lead  it is shown what truly arrives half a cold start ahead, and a whole one, instead of what is served
//!                   now; declared ramps and floors are insurance against not knowing that, and are left out with it
//! rule              the clairvoyant: no head-room of targets, queues that are planned for
//! ```
//!
//! The steps are those of "clairvoyant release" and "true load at shorter leads" in studies of how far a causal policy
//! can come; each also changes who is late, so its late minutes stand beside it.

use std::sync::atomic::AtomicU64;

use serde::Serialize;

use super::Contender;
use super::fleet::{Controller, Ended, Fleet, play};
use super::ours::{Insight, RATE_SLOTS, Scaler, World};
use super::score::{Score, Tally};
use crate::decision::Policy;
use crate::decision::policy::DeadBand;

/// Plays of a trace that one split takes.
pub(super) const PLAYS: u64 = 6;

/// The parts of one policy's excess over the bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Split {
    /// Whose.
    pub policy: String,
    /// GPU-hours over those of the bound, as played.
    pub excess_gpu_hours: f64,
    /// In the order in which the ignorances were taken away. They add up to the excess.
    pub parts: Vec<Part>,
}

/// The price of one ignorance.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Which.
    pub of: &'static str,
    /// What it costs; below 0 where the policy was cheaper with it, and later.
    pub gpu_hours: f64,
    /// Late minutes a week without it and those before it.
    pub late_minutes_a_week: f64,
}

/// Names of the parts, as a table's columns tell them.
pub const PARTS: [&str; 5] = ["loop", "hold", "forecast, near half", "forecast, far half", "rule"];

/// What a policy pays with one ignorance fewer each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    no_loop: Score,
    release: Score,
    half_lead: Score,
    whole_lead: Score,
}

impl Steps {
    /// The parts between what was played and the bound.
    pub(super) fn parts(&self, policy: String, played: &Score, bound_gpu_hours: f64) -> Split {
        let after = [self.no_loop, self.release, self.half_lead, self.whole_lead]
            .map(|score| (score.gpu_hours, score.late_minutes_a_week));
        let mut before = played.gpu_hours;
        let steps = PARTS.into_iter().zip(after.into_iter().chain([(bound_gpu_hours, 0.0)]));
        let parts = steps
            .map(|(of, (gpu_hours, late_minutes_a_week))| {
                let part = Part { of, gpu_hours: before - gpu_hours, late_minutes_a_week };
                before = gpu_hours;
                part
            })
            .collect();
        Split { policy, excess_gpu_hours: played.gpu_hours - bound_gpu_hours, parts }
    }
}

/// Plays a policy with one ignorance fewer each.
pub(super) fn steps(world: &World<'_>, contender: &Contender, from: usize, done: &AtomicU64) -> Steps {
    let unbound = |policy: &Policy| Policy {
        dead_band: DeadBand { tolerance: 0.0, ..policy.dead_band },
        ..policy.clone()
    };
    let terms = world.terms;
    let blind = Contender { policy: unbound(&contender.policy), ..contender.clone() };
    let seeing = Contender {
        policy: Policy { max_ramp: None, floors: Vec::new(), ..blind.policy.clone() },
        ..blind.clone()
    };
    let tally = || Tally::new(terms.acceptable_seconds).from(from, terms.initial);
    let needs = |contender: &Contender, insight: Insight| {
        let mut needs = Needs { scaler: Scaler::new(world, contender, insight), path: Vec::new() };
        let score = play(world.work, &terms, &mut needs, tally(), done);
        (score, needs.path)
    };
    let released = |path: &[u32], until: usize| {
        // What is ordered for a load ahead is needed until that load has been there.
        let until_then = held(path, until);
        let gap = (terms.cold_start_slots as usize).saturating_sub(until);
        let mut follow = Follow { path: kept_through_gaps(&until_then, gap) };
        play(world.work, &terms, &mut follow, tally(), done)
    };
    let (no_loop, path) = needs(&blind, Insight { at_once: true, arriving: None });
    let release = released(&path, 0);
    let known = |ahead: u32| {
        let ahead = ahead as usize;
        let insight = Insight { at_once: true, arriving: Some(ahead) };
        // The last of what it sees there.
        released(&needs(&seeing, insight).1, ahead + RATE_SLOTS - 1)
    };
    let half_lead = known(terms.cold_start_slots / 2);
    let whole_lead = known(terms.cold_start_slots);
    Steps { no_loop, release, half_lead, whole_lead }
}

/// A scaler whose needs are written down, slot by slot.
struct Needs<'a> {
    scaler: Scaler<'a>,
    path: Vec<u32>,
}

impl Controller for Needs<'_> {
    fn replicas(&mut self, slot: usize, fleet: &Fleet) -> u32 {
        let replicas = self.scaler.replicas(slot, fleet);
        self.path.push(self.scaler.needed());
        replicas
    }

    fn served(&mut self, slot: usize, ended: Ended) {
        self.scaler.served(slot, ended);
    }
}

/// So many replicas in each slot.
struct Follow {
    path: Vec<u32>,
}

impl Controller for Follow {
    fn replicas(&mut self, slot: usize, fleet: &Fleet) -> u32 {
        self.path.get(slot).copied().unwrap_or_else(|| fleet.size())
    }

    fn served(&mut self, _: usize, _: Ended) {}
}

/// The most of the needs of a slot and of so many before it.
fn held(needs: &[u32], slots: usize) -> Vec<u32> {
    let most = |slot: usize| needs[slot.saturating_sub(slots)..=slot].iter().copied().max().unwrap_or(0);
    (0..needs.len()).map(most).collect()
}

/// The needs, with every replica kept through a gap that is no longer than a start: to give it back would save the gap and
/// cost the start (the rule of Lu and Chen, arXiv 1112.0442).
fn kept_through_gaps(needs: &[u32], start_slots: usize) -> Vec<u32> {
    let mut kept = needs.to_vec();
    // The first slot after the last in which each replica was needed; there from the beginning.
    let highest = needs.iter().copied().max().unwrap_or(0) as usize;
    let mut free_since = vec![0; highest + 1];
    let mut before = needs.first().copied().unwrap_or(0);
    for (slot, need) in needs.iter().copied().enumerate() {
        for level in need + 1..=before {
            free_since[level as usize] = slot;
        }
        for level in before + 1..=need {
            let gap = free_since[level as usize]..slot;
            if slot > 0 && gap.start > 0 && gap.len() <= start_slots {
                kept[gap].iter_mut().for_each(|kept| *kept = (*kept).max(level));
            }
        }
        before = need;
    }
    kept
}

#[cfg(test)]
mod tests;
