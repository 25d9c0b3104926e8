//! Wakes pushed streams when their tier becomes active, and only then.
//!
//! KEDA holds one stream per ScaledObject, and the control loop publishes several times a second: 20,000 streams that
//! each looked at every snapshot would starve the unary calls on the same connection. So one watcher compares
//! snapshots, and streams sleep until their own tier wakes. A tier that falls idle wakes nobody: `false` is never pushed.
//!
//! Where many tiers wake at once, as when a floor opens for all of them, streams are woken a few at a time: a call that
//! comes meanwhile waits for those, and not for 20,000.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::decision::TierId;
use crate::snapshot::{Published, Snapshot, TierStatus};

/// The watcher looks at most this often. Far below the second within which demand must wake a stream.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Streams that are woken together: about a millisecond of work.
const WOKEN_TOGETHER: usize = 100;

/// Pause after them, in which calls get their turn.
const PAUSE_BETWEEN: Duration = Duration::from_millis(3);

/// Most pauses for one snapshot, 0.6 s in all: where streams are more, more are woken together, so that demand still
/// reaches the last one within a second.
const MOST_PAUSES: usize = 200;

/// Where streams wait for their tier to become active.
#[derive(Clone, Debug, Default)]
pub(super) struct Edges {
    tiers: Arc<Mutex<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    by_tier: HashMap<TierId, watch::Sender<()>>,
    /// At this many tiers those that nobody waits for are forgotten.
    sweep_at: usize,
}

impl Edges {
    /// Changes when this tier becomes active.
    ///
    /// Subscribe before the first look at a snapshot: an edge between the two is then seen as a change.
    pub(super) fn of(&self, tier: &TierId) -> watch::Receiver<()> {
        let mut waiting = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.by_tier.len() >= waiting.sweep_at {
            waiting.by_tier.retain(|_, streams| streams.receiver_count() > 0);
            // Twice as many, so that a sweep costs each newcomer little.
            waiting.sweep_at = 2 * waiting.by_tier.len() + 1;
        }
        waiting.by_tier.entry(tier.clone()).or_default().subscribe()
    }

    /// Watches for ever. When nothing is published any more it waits: ending the process is the supervisor's choice.
    pub(super) async fn watch(&self, published: &Published) {
        let mut snapshots = published.snapshot.clone();
        // Nothing is taken as seen: a stream that opened before this began is woken once in vain, and misses no edge.
        let mut active = BTreeSet::new();
        loop {
            let woken = became_active(&mut active, &snapshots.borrow_and_update());
            self.wake(&woken).await;
            sleep(LOOK_AGAIN_AFTER).await;
            if snapshots.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    async fn wake(&self, tiers: &[TierId]) {
        let waiting = self.waiting_for(tiers);
        let streams: usize = waiting.iter().map(watch::Sender::receiver_count).sum();
        let together = WOKEN_TOGETHER.max(streams.div_ceil(MOST_PAUSES));
        let mut woken = 0;
        for tier in waiting {
            if woken >= together {
                woken = 0;
                sleep(PAUSE_BETWEEN).await;
            }
            woken += tier.receiver_count();
            tier.send_replace(());
        }
    }

    fn waiting_for(&self, tiers: &[TierId]) -> Vec<watch::Sender<()>> {
        let waiting = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        tiers.iter().filter_map(|tier| waiting.by_tier.get(tier).cloned()).collect()
    }
}

/// Brings the active tiers up to date and returns those that were not active before.
fn became_active(active: &mut BTreeSet<TierId>, snapshot: &Snapshot) -> Vec<TierId> {
    active.retain(|tier| snapshot.tiers.get(tier).is_some_and(|status| is_active(status)));
    let woken: Vec<_> = snapshot
        .tiers
        .iter()
        .filter(|(tier, status)| is_active(status) && !active.contains(tier))
        .map(|(tier, _)| tier.clone())
        .collect();
    active.extend(woken.iter().cloned());
    woken
}

fn is_active(status: &TierStatus) -> bool {
    status.decision.required().is_some_and(|replicas| replicas >= 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_that_nobody_waits_for_any_more_are_forgotten() {
        let edges = Edges::default();
        let kept = edges.of(&TierId::new("serving", "kept"));
        for n in 0..10_000 {
            drop(edges.of(&TierId::new("serving", format!("tier-{n}"))));
        }
        let waiting = edges.tiers.lock().unwrap();
        assert!(waiting.by_tier.len() <= 4, "{}", waiting.by_tier.len());
        assert!(waiting.by_tier.contains_key(&TierId::new("serving", "kept")));
        drop(kept);
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_streams_are_woken_together_and_all_of_them_soon() {
        let edges = Edges::default();
        let tiers: Vec<_> = (0..1000).map(|n| TierId::new("serving", format!("tier-{n}"))).collect();
        let streams: Vec<_> = (0..50_000).map(|n| edges.of(&tiers[n % 1000])).collect();
        let changed = |streams: &[watch::Receiver<()>]| {
            streams.iter().filter(|stream| stream.has_changed().unwrap()).count()
        };
        let began = tokio::time::Instant::now();
        let mut waking = std::pin::pin!(edges.wake(&tiers));
        let mut before = 0;
        while futures_util::poll!(waking.as_mut()).is_pending() {
            let now = changed(&streams);
            assert!(now - before <= 2 * 250, "{}", now - before);
            before = now;
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(changed(&streams), streams.len());
        assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
    }
}
