//! One tier's replicas out of what the watches know: its pods by its target's own selector, their life, what else is
//! known of its target. Publishes [`Discovered`] on each change.

use std::time::Duration;

use chrono::{DateTime, Utc};
use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::Kubernetes;
use super::pod::PodRecord;
use super::scaled_object::{self, ScaledObjectRecord};
use super::sight::{Sight, picks_what_there_is};
use super::target_state::TargetState;
use super::watches::Subscription;
use crate::clock::Clock;
use crate::cluster::Trouble;
use crate::config::PodSettings;
use crate::decision::TierId;
use crate::supply::Discovered;
use crate::telemetry::Told;
use crate::units::format_span;

/// Between two reads of the scale target. Its selector changes with its making alone, and its counts are seen in the
/// pods; this is for what pods don't tell.
const READ_EVERY: Duration = Duration::from_secs(10);

/// What changes by the clock alone (a pod that waits too long for a node) is looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long all reads of a scale target together may take. One that hangs must not keep the pods from being told: the watch
/// of them goes on.
const READ_PATIENCE: Duration = Duration::from_secs(3);

/// A tier's task.
pub(super) struct TierSource {
    pub(super) tier: TierId,
    pub(super) settings: PodSettings,
    pub(super) client: Client,
    pub(super) kubernetes: Kubernetes,
    pub(super) clock: Clock,
}

impl TierSource {
    /// Runs until `stop`.
    pub(super) async fn run(self, published: watch::Sender<Discovered>, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = published.closed() => {}
            () = self.watch(&published) => {}
        }
    }

    async fn watch(&self, published: &watch::Sender<Discovered>) {
        let namespace = &self.tier.namespace;
        let mut pods = self.kubernetes.pods(&self.client, namespace, self.clock);
        let mut scaled_objects = self.kubernetes.scaled_objects(&self.client, namespace, self.clock);
        let mut state = TargetState::default();
        let mut read_at: Option<tokio::time::Instant> = None;
        let mut claim = self.kubernetes.claims.of(&self.tier);
        let mut told = Told::default();
        loop {
            let objects = scaled_objects.now();
            let (asking, warning) =
                scaled_object::asking(&self.tier.name, objects.items.values().map(AsRef::as_ref));
            let target =
                self.settings.target.clone().or_else(|| asking.and_then(|object| object.target.clone()));
            let moved = target != state.target;
            if moved {
                state = TargetState { target, ..TargetState::default() };
            }
            // One that isn't there yet may be any moment, and counts that contradict the pods may be old.
            let known = pods.now();
            let settled = state.scaled.as_ref().is_some_and(|scaled| picks_what_there_is(scaled, &known));
            let every = if settled { READ_EVERY } else { LOOK_EVERY };
            if moved || read_at.is_none_or(|at| at.elapsed() >= self.clock.real(every)) {
                read_at = Some(tokio::time::Instant::now());
                let reading = state.read(&self.client, &self.tier, asking, self.clock.now());
                if tokio::time::timeout(READ_PATIENCE, reading).await.is_err() {
                    let why = format!(
                        "the API server doesn't say within {} what the scale target is",
                        format_span(READ_PATIENCE)
                    );
                    state.fails(Trouble::Failed { why, code: None }, self.clock.now());
                }
            }
            let now = self.clock.now();
            let sight = Sight {
                tier: &self.tier,
                settings: &self.settings,
                state: &state,
                pods: &pods.now(),
                objects: &objects,
                asking,
                several: warning,
            };
            let discovered = sight.discovered(&mut claim, now);
            self.tell(&discovered, &sight, &mut told, now);
            published.send_if_modified(|before| {
                let news = *before != discovered;
                *before = discovered;
                news
            });
            self.wait(&mut pods, &mut scaled_objects).await;
        }
    }

    async fn wait(&self, pods: &mut Subscription<PodRecord>, objects: &mut Subscription<ScaledObjectRecord>) {
        tokio::select! {
            () = pods.changed() => {}
            () = objects.changed() => {}
            () = self.clock.sleep(LOOK_EVERY) => {}
        }
    }

    /// A line where it becomes unknown who the replicas are, or why; none for what is usual just after the start.
    fn tell(&self, discovered: &Discovered, sight: &Sight<'_>, told: &mut Told, now: DateTime<Utc>) {
        match discovered {
            Discovered::Unknown { why } if sight.is_beginning() => {
                debug!(tier = %self.tier, why, "replicas not known yet");
            }
            Discovered::Unknown { why } => {
                if told.fails(why, now) {
                    warn!(tier = %self.tier, why, "replicas unknown");
                }
            }
            Discovered::Targets { targets, .. } => {
                if told.works() {
                    info!(tier = %self.tier, replicas = targets.len(), "replicas known again");
                }
            }
        }
    }
}
