//! Capacity that was ordered and can't come, with its reason.

use serde::Serialize;

use super::observation::{Observation, ReplicaState};

/// Why replicas can't start. Each is one value of a metric label; the pod's own words stand beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum BlockedReason {
    /// No node takes the pod, and none came in time.
    Unschedulable,
    /// A quota holds it.
    Quota,
    /// Its image can't be pulled.
    ImagePull,
    /// Its container ends again and again.
    CrashLoop,
    /// The pod can't even be created: a quota, an admission webhook.
    CreateRefused,
    /// Anything else.
    Other,
}

impl BlockedReason {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Unschedulable,
        Self::Quota,
        Self::ImagePull,
        Self::CrashLoop,
        Self::CreateRefused,
        Self::Other,
    ];

    /// The name in metrics and in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unschedulable => "unschedulable",
            Self::Quota => "quota",
            Self::ImagePull => "imagePull",
            Self::CrashLoop => "crashLoop",
            Self::CreateRefused => "createRefused",
            Self::Other => "other",
        }
    }

    /// The kind of a pod's own reason, by the words that Kubernetes uses (kube-scheduler's `FailedScheduling`, the
    /// kubelet's waiting reasons).
    fn of(because: &str) -> Self {
        const WORDS: [(BlockedReason, &[&str]); 4] = [
            (BlockedReason::Unschedulable, &["unschedulable", "nodes are available", "insufficient "]),
            (BlockedReason::CrashLoop, &["crashloop", "crash loop", "restarting failed container"]),
            (
                BlockedReason::ImagePull,
                &["imagepull", "errimage", "invalidimage", "image pull", "pull image", "pulling image"],
            ),
            (BlockedReason::Quota, &["quota", "gated"]),
        ];
        let because = because.to_lowercase();
        WORDS
            .iter()
            .find(|(_, words)| words.iter().any(|word| because.contains(word)))
            .map_or(Self::Other, |(reason, _)| *reason)
    }
}

/// Replicas that can't start for one kind of reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockedCapacity {
    /// Which.
    pub reason: BlockedReason,
    /// How many.
    pub replicas: u32,
    /// What the first of them says; empty where its source says nothing.
    pub because: String,
}

/// By reason, in the order of [`BlockedReason::ALL`].
pub(super) fn of(observation: &Observation) -> Vec<BlockedCapacity> {
    let mut blocked: Vec<BlockedCapacity> = Vec::new();
    for replica in observation.replicas.iter().filter(|r| r.state == ReplicaState::Blocked) {
        let because = replica.start.as_ref().and_then(|start| start.blocked.as_deref()).unwrap_or_default();
        let reason = BlockedReason::of(because);
        match blocked.iter_mut().find(|group| group.reason == reason) {
            Some(group) => group.replicas += 1,
            None => blocked.push(BlockedCapacity { reason, replicas: 1, because: because.to_owned() }),
        }
    }
    if let Some(scale) = &observation.scale
        && let Some(because) = &scale.create_refused
    {
        let there = observation.replicas.iter().filter(|r| r.state != ReplicaState::Terminating).count();
        let missing = scale.ordered.map_or(1, |ordered| ordered.saturating_sub(there as u32));
        let reason = BlockedReason::CreateRefused;
        blocked.push(BlockedCapacity { reason, replicas: missing.max(1), because: because.clone() });
    }
    blocked.sort_by_key(|group| group.reason);
    blocked
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::decision::fixtures::{at, observation, replica};
    use crate::supply::{ScaleFacts, Start};

    #[test]
    fn kubernetes_words_have_a_kind_and_everything_else_is_other() {
        for (because, expected) in [
            (
                "Unschedulable: 0/5 nodes are available: 5 Insufficient nvidia.com/gpu.",
                BlockedReason::Unschedulable,
            ),
            ("CrashLoopBackOff: back-off 5m0s restarting failed container=vllm", BlockedReason::CrashLoop),
            ("ImagePullBackOff: Back-off pulling image \"vllm:nope\"", BlockedReason::ImagePull),
            ("ErrImagePull: manifest unknown", BlockedReason::ImagePull),
            ("pods \"chat-1\" is forbidden: exceeded quota: gpus", BlockedReason::Quota),
            ("CreateContainerConfigError: secret \"hf\" not found", BlockedReason::Other),
            ("", BlockedReason::Other),
        ] {
            assert_eq!(BlockedReason::of(because), expected, "{because}");
        }
    }

    #[test]
    fn blocked_replicas_are_told_by_reason_and_pods_that_were_never_created_too() {
        let blocked = |name: &str, because: &str| {
            let mut blocked = replica(name, ReplicaState::Blocked);
            blocked.start = Some(Start {
                created: at("10:00"),
                scheduled: None,
                initialised: None,
                init_seconds: 0.0,
                container_started: None,
                ready: None,
                stage: None,
                blocked: Some(because.into()),
                restarts: 0,
            });
            blocked
        };
        let mut seen = observation(vec![
            blocked("a", "CrashLoopBackOff"),
            blocked("b", "Unschedulable: 0/3 nodes"),
            blocked("c", "Unschedulable: 0/3 nodes"),
            replica("d", ReplicaState::Ready),
        ]);
        seen.scale = Some(Arc::new(ScaleFacts {
            ordered: Some(6),
            create_refused: Some("exceeded quota: gpus".into()),
            ..ScaleFacts::default()
        }));
        let told: Vec<_> = of(&seen).into_iter().map(|group| (group.reason, group.replicas)).collect();
        assert_eq!(
            told,
            [
                (BlockedReason::Unschedulable, 2),
                (BlockedReason::CrashLoop, 1),
                (BlockedReason::CreateRefused, 2)
            ]
        );
    }
}
