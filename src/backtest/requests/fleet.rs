//! The simulated cluster as a sizer sees it: what its router counts, and what became of each request. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::arrivals::ArrivingRequest;
use super::retries::Retries;
use super::score::{RequestScore, Tally};
use super::{RequestSettings, rival};
use crate::decision::policy::TokenRates;
use crate::simulate::engine_model::{EngineEvent, EngineModel, EventKind};
use crate::simulate::router::Routed;
use crate::simulate::{Cluster, Moment, Request};

/// What a router counts: every try of a request counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// Requests.
    pub requests: u64,
    /// Their prompt tokens.
    pub input_tokens: u64,
    /// Their output tokens.
    pub output_tokens: u64,
}

impl Offered {
    /// All of it as work, in seconds of a replica that serves at these rates.
    #[must_use]
    pub fn work_seconds(&self, rates: TokenRates) -> f64 {
        self.input_tokens as f64 / rates.input_tokens_per_second
            + self.output_tokens as f64 / rates.output_tokens_per_second
    }
}

/// A cluster under traffic.
#[derive(Debug)]
pub struct Fleet {
    cluster: Cluster,
    begins: DateTime<Utc>,
    rates: TokenRates,
    hit_rate: f64,
    seed: u64,
    span: Duration,
    scored_from: Moment,
    /// Replica-seconds and starts when the score begins.
    before: (f64, u64),
    now: Moment,
    next_id: u64,
    offered: Offered,
    turned_away: u64,
    retries: Retries,
    /// The outage, its beginning apart: that is an event.
    outage_begins: Option<Moment>,
    outage: Option<(Moment, Moment)>,
    tally: Tally,
    events: Vec<EngineEvent>,
    /// Times to first token of the last minute, picoseconds; empty unless somebody asked for them.
    first_tokens: Option<VecDeque<(Moment, u64)>>,
}

impl Fleet {
    pub(super) fn new(settings: &RequestSettings) -> Self {
        Self {
            cluster: Cluster::new(settings.cluster(), settings.initial),
            begins: settings.begins,
            rates: settings.rates,
            hit_rate: settings.hit_rate.clamp(0.0, 1.0),
            seed: settings.seed,
            span: settings.span,
            scored_from: Moment::from_duration(Duration::from_secs(settings.scored_from_minute * 60)),
            before: (0.0, 0),
            now: Moment::START,
            next_id: 0,
            offered: Offered::default(),
            turned_away: 0,
            retries: Retries::new(settings.clients, settings.seed),
            outage_begins: settings.outage.map(|(from, _)| from),
            outage: settings.outage,
            tally: Tally::new(settings.rates, settings.acceptable_queue)
                .scoring_from(settings.scored_from_minute),
            events: Vec::new(),
            first_tokens: None,
        }
    }

    /// The pods and the router.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The wall-clock time of the beginning.
    #[must_use]
    pub fn begins(&self) -> DateTime<Utc> {
        self.begins
    }

    /// What one replica carries.
    #[must_use]
    pub fn rates(&self) -> TokenRates {
        self.rates
    }

    /// The seed of the run, for phases.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What has reached the router so far.
    #[must_use]
    pub fn offered(&self) -> Offered {
        self.offered
    }

    /// Tries that were refused so far: in an outage, or because nobody had room.
    #[must_use]
    pub fn turned_away(&self) -> u64 {
        self.turned_away
    }

    /// Requests at the router and in engines' queues that have not run yet.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let engines = self.cluster.replicas().iter().filter_map(|replica| replica.engine());
        let in_engines: usize = engines.map(EngineModel::never_admitted_count).sum();
        (self.cluster.router().held() + in_engines) as u64
    }

    /// Sets `spec.replicas` now.
    pub fn scale(&mut self, replicas: u32) {
        self.cluster.scale(self.now, replicas);
    }

    /// From now on times to first token are kept for a minute.
    pub(super) fn keep_first_tokens(&mut self) {
        self.first_tokens.get_or_insert_default();
    }

    /// The 95th percentile of the times to first token of the last minute, seconds.
    pub(super) fn first_token_p95(&self) -> Option<f64> {
        let mut times: Vec<u64> = self.first_tokens.as_ref()?.iter().map(|(_, time)| *time).collect();
        let rank = ((times.len() as f64 * 0.95).ceil() as usize).checked_sub(1)?;
        let (_, time, _) = times.select_nth_unstable(rank);
        Some(*time as f64 / 1e12)
    }

    pub(super) fn submit(&mut self, arriving: ArrivingRequest) {
        let cached = match (&arriving.prefix, arriving.cached) {
            (Some(_), _) => 0,
            (None, Some(cached)) => cached,
            (None, None) => (f64::from(arriving.input) * self.hit_rate) as u32,
        };
        let (input, output) = (arriving.input, arriving.output);
        let request = Request { id: self.next_id, arrived: arriving.at, input, cached, output };
        self.next_id += 1;
        self.tally.arrived(&request);
        self.attempt(Routed { request, prefix: arriving.prefix }, arriving.at);
    }

    /// One try of a request.
    fn attempt(&mut self, routed: Routed, at: Moment) {
        let Request { input, output, .. } = routed.request;
        self.offered.requests += 1;
        self.offered.input_tokens += u64::from(input);
        self.offered.output_tokens += u64::from(output);
        let is_out = self.outage.is_some_and(|(from, until)| from <= at && at < until);
        if !is_out && self.cluster.submit_routed(routed.clone(), at) {
            return;
        }
        self.turned_away += 1;
        if !self.retries.again(routed, at) {
            self.tally.turned_away();
        }
    }

    /// What happens by itself up to an instant: the outage begins, and clients try again.
    pub(super) fn reach(&mut self, to: Moment) {
        loop {
            let retry = self.retries.next().filter(|at| *at <= to);
            let begins = self.outage_begins.filter(|at| *at <= to && retry.is_none_or(|retry| *at <= retry));
            if let Some(at) = begins {
                self.outage_begins = None;
                self.cluster.cut_off(at);
                self.now = self.now.max(at);
                self.note_events();
                continue;
            }
            if retry.is_none() {
                return;
            }
            let Some((at, routed)) = self.retries.pop() else { return };
            self.attempt(routed, at);
        }
    }

    /// Brings everything to an instant.
    pub(super) fn settle(&mut self, now: Moment) {
        self.now = now;
        self.cluster.advance(now);
        self.note_events();
        self.forget_first_tokens(now);
    }

    fn note_events(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        self.cluster.drain_events(&mut events);
        for event in events.drain(..) {
            self.note(&event);
        }
        self.events = events;
    }

    fn note(&mut self, event: &EngineEvent) {
        let request = &event.request;
        match event.kind {
            EventKind::Admitted if self.retries.runs(request.id) => self.tally.admitted(request, event.at),
            EventKind::FirstToken if self.retries.is_answered(request.id) => {
                self.tally.first_token(request, event.at);
                if let Some(times) = &mut self.first_tokens {
                    times.push_back((event.at, event.at.picos_since(request.arrived)));
                }
            }
            EventKind::Admitted | EventKind::FirstToken => {}
            EventKind::Finished => {
                self.tally.finished();
                self.retries.forget(request.id);
            }
            EventKind::Refused => self.tally.refused(request),
            EventKind::TurnedAway => self.tally.turned_away(),
            EventKind::Aborted => {
                // What its replica had of its prompt isn't known of the next one.
                let routed = Routed { request: *request, prefix: None };
                // The end of a replica may be noticed a moment later; the past is over then.
                if !self.retries.again(routed, event.at.max(self.now)) {
                    self.tally.cut_off();
                }
            }
        }
    }

    fn forget_first_tokens(&mut self, now: Moment) {
        let Some(times) = &mut self.first_tokens else { return };
        // Events come replica by replica: an old one may stand behind a newer one for a moment.
        while times.front().is_some_and(|(at, _)| now.since(*at) > rival::LATENCY_WINDOW) {
            times.pop_front();
        }
    }

    /// The fleet at this instant, for the minutes of the score. Minutes begin with a look, and so does the score.
    pub(super) fn look(&mut self) {
        if self.now <= self.scored_from && self.scored_from > Moment::START {
            self.before = (self.cluster.replica_seconds(), self.cluster.starts());
        }
        let supply = self.cluster.supply();
        let paid = supply.ready + supply.starting + supply.terminating;
        let waiting = self.waiting();
        self.tally.look(self.now, supply.ready, paid, waiting);
    }

    /// What it came to. Requests that never ran count with what they have waited by now.
    pub(super) fn into_score(mut self) -> RequestScore {
        let (mut waiting, mut without_first_token, mut unfinished) = (Vec::new(), Vec::new(), 0);
        for engine in self.cluster.replicas().iter().filter_map(|replica| replica.engine()) {
            waiting.extend(engine.never_admitted_requests().copied());
            without_first_token.extend(engine.without_first_token());
            unfinished += engine.in_flight() as u64;
        }
        let held: Vec<Request> = self.cluster.router().held_requests().copied().collect();
        unfinished += held.len() as u64;
        without_first_token.extend(held.iter().map(|request| request.arrived));
        waiting.extend(held);
        for request in self.retries.waiting() {
            unfinished += 1;
            if !self.retries.ran(request.id) {
                waiting.push(*request);
            }
            if !self.retries.was_answered(request.id) {
                without_first_token.push(request.arrived);
            }
        }
        for request in waiting {
            self.tally.admitted(&request, self.now);
        }
        for arrived in without_first_token {
            self.tally.still_without_first_token(arrived, self.now);
        }
        let (seconds_before, starts_before) = self.before;
        let gpu_hours = (self.cluster.replica_seconds() - seconds_before) / 3600.0;
        self.tally.score(self.span, gpu_hours, self.cluster.starts() - starts_before, unfinished)
    }
}
