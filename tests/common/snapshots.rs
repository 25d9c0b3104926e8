//! Made-up snapshots, rich enough to look at, for tests of what is shown.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use keda_vllm_scaler::clock::Clock;
use keda_vllm_scaler::decision::TierId;
use keda_vllm_scaler::snapshot::{ConfigStatus, Published, RecordStatus, Snapshot, StoreStatus, TierStatus};
use tokio::sync::{mpsc, watch};

#[path = "snapshots/tiers.rs"]
mod tiers;

pub(crate) use tiers::{busy, declared, quiet, unknown};

/// A Monday at 9:52:30 in Berlin, some minutes after the ramp.
pub(crate) fn morning() -> DateTime<Utc> {
    "2026-11-30T08:52:30Z".parse().expect("time")
}

/// A snapshot without tiers.
pub(crate) fn empty() -> Snapshot {
    Snapshot {
        at: morning(),
        started_at: morning() - TimeDelta::hours(52),
        refused: Vec::new(),
        tiers: std::collections::BTreeMap::new(),
        waiting: Vec::new(),
        config: ConfigStatus {
            file: "/etc/keda-vllm-scaler/config.yaml".to_owned(),
            loaded_at: Some(morning() - TimeDelta::hours(3)),
            rejected: None,
            warnings: Vec::new(),
            allow_metadata_tiers: false,
        },
        store: StoreStatus {
            path: Some("/var/lib/keda-vllm-scaler".to_owned()),
            alarm: None,
            size_bytes: 4_300_000,
        },
        record: RecordStatus::default(),
        ready: false,
    }
}

/// Four tiers: a busy one short of its floor, one that nobody knows, a quiet one, one declared by metadata.
pub(crate) fn rich() -> Snapshot {
    let mut snapshot = empty();
    snapshot.ready = true;
    for status in [busy(), unknown(), quiet(), declared()] {
        snapshot.tiers.insert(status.policy.tier.clone(), Arc::new(status));
    }
    snapshot.waiting.push(TierId::new("batch", "embeddings"));
    snapshot
}

/// A snapshot of these tiers.
pub(crate) fn of(tiers: Vec<TierStatus>) -> Snapshot {
    let mut snapshot = empty();
    snapshot.ready = true;
    snapshot.tiers = tiers.into_iter().map(|status| (status.policy.tier.clone(), Arc::new(status))).collect();
    snapshot
}

/// What the servers hold, and the sender that keeps it alive.
pub(crate) fn publish(snapshot: Snapshot) -> (Published, watch::Sender<Arc<Snapshot>>) {
    let (sender, receiver) = watch::channel(Arc::new(snapshot));
    let (declare, _) = mpsc::channel(1);
    (Published { snapshot: receiver, declare }, sender)
}

/// A clock that shows the time of the snapshots and stands nearly still.
pub(crate) fn clock() -> Clock {
    Clock::starting_at(morning() + TimeDelta::seconds(2), 1e-6)
}
