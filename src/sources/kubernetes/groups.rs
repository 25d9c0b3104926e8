//! LeaderWorkerSet: a group of pods is one replica. The scale's selector picks the leaders; a group is ready as a whole,
//! and only its leader is scraped. Pure.

use chrono::{DateTime, Utc};

use super::life::Life;
use super::pod::PodRecord;
use crate::supply::Phase;

/// How many pods a group has, the leader included (LeaderWorkerSet API v1).
pub(super) const SIZE_ANNOTATION: &str = "leaderworkerset.sigs.k8s.io/size";
/// The set that a pod belongs to.
const SET_LABEL: &str = "leaderworkerset.sigs.k8s.io/name";
/// The group in the set.
const GROUP_LABEL: &str = "leaderworkerset.sigs.k8s.io/group-index";
/// The pod in the group; 0 is the leader.
const WORKER_LABEL: &str = "leaderworkerset.sigs.k8s.io/worker-index";

/// The workers of the group that this pod leads, and how many there should be; None for any other pod.
pub(super) fn workers<'a>(
    leader: &PodRecord,
    pods: impl Iterator<Item = &'a PodRecord>,
) -> Option<(Vec<&'a PodRecord>, usize)> {
    if leader.labels.get(WORKER_LABEL)? != "0" {
        return None;
    }
    let (set, group) = (leader.labels.get(SET_LABEL)?, leader.labels.get(GROUP_LABEL)?);
    let size: usize = leader.annotations.get(SIZE_ANNOTATION).and_then(|size| size.parse().ok()).unwrap_or(1);
    let of_group = pods.filter(|pod| {
        pod.uid != leader.uid
            && !pod.is_over()
            && pod.labels.get(SET_LABEL) == Some(set)
            && pod.labels.get(GROUP_LABEL) == Some(group)
    });
    Some((of_group.collect(), size.saturating_sub(1)))
}

/// The life of a group: its leader's, held back by the worker that is furthest behind.
///
/// Blocked and starting workers make the group so; a group whose workers aren't all there is starting. A terminating
/// leader takes its group with it.
pub(super) fn together(leader: Life, workers: &[Life], expected: usize) -> Life {
    if leader.phase != Phase::Ready {
        let mut group = leader;
        if group.phase == Phase::Starting
            && let Some(blocked) = workers.iter().find(|worker| worker.phase == Phase::Blocked)
        {
            block(&mut group, blocked);
        }
        return group;
    }
    let mut group = leader;
    if let Some(blocked) = workers.iter().find(|worker| worker.phase == Phase::Blocked) {
        block(&mut group, blocked);
        return group;
    }
    let behind = workers.iter().find(|worker| matches!(worker.phase, Phase::Starting | Phase::Terminating));
    if behind.is_some() || workers.len() < expected {
        group.phase = Phase::Starting;
        group.since = Some(group.start.created);
        group.start.ready = None;
        group.start.stage =
            behind.and_then(|worker| worker.start.stage).or(Some(crate::supply::Stage::Unscheduled));
        return group;
    }
    let last: Option<DateTime<Utc>> = workers.iter().filter_map(|worker| worker.start.ready).max();
    // A leader that was ready and isn't stays so.
    if group.start.ready.is_some() && group.start.ready < last {
        group.start.ready = last;
        group.since = last;
    }
    group
}

fn block(group: &mut Life, blocked: &Life) {
    group.phase = Phase::Blocked;
    group.since = blocked.since;
    group.start.ready = None;
    group.start.stage = blocked.start.stage;
    group.start.blocked = blocked.start.blocked.as_ref().map(|why| format!("a worker: {why}"));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::pod::fixtures::{at, fails, holds, pod};
    use super::*;
    use crate::supply::Stage;

    fn member(name: &str, group: &str, worker: &str) -> PodRecord {
        let mut member = pod(name);
        member.labels = [(SET_LABEL, "chat"), (GROUP_LABEL, group), (WORKER_LABEL, worker)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        member.annotations = [(SIZE_ANNOTATION.to_owned(), "2".to_owned())].into();
        member.scheduled = holds("00:01");
        member.containers[0].started = Some(at("00:10"));
        member.ready = fails("00:10", "ContainersNotReady", "");
        member
    }

    fn group(leader: &PodRecord, pods: &[PodRecord]) -> Life {
        let life =
            |pod: &PodRecord| Life::of(pod, pod.containers.first(), Duration::from_mins(1), at("05:00"));
        let (found, expected) = workers(leader, pods.iter()).unwrap();
        let found: Vec<Life> = found.into_iter().map(life).collect();
        together(life(leader), &found, expected)
    }

    #[test]
    fn a_group_is_ready_when_its_last_pod_is() {
        let (mut leader, mut worker) = (member("chat-0", "0", "0"), member("chat-0-1", "0", "1"));
        let stranger = member("chat-1-1", "1", "1");
        leader.ready = holds("02:00");
        let waiting = group(&leader, &[leader.clone(), worker.clone(), stranger.clone()]);
        assert_eq!((waiting.phase, waiting.start.stage), (Phase::Starting, Some(Stage::Loading)));

        worker.ready = holds("03:00");
        let ready = group(&leader, &[leader.clone(), worker, stranger]);
        assert_eq!(
            (ready.phase, ready.since, ready.start.ready),
            (Phase::Ready, Some(at("03:00")), Some(at("03:00")))
        );
    }

    #[test]
    fn a_group_whose_worker_is_not_there_yet_is_starting() {
        let mut leader = member("chat-0", "0", "0");
        leader.ready = holds("02:00");
        assert_eq!(group(&leader, &[]).phase, Phase::Starting);
    }

    #[test]
    fn a_worker_that_is_blocked_blocks_its_group() {
        let (mut leader, mut worker) = (member("chat-0", "0", "0"), member("chat-0-1", "0", "1"));
        worker.scheduled = fails("00:00", "Unschedulable", "no gpu");
        for ready in [fails("00:10", "ContainersNotReady", ""), holds("02:00")] {
            leader.ready = ready;
            let blocked = group(&leader, &[worker.clone()]);
            assert_eq!(blocked.phase, Phase::Blocked);
            assert_eq!(blocked.start.blocked.as_deref(), Some("a worker: unschedulable: no gpu"));
        }
    }

    #[test]
    fn only_a_leader_has_workers() {
        assert!(workers(&member("chat-0-1", "0", "1"), std::iter::empty()).is_none());
        assert!(workers(&pod("plain"), std::iter::empty()).is_none());
    }
}
