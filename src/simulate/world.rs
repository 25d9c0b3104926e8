//! Traffic, router, replicas and the tally of what users got, as one state machine. Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::cluster::{Cluster, ClusterSettings, Supply};
use super::engine_model::EngineEvent;
use super::moment::Moment;
use super::replica::Replica;
use super::tally::Tally;
use super::traffic::{Traffic, TrafficSettings};

/// Events are taken off the engines at least this often, so that their buffers stay small in long runs.
const SLICE: Duration = Duration::from_secs(10);

/// All that a world is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct WorldSettings {
    /// The wall-clock time at which it begins.
    pub base: DateTime<Utc>,
    /// The pods.
    pub cluster: ClusterSettings,
    /// What arrives.
    pub traffic: TrafficSettings,
    /// Replicas that are ready at the beginning.
    pub ready: u32,
}

/// A change of the world from outside, other than its scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Adjustment {
    /// The load is multiplied by this.
    Load(f64),
    /// Cold starts from now on.
    ColdStart(Duration),
}

/// Numbers to show, at one instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorldStatus {
    /// When.
    pub now: Moment,
    /// The pods.
    pub supply: Supply,
    /// `spec.replicas`.
    pub spec: u32,
    /// Requests that no replica runs yet: at the router or in an engine's queue.
    pub queueing: u64,
    /// Of those, the ones at the router.
    pub held: u64,
    /// Requests in running batches.
    pub running: u64,
    /// The longest that a request has been queueing, seconds.
    pub longest_wait_seconds: f64,
    /// Mean KV usage of the serving replicas, 0 to 1.
    pub kv_usage: f64,
    /// Expected arrivals a second.
    pub arrivals_per_second: f64,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// How long it was, simulated.
    pub span: Duration,
    /// Minutes in which a request had been queued for more than five seconds.
    pub queueing_minutes: u64,
    /// GPU time from the creation of each pod to its end, replica-hours.
    pub gpu_hours: f64,
    /// 95th percentile of the time to first token as clients see it, seconds.
    pub first_token_p95_seconds: Option<f64>,
    /// Pods created by scaling up.
    pub starts: u64,
    /// Requests that arrived.
    pub requests: u64,
    /// Requests that finished.
    pub finished: u64,
    /// Requests cut off because their replica was deleted.
    pub aborted: u64,
    /// Requests that no engine takes.
    pub refused: u64,
    /// Requests still at the router or in an engine.
    pub in_flight: u64,
}

/// A simulated world.
#[derive(Clone, Debug)]
pub struct World {
    settings: WorldSettings,
    cluster: Cluster,
    traffic: Traffic,
    tally: Tally,
    now: Moment,
    adjustments: Vec<(Moment, Adjustment)>,
    events: Vec<EngineEvent>,
}

impl World {
    /// At its beginning.
    #[must_use]
    pub fn new(settings: WorldSettings) -> Self {
        Self {
            cluster: Cluster::new(settings.cluster.clone(), settings.ready),
            traffic: Traffic::new(settings.traffic),
            settings,
            tally: Tally::default(),
            now: Moment::START,
            adjustments: Vec::new(),
            events: Vec::new(),
        }
    }

    /// What it was made of.
    #[must_use]
    pub fn settings(&self) -> &WorldSettings {
        &self.settings
    }

    /// Its time.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.now
    }

    /// The pods and the router.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A pod by its UID, to give it an address.
    pub fn replica_mut(&mut self, id: &str) -> Option<&mut Replica> {
        self.cluster.replica_mut(id)
    }

    /// The traffic.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Changes made so far, so that another policy can be given the very same world.
    #[must_use]
    pub fn adjustments(&self) -> &[(Moment, Adjustment)] {
        &self.adjustments
    }

    /// Changes the world from its present time on.
    pub fn adjust(&mut self, adjustment: Adjustment) {
        match adjustment {
            Adjustment::Load(factor) => self.traffic.set_factor(factor),
            Adjustment::ColdStart(span) => self.cluster.set_cold_start(span),
        }
        self.adjustments.push((self.now, adjustment));
    }

    /// Sets the number of replicas at the world's present time.
    pub fn scale(&mut self, replicas: u32) {
        self.cluster.scale(self.now, replicas);
    }

    /// Runs until `to`; an instant that has passed changes nothing.
    pub fn advance(&mut self, to: Moment) {
        while self.now < to {
            let until = self.now.plus(SLICE).min(to);
            while let Some(request) = self.traffic.next(until) {
                self.cluster.submit(request);
            }
            self.cluster.advance(until);
            self.now = until;
            self.cluster.drain_events(&mut self.events);
            for event in self.events.drain(..) {
                self.tally.note(&event);
            }
        }
    }

    /// Numbers to show.
    #[must_use]
    pub fn status(&self) -> WorldStatus {
        let (mut running, mut in_engines, mut kv, mut serving) = (0_u64, 0_u64, 0.0, 0_u32);
        for replica in self.cluster.replicas() {
            let Some(engine) = replica.engine() else { continue };
            let gauges = engine.metrics().gauges;
            running += u64::from(gauges.running);
            in_engines += engine.never_admitted_count() as u64;
            if replica.serves() {
                serving += 1;
                kv += f64::from(gauges.used_blocks) / f64::from(engine.settings().usable_blocks().max(1));
            }
        }
        let held = self.cluster.router().held() as u64;
        let longest = self.queueing_since().min();
        WorldStatus {
            now: self.now,
            supply: self.cluster.supply(),
            spec: self.cluster.spec(),
            queueing: held + in_engines,
            held,
            running,
            longest_wait_seconds: longest.map_or(0.0, |since| self.now.seconds_since(since)),
            kv_usage: kv / f64::from(serving.max(1)),
            arrivals_per_second: self.traffic.rate(self.now),
        }
    }

    /// What it came to so far; requests that still wait count with what they have waited.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let mut tally = self.tally.clone();
        for since in self.queueing_since() {
            tally.queued(since, self.now);
        }
        let unserved = self.engines().flat_map(super::engine_model::EngineModel::without_first_token);
        for since in self.cluster.router().held_since().chain(unserved) {
            tally.still_waiting(since, self.now);
        }
        let in_engines: usize = self.engines().map(super::engine_model::EngineModel::in_flight).sum();
        Outcome {
            span: self.now.since(Moment::START),
            queueing_minutes: tally.queueing_minutes(),
            gpu_hours: self.cluster.replica_seconds() / 3600.0,
            first_token_p95_seconds: tally.first_token_percentile(0.95),
            starts: self.cluster.starts(),
            requests: self.traffic.arrived(),
            finished: tally.finished(),
            aborted: tally.aborted(),
            refused: tally.refused(),
            in_flight: (self.cluster.router().held() + in_engines) as u64,
        }
    }

    fn engines(&self) -> impl Iterator<Item = &super::engine_model::EngineModel> {
        self.cluster.replicas().iter().filter_map(Replica::engine)
    }

    fn queueing_since(&self) -> impl Iterator<Item = Moment> + '_ {
        let in_engines = self.engines().flat_map(super::engine_model::EngineModel::never_admitted);
        self.cluster.router().held_since().chain(in_engines)
    }
}
