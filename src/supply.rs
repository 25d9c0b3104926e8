//! Who the replicas of a tier are, as a source says it. Pure: the sources themselves are in [`crate::sources`].

use chrono::{DateTime, Utc};
use serde::Serialize;

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
