//! What of a tier's new status becomes an Event.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside their functions")]

#[path = "common/snapshots.rs"]
mod snapshots;

use keda_vllm_scaler::decision::ReplicaState;
use keda_vllm_scaler::snapshot::TierStatus;
use keda_vllm_scaler::writers::news::news;

/// The busy tier, whose one silent replica has this error.
fn silent(error: Option<&str>) -> TierStatus {
    let mut status = snapshots::busy();
    for replica in &mut status.observation.replicas {
        if replica.state == ReplicaState::Silent {
            match error {
                Some(error) => replica.error = Some(error.to_owned()),
                None => replica.state = ReplicaState::Ready,
            }
        }
    }
    status
}

#[test]
fn pages_that_become_unreadable_are_news_once_with_the_address() {
    let refused = |port| silent(Some(&format!("connection refused (http://10.0.0.9:{port}/metrics)")));
    let began = news(&silent(None), &refused(8000));
    assert_eq!(began.len(), 1, "{began:?}");
    assert_eq!((began[0].reason, began[0].warning), ("PagesUnreadable", true));
    assert!(
        began[0].note.contains("can't be read") && began[0].note.contains("http://10.0.0.9:8000/metrics")
    );
    assert_eq!(news(&refused(8000), &refused(8000)), []);
    assert_eq!(news(&refused(8000), &silent(Some("status 404 (http://10.0.0.9:8000/metrics)"))).len(), 1);
    assert_eq!(news(&refused(8000), &silent(None)), []);
}
