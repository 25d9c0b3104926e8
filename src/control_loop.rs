//! The one owner of state. It takes what the sources and the scrapers say, aggregates, learns, decides, and publishes one
//! immutable [`Snapshot`]. Everybody else reads that snapshot.
//!
//! Invariants: a tier is decided after each of its rounds and, should its rounds hang, by the tick all the same; all
//! answers of one instant are published at once; a removed tier leaves no task behind.

mod declared;
mod floors_ahead;
mod reload;
mod tier;
mod unasked;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::info;

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::decision::{Learned, TierId};
use crate::forecast::Forecast;
use crate::history::{HistoryHandle, HistoryPoint};
use crate::record::Recorder;
use crate::scrape::rounds::TierEvent;
use crate::snapshot::{ConfigStatus, Declare, Published, RecordStatus, RefusedAsker, Snapshot};
use crate::sources::kubernetes::Kubernetes;
use crate::supply::Discovered;
use crate::telemetry::Counters;

use tier::Tier;

/// Events of tiers that may wait for the loop. A round of 1,000 replicas is 1,000 events; scrapers wait beyond this.
const EVENT_QUEUE: usize = 4096;

/// Declarations that may wait; beyond it a call is answered UNAVAILABLE, and KEDA asks again.
const DECLARE_QUEUE: usize = 256;

/// Events taken in one go before a snapshot is published, so that a burst of rounds costs one publication.
const EVENTS_A_PUBLICATION: usize = 2048;

/// How often tiers without a finished round are looked at, in clock time.
const TICK: Duration = Duration::from_secs(1);

/// Seconds into a minute after which the minute before is committed: by then every tier has closed it.
const COMMIT_SECOND: i64 = 12;

/// A new configuration, or why there is none.
#[derive(Debug)]
pub enum ConfigUpdate {
    /// Valid: it comes into force. The sender is told when it has.
    Accepted(Box<Config>, Option<oneshot::Sender<()>>),
    /// Refused: the one before it stays in force, and the reason is shown.
    Rejected(String),
}

/// What another scaler has learned, tier by tier.
#[derive(Debug, Default, PartialEq)]
pub struct PeerLearned {
    /// The small part.
    pub learned: Vec<(TierId, Learned)>,
    /// Forecasts, of tiers whose own is worse.
    pub forecasts: Vec<(TierId, Forecast)>,
}

/// The ways into the loop.
#[derive(Debug)]
pub struct Inputs {
    /// New configurations.
    pub updates: mpsc::Sender<ConfigUpdate>,
    /// What the holder of the Lease has learned.
    pub learned: mpsc::Sender<PeerLearned>,
}

/// What the loop is made of.
#[derive(Debug)]
pub struct Options {
    /// The first configuration.
    pub config: Config,
    /// Its file, for people.
    pub config_file: String,
    /// The clock.
    pub clock: Clock,
    /// The store.
    pub history: HistoryHandle,
    /// Replicas handed in from outside, for tiers whose source is `Injected`.
    pub injected: HashMap<TierId, watch::Receiver<Discovered>>,
    /// The cluster of tiers whose source is Kubernetes.
    pub cluster: Cluster,
    /// The scaler's own counters.
    pub counters: Counters,
    /// Ends the loop and everything that it started.
    pub stop: CancellationToken,
}

/// The running state. Made by [`start`].
#[derive(Debug)]
struct ControlLoop {
    clock: Clock,
    started_at: DateTime<Utc>,
    tiers: BTreeMap<TierId, Tier>,
    /// The configuration that the tiers of the file come from.
    in_force: Config,
    status: ConfigStatus,
    history: HistoryHandle,
    recorder: Recorder,
    injected: HashMap<TierId, watch::Receiver<Discovered>>,
    kubernetes: Kubernetes,
    counters: Counters,
    events: mpsc::Sender<(TierId, TierEvent)>,
    finished_minutes: Vec<(TierId, HistoryPoint)>,
    committed_minute: i64,
    /// Tiers whose answer rose and whose memory is not written yet.
    raised: BTreeSet<TierId>,
    ready: bool,
    snapshot: watch::Sender<Arc<Snapshot>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Starts the loop; returns what the servers need, the ways in, and the loop itself to be spawned.
pub async fn start(options: Options) -> (Published, Inputs, impl Future<Output = ()> + Send + 'static) {
    let now = options.clock.now();
    let (events_in, events) = mpsc::channel(EVENT_QUEUE);
    let (declare_in, declarations) = mpsc::channel(DECLARE_QUEUE);
    let (updates_in, updates) = mpsc::channel(4);
    let (learned_in, learned) = mpsc::channel(1);
    let status = ConfigStatus {
        file: options.config_file,
        loaded_at: Some(now),
        rejected: None,
        warnings: options.config.warnings.iter().map(ToString::to_string).collect(),
        allow_metadata_tiers: options.config.allow_metadata_tiers,
    };
    let first = Snapshot {
        at: now,
        started_at: now,
        refused: Vec::new(),
        tiers: BTreeMap::new(),
        waiting: options.config.tiers.iter().map(|tier| tier.policy.tier.clone()).collect(),
        config: status.clone(),
        store: options.history.status(),
        record: RecordStatus::default(),
        ready: false,
    };
    let (snapshot, published) = watch::channel(Arc::new(first));
    let mut control = ControlLoop {
        clock: options.clock,
        started_at: now,
        tiers: BTreeMap::new(),
        status,
        history: options.history,
        recorder: Recorder::new(options.config.record.clone()),
        injected: options.injected,
        kubernetes: Kubernetes::new(options.cluster),
        counters: options.counters,
        events: events_in,
        finished_minutes: Vec::new(),
        committed_minute: now.timestamp().div_euclid(60),
        raised: BTreeSet::new(),
        // A file without tiers has nothing to wait for: its ScaledObjects declare theirs.
        ready: options.config.tiers.is_empty(),
        in_force: options.config,
        snapshot,
        tasks: TaskTracker::new(),
        stop: options.stop,
    };
    for settings in control.in_force.tiers.clone() {
        control.add_tier(settings).await;
    }
    control.publish();
    let published = Published { snapshot: published, declare: declare_in };
    let inputs = Inputs { updates: updates_in, learned: learned_in };
    (published, inputs, control.run(events, declarations, updates, learned))
}

impl ControlLoop {
    async fn run(
        mut self,
        mut events: mpsc::Receiver<(TierId, TierEvent)>,
        mut declarations: mpsc::Receiver<Declare>,
        mut updates: mpsc::Receiver<ConfigUpdate>,
        mut learned: mpsc::Receiver<PeerLearned>,
    ) {
        let mut tick = tokio::time::interval(self.clock.real(TICK));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let stop = self.stop.clone();
        loop {
            tokio::select! {
                // Stop first; then what changes who is asked about; the rest as it comes.
                biased;
                () = stop.cancelled() => break,
                Some(update) = updates.recv() => self.configure(update).await,
                Some(declared) = declarations.recv() => self.declare(declared).await,
                Some(peer) = learned.recv() => self.take_learned(peer),
                // A flood of events must not starve the tick: `biased` would, so the events come last.
                _ = tick.tick() => self.tick(),
                Some(event) = events.recv() => {
                    self.take(event);
                    for _ in 1..EVENTS_A_PUBLICATION {
                        let Ok(event) = events.try_recv() else { break };
                        self.take(event);
                    }
                }
            }
            self.publish();
        }
        self.shut_down().await;
    }

    /// One event of one tier. Events of a tier that has gone meanwhile are dropped.
    fn take(&mut self, (id, event): (TierId, TierEvent)) {
        let now = self.clock.now();
        let Some(tier) = self.tiers.get_mut(&id) else { return };
        match event {
            TierEvent::Discovered(discovered) => tier.discovered(&discovered, now),
            TierEvent::Page { target, at, result } => {
                self.counters.scraped(&id);
                if let Err(failure) = &result {
                    self.counters.scrape_failed(&id, failure.kind.name());
                }
                tier.page(&target, at, result);
            }
            TierEvent::Activator { at, result } => {
                if result.is_err() {
                    self.counters.activator_failed(&id);
                }
                tier.activator(at, result);
            }
            TierEvent::RoundDone { .. } => self.decide(&id, now),
        }
    }

    /// Counts from each tier's next round on. Tiers that only the other has are passed over.
    fn take_learned(&mut self, peer: PeerLearned) {
        for (id, learned) in peer.learned {
            if let Some(tier) = self.tiers.get_mut(&id) {
                tier.take_learned(&learned);
            }
        }
        for (id, forecast) in peer.forecasts {
            if let Some(tier) = self.tiers.get_mut(&id) {
                tier.take_forecast(forecast);
            }
        }
    }

    /// Decides the tiers whose rounds hang or that have none, and commits finished minutes.
    fn tick(&mut self) {
        let now = self.clock.now();
        let overdue: Vec<TierId> =
            self.tiers.iter().filter(|(_, tier)| tier.is_overdue(now)).map(|(id, _)| id.clone()).collect();
        for id in overdue {
            self.decide(&id, now);
        }
        self.expire_declared(now);
        self.commit_minutes(now);
        self.commit_raised(now);
    }

    fn decide(&mut self, id: &TierId, now: DateTime<Utc>) {
        let Some(tier) = self.tiers.get_mut(id) else { return };
        let before = tier.required();
        if let Some(point) = tier.decide(self.counters.trigger_warnings(id, now), &mut self.recorder, now) {
            self.finished_minutes.push((id.clone(), point));
        }
        if tier.required() > before {
            self.raised.insert(id.clone());
        }
        if !self.ready && self.tiers.values().all(Tier::had_first_round) {
            info!(tiers = self.tiers.len(), "ready");
            self.ready = true;
        }
    }

    /// One commit a minute, for all tiers: what was measured, and what was learned.
    fn commit_minutes(&mut self, now: DateTime<Utc>) {
        let minute = now.timestamp().div_euclid(60);
        if minute == self.committed_minute || now.timestamp().rem_euclid(60) < COMMIT_SECOND {
            return;
        }
        self.committed_minute = minute;
        if self.finished_minutes.is_empty() {
            return;
        }
        let points = std::mem::take(&mut self.finished_minutes);
        self.history.commit(now, points, self.memories());
    }

    /// A process that takes up an answer which was raised meanwhile would fall back to the lower one: a raised answer isn't
    /// left to the end of the minute. At most once a tick.
    fn commit_raised(&mut self, now: DateTime<Utc>) {
        let raised = std::mem::take(&mut self.raised);
        let memories: Vec<(TierId, Vec<u8>)> = raised
            .into_iter()
            .filter_map(|id| Some((id.clone(), self.tiers.get(&id)?.memory_bytes())))
            .collect();
        if !memories.is_empty() {
            self.history.commit(now, Vec::new(), memories);
        }
    }

    fn memories(&self) -> Vec<(TierId, Vec<u8>)> {
        self.tiers.iter().map(|(id, tier)| (id.clone(), tier.memory_bytes())).collect()
    }

    /// Publishes if anything changed.
    fn publish(&mut self) {
        let mut changed = false;
        for tier in self.tiers.values_mut() {
            changed |= tier.take_changed();
        }
        let store = self.history.status();
        let record = self.recorder.status();
        let before = Arc::clone(&self.snapshot.borrow());
        let refused: Vec<RefusedAsker> = self
            .counters
            .refused(self.clock.now())
            .into_iter()
            .map(|(scaled_object, why)| RefusedAsker { scaled_object, why })
            .collect();
        let same_tiers = before.tiers.len() == self.tiers.values().filter(|t| t.status().is_some()).count();
        if !changed
            && same_tiers
            && before.refused == refused
            && before.ready == self.ready
            && before.store == store
            && before.record == record
            && before.config == self.status
        {
            return;
        }
        let mut tiers = BTreeMap::new();
        let mut waiting = Vec::new();
        for (id, tier) in &self.tiers {
            match tier.status() {
                Some(status) => {
                    tiers.insert(id.clone(), Arc::clone(status));
                }
                None => waiting.push(id.clone()),
            }
        }
        self.snapshot.send_replace(Arc::new(Snapshot {
            at: self.clock.now(),
            started_at: self.started_at,
            refused,
            tiers,
            waiting,
            config: self.status.clone(),
            store,
            record,
            ready: self.ready,
        }));
    }

    async fn shut_down(mut self) {
        for tier in self.tiers.values() {
            tier.stop();
        }
        self.tasks.close();
        // Tasks end at their next await; a fetch that is under way is dropped with its task.
        if tokio::time::timeout(Duration::from_secs(2), self.tasks.wait()).await.is_err() {
            tracing::warn!(tasks = self.tasks.len(), "tasks still run at shutdown");
        }
        let points = std::mem::take(&mut self.finished_minutes);
        self.history.commit(self.clock.now(), points, self.memories());
        self.recorder.stop().await;
    }
}
