//! What the users of a simulated world got: how long they queued and how fast the first token came. Pure.

use std::collections::BTreeSet;

use super::distribution::Distribution;
use super::engine_model::{EngineEvent, EventKind};
use super::moment::Moment;

/// A request that queues longer than this makes its minutes late, seconds.
pub const LATE_AFTER_SECONDS: f64 = 5.0;

/// Bounds of the time to first token, growing by 2 % from a millisecond to a day: the error of a percentile is 1 %.
const BOUND_GROWTH: f64 = 1.02;
const BOUND_COUNT: i32 = 925;

/// Counts and times over a run.
#[derive(Clone, Debug)]
pub struct Tally {
    late_minutes: BTreeSet<u64>,
    first_token: Distribution,
    finished: u64,
    aborted: u64,
    refused: u64,
}

impl Default for Tally {
    fn default() -> Self {
        let bounds = (0..BOUND_COUNT).map(|n| (1e9 * BOUND_GROWTH.powi(n)).round() as u64).collect();
        Self {
            late_minutes: BTreeSet::new(),
            first_token: Distribution::new(bounds),
            finished: 0,
            aborted: 0,
            refused: 0,
        }
    }
}

impl Tally {
    /// Takes note of an event.
    pub fn note(&mut self, event: &EngineEvent) {
        let arrived = event.request.arrived;
        match event.kind {
            EventKind::Admitted => self.queued(arrived, event.at),
            EventKind::FirstToken => self.first_token.observe(event.at.picos_since(arrived), 1),
            EventKind::Finished => self.finished += 1,
            EventKind::Aborted => self.aborted += 1,
            EventKind::Refused | EventKind::TurnedAway => self.refused += 1,
        }
    }

    /// A request has queued, or still queues, from `arrived` until `until`: every minute in which it had been queued
    /// longer than [`LATE_AFTER_SECONDS`] is late.
    pub fn queued(&mut self, arrived: Moment, until: Moment) {
        let late_from = arrived.seconds() + LATE_AFTER_SECONDS;
        if until.seconds() <= late_from {
            return;
        }
        let (first, last) = ((late_from / 60.0) as u64, (until.seconds() / 60.0) as u64);
        // Most requests of a bad minute repeat what the ones before them said.
        if self.late_minutes.contains(&first) && self.late_minutes.contains(&last) && last - first <= 1 {
            return;
        }
        self.late_minutes.extend(first..=last);
    }

    /// A request that still has no first token counts with what it has waited: leaving the worst out would flatter.
    pub fn still_waiting(&mut self, arrived: Moment, now: Moment) {
        self.first_token.observe(now.picos_since(arrived), 1);
    }

    /// Minutes in which some request had been queued longer than [`LATE_AFTER_SECONDS`].
    #[must_use]
    pub fn queueing_minutes(&self) -> u64 {
        self.late_minutes.len() as u64
    }

    /// Requests that ended by themselves.
    #[must_use]
    pub fn finished(&self) -> u64 {
        self.finished
    }

    /// Requests cut off by the end of their replica.
    #[must_use]
    pub fn aborted(&self) -> u64 {
        self.aborted
    }

    /// Requests too long for the engine, or too many for the router.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// A percentile (0 to 1) of the time to first token, seconds; None before the first.
    #[must_use]
    pub fn first_token_percentile(&self, share: f64) -> Option<f64> {
        let count = self.first_token.count();
        if count == 0 {
            return None;
        }
        let rank = (share * count as f64).ceil().max(1.0);
        let above = BOUND_GROWTH.powi(BOUND_COUNT) * 1e-3;
        let bound = self.first_token.cumulative().find(|(_, total)| *total as f64 >= rank);
        Some(bound.map_or(above, |(bound, _)| bound as f64 / 1e12))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_late_when_a_request_has_been_queued_for_more_than_five_seconds() {
        let at = Moment::from_seconds;
        let mut tally = Tally::default();
        tally.queued(at(10.0), at(15.0));
        assert_eq!(tally.queueing_minutes(), 0);
        tally.queued(at(10.0), at(16.0));
        assert_eq!(tally.queueing_minutes(), 1);
        // Queued over 5 s from 1:58 on, until 4:01: minutes 1 to 4.
        tally.queued(at(113.0), at(241.0));
        assert_eq!(tally.queueing_minutes(), 5);
        tally.queued(at(114.0), at(241.0));
        assert_eq!(tally.queueing_minutes(), 5);
    }

    #[test]
    fn percentiles_are_right_to_two_percent() {
        let mut tally = Tally::default();
        assert_eq!(tally.first_token_percentile(0.95), None);
        for tenths in 1..=1000 {
            tally.still_waiting(Moment::START, Moment::from_seconds(f64::from(tenths) / 10.0));
        }
        let p95 = tally.first_token_percentile(0.95).unwrap();
        assert!((p95 / 95.0 - 1.0).abs() < 0.02, "{p95}");
    }
}
