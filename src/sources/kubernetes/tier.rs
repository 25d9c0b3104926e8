//! One tier's replicas out of what the watches know: its pods by its target's own selector, their life, what else is
//! known of its target. Publishes [`Discovered`] on each change.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use kube::Client;
use kube::api::ApiResource;
use kube::core::SelectorExt as _;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::life::Life;
use super::page::PageAddress;
use super::pod::PodRecord;
use super::scale::{self, Scaled};
use super::scaled_object::{self, ScaledObjectRecord};
use super::watches::{Subscription, View};
use super::{Kubernetes, groups};
use crate::clock::Clock;
use crate::cluster::Trouble;
use crate::config::{PodSettings, ScaleTarget};
use crate::decision::TierId;
use crate::supply::{Discovered, Phase, ScaleFacts, Target};
use crate::units::since;

/// Between two reads of the scale target. Its selector changes with its making alone, and its counts are seen in the
/// pods; this is for what pods don't tell.
const READ_EVERY: Duration = Duration::from_secs(10);

/// What changes by the clock alone (a pod that waits too long for a node) is looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// A watch that has failed for this long knows nothing of now: a list may be as old as the watch's own time-out.
const LOST_AFTER: Duration = Duration::from_secs(60);

/// How long all reads of a scale target together may take. One that hangs must not keep the pods from being told: the watch
/// of them goes on.
const READ_PATIENCE: Duration = Duration::from_secs(3);

/// Ordered replicas that aren't there for this long make it worth asking why.
const MISSING_FOR: Duration = Duration::from_secs(10);

/// A tier's task.
pub(super) struct TierSource {
    pub(super) tier: TierId,
    pub(super) settings: PodSettings,
    pub(super) client: Client,
    pub(super) kubernetes: Kubernetes,
    pub(super) clock: Clock,
}

/// What was read of the scale target.
#[derive(Debug, Default)]
struct TargetState {
    target: Option<ScaleTarget>,
    resource: Option<ApiResource>,
    scaled: Option<Scaled>,
    trouble: Option<Trouble>,
    create_refused: Option<String>,
    /// Since when fewer pods are there than are ordered.
    missing_since: Option<DateTime<Utc>>,
    /// The HPA was read: what it tolerates counts, not what the ScaledObject wants.
    hpa_read: bool,
    /// From the HPA itself.
    hpa_tolerance: Option<f64>,
    warnings: Vec<String>,
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
                let reading = self.read_target(&mut state, asking);
                if tokio::time::timeout(READ_PATIENCE, reading).await.is_err() && state.scaled.is_none() {
                    let why = "the API server doesn't say what the scale target is";
                    state.trouble = Some(Trouble::Failed(why.to_owned()));
                }
            }
            let now = self.clock.now();
            let discovered = self.discovered(&state, &pods.now(), &objects, asking, warning, now);
            publish(&self.tier, published, discovered);
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

    /// Reads the target. What was known stays where the read fails: a selector doesn't change by itself.
    async fn read_target(&self, state: &mut TargetState, asking: Option<&ScaledObjectRecord>) {
        let Some(target) = &state.target else { return };
        let (client, namespace) = (&self.client, &self.tier.namespace);
        state.warnings.clear();
        if state.resource.is_none() {
            match scale::resource(client, target).await {
                Ok(resource) => state.resource = Some(resource),
                Err(trouble) => {
                    state.trouble = Some(trouble);
                    return;
                }
            }
        }
        let Some(resource) = &state.resource else { return };
        match scale::read(client, resource, namespace, target).await {
            Ok(scaled) => {
                if state.scaled.is_none() {
                    info!(tier = %self.tier, target = %target, selector = scaled.selector_text, "scale target found");
                }
                state.trouble = None;
                let now = self.clock.now();
                state.missing_since =
                    (scaled.current < scaled.ordered).then(|| state.missing_since.unwrap_or(now));
                let ask_why = state.missing_since.is_some_and(|missing| since(now, missing) >= MISSING_FOR);
                state.scaled = Some(scaled);
                state.create_refused = None;
                if ask_why {
                    match scale::create_refused(client, resource, namespace, target).await {
                        Ok(refused) => state.create_refused = refused,
                        Err(trouble) => {
                            state.warnings.push(format!("can't see why pods are missing: {trouble}"));
                        }
                    }
                }
            }
            Err(trouble @ Trouble::NotFound(_)) => {
                state.scaled = None;
                state.trouble = Some(trouble);
            }
            Err(trouble) => state.trouble = Some(trouble),
        }
        let Some(hpa) = asking.and_then(|object| object.hpa.as_ref()) else { return };
        match scale::hpa_tolerance(client, namespace, hpa).await {
            Ok(tolerance) => (state.hpa_read, state.hpa_tolerance) = (true, tolerance),
            Err(Trouble::NotFound(_)) => state.hpa_read = false,
            Err(trouble) => {
                state.hpa_read = false;
                state.warnings.push(format!("the HPA's tolerance is taken from the ScaledObject: {trouble}"));
            }
        }
    }

    fn discovered(
        &self,
        state: &TargetState,
        pods: &View<PodRecord>,
        objects: &View<ScaledObjectRecord>,
        asking: Option<&ScaledObjectRecord>,
        several: Option<String>,
        now: DateTime<Utc>,
    ) -> Discovered {
        if let Some(why) = self.unknown(state, pods, objects, now) {
            return Discovered::Unknown { why };
        }
        let (Some(target), Some(scaled)) = (&state.target, &state.scaled) else {
            return Discovered::Unknown { why: "the scale target has not been read yet".to_owned() };
        };
        if !picks_what_there_is(scaled, pods) {
            return Discovered::Unknown {
                why: format!(
                    "{target} says that it has {} replicas, and its selector {} picks no pod",
                    scaled.current, scaled.selector_text
                ),
            };
        }
        let chosen: Vec<&PodRecord> = pods
            .items
            .values()
            .map(AsRef::as_ref)
            .filter(|pod| !pod.is_over() && scaled.selector.matches(&pod.labels))
            .collect();
        let mut warnings = state.warnings.clone();
        warnings.extend(several);
        let (overdue, chosen): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|pod| pod.is_overdue(now));
        if let Some(first) = overdue.first() {
            warnings.push(format!(
                "{} should have been gone for minutes and is not counted any more, such as {}: is its node dead, or does a \
                 finalizer hold it?",
                if overdue.len() == 1 { "1 pod".to_owned() } else { format!("{} pods", overdue.len()) },
                first.name
            ));
        }
        if let Some((_, trouble)) = &objects.trouble {
            warnings
                .push(format!("bounds, pauses and metricType of the ScaledObject are unknown: {trouble}"));
        }
        let targets: Vec<Target> = chosen
            .iter()
            .map(|pod| self.target(pod, pods.items.values().map(AsRef::as_ref), now, &mut warnings))
            .collect();
        // Pods change before the next read of the target does: what isn't leaving is what the target has.
        let there = targets.iter().filter(|target| target.phase != Phase::Terminating).count();
        let mut facts = ScaleFacts {
            target: target.to_string(),
            ordered: Some(scaled.ordered),
            create_refused: state.create_refused.clone(),
            ..ScaleFacts::default()
        };
        if let Some(object) = asking {
            object.tell(&self.tier.name, &mut facts);
            if state.hpa_read {
                if facts.tolerance.is_some() && state.hpa_tolerance.is_none() {
                    warnings.push(
                        "the HPA lacks the tolerance that the ScaledObject sets: the cluster's feature gate \
                         HPAConfigurableTolerance is off"
                            .to_owned(),
                    );
                }
                facts.tolerance = state.hpa_tolerance;
                facts.hpa_sets_no_tolerance = state.hpa_tolerance.is_none();
            }
        }
        warnings.sort();
        warnings.dedup();
        facts.warnings = warnings;
        Discovered::Targets {
            targets,
            authoritative: true,
            current: Some(there as u32),
            scale: Some(Arc::new(facts)),
        }
    }

    /// Why nobody can say who the replicas are.
    fn unknown(
        &self,
        state: &TargetState,
        pods: &View<PodRecord>,
        objects: &View<ScaledObjectRecord>,
        now: DateTime<Utc>,
    ) -> Option<String> {
        if state.target.is_none() {
            return Some(match &objects.trouble {
                Some((_, trouble)) => {
                    format!("no target is given, and ScaledObjects can't be read: {trouble}")
                }
                None if !objects.listed => "the ScaledObjects have not been listed yet".to_owned(),
                None => format!(
                    "no ScaledObject in namespace {} asks for tier {}: name the tier in its trigger, or the target in the file",
                    self.tier.namespace, self.tier.name
                ),
            });
        }
        if state.scaled.is_none() {
            return state.trouble.as_ref().map(ToString::to_string);
        }
        match &pods.trouble {
            Some((_, trouble)) if !pods.listed => Some(trouble.to_string()),
            Some((lost, trouble)) if since(now, *lost) >= LOST_AFTER => Some(format!(
                "the pods are unknown for {} s: {trouble}",
                since(now, *lost).as_secs() / 60 * 60
            )),
            None if !pods.listed => Some("the pods have not been listed yet".to_owned()),
            _ => None,
        }
    }

    fn target<'a>(
        &self,
        pod: &PodRecord,
        all: impl Iterator<Item = &'a PodRecord>,
        now: DateTime<Utc>,
        warnings: &mut Vec<String>,
    ) -> Target {
        let page = PageAddress::of(pod, &self.settings);
        let life = |pod: &PodRecord, engine| Life::of(pod, engine, self.settings.node_wait, now);
        let own = life(pod, page.container(pod));
        let Life { phase, since, start } = match groups::workers(pod, all) {
            Some((workers, expected)) => {
                let workers: Vec<Life> =
                    workers.iter().map(|worker| life(worker, worker.containers.first())).collect();
                groups::together(own, &workers, expected)
            }
            None => own,
        };
        if let Some(problem) = &page.problem {
            warnings.push(problem.clone());
        }
        Target {
            id: pod.uid.clone(),
            name: pod.name.clone(),
            url: page.url(pod),
            phase,
            since,
            start: Some(start),
        }
    }
}

/// A scale that has replicas, and whose selector picks none, says nothing about who they are: it must not be taken for zero.
fn picks_what_there_is(scaled: &Scaled, pods: &View<PodRecord>) -> bool {
    let mut all = pods.items.values();
    scaled.current == 0 || all.any(|pod| !pod.is_over() && scaled.selector.matches(&pod.labels))
}

fn publish(tier: &TierId, published: &watch::Sender<Discovered>, discovered: Discovered) {
    published.send_if_modified(|before| {
        if *before == discovered {
            return false;
        }
        if let Discovered::Unknown { why } = &discovered
            && !matches!(before, Discovered::Unknown { why: known } if known == why)
        {
            tracing::warn!(tier = %tier, why, "replicas unknown");
        }
        *before = discovered;
        true
    });
}
