//! What a run came to, request by request: its price, who waited, who was lost. Pure.
//!
//! A request's work is its tokens over the rates of a replica, in whole picoseconds, so that sums don't depend on the
//! order of events. Work is late when its request queued longer than acceptable before it entered a running batch, the
//! wait at the router included. A minute is late when more than 1 % of the work that arrived in it was late.

use std::time::Duration;

use serde::Serialize;

use crate::backtest::score::QueueTimes;
use crate::decision::policy::TokenRates;
use crate::simulate::distribution::Distribution;
use crate::simulate::{Moment, Request};

/// Seconds of a minute, and of a week in minutes.
const MINUTE: u64 = 60;
/// See [`MINUTE`].
const WEEK_MINUTES: f64 = 7.0 * 24.0 * 60.0;

/// A minute is late beyond one part in so many of its work.
const LATE_PART: u64 = 100;

/// Bounds of the times: 0, and from a millisecond by steps of 2 % to beyond a day. A quantile is the bound at or above it,
/// so it is at most 2 % too long.
const FIRST_BOUND_PICOS: f64 = 1e9;
/// See [`FIRST_BOUND_PICOS`].
const BOUND_GROWTH: f64 = 1.02;
/// See [`FIRST_BOUND_PICOS`].
const BOUNDS: i32 = 925;

/// Price and lateness of a run, request by request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestScore {
    /// From the creation of each pod to its end, hours.
    pub gpu_hours: f64,
    /// Share of the work that queued longer than acceptable, 0 to 1.
    pub late_work: f64,
    /// Minutes of whose work more than 1 % was late.
    pub late_minutes: u64,
    /// The same a week.
    pub late_minutes_a_week: f64,
    /// Pods created by scaling up.
    pub starts: u64,
    /// From the router to the running batch, over requests.
    pub queue_seconds: QueueTimes,
    /// Time to first token as clients see it, the wait at the router included, over requests.
    pub first_token_seconds: QueueTimes,
    /// Requests that arrived; like those below, while it is scored.
    pub requests: u64,
    /// Those that were answered.
    pub finished: u64,
    /// Those that were cut off by the end of their replica.
    pub cut_off: u64,
    /// Those that were refused: too long for the engine, or more than a router holds.
    pub refused: u64,
    /// Those that are in the fleet when it ends.
    pub unfinished: u64,
    /// Minute by minute.
    pub minutes: Vec<Minute>,
}

impl RequestScore {
    /// Requests that got no whole answer: refused or cut off.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.cut_off + self.refused
    }
}

/// A minute of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Minute {
    /// Work that arrived, in replicas at full load.
    pub demand: f64,
    /// Replicas that served, the mean of the minute.
    pub ready: f64,
    /// Pods that existed, the mean of the minute.
    pub paid: f64,
    /// Requests that had not entered a running batch, the mean of the minute.
    pub waiting: f64,
    /// Share of the arrived work that was late, 0 to 1.
    pub late: f64,
}

/// A request's work, picoseconds of a replica.
pub(super) fn work_picos(rates: TokenRates, input: u32, output: u32) -> u64 {
    let picos = |tokens: u32, rate: f64| (f64::from(tokens) * 1e12 / rate).round() as u64;
    picos(input, rates.input_tokens_per_second) + picos(output, rates.output_tokens_per_second)
}

/// Work by the minute of its arrival.
#[derive(Clone, Debug)]
pub(super) struct Lateness {
    rates: TokenRates,
    acceptable: Duration,
    /// The first minute that is scored.
    scored_from: usize,
    minutes: Vec<MinuteWork>,
}

/// Work that arrived in a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MinuteWork {
    /// All of it, picoseconds.
    arrived: u64,
    /// What entered a running batch in time.
    in_time: u64,
}

impl MinuteWork {
    fn late(self) -> u64 {
        self.arrived.saturating_sub(self.in_time)
    }

    fn is_late(self) -> bool {
        u128::from(self.late()) * u128::from(LATE_PART) > u128::from(self.arrived)
    }
}

impl Lateness {
    pub(super) fn new(rates: TokenRates, acceptable: Duration) -> Self {
        Self { rates, acceptable, scored_from: 0, minutes: Vec::new() }
    }

    fn scored(&self) -> &[MinuteWork] {
        self.minutes.get(self.scored_from..).unwrap_or_default()
    }

    fn minute(&mut self, at: Moment) -> &mut MinuteWork {
        let index = (at.since(Moment::START).as_secs() / MINUTE) as usize;
        if self.minutes.len() <= index {
            self.minutes.resize(index + 1, MinuteWork::default());
        }
        &mut self.minutes[index]
    }

    pub(super) fn arrived(&mut self, request: &Request) {
        let work = work_picos(self.rates, request.input, request.output);
        self.minute(request.arrived).arrived += work;
    }

    /// It entered a running batch; or it still waits, and `at` is the end.
    pub(super) fn admitted(&mut self, request: &Request, at: Moment) {
        if at.since(request.arrived) <= self.acceptable {
            let work = work_picos(self.rates, request.input, request.output);
            self.minute(request.arrived).in_time += work;
        }
    }

    pub(super) fn late_minutes(&self) -> u64 {
        self.scored().iter().filter(|minute| minute.is_late()).count() as u64
    }

    fn late_share(&self) -> f64 {
        let (late, all) = self.scored().iter().fold((0_u128, 0_u128), |(late, all), minute| {
            (late + u128::from(minute.late()), all + u128::from(minute.arrived))
        });
        if all == 0 { 0.0 } else { late as f64 / all as f64 }
    }
}

/// A score on its way.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// Requests that arrived before are played and not scored.
    scored_from: Moment,
    lateness: Lateness,
    queue: Distribution,
    first_token: Distribution,
    looks: Vec<Looks>,
    counts: Counts,
    /// The same when the score begins.
    before: Counts,
}

/// Requests so far.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: u64,
    finished: u64,
    cut_off: u64,
    refused: u64,
}

/// Sums over the looks of a minute.
#[derive(Clone, Copy, Debug, Default)]
struct Looks {
    count: f64,
    ready: f64,
    paid: f64,
    waiting: f64,
}

impl Tally {
    pub(super) fn new(rates: TokenRates, acceptable: Duration) -> Self {
        let above = (0..BOUNDS).map(|n| (FIRST_BOUND_PICOS * BOUND_GROWTH.powi(n)).round() as u64);
        let times = Distribution::new(std::iter::once(0).chain(above).collect());
        Self {
            scored_from: Moment::START,
            lateness: Lateness::new(rates, acceptable),
            queue: times.clone(),
            first_token: times,
            looks: Vec::new(),
            counts: Counts::default(),
            before: Counts::default(),
        }
    }

    /// Only what arrives from the beginning of this minute on is scored.
    pub(super) fn scoring_from(mut self, minute: u64) -> Self {
        self.scored_from = Moment::from_duration(Duration::from_secs(minute * MINUTE));
        self.lateness.scored_from = minute as usize;
        self
    }

    fn scores(&self, request: &Request) -> bool {
        request.arrived >= self.scored_from
    }

    pub(super) fn arrived(&mut self, request: &Request) {
        self.counts.requests += 1;
        self.lateness.arrived(request);
    }

    pub(super) fn admitted(&mut self, request: &Request, at: Moment) {
        self.lateness.admitted(request, at);
        if self.scores(request) {
            self.queue.observe(at.picos_since(request.arrived), 1);
        }
    }

    pub(super) fn first_token(&mut self, request: &Request, at: Moment) {
        if self.scores(request) {
            self.first_token.observe(at.picos_since(request.arrived), 1);
        }
    }

    /// The end came before its first token: it counts with what it has waited; leaving the worst out would flatter.
    pub(super) fn still_without_first_token(&mut self, arrived: Moment, end: Moment) {
        if arrived >= self.scored_from {
            self.first_token.observe(end.picos_since(arrived), 1);
        }
    }

    pub(super) fn finished(&mut self) {
        self.counts.finished += 1;
    }

    pub(super) fn cut_off(&mut self) {
        self.counts.cut_off += 1;
    }

    /// Too many wait: lost, and its work is late.
    pub(super) fn turned_away(&mut self) {
        self.counts.refused += 1;
    }

    /// Too long for the engine: lost, and its work is not late, as more replicas would not have helped.
    pub(super) fn refused(&mut self, request: &Request) {
        self.counts.refused += 1;
        self.lateness.admitted(request, request.arrived);
    }

    /// The fleet at an instant. The first one is not of a minute yet.
    pub(super) fn look(&mut self, at: Moment, ready: u32, paid: u32, waiting: u64) {
        if at <= self.scored_from && self.scored_from > Moment::START {
            self.before = self.counts;
        }
        let index = (at.since(Moment::START).as_secs().saturating_sub(1) / MINUTE) as usize;
        if self.looks.len() <= index {
            self.looks.resize(index + 1, Looks::default());
        }
        let looks = &mut self.looks[index];
        looks.count += 1.0;
        looks.ready += f64::from(ready);
        looks.paid += f64::from(paid);
        looks.waiting += waiting as f64;
    }

    /// Over a run of so long, with what the cluster says of the price of what is scored.
    pub(super) fn score(self, span: Duration, gpu_hours: f64, starts: u64, unfinished: u64) -> RequestScore {
        let late_minutes = self.lateness.late_minutes();
        let span = span.saturating_sub(self.scored_from.since(Moment::START));
        let count = self.looks.len().max(self.lateness.minutes.len());
        let minutes = (0..count).map(|index| {
            let work = self.lateness.minutes.get(index).copied().unwrap_or_default();
            let looks = self.looks.get(index).copied().unwrap_or_default();
            let mean = |sum: f64| sum / looks.count.max(1.0);
            Minute {
                demand: work.arrived as f64 / 1e12 / MINUTE as f64,
                ready: mean(looks.ready),
                paid: mean(looks.paid),
                waiting: mean(looks.waiting),
                late: if work.arrived == 0 { 0.0 } else { work.late() as f64 / work.arrived as f64 },
            }
        });
        RequestScore {
            gpu_hours,
            late_work: self.lateness.late_share(),
            late_minutes,
            late_minutes_a_week: late_minutes as f64 * WEEK_MINUTES * 60.0 / span.as_secs_f64().max(60.0),
            starts,
            queue_seconds: quantiles(&self.queue),
            first_token_seconds: quantiles(&self.first_token),
            requests: self.counts.requests - self.before.requests,
            finished: self.counts.finished - self.before.finished,
            cut_off: self.counts.cut_off - self.before.cut_off,
            refused: self.counts.refused - self.before.refused,
            unfinished,
            minutes: minutes.collect(),
        }
    }
}

fn quantiles(times: &Distribution) -> QueueTimes {
    let count = times.count();
    let at = |share: f64| {
        let rank = ((count as f64 * share).ceil() as u64).max(1);
        let bound = times.cumulative().find(|(_, below)| *below >= rank);
        match bound {
            Some((bound, _)) => bound as f64 / 1e12,
            None if count == 0 => 0.0,
            None => FIRST_BOUND_PICOS * BOUND_GROWTH.powi(BOUNDS) / 1e12,
        }
    };
    QueueTimes { p50: at(0.5), p95: at(0.95), p99: at(0.99) }
}

#[cfg(test)]
mod tests;
