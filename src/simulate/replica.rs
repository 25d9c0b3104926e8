//! A simulated pod with one vLLM replica in it, from creation to its end. Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::engine_model::EngineModel;
use super::moment::Moment;
use super::page::{self, PageIdentity};
use super::profile::EngineSettings;
use crate::supply::{Phase, Stage, Start, Target};

/// Where a pod is in its life. A pod that is gone is no longer in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Created, not on a node yet: it has no address.
    Pending {
        /// When it will be bound.
        until: Moment,
    },
    /// The process runs and loads the model: it has an address, and the port refuses, as vLLM's does.
    Starting {
        /// When it will be ready.
        until: Moment,
    },
    /// Serves.
    Ready,
    /// Told to go: finishes what it has, gets nothing new.
    Terminating {
        /// When it is killed at the latest.
        deadline: Moment,
    },
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
    created: Moment,
    life: Life,
    /// When the present part of its life began.
    since: Moment,
    process_start: Moment,
    ready_at: Moment,
    /// The engine; only a replica that got ready has one.
    engine: Option<EngineModel>,
}

impl Replica {
    /// A pod that is bound after `pending` and ready after `cold_start`, both counted from now.
    #[must_use]
    pub fn created(number: u64, now: Moment, pending: Duration, cold_start: Duration) -> Self {
        let bound = now.plus(pending.min(cold_start));
        Self {
            id: format!("00000000-0000-4000-8000-{number:012}"),
            name: format!("chat-{number:04}"),
            url: None,
            created: now,
            life: Life::Pending { until: bound },
            since: now,
            process_start: bound,
            ready_at: now.plus(cold_start),
            engine: None,
        }
    }

    /// A pod that has been ready for a while.
    #[must_use]
    pub fn already_ready(number: u64, now: Moment, settings: EngineSettings) -> Self {
        let mut replica = Self::created(number, now, Duration::ZERO, Duration::ZERO);
        replica.become_ready(now, settings);
        replica
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

    /// Is its process listening? A draining vLLM still answers `/metrics`.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.engine.is_some()
    }

    /// When its life changes by the clock alone.
    #[must_use]
    pub fn next_change(&self) -> Option<Moment> {
        match self.life {
            Life::Pending { until } | Life::Starting { until } => Some(until),
            Life::Ready => None,
            Life::Terminating { deadline } => Some(deadline),
        }
    }

    /// Pending to starting to ready, at the time of [`Replica::next_change`].
    pub(super) fn step_life(&mut self, at: Moment, settings: EngineSettings) {
        match self.life {
            Life::Pending { .. } => {
                self.life = Life::Starting { until: self.ready_at };
                self.since = at;
            }
            Life::Starting { .. } => self.become_ready(at, settings),
            Life::Ready | Life::Terminating { .. } => {}
        }
    }

    fn become_ready(&mut self, at: Moment, settings: EngineSettings) {
        self.life = Life::Ready;
        self.since = at;
        self.ready_at = at;
        self.engine = Some(EngineModel::new(settings, at));
    }

    /// Told to go.
    pub(super) fn terminate(&mut self, at: Moment, drain: Duration) {
        self.life = Life::Terminating { deadline: at.plus(drain) };
        self.since = at;
    }

    /// When a terminating replica had nothing left to do, if that is so by now.
    #[must_use]
    pub fn drained_at(&self) -> Option<Moment> {
        let terminating = matches!(self.life, Life::Terminating { .. });
        let idle = self.engine.as_ref().filter(|_| terminating)?.idle_since()?;
        Some(idle.max(self.since))
    }

    /// As a pod watch tells it.
    #[must_use]
    pub fn target(&self, base: DateTime<Utc>) -> Target {
        let (phase, addressed) = match self.life {
            Life::Pending { .. } => (Phase::Starting, false),
            Life::Starting { .. } => (Phase::Starting, true),
            Life::Ready => (Phase::Ready, true),
            Life::Terminating { .. } => (Phase::Terminating, true),
        };
        // A pod is "starting" from its creation on, whatever part of the start it is in.
        let since = if phase == Phase::Starting { self.created } else { self.since };
        Target {
            id: self.id.clone(),
            name: self.name.clone(),
            url: self.url.clone().filter(|_| addressed),
            phase,
            since: Some(since.wall(base)),
            start: self.start(base),
        }
    }

    /// As the pod's status tells its start. A simulated start has no init containers; a replica that was there before
    /// the simulation began has none at all.
    fn start(&self, base: DateTime<Utc>) -> Option<Start> {
        if self.ready_at == self.created {
            return None;
        }
        let wall = |moment: Moment| moment.wall(base);
        let bound = !matches!(self.life, Life::Pending { .. });
        let ready = self.engine.is_some();
        Some(Start {
            created: wall(self.created),
            scheduled: bound.then(|| wall(self.process_start)),
            initialised: bound.then(|| wall(self.process_start)),
            init_seconds: 0.0,
            container_started: bound.then(|| wall(self.process_start)),
            ready: ready.then(|| wall(self.ready_at)),
            stage: match self.life {
                Life::Pending { .. } => Some(Stage::Unscheduled),
                Life::Starting { .. } => Some(Stage::Loading),
                Life::Ready | Life::Terminating { .. } => None,
            },
            blocked: None,
            restarts: 0,
        })
    }

    /// Its page; None while the port refuses.
    #[must_use]
    pub fn page(&self, model: &str, base: DateTime<Utc>) -> Option<String> {
        let engine = self.engine.as_ref()?;
        let unix = |moment: Moment| base.timestamp_millis() as f64 / 1000.0 + moment.seconds();
        let identity = PageIdentity {
            model,
            process_start_seconds: unix(self.process_start),
            created_seconds: unix(self.ready_at),
        };
        Some(page::render(&identity, engine.settings(), engine.metrics()))
    }
}
