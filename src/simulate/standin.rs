//! A stand-in for KEDA 2.21 and the HPA: asks a real scaler over gRPC what they would ask, when they would ask it, and
//! does with the answers what they would do ([`super::autoscaler`]).
//!
//! - reconcile: `GetMetricSpec`, until it answers;
//! - HPA, every 15 s unless the target is at zero: `GetMetricSpec`, `GetMetrics`, `IsActive`; an error in any holds;
//! - poll, every 30 s and only where `minReplicaCount` is 0: `GetMetrics`, `IsActive`;
//! - push: `StreamIsActive` is held open; `true` activates, `false` is ignored; a clean end is retried after 2 s, an error
//!   after a doubling wait up to 60 s.
//!
//! Calls have no deadline, as KEDA's have none. Intervals and waits are clock time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::Endpoint;

use super::autoscaler::{Activity, Autoscaler, AutoscalerSettings};
use super::moment::Moment;
use crate::clock::Clock;
use crate::decision::TierId;
use crate::proto::ScaledObjectRef;

mod calls;

use calls::Calls;

/// KEDA's wait after a stream that ended cleanly, and the first one after an error.
const PUSH_RETRY: Duration = Duration::from_secs(2);
/// The longest wait.
const PUSH_RETRY_MOST: Duration = Duration::from_secs(60);
/// Between two attempts to reconcile a ScaledObject.
const RECONCILE_RETRY: Duration = Duration::from_secs(5);

/// The scale subresource of the scale target.
pub trait ScaleTarget: Send + Sync + 'static {
    /// `spec.replicas` and `status.replicas`.
    fn counts(&self) -> ReplicaCounts;
    /// Writes `spec.replicas`.
    fn scale(&self, replicas: u32);
}

/// See [`ScaleTarget::counts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaCounts {
    /// `spec.replicas`.
    pub spec: u32,
    /// `status.replicas`.
    pub status: u32,
}

/// A ScaledObject with one trigger of type `external-push`.
#[derive(Clone, Debug)]
pub struct StandinSettings {
    /// `http://host:port` of the scaler.
    pub scaler: String,
    /// The ScaledObject's namespace and name.
    pub scaled_object: TierId,
    /// The trigger's metadata.
    pub metadata: HashMap<String, String>,
    /// The rest of the ScaledObject.
    pub autoscaler: AutoscalerSettings,
    /// Whose time it runs in.
    pub clock: Clock,
}

/// What the stand-in knows, to show and to test.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StandinStatus {
    /// The name of the metric, once reconciled.
    pub metric: Option<String>,
    /// The newest value that the HPA got.
    pub value: Option<f64>,
    /// What the scaler said last of activity.
    pub active: Option<bool>,
    /// Why the newest question failed; None after one that worked.
    pub error: Option<String>,
    /// Syncs of the HPA that asked.
    pub syncs: u64,
    /// Polls of KEDA.
    pub polls: u64,
    /// Pushed `true`s.
    pub pushes: u64,
    /// Pushed `false`s, which KEDA ignores.
    pub ignored_pushes: u64,
    /// The newest change of the scale.
    pub last_scale: Option<ScaleChange>,
}

/// A change of `spec.replicas`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleChange {
    /// When.
    pub at: DateTime<Utc>,
    /// Before.
    pub from: u32,
    /// After.
    pub to: u32,
    /// `hpa`, `poll` or `push`.
    pub by: &'static str,
}

/// A running stand-in.
#[derive(Debug)]
pub struct Standin {
    inner: Arc<Inner>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

struct Inner {
    target: Arc<dyn ScaleTarget>,
    autoscaler: Mutex<Autoscaler>,
    clock: Clock,
    /// The beginning of the autoscaler's time.
    base: DateTime<Utc>,
    status: watch::Sender<StandinStatus>,
    changed: tokio::sync::Notify,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Standin {
    /// Creates the ScaledObject: from now on the scaler is asked and the target scaled.
    ///
    /// # Errors
    /// When the scaler's address is not a URL.
    pub fn start(
        settings: StandinSettings,
        target: Arc<dyn ScaleTarget>,
    ) -> Result<Self, tonic::transport::Error> {
        let channel = Endpoint::from_shared(settings.scaler)?.connect_lazy();
        let clock = settings.clock;
        let inner = Arc::new(Inner {
            target,
            autoscaler: Mutex::new(Autoscaler::new(settings.autoscaler, Moment::START)),
            clock,
            base: clock.now(),
            status: watch::channel(StandinStatus::default()).0,
            changed: tokio::sync::Notify::new(),
        });
        let reference = ScaledObjectRef {
            name: settings.scaled_object.name,
            namespace: settings.scaled_object.namespace,
            scaler_metadata: settings.metadata,
        };
        let calls = Calls::new(channel, reference);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let until_stopped = |stop: &CancellationToken| stop.clone().cancelled_owned();
        let (hpa, poll, push) = (
            run_hpa(Arc::clone(&inner), calls.clone()),
            run_poll(Arc::clone(&inner), calls.clone()),
            run_push(Arc::clone(&inner), calls),
        );
        tasks.spawn(either(hpa, until_stopped(&stop)));
        tasks.spawn(either(poll, until_stopped(&stop)));
        tasks.spawn(either(push, until_stopped(&stop)));
        tasks.close();
        Ok(Self { inner, stop, tasks })
    }

    /// What it knows.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<StandinStatus> {
        self.inner.status.subscribe()
    }

    /// Edits `minReplicaCount`.
    pub fn set_min(&self, min: u32) {
        self.inner.lock().set_min(min);
        self.inner.changed.notify_one();
    }

    /// Deletes the ScaledObject: streams are cancelled, nothing is scaled any more.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

/// Runs until the first of the two ends.
async fn either(work: impl Future<Output = ()>, stopped: impl Future<Output = ()>) {
    tokio::select! {
        () = stopped => {}
        () = work => {}
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Autoscaler> {
        self.autoscaler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Moment {
        Moment::from_wall(self.base, self.clock.now())
    }

    /// Notes how a question ended.
    fn note(&self, error: Option<String>, note: impl FnOnce(&mut StandinStatus)) {
        self.status.send_modify(|status| {
            status.error = error;
            note(status);
        });
    }

    /// Writes the scale, where that changes anything.
    fn scale(&self, from: u32, to: Option<u32>, by: &'static str) {
        let Some(to) = to else { return };
        self.target.scale(to);
        let change = ScaleChange { at: self.clock.now(), from, to, by };
        self.status.send_modify(|status| status.last_scale = Some(change));
    }

    /// KEDA's executor hears of an activity.
    fn activity(&self, activity: Activity, by: &'static str) {
        let spec = self.target.counts().spec;
        let wanted = self.lock().activity(self.now(), spec, activity);
        self.scale(spec, wanted, by);
    }
}

/// The HPA: it exists once the metric's name is known.
async fn run_hpa(inner: Arc<Inner>, mut calls: Calls) {
    let name = loop {
        match calls.metric_spec().await {
            Ok(spec) => break spec.name,
            Err(error) => {
                inner.note(Some(error), |_| {});
                inner.clock.sleep(RECONCILE_RETRY).await;
            }
        }
    };
    inner.note(None, |status| status.metric = Some(name.clone()));
    let period = inner.lock().settings().sync_period;
    let mut syncs = tokio::time::interval(inner.clock.real(period));
    syncs.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        syncs.tick().await;
        // At zero the HPA is disabled: nobody is asked.
        if inner.target.counts().spec == 0 {
            continue;
        }
        let answer = calls.metric(&name).await;
        let (metric, error) = match &answer {
            Ok(answer) => (Some(answer.metric), None),
            Err(error) => (None, Some(error.clone())),
        };
        inner.note(error, |status| {
            status.syncs += 1;
            if let Ok(answer) = &answer {
                status.value = Some(answer.value);
                status.active = Some(answer.active);
            }
        });
        let counts = inner.target.counts();
        let wanted = inner.lock().hpa_sync(inner.now(), counts.spec, counts.status, metric);
        inner.scale(counts.spec, wanted, "hpa");
    }
}

/// KEDA's scale loop: since 2.21 it asks only where zero is allowed. The first poll comes at once.
async fn run_poll(inner: Arc<Inner>, mut calls: Calls) {
    let period = inner.lock().settings().polling_interval;
    loop {
        if inner.lock().polls() {
            let answer = calls.activity().await;
            let activity = match &answer {
                Ok(answer) if answer.active => Activity::Active,
                Ok(_) => Activity::Inactive,
                Err(_) => Activity::Unknown,
            };
            inner.note(answer.as_ref().err().cloned(), |status| {
                status.polls += 1;
                if let Ok(answer) = &answer {
                    status.value = Some(answer.value);
                    status.active = Some(answer.active);
                }
            });
            inner.activity(activity, "poll");
        }
        // An edited ScaledObject begins a new scale loop, which polls at once.
        tokio::select! {
            () = inner.clock.sleep(period) => {}
            () = inner.changed.notified() => {}
        }
    }
}

/// The push stream of an `external-push` trigger.
async fn run_push(inner: Arc<Inner>, mut calls: Calls) {
    let mut wait = PUSH_RETRY;
    loop {
        let ended = calls
            .push(|active| {
                inner.status.send_modify(|status| {
                    if active { status.pushes += 1 } else { status.ignored_pushes += 1 }
                });
                // Before the metric's name is stored KEDA has nothing to match the push with, and drops it.
                if active && inner.status.borrow().metric.is_some() {
                    inner.activity(Activity::Active, "push");
                }
            })
            .await;
        // Only a clean end resets the wait, however long a stream was good before it failed.
        let next_wait = match ended {
            Ok(()) => PUSH_RETRY,
            Err(error) => {
                inner.note(Some(error), |_| {});
                (wait * 2).min(PUSH_RETRY_MOST)
            }
        };
        inner.clock.sleep(if next_wait == PUSH_RETRY { PUSH_RETRY } else { wait }).await;
        wait = next_wait;
    }
}
