//! Where a pod is in its life: what counts as starting, ready, blocked, terminating. Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::pod::{Container, PodRecord, Waiting};
use crate::supply::{Phase, Stage, Start};
use crate::units::{format_span, shortened, since};

/// Characters kept of a message of Kubernetes: enough for the scheduler's reason, and a bound for a page of it.
const MAX_WHY: usize = 240;

/// See [`crash_loop`]: one restart is an accident.
const FEWEST_RESTARTS: u32 = 2;
/// See [`crash_loop`].
const LONGEST_OF_A_LOOP: Duration = Duration::from_mins(10);
/// See [`crash_loop`]: it has come further than before.
const STEADIED: Duration = Duration::from_secs(10);

/// Reasons for which a container waits that no waiting cures. From the kubelet (`pkg/kubelet/images`,
/// `pkg/kubelet/kuberuntime`), each with its word for people.
const BLOCKING: [(&str, &str); 10] = [
    ("CrashLoopBackOff", "crash loop"),
    ("ImagePullBackOff", "image pull"),
    ("ErrImagePull", "image pull"),
    ("InvalidImageName", "image pull"),
    ("ErrImageNeverPull", "image pull"),
    ("ImageInspectError", "image pull"),
    ("RegistryUnavailable", "image pull"),
    ("CreateContainerConfigError", "container configuration"),
    ("CreateContainerError", "container creation"),
    ("RunContainerError", "container start"),
];

/// A pod's place, as [`crate::supply::Target`] wants it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Life {
    pub(super) phase: Phase,
    pub(super) since: Option<DateTime<Utc>>,
    pub(super) start: Start,
}

impl Life {
    /// `engine` is the container that serves the page. A pod without a node for longer than `node_wait` is blocked.
    pub(super) fn of(
        pod: &PodRecord,
        engine: Option<&Container>,
        node_wait: Duration,
        now: DateTime<Utc>,
    ) -> Self {
        let mut start = start(pod, engine);
        if let Some(deleted) = pod.deleted {
            start.stage = None;
            return Self { phase: Phase::Terminating, since: Some(deleted), start };
        }
        if pod.ready.holds {
            return Self { phase: Phase::Ready, since: pod.ready.since, start };
        }
        if fell_from_ready(pod, engine) {
            // Its probe fails, as vLLM's may under load, and its container runs on: requests are still in it. It should
            // serve; its page says whether it does.
            start.stage = None;
            return Self { phase: Phase::Ready, since: pod.ready.since, start };
        }
        if let Some((why, at)) = blocked(pod, engine, node_wait, now) {
            start.blocked = Some(shortened(&why, MAX_WHY));
            return Self { phase: Phase::Blocked, since: at.or(Some(pod.created)), start };
        }
        Self { phase: Phase::Starting, since: Some(pod.created), start }
    }
}

fn start(pod: &PodRecord, engine: Option<&Container>) -> Start {
    let init_seconds = pod
        .init_containers
        .iter()
        .filter_map(|init| Some(since(init.finished?, init.started?).as_secs_f64()))
        .sum();
    let container_started = engine.and_then(|engine| engine.started);
    let ready = pod.ready.held_since();
    Start {
        created: pod.created,
        scheduled: pod.scheduled.held_since(),
        initialised: pod.initialised.held_since(),
        init_seconds,
        container_started,
        ready,
        stage: if pod.ready.holds { None } else { Some(stage(pod, engine)) },
        blocked: None,
        restarts: engine.map_or(0, |engine| engine.restarts),
    }
}

fn stage(pod: &PodRecord, engine: Option<&Container>) -> Stage {
    if pod.scheduled.reason == "SchedulingGated" && !pod.scheduled.holds {
        return Stage::Gated;
    }
    if !pod.scheduled.holds {
        return Stage::Unscheduled;
    }
    if engine.is_some_and(|engine| engine.started.is_some() || engine.restarts > 0) {
        return Stage::Loading;
    }
    if pod.init_containers.iter().any(|init| init.started.is_some()) && !pod.initialised.holds {
        return Stage::Init;
    }
    Stage::Pulling
}

/// Ready once, since the container that runs now began, and not any more: the condition changed after the container
/// started, while a pod that never was ready has it from its creation, and a restart sets it before the new start.
fn fell_from_ready(pod: &PodRecord, engine: Option<&Container>) -> bool {
    let Some(started) = engine.and_then(|engine| engine.started) else { return false };
    !pod.ready.holds && pod.ready.since.is_some_and(|changed| changed > started)
}

fn blocked(
    pod: &PodRecord,
    engine: Option<&Container>,
    node_wait: Duration,
    now: DateTime<Utc>,
) -> Option<(String, Option<DateTime<Utc>>)> {
    if !pod.scheduled.holds && pod.scheduled.reason != "SchedulingGated" {
        // A node that is being made comes within the usual wait; beyond it nobody knows whether it ever will.
        let waits_since = pod.scheduled.since.unwrap_or(pod.created).min(pod.created);
        if since(now, waits_since) > node_wait {
            let why = if pod.scheduled.message.is_empty() { "no node yet" } else { &pod.scheduled.message };
            return Some((format!("unschedulable: {why}"), Some(waits_since)));
        }
        return None;
    }
    if let Some(looping) = engine.and_then(|engine| crash_loop(engine, now)) {
        return Some((looping, None));
    }
    let init = pod.init_containers.iter().filter_map(|init| init.waiting.as_ref());
    let others = pod.containers.iter().filter_map(|container| container.waiting.as_ref());
    let word = init.chain(others).find_map(|waiting| Some((word(waiting)?, waiting)));
    let (word, waiting) = word?;
    let detail = match engine.and_then(|engine| engine.last_end.as_ref()) {
        Some(end) if waiting.reason == "CrashLoopBackOff" => format!("{end}, {}", waiting.message),
        _ if waiting.message.is_empty() => waiting.reason.clone(),
        _ => waiting.message.clone(),
    };
    Some((format!("{word}: {detail}"), None))
}

/// A container that runs once more, and not yet for longer than it did before it crashed. Between two crashes a loop looks
/// like a start: taken for one it would keep its tier awake for ever. A run of ten minutes is none of a loop: the kubelet's
/// back-off begins anew after it (`MaxContainerBackOff` and twice that, Kubernetes).
fn crash_loop(engine: &Container, now: DateTime<Utc>) -> Option<String> {
    let (started, ran) = (engine.started?, engine.last_ran?);
    if engine.restarts < FEWEST_RESTARTS || ran >= LONGEST_OF_A_LOOP || since(now, started) > ran + STEADIED {
        return None;
    }
    let end = engine.last_end.as_deref().unwrap_or("it ended");
    Some(format!("crash loop: {end} after {}, restarted {} times", format_span(ran), engine.restarts))
}

fn word(waiting: &Waiting) -> Option<&'static str> {
    BLOCKING.iter().find(|(reason, _)| *reason == waiting.reason).map(|(_, word)| *word)
}

#[cfg(test)]
mod tests;
