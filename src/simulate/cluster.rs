//! The pods of one scale target, as a `ReplicaSet` keeps them. Pure.
//!
//! Events are arrivals, changes of a pod's life and changes of the count; between them engines are run lazily.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::engine_model::{EngineEvent, EventKind, Request};
use super::moment::Moment;
use super::profile::{BLOCK_TOKENS, EngineSettings};
use super::replica::{Life, Replica};
use super::router::{MOST_OUTSTANDING, Routed, Router, Routing};
use super::start::{NODE_RETRY, StartStages, StartTrouble, spread};
use crate::supply::Discovered;

/// How the cluster behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSettings {
    /// Every replica's engine.
    pub engine: EngineSettings,
    /// The label `model_name`.
    pub model: String,
    /// Medians of the parts of a start, from creation to ready.
    pub stages: StartStages,
    /// Sigma of the logarithm of that time. Public start-up measurements have 0.2 to 0.5; 0 makes all equal.
    pub cold_start_spread: f64,
    /// What goes wrong with starts.
    pub trouble: StartTrouble,
    /// How requests find a replica.
    pub routing: Routing,
    /// Prompt tokens of a block in the hashes of prefixes, where requests have them.
    pub prefix_block_tokens: u32,
    /// How long a terminating replica may finish its requests (`terminationGracePeriodSeconds`).
    pub drain: Duration,
    /// For the spread of the cold starts.
    pub seed: u64,
}

impl ClusterSettings {
    /// A cluster in which every start succeeds on a warm node in the same time, and the router takes the least
    /// outstanding; pods that go have half a minute, as Kubernetes gives them by default.
    #[must_use]
    pub fn plain(engine: EngineSettings, cold_start: Duration) -> Self {
        Self {
            engine,
            model: "model".to_owned(),
            stages: StartStages::warm_node(cold_start),
            cold_start_spread: 0.0,
            trouble: StartTrouble::default(),
            routing: Routing::default(),
            prefix_block_tokens: BLOCK_TOKENS,
            drain: Duration::from_secs(30),
            seed: 0,
        }
    }

    /// Blocks of prefixes that a replica's KV cache holds.
    fn prefix_room(&self) -> usize {
        (self.engine.usable_blocks() * BLOCK_TOKENS / self.prefix_block_tokens.max(1)) as usize
    }
}

/// How many pods are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Supply {
    /// Pending or starting.
    pub starting: u32,
    /// Serving.
    pub ready: u32,
    /// Draining.
    pub terminating: u32,
}

/// The pods, and the router before them.
#[derive(Clone, Debug)]
pub struct Cluster {
    settings: ClusterSettings,
    replicas: Vec<Replica>,
    router: Router,
    /// The scale target's `spec.replicas`.
    spec: u32,
    created: u64,
    starts: u64,
    now: Moment,
    /// No pod's life changes before this.
    next_change: Option<Moment>,
    /// Of replicas that are gone.
    replica_seconds: f64,
    events: Vec<EngineEvent>,
}

impl Cluster {
    /// A cluster with so many replicas that have been ready for a while.
    #[must_use]
    pub fn new(settings: ClusterSettings, ready: u32) -> Self {
        let room = settings.prefix_room();
        let replicas = (0..u64::from(ready))
            .map(|number| Replica::already_ready(number, Moment::START, settings.engine).with_prefixes(room))
            .collect();
        Self {
            router: Router::new(settings.routing),
            settings,
            replicas,
            spec: ready,
            created: u64::from(ready),
            starts: 0,
            now: Moment::START,
            next_change: None,
            replica_seconds: 0.0,
            events: Vec::new(),
        }
    }

    /// How it behaves.
    #[must_use]
    pub fn settings(&self) -> &ClusterSettings {
        &self.settings
    }

    /// Cold starts of pods created from now on.
    pub fn set_cold_start(&mut self, cold_start: Duration) {
        self.settings.stages = self.settings.stages.with_total(cold_start);
    }

    /// The pods that exist.
    #[must_use]
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// A pod by its UID.
    pub fn replica_mut(&mut self, id: &str) -> Option<&mut Replica> {
        self.replicas.iter_mut().find(|replica| replica.id == id)
    }

    /// The router.
    #[must_use]
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// `spec.replicas`.
    #[must_use]
    pub fn spec(&self) -> u32 {
        self.spec
    }

    /// `status.replicas`: pods that exist and aren't being deleted, ready or not. A `ReplicaSet` creates at once.
    #[must_use]
    pub fn status(&self) -> u32 {
        let supply = self.supply();
        supply.ready + supply.starting
    }

    /// How many pods are where.
    #[must_use]
    pub fn supply(&self) -> Supply {
        let mut supply = Supply::default();
        for replica in &self.replicas {
            match replica.life() {
                Life::Pending { .. } | Life::Starting { .. } => supply.starting += 1,
                Life::Ready => supply.ready += 1,
                Life::Terminating { .. } => supply.terminating += 1,
            }
        }
        supply
    }

    /// Pods created by scaling up, so far.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// GPU time paid so far, in replica-seconds: from a pod's creation to its end.
    #[must_use]
    pub fn replica_seconds(&self) -> f64 {
        let alive: f64 = self.replicas.iter().map(|r| self.now.seconds_since(r.created_at())).sum();
        self.replica_seconds + alive
    }

    /// What a pod watch would tell now.
    #[must_use]
    pub fn discovered(&self, base: DateTime<Utc>) -> Discovered {
        Discovered::Targets {
            targets: self.replicas.iter().map(|replica| replica.target(base, self.now)).collect(),
            authoritative: true,
            current: Some(self.status()),
            scale: None,
        }
    }

    /// What happened to requests since the last call.
    pub fn drain_events(&mut self, into: &mut Vec<EngineEvent>) {
        into.append(&mut self.events);
        for replica in &mut self.replicas {
            if let Some(engine) = replica.engine_mut() {
                into.extend(engine.drain_events());
            }
        }
    }

    /// Sets `spec.replicas`, as the scale subresource does.
    pub fn scale(&mut self, at: Moment, replicas: u32) {
        self.advance(at);
        self.spec = replicas;
        let mut surplus = self.status().saturating_sub(replicas);
        while self.status() < replicas {
            self.create();
        }
        while surplus > 0 {
            self.remove_one();
            surplus -= 1;
        }
        self.note_next_change();
    }

    /// A request reaches the router.
    pub fn submit(&mut self, request: Request) {
        self.submit_routed(Routed { request, prefix: None });
    }

    /// A request whose prefix is known reaches the router.
    pub fn submit_routed(&mut self, routed: Routed) {
        let at = routed.request.arrived;
        self.advance_lives(at);
        self.route(routed, at);
    }

    /// Brings everything to `to`.
    pub fn advance(&mut self, to: Moment) {
        self.advance_lives(to);
        for replica in &mut self.replicas {
            if let Some(engine) = replica.engine_mut() {
                engine.advance(to);
            }
        }
        self.bury_the_drained();
    }

    /// Pods change their lives in the order of time: a router that holds requests sends them the moment one is ready.
    fn advance_lives(&mut self, to: Moment) {
        while let Some(at) = self.next_change.filter(|at| *at <= to) {
            self.now = self.now.max(at);
            self.kill_the_overdue(at);
            self.step_lives(at);
            self.note_next_change();
            while self.replicas.iter().any(Replica::serves) {
                let Some(routed) = self.router.release() else { break };
                self.route(routed, at);
            }
        }
        self.now = self.now.max(to);
    }

    /// Those whose part of life ends now begin the next one, the oldest pod first: it has the first claim on a node.
    fn step_lives(&mut self, at: Moment) {
        let (seed, engine) = (self.settings.seed, self.settings.engine);
        for index in 0..self.replicas.len() {
            let due = self.replicas[index].next_change().is_some_and(|change| change <= at);
            if !due {
                continue;
            }
            if matches!(self.replicas[index].life(), Life::Pending { .. }) {
                match self.no_node(at) {
                    Some((why, again)) => self.replicas[index].refuse(why, again),
                    None => self.replicas[index].bind(at),
                }
                continue;
            }
            let replica = &mut self.replicas[index];
            let crashes = self.settings.trouble.fails(seed, replica.number(), replica.restarts());
            replica.go_on(at, engine, crashes);
        }
    }

    /// Why no node can be had now, and when to try again.
    fn no_node(&self, at: Moment) -> Option<(&'static str, Moment)> {
        let trouble = &self.settings.trouble;
        if let Some(until) = trouble.stock_out(at) {
            return Some(("the cloud has no such node in stock", until));
        }
        let quota = trouble.quota?;
        let held = self.replicas.iter().filter(|replica| replica.has_node()).count();
        (held >= quota as usize).then(|| ("the GPU quota is used up", at.plus(NODE_RETRY)))
    }

    fn route(&mut self, routed: Routed, at: Moment) {
        for replica in self.replicas.iter_mut().filter(|replica| replica.serves()) {
            if let Some(engine) = replica.engine_mut() {
                engine.advance(at);
            }
        }
        let request = routed.request;
        let Some(index) = self.router.choose(&self.replicas, routed.prefix.as_deref()) else {
            if !self.router.hold(routed) {
                self.events.push(EngineEvent { request, at, kind: EventKind::TurnedAway });
            }
            return;
        };
        if self.replicas[index].outstanding() >= MOST_OUTSTANDING {
            self.events.push(EngineEvent { request, at, kind: EventKind::TurnedAway });
            return;
        }
        let request = self.with_cached(index, request, routed.prefix.as_deref());
        if let Some(engine) = self.replicas[index].engine_mut() {
            engine.arrive(request, at);
        }
    }

    /// The request with what the replica's prefix cache has of it. Its own blocks are there for those that come after.
    fn with_cached(&mut self, index: usize, request: Request, prefix: Option<&[u64]>) -> Request {
        let Some(hashes) = prefix else { return request };
        let prefixes = self.replicas[index].prefixes_mut();
        let cached = prefixes.hits(hashes) as u32 * self.settings.prefix_block_tokens;
        prefixes.touch(hashes);
        // The last token is always computed: its output is what the prompt is for.
        Request { cached: cached.min(request.input.saturating_sub(1)), ..request }
    }

    fn create(&mut self) {
        let number = self.created;
        self.created += 1;
        self.starts += 1;
        let stages = self.settings.stages;
        let factor = spread(self.settings.seed, number, self.settings.cold_start_spread);
        let stages = stages.with_total(stages.total().mul_f64(factor));
        let room = self.settings.prefix_room();
        self.replicas.push(Replica::created(number, self.now, stages).with_prefixes(room));
    }

    /// Deletes the pod that a `ReplicaSet` would: one that isn't ready before one that is, the youngest first.
    fn remove_one(&mut self) {
        let rank = |replica: &Replica| match replica.life() {
            Life::Pending { .. } => 2,
            Life::Starting { .. } => 1,
            Life::Ready | Life::Terminating { .. } => 0,
        };
        let victim = (0..self.replicas.len())
            .filter(|index| !matches!(self.replicas[*index].life(), Life::Terminating { .. }))
            .max_by_key(|index| (rank(&self.replicas[*index]), self.replicas[*index].created_at(), *index));
        let Some(index) = victim else { return };
        if self.replicas[index].serves() {
            self.replicas[index].terminate(self.now, self.settings.drain);
        } else {
            let replica = self.replicas.remove(index);
            self.bury(replica, self.now);
        }
    }

    fn kill_the_overdue(&mut self, at: Moment) {
        for index in (0..self.replicas.len()).rev() {
            let overdue =
                matches!(self.replicas[index].life(), Life::Terminating { deadline } if deadline <= at);
            if overdue {
                let mut replica = self.replicas.remove(index);
                if let Some(engine) = replica.engine_mut() {
                    engine.advance(at);
                }
                let end = replica.drained_at().unwrap_or(at);
                if let Some(engine) = replica.engine_mut() {
                    engine.abort(at);
                }
                self.bury(replica, end);
            }
        }
    }

    /// A drained pod goes the moment its last request is done, however late that is noticed.
    fn bury_the_drained(&mut self) {
        for index in (0..self.replicas.len()).rev() {
            if let Some(at) = self.replicas[index].drained_at() {
                let replica = self.replicas.remove(index);
                self.bury(replica, at);
                self.note_next_change();
            }
        }
    }

    fn bury(&mut self, mut replica: Replica, at: Moment) {
        self.replica_seconds += at.seconds_since(replica.created_at());
        if let Some(engine) = replica.engine_mut() {
            self.events.extend(engine.drain_events());
        }
    }

    fn note_next_change(&mut self) {
        self.next_change = self.replicas.iter().filter_map(Replica::next_change).min();
    }
}

#[cfg(test)]
mod tests;
