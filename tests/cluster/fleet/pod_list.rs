//! What the API server says of a pod, as far as an engine needs it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::Deserialize;

/// The label that says which tier a pod belongs to.
pub(crate) const TIER_LABEL: &str = "tier";
/// Set by the `LeaderWorkerSet` controller: 0 for the leader of a group.
const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
const GROUP_SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
/// Which engine the pod runs: `rtx4090-8b` (default), `a100-8b`, `h100-8b`.
const ENGINE_ANNOTATION: &str = "fleet/engine";

/// A list of pods.
#[derive(Debug, Deserialize)]
pub(crate) struct PodList {
    pub(crate) metadata: ListMetadata,
    #[serde(default)]
    pub(crate) items: Vec<Pod>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMetadata {
    pub(crate) resource_version: String,
}

/// A pod.
#[derive(Debug, Deserialize)]
pub(crate) struct Pod {
    metadata: PodMetadata,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodMetadata {
    name: String,
    namespace: String,
    uid: String,
    deletion_timestamp: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    #[serde(rename = "podIP")]
    pod_ip: Option<Ipv4Addr>,
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    state: ContainerState,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    running: Option<serde::de::IgnoredAny>,
}

/// A tier: namespace and the pods' tier label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub(crate) struct TierKey {
    pub(crate) namespace: String,
    pub(crate) tier: String,
}

/// How far a pod's start has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// No container runs.
    Pending,
    /// The process is there and loads.
    Loading,
    /// Ready, as the cluster says.
    Ready,
}

/// What an engine needs to know of its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) tier: TierKey,
    pub(crate) address: Option<Ipv4Addr>,
    pub(crate) stage: Stage,
    pub(crate) terminating: bool,
    /// Is the API server served from this pod? A group's workers have no port.
    pub(crate) leads: bool,
    /// The group that must be ready as a whole, and of how many pods it is.
    pub(crate) group: Option<(String, usize)>,
    pub(crate) engine: Option<String>,
}

impl Pod {
    /// None for a pod without the tier's label.
    pub(crate) fn seen(mut self) -> Option<Seen> {
        let tier = self.metadata.labels.remove(TIER_LABEL)?;
        let label = |key: &str| self.metadata.labels.get(key).cloned();
        let size = self.metadata.annotations.get(GROUP_SIZE).and_then(|size| size.parse().ok());
        let ready = self.status.conditions.iter().any(|c| c.r#type == "Ready" && c.status == "True");
        let running = self.status.container_statuses.iter().any(|c| c.state.running.is_some());
        let stage = match (ready, running) {
            (true, _) => Stage::Ready,
            (false, true) => Stage::Loading,
            (false, false) => Stage::Pending,
        };
        Some(Seen {
            leads: label(WORKER_INDEX).is_none_or(|index| index == "0"),
            group: label(GROUP_INDEX).zip(size),
            uid: self.metadata.uid,
            name: self.metadata.name,
            tier: TierKey { namespace: self.metadata.namespace, tier },
            address: self.status.pod_ip,
            stage,
            terminating: self.metadata.deletion_timestamp.is_some(),
            engine: self.metadata.annotations.remove(ENGINE_ANNOTATION),
        })
    }
}
