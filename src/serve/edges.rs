//! Wakes pushed streams when their tier's activity changes, and only then.
//!
//! KEDA holds one stream per ScaledObject, and the control loop publishes several times a second: 20,000 streams that
//! each looked at every snapshot would starve the unary calls on the same connection. So one watcher compares
//! snapshots, and streams sleep on one of a fixed number of slots that their tier hashes to. A slot that is shared
//! wakes a stream in vain now and then, which costs a lookup and pushes nothing.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::decision::TierId;
use crate::snapshot::{Published, Snapshot};

/// Slots: a few tiers each in a large cluster, and 150 KB of channels in a small one.
const SLOTS: usize = 256;

/// The watcher looks at most this often. Far below the second within which demand must wake a stream.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Where streams wait for an edge.
#[derive(Clone, Debug)]
pub(super) struct Edges {
    slots: Arc<[watch::Sender<()>]>,
}

impl Edges {
    pub(super) fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| watch::Sender::new(())).collect() }
    }

    /// Changes after each edge of this tier, and now and then without one.
    ///
    /// Subscribe before the first look at a snapshot: an edge between the two is then seen as a change.
    pub(super) fn of(&self, tier: &TierId) -> watch::Receiver<()> {
        self.slots[slot_of(tier)].subscribe()
    }

    /// Watches for ever. When nothing is published any more it waits: ending the process is the supervisor's choice.
    pub(super) async fn watch(&self, published: &Published) {
        let mut snapshots = published.snapshot.clone();
        // Nothing is taken as seen: a stream that opened before this began is woken once in vain, and misses no edge.
        let mut active = BTreeSet::new();
        loop {
            let active_now = active_tiers(&snapshots.borrow_and_update());
            for tier in active.symmetric_difference(&active_now) {
                self.slots[slot_of(tier)].send_replace(());
            }
            active = active_now;
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
            if snapshots.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

fn active_tiers(snapshot: &Snapshot) -> BTreeSet<TierId> {
    snapshot
        .tiers
        .iter()
        .filter(|(_, status)| status.decision.required().is_some_and(|replicas| replicas >= 1))
        .map(|(tier, _)| tier.clone())
        .collect()
}

fn slot_of(tier: &TierId) -> usize {
    let mut hasher = DefaultHasher::new();
    tier.hash(&mut hasher);
    (hasher.finish() % SLOTS as u64) as usize
}
