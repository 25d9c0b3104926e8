//! What a backtest has to compute.

use super::rivals::{self, Entry, FixedTarget};
use super::{Settings, frontier, split};

/// One thing to compute; jobs don't depend on each other.
#[derive(Clone, Copy, Debug)]
pub(super) enum Job {
    Bound,
    /// The clairvoyant who pays so much for a late minute.
    Priced(f32),
    /// The policy under test at this place.
    Ours(usize),
    Split(usize),
    Rival(&'static Entry),
    Fixed(FixedTarget),
}

impl Job {
    /// How many times it plays the trace.
    pub(super) fn plays(self) -> u64 {
        if matches!(self, Self::Split(_)) { split::PLAYS } else { 1 }
    }
}

/// The long ones first, so that no thread is left alone with them.
pub(super) fn all(settings: &Settings, states: u64, constant: u32) -> Vec<Job> {
    let mut jobs = Vec::new();
    if settings.split {
        jobs.extend((0..settings.policies.len()).map(Job::Split));
    }
    if settings.details && states <= frontier::MOST_STATES {
        jobs.extend(frontier::prices(constant).map(Job::Priced));
    }
    jobs.push(Job::Bound);
    jobs.extend((0..settings.policies.len()).map(Job::Ours));
    let is_sweep = |entry: &Entry| matches!(entry.played(), rivals::Played::BestFixed);
    jobs.extend(settings.rivals.iter().filter(|entry| !is_sweep(entry)).map(|entry| Job::Rival(entry)));
    if settings.rivals.iter().any(|entry| is_sweep(entry)) {
        jobs.extend(FixedTarget::grid().map(Job::Fixed));
    }
    jobs
}
