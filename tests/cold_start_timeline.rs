//! How starts are learned, and what is made of them. Each test name is a rule. The configured cold start is 3 minutes, and
//! a lead is 30 seconds more.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

#[path = "common/pods.rs"]
mod pods;
#[path = "common/timeline.rs"]
mod timeline;

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use keda_vllm_scaler::decision::{ColdStart, Memory, Policy, StartPath};
use pods::{Pod, list, watch};
use timeline::{Timeline, floor, instant, policy};

/// So many pods, one a minute from 10:00 on, each ready after so many seconds.
fn minutely(from: i64, to: i64, ready: i64) -> Vec<Pod> {
    (from..to).map(|n| Pod::new(&format!("p{n}"), minute(n), ready)).collect()
}

fn minute(n: i64) -> DateTime<Utc> {
    instant("10:00") + TimeDelta::minutes(n)
}

fn tier() -> Timeline {
    let mut tier = Timeline::new(policy());
    tier.now = instant("10:00");
    tier
}

fn cold_start(tier: &Timeline) -> &ColdStart {
    &tier.last.as_ref().unwrap().cold_start
}

#[track_caller]
fn expect(tier: &Timeline, seconds: u64, words: &str) {
    let told = cold_start(tier);
    assert!(told.because.contains(words), "{}: {told:?}", tier.now);
    assert_eq!(told.in_effect, Duration::from_secs(seconds), "{}: {told:?}", tier.now);
    assert_eq!(tier.last.as_ref().unwrap().lead, Duration::from_secs(seconds + 30));
}

#[test]
fn the_fifth_start_by_a_path_replaces_what_is_configured() {
    let mut tier = tier();
    let pods = minutely(0, 5, 240);
    watch(&mut tier, &pods, minute(7));
    expect(&tier, 235, "configured: 4 of 5 starts seen by the path warm node, image present");
    watch(&mut tier, &pods, minute(8));
    expect(&tier, 240, "learned: p90 of 5 starts (warm node, image present)");
    let starts = cold_start(&tier).likely().unwrap();
    assert_eq!((starts.starts, starts.censored, starts.p50.as_secs()), (5, 0, 240));
    assert_eq!(starts.stages.iter().map(|stage| stage.p50.as_secs()).collect::<Vec<_>>(), [0, 1, 2, 0, 237]);
    assert_eq!(starts.dominating().unwrap().name(), "loading");
}

#[test]
fn a_shorter_cold_start_counts_after_one_of_its_own_lengths() {
    let mut tier = tier();
    let pods = minutely(0, 5, 60);
    watch(&mut tier, &pods, minute(5));
    expect(&tier, 180, "not shorter yet; now 1m");
    watch(&mut tier, &pods, minute(5) + TimeDelta::seconds(55));
    expect(&tier, 180, "not shorter yet");
    watch(&mut tier, &pods, minute(6));
    expect(&tier, 60, "learned: p90 of 5 starts");
}

#[test]
fn one_list_after_a_restart_teaches_all_that_was_known() {
    let mut tier = Timeline::with_memory(policy(), Memory::started(instant("14:00")));
    tier.now = instant("14:00");
    list(&mut tier, &minutely(0, 6, 60));
    expect(&tier, 60, "learned: p90 of 6 starts");
}

#[test]
fn what_nobody_watched_teaches_only_where_nothing_happened_since() {
    let mut pods = minutely(0, 12, 60);
    for pod in &mut pods[..4] {
        // Their readiness flapped an hour after their start, all at once: the status tells the last time.
        pod.ready = 3_600;
    }
    for pod in &mut pods[4..8] {
        pod.restarts = 1;
        pod.ran = 400;
        pod.ready = 460;
    }
    let mut tier = Timeline::with_memory(policy(), Memory::started(instant("14:00")));
    tier.now = instant("14:00");
    list(&mut tier, &pods);
    expect(&tier, 180, "configured: 4 of 5 starts seen");
}

#[test]
fn a_replica_whose_readiness_flaps_is_no_start() {
    let mut tier = tier();
    let mut pods = minutely(0, 6, 60);
    watch(&mut tier, &pods, minute(20));
    expect(&tier, 60, "p90 of 6 starts");
    for pod in &mut pods {
        pod.ready = 20 * 60 + 200;
    }
    watch(&mut tier, &pods, minute(23));
    assert_eq!(cold_start(&tier).likely().unwrap().censored, 0, "{:?}", cold_start(&tier));
    watch(&mut tier, &pods, minute(40));
    expect(&tier, 60, "p90 of 6 starts");
    assert_eq!(cold_start(&tier).paths.len(), 1);
}

#[test]
fn the_slowest_of_the_paths_that_the_last_starts_took_counts() {
    let mut tier = tier();
    let mut pods = minutely(0, 8, 60);
    pods.extend((8..13).map(|n| Pod::on_new_node(&format!("p{n}"), minute(n), 300)));
    watch(&mut tier, &pods, minute(20));
    expect(&tier, 300, "learned: p90 of 5 starts (new node, image pulled)");
    assert_eq!(cold_start(&tier).paths.len(), 2);
    assert_eq!(cold_start(&tier).path, Some(StartPath::NewNodeImagePulled));
    // Ten starts on warm nodes later nobody expects a new one.
    pods.extend(minutely(20, 30, 60));
    watch(&mut tier, &pods, minute(40));
    expect(&tier, 60, "warm node, image present");
}

#[test]
fn a_start_that_takes_longer_raises_the_horizon_while_it_goes_on() {
    let mut tier = tier();
    let mut pods = minutely(0, 24, 60);
    pods.push(Pod::new("slow", minute(30), 400));
    watch(&mut tier, &pods, minute(30) + TimeDelta::seconds(55));
    expect(&tier, 60, "learned: p90 of 24 starts");
    watch(&mut tier, &pods, minute(36));
    expect(&tier, 360, "a replica has been starting for 6m (expected 1m, learned: p90 of 24 starts");
    // It falls back only after as long as is expected then.
    watch(&mut tier, &pods, minute(36) + TimeDelta::seconds(45));
    expect(&tier, 395, "not shorter yet; now 1m (learned: p90 of 25 starts");
    watch(&mut tier, &pods, minute(38));
    expect(&tier, 60, "learned: p90 of 25 starts");
}

#[test]
fn a_start_that_a_later_one_has_overtaken_hangs_and_raises_nothing() {
    let mut tier = tier();
    let mut pods = minutely(0, 10, 60);
    pods.push(Pod::new("hangs", minute(10), 100_000));
    pods.extend(minutely(11, 20, 60));
    watch(&mut tier, &pods, minute(40));
    expect(&tier, 60, "learned: p90 of 19 starts (warm node, image present, 1 not seen to their end)");
}

#[test]
fn no_learned_cold_start_is_longer_than_an_hour() {
    let mut tier = tier();
    let mut pods = minutely(0, 6, 60);
    pods.push(Pod::new("never", minute(10), 100_000));
    watch(&mut tier, &pods, minute(200));
    expect(&tier, 3_600, "a replica has been starting for 3h10m");
    let mut patient = policy();
    patient.cold_start = Duration::from_secs(7_200);
    tier.policy = patient;
    watch(&mut tier, &pods, minute(201));
    assert!(cold_start(&tier).in_effect <= Duration::from_secs(7_200));
}

#[test]
fn starts_that_are_given_up_were_at_least_as_long_as_they_were_seen() {
    let mut tier = tier();
    let mut pods = minutely(0, 6, 60);
    pods.extend((10..13).map(|n| Pod::new(&format!("p{n}"), minute(10), 100_000)));
    watch(&mut tier, &pods, minute(13));
    pods.truncate(6);
    watch(&mut tier, &pods, minute(14));
    let starts = cold_start(&tier).likely().unwrap();
    assert_eq!((starts.starts, starts.censored), (6, 3));
    assert!(starts.p90 >= Duration::from_secs(175), "{starts:?}");
    assert_eq!(starts.p50, Duration::from_secs(60));
}

#[test]
fn a_start_that_was_blocked_on_its_way_doesn_t_teach_how_long_capacity_was_missing() {
    let mut tier = tier();
    let mut pods = minutely(0, 6, 60);
    pods.push(Pod {
        blocked: Some(120),
        scheduled: 7_200,
        ran: 7_203,
        ..Pod::new("late", minute(10), 7_260)
    });
    watch(&mut tier, &pods, minute(140));
    expect(&tier, 180, "configured: 0 of 5 starts seen by the path new node, image present");
    assert_eq!(cold_start(&tier).paths.iter().map(|starts| starts.censored).sum::<u32>(), 1);
}

#[test]
fn a_clock_that_is_set_while_a_replica_starts_teaches_nothing() {
    let mut tier = tier();
    let mut pods = minutely(0, 6, 60);
    pods.push(Pod::new("jumped", minute(10), 2 * 3_600 + 60));
    watch(&mut tier, &pods, minute(10) + TimeDelta::seconds(30));
    // The clocks of the cluster and of this machine are set two hours forward.
    tier.clock_jumps_by(TimeDelta::hours(2));
    watch(&mut tier, &pods, minute(130) + TimeDelta::seconds(55));
    assert!(cold_start(&tier).in_effect < Duration::from_secs(180), "{:?}", cold_start(&tier));
    watch(&mut tier, &pods, minute(140));
    expect(&tier, 60, "learned: p90 of 6 starts");
}

#[test]
fn a_floor_is_ordered_one_learned_lead_early() {
    let mut tier = tier();
    tier.policy.floors = vec![floor("noon", "0 12 * * *", "0 13 * * *", 9)];
    let pods = minutely(0, 6, 300);
    watch(&mut tier, &pods, instant("11:54:25"));
    assert_eq!(tier.last.as_ref().unwrap().required(), Some(1));
    watch(&mut tier, &pods, instant("11:54:30"));
    assert_eq!(tier.last.as_ref().unwrap().required(), Some(9));
    tier.because("floor noon of 9 from 12:00 UTC: ordered one lead (5m30s) before");
}

#[test]
fn learning_may_be_off() {
    let mut tier = tier();
    tier.policy = Policy { learn_cold_start: false, ..policy() };
    watch(&mut tier, &minutely(0, 6, 60), minute(20));
    expect(&tier, 180, "configured, learning is off");
    assert_eq!(cold_start(&tier).likely().unwrap().starts, 6, "what it would be is shown");
}

#[test]
fn a_restart_with_the_memory_counts_no_start_twice() {
    let mut tier = tier();
    let pods = minutely(0, 6, 60);
    watch(&mut tier, &pods, minute(10));
    let before = cold_start(&tier).clone();
    tier.memory = Memory::from_bytes(&tier.memory.to_bytes()).unwrap().resumed(tier.now);
    watch(&mut tier, &pods, minute(11));
    assert_eq!(cold_start(&tier), &before);
}

#[test]
fn a_memory_from_before_cold_starts_were_learned_is_read() {
    let mut tier = tier();
    watch(&mut tier, &minutely(0, 6, 60), minute(10));
    let mut written: serde_json::Value = serde_json::from_slice(&tier.memory.to_bytes()).unwrap();
    assert!(written["memory"].as_object_mut().unwrap().remove("coldStarts").is_some());
    tier.memory = Memory::from_bytes(written.to_string().as_bytes()).unwrap();
    tier.round();
    assert_eq!(tier.last.as_ref().unwrap().required(), Some(1));
    expect(&tier, 60, "learned: p90 of 6 starts");
}

#[test]
fn a_scaler_that_takes_what_another_has_learned_answers_the_same() {
    let pods: Vec<Pod> = minutely(0, 6, 60)
        .into_iter()
        .chain((6..14).map(|n| Pod::on_new_node(&format!("p{n}"), minute(n), 300)))
        .collect();
    let mut holder = tier();
    watch(&mut holder, &pods, minute(30));
    // The pods of before are gone when the other begins.
    let left = &pods[11..];
    watch(&mut holder, left, minute(40));
    let mut other = Timeline::with_memory(policy(), Memory::started(minute(40)));
    other.now = minute(40);
    list(&mut other, left);
    expect(&other, 180, "configured: 3 of 5");

    let wire = serde_json::to_vec(&holder.memory.learned()).unwrap();
    other.memory.take_learned(&serde_json::from_slice(&wire).unwrap());
    watch(&mut other, left, minute(41));
    watch(&mut holder, left, minute(41));
    assert_eq!(cold_start(&other), cold_start(&holder));
    assert_eq!(cold_start(&other).in_effect, Duration::from_mins(5));
    let once = other.memory.learned();
    other.memory.take_learned(&holder.memory.learned());
    assert_eq!(other.memory.learned(), once, "taking it again changes nothing");
}
