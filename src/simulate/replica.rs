//! A simulated pod with one vLLM replica in it, from creation to its end. Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::engine_model::EngineModel;
use super::moment::Moment;
use super::page::{self, PageIdentity};
use super::prefix::PrefixCache;
use super::profile::EngineSettings;
use super::start::{NODE_WAIT, StartStages, crash_wait};
use crate::supply::{Phase, Stage, Start, Target};

/// Where a pod is in its life. A pod that is gone is no longer in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Created, not on a node yet: it has no address.
    Pending {
        /// When it will be bound, or tried again.
        until: Moment,
    },
    /// On a node, and not ready: it has an address, and the port refuses, as vLLM's does.
    Starting {
        /// With what it is busy.
        part: StartPart,
        /// When that is done.
        until: Moment,
    },
    /// Serves.
    Ready,
    /// The router sends it nothing new any more. It isn't told to go yet, and may be taken back.
    Leaving {
        /// When it is told to go at the latest; before that when it has nothing left to do.
        deadline: Moment,
    },
    /// Told to go: finishes what it has, takes nothing new.
    Terminating {
        /// When it is killed at the latest.
        deadline: Moment,
    },
}

/// A part of a start on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPart {
    /// The image is pulled.
    Image,
    /// The weights are read.
    Weights,
    /// The engine compiles and warms up.
    Engine,
    /// The engine crashed, and the kubelet waits.
    BackOff,
}

/// A pod.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The pod's UID.
    pub id: String,
    /// The pod's name.
    pub name: String,
    /// Its metrics page; set by whoever gives it a socket.
    pub url: Option<String>,
    number: u64,
    created: Moment,
    life: Life,
    /// When the present part of its life began.
    since: Moment,
    /// How long the parts of its start take.
    stages: StartStages,
    /// When it got a node.
    bound: Option<Moment>,
    /// When its container began to run.
    container_started: Option<Moment>,
    ready_at: Option<Moment>,
    /// When it was chosen to go.
    leaves_since: Option<Moment>,
    /// Until when the router still has its address, once it is told to go.
    listed_until: Moment,
    restarts: u32,
    /// Why it gets no node.
    refused: Option<&'static str>,
    /// The engine; only a replica that got ready has one.
    engine: Option<EngineModel>,
    prefixes: PrefixCache,
}

impl Replica {
    /// A pod that is created now.
    #[must_use]
    pub fn created(number: u64, now: Moment, stages: StartStages) -> Self {
        Self {
            id: format!("00000000-0000-4000-8000-{number:012}"),
            name: format!("chat-{number:04}"),
            url: None,
            number,
            created: now,
            life: Life::Pending { until: now.plus(stages.pending + stages.node) },
            since: now,
            stages,
            bound: None,
            container_started: None,
            ready_at: None,
            leaves_since: None,
            listed_until: now,
            restarts: 0,
            refused: None,
            engine: None,
            prefixes: PrefixCache::default(),
        }
    }

    /// A pod that has been ready for a while. How it started is not known of it.
    #[must_use]
    pub fn already_ready(number: u64, now: Moment, settings: EngineSettings) -> Self {
        let mut replica = Self::created(number, now, StartStages::warm_node(Duration::ZERO));
        replica.become_ready(now, settings);
        replica.container_started = Some(now);
        replica
    }

    /// With room for so many blocks of prefixes.
    #[must_use]
    pub(super) fn with_prefixes(mut self, room: usize) -> Self {
        self.prefixes = PrefixCache::new(room);
        self
    }

    /// Its number in the cluster; never used again.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Requests that it has, running or waiting.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.engine.as_ref().map_or(usize::MAX, EngineModel::in_flight)
    }

    /// What it has of prompts.
    #[must_use]
    pub fn prefixes(&self) -> &PrefixCache {
        &self.prefixes
    }

    pub(super) fn prefixes_mut(&mut self) -> &mut PrefixCache {
        &mut self.prefixes
    }

    /// Where it is in its life.
    #[must_use]
    pub fn life(&self) -> Life {
        self.life
    }

    /// When it was created: its GPU is paid from here.
    #[must_use]
    pub fn created_at(&self) -> Moment {
        self.created
    }

    /// Its engine, once it has been ready.
    #[must_use]
    pub fn engine(&self) -> Option<&EngineModel> {
        self.engine.as_ref()
    }

    /// The same, to run it.
    pub fn engine_mut(&mut self) -> Option<&mut EngineModel> {
        self.engine.as_mut()
    }

    /// Does it take new requests?
    #[must_use]
    pub fn serves(&self) -> bool {
        self.life == Life::Ready
    }

    /// Until when the router still sends to it, once it is told to go.
    pub(super) fn listed_until(&self) -> Moment {
        self.listed_until
    }

    /// Is its process listening? A draining vLLM still answers `/metrics`.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.engine.is_some()
    }

    /// When its life changes by the clock alone.
    #[must_use]
    pub fn next_change(&self) -> Option<Moment> {
        match self.life {
            Life::Pending { until } | Life::Starting { until, .. } => Some(until),
            Life::Ready => None,
            Life::Leaving { deadline } | Life::Terminating { deadline } => Some(deadline),
        }
    }

    /// Does it hold a node?
    #[must_use]
    pub fn has_node(&self) -> bool {
        self.bound.is_some() || self.engine.is_some()
    }

    /// How often its engine crashed on the way.
    #[must_use]
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// It gets a node.
    pub(super) fn bind(&mut self, at: Moment) {
        self.bound = Some(at);
        self.refused = None;
        self.begin(StartPart::Image, at, self.stages.image);
    }

    /// It gets none, and is tried again later.
    pub(super) fn refuse(&mut self, why: &'static str, again: Moment) {
        self.refused = Some(why);
        self.life = Life::Pending { until: again };
    }

    /// The next part of its start, at the time of [`Replica::next_change`]; ready after the last one, or not, when
    /// `crashes`.
    pub(super) fn go_on(&mut self, at: Moment, settings: EngineSettings, crashes: bool) {
        let Life::Starting { part, .. } = self.life else { return };
        match part {
            StartPart::Image | StartPart::BackOff => {
                self.container_started = Some(at);
                self.begin(StartPart::Weights, at, self.stages.weights);
            }
            StartPart::Weights => self.begin(StartPart::Engine, at, self.stages.engine),
            StartPart::Engine if crashes => {
                self.restarts += 1;
                self.begin(StartPart::BackOff, at, crash_wait(self.restarts));
            }
            StartPart::Engine => self.become_ready(at, settings),
        }
    }

    fn begin(&mut self, part: StartPart, at: Moment, span: Duration) {
        self.life = Life::Starting { part, until: at.plus(span) };
        self.since = at;
    }

    fn become_ready(&mut self, at: Moment, settings: EngineSettings) {
        self.life = Life::Ready;
        self.since = at;
        self.ready_at = Some(at);
        self.engine = Some(EngineModel::new(settings, at));
    }

    /// Told to go. A router that hadn't left it yet still has its address for a while.
    pub(super) fn terminate(&mut self, at: Moment, drain: Duration, unlisting: Duration) {
        self.listed_until = if self.serves() { at.plus(unlisting) } else { at };
        self.leaves_since.get_or_insert(at);
        self.life = Life::Terminating { deadline: at.plus(drain) };
        self.since = at;
    }

    /// The router leaves it, so that it can go when it is idle.
    pub(super) fn leave(&mut self, at: Moment, longest: Duration) {
        self.leaves_since = Some(at);
        self.life = Life::Leaving { deadline: at.plus(longest) };
        self.since = at;
    }

    /// The router takes it back.
    pub(super) fn stay(&mut self, at: Moment) {
        self.leaves_since = None;
        self.life = Life::Ready;
        self.since = at;
    }

    /// Since when it is on its way out.
    #[must_use]
    pub fn leaves_since(&self) -> Option<Moment> {
        self.leaves_since
    }

    /// When a replica on its way out had nothing left to do, if that is so by now.
    #[must_use]
    pub fn drained_at(&self) -> Option<Moment> {
        let going = matches!(self.life, Life::Leaving { .. } | Life::Terminating { .. });
        let idle = self.engine.as_ref().filter(|_| going)?.idle_since()?;
        Some(idle.max(self.since))
    }

    /// As a pod watch tells it `now`.
    #[must_use]
    pub fn target(&self, base: DateTime<Utc>, now: Moment) -> Target {
        let blocked = self.blocked(now);
        let (phase, addressed) = match self.life {
            _ if blocked.is_some() => (Phase::Blocked, self.bound.is_some()),
            Life::Pending { .. } => (Phase::Starting, false),
            Life::Starting { .. } => (Phase::Starting, true),
            Life::Ready => (Phase::Ready, true),
            Life::Leaving { .. } | Life::Terminating { .. } => (Phase::Terminating, true),
        };
        // A pod is "starting" from its creation on, whatever part of the start it is in.
        let since = match phase {
            Phase::Starting => self.created,
            Phase::Blocked if self.bound.is_none() => self.created,
            _ => self.since,
        };
        Target {
            id: self.id.clone(),
            name: self.name.clone(),
            url: self.url.clone().filter(|_| addressed),
            phase,
            since: Some(since.wall(base)),
            start: self.start(base, blocked),
        }
    }

    /// Why it can't start, in the words of the Kubernetes source.
    fn blocked(&self, now: Moment) -> Option<String> {
        match self.life {
            Life::Pending { .. } if now.since(self.created) > NODE_WAIT => {
                Some(format!("unschedulable: {}", self.refused.unwrap_or("no node yet")))
            }
            Life::Starting { part: StartPart::BackOff, .. } => {
                Some(format!("crash loop: the engine ended {} times while it loaded", self.restarts))
            }
            _ => None,
        }
    }

    /// As the pod's status tells its start. A simulated start has no init containers; a replica that was there before
    /// the simulation began has none at all.
    fn start(&self, base: DateTime<Utc>, blocked: Option<String>) -> Option<Start> {
        if self.ready_at.is_some() && self.bound.is_none() {
            return None;
        }
        let wall = |moment: Option<Moment>| moment.map(|moment| moment.wall(base));
        Some(Start {
            created: self.created.wall(base),
            scheduled: wall(self.bound),
            initialised: wall(self.bound),
            init_seconds: 0.0,
            container_started: wall(self.container_started),
            ready: wall(self.ready_at),
            stage: match self.life {
                Life::Pending { .. } => Some(Stage::Unscheduled),
                Life::Starting { part: StartPart::Image, .. } => Some(Stage::Pulling),
                Life::Starting { .. } => Some(Stage::Loading),
                Life::Ready | Life::Leaving { .. } | Life::Terminating { .. } => None,
            },
            blocked,
            restarts: self.restarts,
        })
    }

    /// When its process began; None before that.
    #[must_use]
    pub fn process_start(&self) -> Option<Moment> {
        self.container_started
    }

    /// Its page; None while the port refuses.
    #[must_use]
    pub fn page(&self, model: &str, base: DateTime<Utc>) -> Option<String> {
        let engine = self.engine.as_ref()?;
        let unix = |moment: Moment| base.timestamp_millis() as f64 / 1000.0 + moment.seconds();
        let identity = PageIdentity {
            model,
            process_start_seconds: unix(self.container_started?),
            created_seconds: unix(self.ready_at?),
        };
        Some(page::render(&identity, engine.settings(), engine.metrics()))
    }
}
