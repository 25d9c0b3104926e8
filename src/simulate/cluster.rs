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
use super::start::{StartStages, StartTrouble, spread};
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
    /// Which replica goes, and whether the router stops first.
    pub removal: Removal,
    /// How long the router still sends to a replica that was told to go: its address goes out of every router's list a
    /// little later. An engine that drains aborts what it is sent.
    pub unlisting: Duration,
    /// What an engine refuses; None: nothing.
    pub queue_limit: Option<QueueLimit>,
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
            removal: Removal::default(),
            unlisting: Duration::ZERO,
            queue_limit: None,
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
    /// Draining, or left by the router so that they can go.
    pub terminating: u32,
}

/// The pods, and the router before them.
#[derive(Clone, Debug)]
pub struct Cluster {
    settings: ClusterSettings,
    replicas: Vec<Replica>,
    lanes: Lanes,
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
    gone: Gone,
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
        let mut cluster = Self {
            router: Router::new(settings.routing),
            settings,
            replicas,
            lanes: Lanes::default(),
            spec: ready,
            created: u64::from(ready),
            starts: 0,
            now: Moment::START,
            next_change: None,
            replica_seconds: 0.0,
            gone: Gone::default(),
            events: Vec::new(),
        };
        cluster.lanes_are_stale();
        cluster
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
        self.lanes_are_stale();
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
                Life::Leaving { .. } | Life::Terminating { .. } => supply.terminating += 1,
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
        self.lanes_are_stale();
        self.spec = replicas;
        let mut surplus = self.status().saturating_sub(replicas);
        while self.status() < replicas {
            if !self.take_back() {
                self.create();
            }
        }
        while surplus > 0 {
            self.remove_one();
            surplus -= 1;
        }
        self.note_next_change();
    }

    /// A request reaches the router as its client sends it; one that is turned away is told as an event.
    pub fn submit(&mut self, request: Request) {
        let at = request.arrived;
        if !self.submit_routed(Routed { request, prefix: None }, at) {
            self.turn_away(request, at);
        }
    }

    /// A request whose prefix is known reaches the router, perhaps not for the first time. False: it is turned away, and
    /// no event tells of it.
    #[must_use]
    pub fn submit_routed(&mut self, routed: Routed, at: Moment) -> bool {
        self.advance_lives(at);
        self.route(routed, at)
    }

    /// All that is in the engines is cut off, as when every connection to them breaks.
    pub fn cut_off(&mut self, at: Moment) {
        self.advance(at);
        self.lanes_are_stale();
        for replica in &mut self.replicas {
            if let Some(engine) = replica.engine_mut() {
                engine.abort(at);
            }
        }
    }

    /// Brings everything to `to`.
    pub fn advance(&mut self, to: Moment) {
        self.advance_lives(to);
        self.lanes_are_stale();
        for replica in &mut self.replicas {
            if let Some(engine) = replica.engine_mut() {
                engine.advance(to);
            }
        }
        self.bury_the_drained();
    }

    fn turn_away(&mut self, request: Request, at: Moment) {
        self.events.push(EngineEvent { request, at, kind: EventKind::TurnedAway });
    }

    /// Sends it on; false where nobody takes it.
    fn route(&mut self, routed: Routed, at: Moment) -> bool {
        let request = routed.request;
        self.run_lanes(at);
        let lanes = self.lanes.as_slice();
        let Some(index) = self.router.choose(&self.replicas, lanes, routed.prefix.as_deref(), at) else {
            return self.router.hold(routed);
        };
        if !self.replicas[index].serves() {
            // vLLM answers a request that comes while it drains with the reason "abort".
            self.events.push(EngineEvent { request, at, kind: EventKind::Aborted });
            return true;
        }
        if self.replicas[index].outstanding() >= MOST_OUTSTANDING {
            return false;
        }
        let request = self.with_cached(index, request, routed.prefix.as_deref());
        let limit = self.settings.queue_limit;
        let Some(engine) = self.replicas[index].engine_mut() else { return false };
        engine.advance(at);
        if let Some(QueueLimit { most, refusal }) = limit
            && engine.waiting_count() >= most
        {
            engine.refuse(refusal, at);
            return false;
        }
        engine.arrive(request, at);
        self.note_lane(index);
        true
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

    fn note_next_change(&mut self) {
        self.next_change = self.replicas.iter().filter_map(Replica::next_change).min();
    }
}

mod lanes;
mod lives;
mod removal;

pub(super) use lanes::Lane;
use lanes::Lanes;
pub use removal::{Gone, Removal};

/// What an engine has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimit {
    /// `--max-num-queued-reqs`: with so many waiting requests the next one is refused.
    pub most: usize,
    /// Engine time that a refusal takes: the request was read, parsed and made tokens of by the process that also hands
    /// out everybody's tokens.
    pub refusal: Duration,
}

#[cfg(test)]
mod tests;
