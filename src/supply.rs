//! Who the replicas of a tier are, as a source says it. Pure: the sources themselves are in [`crate::sources`].

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// What a source knows of a tier's replicas now.
#[derive(Clone, Debug, PartialEq)]
pub enum Discovered {
    /// Nothing can be said: an empty DNS answer, NXDOMAIN, a lost watch. Never read as zero replicas.
    Unknown {
        /// For the page and the log.
        why: String,
    },
    /// The replicas.
    Targets {
        /// May be empty only where `authoritative`.
        targets: Vec<Target>,
        /// The source can tell zero from unknown (a pod list can, DNS and a fixed list can't).
        authoritative: bool,
        /// The scale target's current replica count (`status.replicas`), where the source knows it.
        current: Option<u32>,
        /// What else is known of the scale target; None for sources that know addresses only.
        scale: Option<Arc<ScaleFacts>>,
    },
}

/// One replica as its source names it.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Identity that outlives an address: the pod's UID, else the address itself.
    pub id: String,
    /// For people: the pod's name or `host:port`.
    pub name: String,
    /// The metrics page; None while a pod has no address.
    pub url: Option<String>,
    /// What the source knows of its life.
    pub phase: Phase,
    /// When that phase began, where known.
    pub since: Option<DateTime<Utc>>,
    /// How its pod started; None for sources that know addresses only.
    pub start: Option<Start>,
}

/// The life of a replica as its source tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Only the address is known (fixed list, DNS): the page itself says whether it is ready.
    Listed,
    /// Created and not ready yet.
    Starting,
    /// Ready.
    Ready,
    /// Being deleted: its load counts, its capacity doesn't.
    Terminating,
    /// Can't start: unschedulable, image pull, crash loop, quota.
    Blocked,
}

/// How a pod started, or how far it has come: the times are those of its own status, so whoever lists pods knows them.
/// A replica of several pods (a LeaderWorkerSet group) gives those of the pod that was last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Start {
    /// The pod was created.
    pub created: DateTime<Utc>,
    /// It was given a node (`PodScheduled`).
    pub scheduled: Option<DateTime<Utc>>,
    /// Its init containers are through, or it has none (`Initialized`).
    pub initialised: Option<DateTime<Utc>>,
    /// How long its init containers ran, in seconds; 0 without any.
    pub init_seconds: f64,
    /// The engine's container runs: its image is there.
    pub container_started: Option<DateTime<Utc>>,
    /// It is ready.
    pub ready: Option<DateTime<Utc>>,
    /// Where it is on its way; None once it is ready.
    pub stage: Option<Stage>,
    /// Why it can't start: unschedulable beyond the usual wait, image pull, crash loop.
    pub blocked: Option<String>,
    /// How often the engine's container was started again.
    pub restarts: u32,
}

/// A stage of a cold start, in the order of a pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// A scheduling gate holds it: a quota queue such as Kueue.
    Gated,
    /// No node yet.
    Unscheduled,
    /// On a node; its image is pulled and its sandbox made.
    Pulling,
    /// Its init containers run: weights are fetched, where they do that.
    Init,
    /// The engine loads: weights to the GPU, compilation, warm-up, until the readiness probe passes.
    Loading,
}

impl Stage {
    /// All, in order.
    pub const ALL: [Self; 5] = [Self::Gated, Self::Unscheduled, Self::Pulling, Self::Init, Self::Loading];

    /// The name in metrics, logs and on the page.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gated => "gated",
            Self::Unscheduled => "unscheduled",
            Self::Pulling => "pulling",
            Self::Init => "init",
            Self::Loading => "loading",
        }
    }
}

/// What Kubernetes tells of a scale target, and of the ScaledObject that scales it, beyond the pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleFacts {
    /// `Deployment chat`.
    pub target: String,
    /// The ScaledObject's name, where it could be found.
    pub scaled_object: Option<String>,
    /// Its UID: an Event without it isn't shown by `kubectl describe`.
    pub scaled_object_uid: Option<String>,
    /// Ordered replicas: `spec.replicas`.
    pub ordered: Option<u32>,
    /// Why no further pod can be created: a quota, an admission webhook. None while nothing is known to be refused.
    pub create_refused: Option<String>,
    /// The HPA's `behavior.scaleUp.tolerance` as the ScaledObject sets it; None where it doesn't or can't be read.
    pub tolerance: Option<f64>,
    /// The HPA itself was read, and it sets no tolerance: the cluster's own is in force.
    pub hpa_sets_no_tolerance: bool,
    /// `minReplicaCount`.
    pub min_replicas: Option<u32>,
    /// `maxReplicaCount`.
    pub max_replicas: Option<u32>,
    /// `pollingInterval`; None for KEDA's default of 30 s.
    #[serde(
        rename = "pollingIntervalSeconds",
        default,
        skip_serializing_if = "Option::is_none",
        with = "crate::units::seconds::option"
    )]
    pub polling_interval: Option<Duration>,
    /// The pause annotation that holds the ScaledObject, as written.
    pub paused: Option<String>,
    /// Why no number may be answered, whatever is known of the load: a trigger with `metricType: Value` would multiply
    /// the answer by the ready pods.
    pub refused: Option<String>,
    /// What is legal but wrong, and rights that are missing for less than the list of pods.
    pub warnings: Vec<String>,
}
