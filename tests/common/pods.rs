//! Pods with their times, as a list of them shows at any moment.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use chrono::{DateTime, TimeDelta, Utc};
use keda_vllm_scaler::decision::{ReplicaObservation, ReplicaState};
use keda_vllm_scaler::supply::{Stage, Start};

use crate::timeline::{Timeline, replica};

/// A pod; its times are seconds after its creation.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) created: DateTime<Utc>,
    pub(crate) scheduled: i64,
    pub(crate) ran: i64,
    pub(crate) ready: i64,
    pub(crate) restarts: u32,
    /// Seconds after its creation from which it is blocked until it is ready.
    pub(crate) blocked: Option<i64>,
}

impl Pod {
    /// On a node that is there, with its image, ready after so many seconds.
    pub(crate) fn new(name: &str, created: DateTime<Utc>, ready: i64) -> Self {
        Self { name: name.into(), created, scheduled: 1, ran: 3, ready, restarts: 0, blocked: None }
    }

    pub(crate) fn on_new_node(name: &str, created: DateTime<Utc>, ready: i64) -> Self {
        Self { scheduled: 45, ran: 100, ..Self::new(name, created, ready) }
    }

    /// As the list shows it.
    pub(crate) fn seen(&self, now: DateTime<Utc>) -> ReplicaObservation {
        let passed = |seconds: i64| {
            let at = self.created + TimeDelta::seconds(seconds);
            (at <= now).then_some(at)
        };
        let (scheduled, ran, ready) = (passed(self.scheduled), passed(self.ran), passed(self.ready));
        let blocked = ready.is_none() && self.blocked.is_some_and(|from| passed(from).is_some());
        let state = match (ready, blocked) {
            (Some(_), _) => ReplicaState::Ready,
            (None, true) => ReplicaState::Blocked,
            (None, false) => ReplicaState::Starting,
        };
        ReplicaObservation {
            since: Some(ready.unwrap_or(self.created)),
            start: Some(Start {
                created: self.created,
                scheduled,
                initialised: ran,
                init_seconds: 0.0,
                container_started: ran,
                ready,
                stage: match (scheduled, ran, ready) {
                    (_, _, Some(_)) => None,
                    (_, Some(_), _) => Some(Stage::Loading),
                    (Some(_), ..) => Some(Stage::Pulling),
                    _ => Some(Stage::Unscheduled),
                },
                blocked: blocked.then(|| "Unschedulable: 0/3 nodes are available".to_owned()),
                restarts: self.restarts,
            }),
            ..replica(&self.name, state)
        }
    }
}

/// Moves on in rounds of 5 s, each with the list of these pods at that moment.
pub(crate) fn watch(tier: &mut Timeline, pods: &[Pod], until: DateTime<Utc>) {
    loop {
        list(tier, pods);
        if tier.now >= until {
            return;
        }
        tier.now = until.min(tier.now + TimeDelta::seconds(5));
    }
}

/// One round with the list of these pods now.
pub(crate) fn list(tier: &mut Timeline, pods: &[Pod]) {
    tier.seen.replicas =
        pods.iter().filter(|pod| pod.created <= tier.now).map(|pod| pod.seen(tier.now)).collect();
    tier.round();
}
