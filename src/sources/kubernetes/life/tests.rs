use super::super::pod::InitContainer;
use super::super::pod::fixtures::{at, fails, holds, pod};
use super::*;

const NODE_WAIT: Duration = Duration::from_mins(10);

fn life(pod: &PodRecord, now: &str) -> Life {
    Life::of(pod, pod.containers.first(), NODE_WAIT, at(now))
}

fn stage_at(pod: &PodRecord, now: &str) -> (Phase, Option<Stage>) {
    let life = life(pod, now);
    (life.phase, life.start.stage)
}

#[test]
fn a_start_goes_through_its_stages_and_keeps_their_times() {
    let mut pod = pod("a");
    pod.scheduled = fails("00:00", "SchedulingGated", "waiting for scheduling gates");
    assert_eq!(stage_at(&pod, "00:10"), (Phase::Starting, Some(Stage::Gated)));

    pod.scheduled =
        fails("00:20", "Unschedulable", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.");
    assert_eq!(stage_at(&pod, "01:00"), (Phase::Starting, Some(Stage::Unscheduled)));

    pod.scheduled = holds("02:00");
    assert_eq!(stage_at(&pod, "02:10"), (Phase::Starting, Some(Stage::Pulling)));

    pod.init_containers = vec![InitContainer { started: Some(at("02:30")), finished: None, waiting: None }];
    assert_eq!(stage_at(&pod, "02:40"), (Phase::Starting, Some(Stage::Init)));

    pod.init_containers[0].finished = Some(at("03:00"));
    pod.initialised = holds("03:00");
    pod.containers[0].started = Some(at("03:05"));
    pod.ready = fails("00:00", "ContainersNotReady", "");
    assert_eq!(stage_at(&pod, "03:10"), (Phase::Starting, Some(Stage::Loading)));

    pod.ready = holds("05:00");
    let ready = life(&pod, "05:10");
    assert_eq!((ready.phase, ready.since, ready.start.stage), (Phase::Ready, Some(at("05:00")), None));
    assert_eq!(
        ready.start,
        Start {
            created: at("00:00"),
            scheduled: Some(at("02:00")),
            initialised: Some(at("03:00")),
            init_seconds: 30.0,
            container_started: Some(at("03:05")),
            ready: Some(at("05:00")),
            stage: None,
            blocked: None,
            restarts: 0,
        }
    );
}

#[test]
fn a_pod_without_a_node_is_blocked_only_beyond_the_usual_wait() {
    let mut pod = pod("a");
    pod.scheduled =
        fails("00:01", "Unschedulable", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.");
    assert_eq!(stage_at(&pod, "10:00").0, Phase::Starting);
    let blocked = life(&pod, "10:01");
    assert_eq!(blocked.phase, Phase::Blocked);
    assert_eq!(
        blocked.start.blocked.as_deref(),
        Some("unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    );
}

#[test]
fn a_gated_pod_waits_for_its_quota_and_is_not_blocked_by_its_age() {
    let mut pod = pod("a");
    pod.scheduled = fails("00:00", "SchedulingGated", "");
    assert_eq!(stage_at(&pod, "59:00"), (Phase::Starting, Some(Stage::Gated)));
}

#[test]
fn what_no_waiting_cures_is_blocked_with_its_reason() {
    for (reason, message, told) in [
        (
            "ImagePullBackOff",
            "Back-off pulling image \"vllm:nope\"",
            "image pull: Back-off pulling image \"vllm:nope\"",
        ),
        ("CrashLoopBackOff", "back-off 40s", "crash loop: exit code 137, OOMKilled, back-off 40s"),
        (
            "CreateContainerConfigError",
            "secret \"hf\" not found",
            "container configuration: secret \"hf\" not found",
        ),
    ] {
        let mut pod = pod("a");
        pod.scheduled = holds("00:01");
        pod.containers[0].waiting = Some(Waiting { reason: reason.into(), message: message.into() });
        pod.containers[0].last_end = Some("exit code 137, OOMKilled".into());
        let life = life(&pod, "00:30");
        assert_eq!((life.phase, life.start.blocked.as_deref()), (Phase::Blocked, Some(told)));
    }
    let mut pod = pod("a");
    pod.scheduled = holds("00:01");
    pod.containers[0].waiting = Some(Waiting { reason: "ContainerCreating".into(), message: String::new() });
    assert_eq!(stage_at(&pod, "05:00"), (Phase::Starting, Some(Stage::Pulling)));
}

#[test]
fn a_probe_that_fails_under_load_does_not_make_a_serving_pod_a_starting_one() {
    let mut pod = pod("a");
    pod.scheduled = holds("00:01");
    pod.containers[0].started = Some(at("00:10"));
    pod.ready = fails("30:00", "ContainersNotReady", "");
    assert_eq!(stage_at(&pod, "30:05"), (Phase::Ready, None));

    // Its container was restarted: the condition changed before the new start.
    pod.containers[0].started = Some(at("30:01"));
    pod.containers[0].restarts = 1;
    assert_eq!(stage_at(&pod, "30:05"), (Phase::Starting, Some(Stage::Loading)));
}

#[test]
fn a_pod_that_is_told_to_go_is_terminating_whatever_else_it_is() {
    let mut pod = pod("a");
    pod.ready = holds("01:00");
    pod.deleted = Some(at("02:00"));
    let life = life(&pod, "02:05");
    assert_eq!((life.phase, life.since), (Phase::Terminating, Some(at("02:00"))));
}

#[test]
fn between_two_crashes_a_loop_is_no_start() {
    let mut pod = pod("a");
    pod.scheduled = holds("00:01");
    pod.ready = fails("00:01", "ContainersNotReady", "");
    let engine = &mut pod.containers[0];
    engine.last_end = Some("exit code 1".into());
    engine.last_ran = Some(Duration::from_secs(40));
    engine.started = Some(at("20:00"));
    engine.restarts = 1;
    assert_eq!(life(&pod, "20:05").phase, Phase::Starting, "one restart is an accident");
    pod.containers[0].restarts = 3;
    let looping = life(&pod, "20:05");
    let told = "crash loop: exit code 1 after 40s, restarted 3 times";
    assert_eq!((looping.phase, looping.start.blocked.as_deref()), (Phase::Blocked, Some(told)));
    assert_eq!(life(&pod, "20:51").phase, Phase::Starting, "it has come further than before");
    pod.containers[0].last_ran = Some(Duration::from_hours(3));
    assert_eq!(life(&pod, "20:05").phase, Phase::Starting, "it served for hours");
}

#[test]
fn a_pod_that_should_have_been_gone_for_minutes_is_overdue() {
    let mut pod = pod("a");
    assert!(!pod.is_overdue(at("59:00")));
    pod.gone_by = Some(at("10:00"));
    assert!(!pod.is_overdue(at("14:00")));
    assert!(pod.is_overdue(at("15:01")));
}
