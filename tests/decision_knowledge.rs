//! What is unknown, and what is at zero. Each test name is a rule.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

#[path = "common/pods.rs"]
mod pods;
#[path = "common/timeline.rs"]
mod timeline;

use std::time::Duration;

use keda_vllm_scaler::decision::ReplicaState::{
    Absent, Asleep, Blocked, Ready, Silent, Starting, Terminating,
};
use keda_vllm_scaler::decision::policy::Combine;
use keda_vllm_scaler::decision::{Memory, Policy, ReplicaLoad};
use keda_vllm_scaler::quantile::Quantile;
use pods::Pod;
use timeline::{Timeline, floor, instant, policy};

fn tier() -> Timeline {
    Timeline::new(policy())
}

// ---- what is unknown

#[test]
fn a_killed_replica_of_two_doesn_t_drop_the_answer() {
    let mut tier = tier();
    tier.at("10:00").ready(2).kv(0.5).work(0.5).running(20.0).expect(2);
    tier.at("10:05").state_of("r1", Silent).expect(2).because("unknownLoad");
    tier.at("10:30").expect(2);
    tier.at("10:31").kv(0.0).work(0.0).running(0.0).expect(2);
    tier.at("10:50").expect(2).because("unknownLoad: kept at 2: replicas of unknown load count as full");
}

#[test]
fn unknown_replicas_are_no_reason_to_go_up() {
    let mut tier = tier();
    tier.at("10:00").ready(3).kv(0.7).expect(3);
    tier.at("10:05").and(2, Silent).expect(3).notes("2 replicas without a fresh page");
    tier.at("10:06").kv(1.0).waiting(0.0).expect(4).because("kvCache asks 3.75");
}

#[test]
fn a_replica_that_goes_silent_keeps_the_backlog_it_had() {
    let mut tier = tier();
    tier.at("10:00").ready(2).kv(0.8).work(0.8).waiting(400.0).expect(6);
    tier.at("10:05").state_of("r1", Silent).expect(6);
    tier.at("10:40").expect(6).because("unknownLoad");
}

#[test]
fn fewer_than_half_known_hold_the_answer_for_a_bounded_time_and_then_err() {
    let mut tier = tier();
    tier.at("10:00").ready(5).kv(0.8).expect(5);
    tier.at("10:05").state_of("r0", Silent).state_of("r1", Silent).state_of("r2", Silent);
    tier.kv(0.0).expect(5).because("the last answer of 5 is kept for 10m: 2 of 5 replicas are known");
    tier.at("10:14:55").expect(5);
    tier.at("10:15").expect_unknown("2 of 5 replicas are known");
    // One hold is watched once they are back.
    tier.at("10:20").state_of("r2", Ready).each(|_| {}).expect_unknown("2 of 5");
    tier.ready(5).kv(0.1).expect(5).because("hold");
    tier.at("10:23:25").expect(5);
    tier.at("10:23:35").expect(1);
}

#[test]
fn a_latency_that_ends_because_nothing_finishes_any_more_is_kept_for_a_bounded_time() {
    let mut policy = policy();
    policy.signals.latency.weight = 1.0;
    policy.signals.latency.queue_time_p95 = Some(Duration::from_secs(2));
    let mut tier = Timeline::new(policy);
    tier.at("10:00").ready(3).running(20.0).each(|load| load.requests_per_second = Some(2.0));
    tier.seen.load.queue_time_p95_seconds = Some(Quantile::between(60.0));
    tier.expect(6).because("latency asks 6.00");
    // The engines hang: requests stay in their batches, and no page tells of a latency any more.
    tier.at("10:05").each(|load| load.requests_per_second = Some(0.0));
    tier.seen.load.queue_time_p95_seconds = None;
    tier.expect(6).because("latency asks 6.00");
    tier.at("10:14:55").expect(6);
    // Nobody can be sure that users still wait: no error, and the other signals decide.
    tier.at("10:30").expect(1);
}

#[test]
fn what_the_known_few_prove_is_still_answered_while_the_answer_is_held() {
    let mut tier = tier();
    tier.at("10:00").ready(5).kv(0.8).expect(5);
    tier.at("10:05").state_of("r0", Silent).state_of("r1", Silent).state_of("r2", Silent);
    tier.work(1.0).waiting(2000.0).expect(23);
}

#[test]
fn a_promise_doesn_t_need_to_know_the_demand() {
    let floors =
        vec![floor("day", "0 11 * * *", "0 18 * * *", 9), floor("dip", "0 18 * * *", "0 20 * * *", 7)];
    let mut tier = Timeline::new(Policy { floors, ..policy() });
    tier.at("10:00").ready(5).kv(0.8).expect(5);
    tier.at("10:05").replicas_unknown("NXDOMAIN").expect(5);
    tier.at("10:20").expect_unknown("the replicas are unknown: NXDOMAIN");
    tier.at("10:56:30").expect(9).because("floor day of 9");
    tier.at("12:00").expect(9);
    // Nothing is lowered on a smaller promise while nobody sees the load.
    tier.at("18:30").expect(9);
    tier.at("20:30").expect_unknown("NXDOMAIN");
}

#[test]
fn a_floor_below_the_last_known_count_is_no_reason_to_answer() {
    let floors = vec![floor("day", "0 11 * * *", "0 18 * * *", 4)];
    let mut tier = Timeline::new(Policy { floors, ..policy() });
    tier.at("10:00").ready(5).kv(0.8).expect(5);
    tier.at("10:05").replicas_unknown("NXDOMAIN").expect(5);
    tier.at("11:30").expect_unknown("NXDOMAIN");
}

#[test]
fn a_signal_that_goes_missing_keeps_its_ask_upward_only_and_then_the_tier_errs() {
    let mut tier = tier();
    tier.at("10:00").ready(5).kv(0.8).work(0.4).expect(5);
    tier.at("10:05").each(|load| load.kv_usage = None).expect(5).notes("kvCache is missing for 0s");
    tier.at("10:06").work(1.0).expect(7).because("tokens asks 6.25");
    tier.at("10:08").work(0.1).expect(7);
    tier.at("10:14:55").expect(5).because("kvCache asks 5.00");
    tier.at("10:15").expect_unknown("kvCache has been missing");
    tier.at("10:16").kv(0.1).expect(5).because("hold");
    tier.at("10:20").expect(1);
}

#[test]
fn a_signal_that_was_never_offered_leaves_the_sum() {
    let mut tier = Timeline::new(Policy { combine: Combine::Weighted, ..policy() });
    tier.at("10:00").ready(4).kv(0.6);
    tier.each(|load| {
        *load = ReplicaLoad { kv_usage: load.kv_usage, running: Some(8.0), ..ReplicaLoad::default() };
    });
    tier.expect(3).because("the weighted mean of the asks is 3.00");
    tier.at("11:00").expect(3);
}

#[test]
fn replicas_without_any_signal_are_not_idle() {
    let mut tier = tier();
    tier.at("10:00").ready(3).each(|load| *load = ReplicaLoad::default());
    tier.expect_unknown("none of the signals with a weight is told by the 3 replicas");
}

// ---- supply

#[test]
fn a_terminating_replica_s_load_counts_and_blocked_or_sleeping_ones_are_told() {
    let mut tier = tier();
    tier.at("10:00").ready(3).and(1, Terminating).kv(0.6).expect(3).because("kvCache asks 3.00");
    tier.and(1, Blocked).expect(3).notes("capacity blocked: 1 replica can't start");
    tier.and(1, Asleep).expect(3).notes("1 replica asleep");
}

#[test]
fn replicas_that_start_are_not_given_up_before_one_serves() {
    let mut tier = tier();
    tier.at("10:00").ready(3).kv(0.7).expect(3);
    // All of them crash at once.
    tier.at("10:05").ready(0).and(3, Starting).expect(3).notes("kvCache is missing");
    tier.at("10:14").expect(3);
    tier.at("10:14:30").ready(3).kv(0.7).expect(3);
}

#[test]
fn replicas_that_crash_all_at_once_are_no_idle_tier() {
    let mut tier = tier();
    tier.at("10:00").ready(3).kv(0.7).expect(3);
    tier.at("10:05").ready(0).and(3, Blocked).expect(3).notes("capacity blocked: 3 replicas can't start");
    tier.at("10:14").expect(3);
    tier.at("10:15").expect_unknown("kvCache has been missing");
}

// ---- zero

fn to_zero() -> Timeline {
    Timeline::new(Policy { min: 0, ..policy() })
}

#[test]
fn zero_needs_a_source_or_an_activator_that_can_say_so() {
    let mut tier = to_zero();
    tier.at("10:00").ready(1).expect(0);

    let mut tier = to_zero();
    tier.seen.authoritative = false;
    tier.at("10:00").ready(1).expect(1).because("neither the source nor an activator");
    tier.at("10:01").activator(0.0).expect(1).because("hold");
    tier.at("10:05").expect(0);
}

#[test]
fn a_tier_with_running_waiting_starting_or_draining_work_is_never_at_zero() {
    let mut tier = to_zero();
    tier.at("10:00").ready(1).running(1.0).expect(1).because("in use: 1 running");
    tier.at("10:30").running(0.0).expect(1).because("hold");
    tier.at("10:33:35").expect(0);
    tier.at("10:34").ready(0).and(1, Starting).expect(1).because("in use");
    tier.at("10:35").ready(0).and(1, Terminating).running(1.0).expect(1);
    tier.at("10:50").expect(1).because("in use: 1 running");
}

#[test]
fn what_leaves_after_a_zero_doesn_t_wake_the_tier() {
    let mut tier = to_zero();
    tier.at("10:00").ready(1).expect(0);
    tier.at("10:01").ready(0).and(1, Terminating).each(|load| load.running = None).expect(0);
    tier.seen.replicas[0].load = None;
    tier.at("10:02").expect(0);
}

#[test]
fn the_activator_s_queue_wakes_a_tier_and_sizes_it() {
    let mut tier = to_zero();
    tier.at("10:00").activator(0.0).expect(0);
    tier.at("10:01").activator(1.0).expect(1).because("waiting asks 0.01");
    // 500 requests of 0.3 replica-seconds in 60 s.
    tier.at("10:02").activator(500.0).expect(3).because("waiting asks 2.50");
    tier.at("10:03").and(3, Starting).expect(3);
    tier.at("10:05").ready(3).activator(0.0).kv(0.4).running(9.0).expect(3);
    tier.at("10:30").kv(0.0).running(0.0).expect(2).because("hold");
    tier.at("10:40").expect(0);
}

#[test]
fn an_unreadable_activator_at_zero_is_unknown() {
    let mut tier = to_zero();
    tier.at("10:00").activator(0.0).expect(0);
    tier.at("10:01")
        .activator_unreadable()
        .expect(0)
        .notes("the activator can't be read: connection refused");
    tier.at("10:10:55").expect(0);
    tier.at("10:11").expect_unknown("no replica serves, and the activator can't be read");
}

#[test]
fn an_unreadable_activator_keeps_an_idle_tier_above_zero() {
    let mut tier = to_zero();
    tier.at("10:00").activator_unreadable().ready(1).expect(1).because("nobody can say");
    tier.at("11:00").expect(1);
}

#[test]
fn at_zero_the_activator_s_word_is_enough_for_a_source_that_can_t_say_zero() {
    let mut tier = to_zero();
    tier.seen.authoritative = false;
    tier.at("10:00").ready(1).activator(0.0).expect(0);
    tier.at("10:01").ready(0).replicas_unknown("NXDOMAIN").expect(0);
    tier.at("12:00").expect(0);
    tier.at("12:00:05").activator(900.0).expect(5).because("waiting asks 4.50");
    // Nothing is listed while they start.
    tier.at("12:00:10").activator(0.0).expect(5).because("the last answer of 5 is kept");
    tier.at("12:03").ready(5).replicas_known().kv(0.8).running(5.0).expect(5);
}

#[test]
fn unknown_replicas_without_an_earlier_zero_are_not_zero() {
    let mut tier = Timeline::with_memory(Policy { min: 0, ..policy() }, Memory::started(instant("10:00")));
    tier.at("10:00").activator(0.0).replicas_unknown("NXDOMAIN").expect_unknown("NXDOMAIN");
    tier.at("11:00").expect_unknown("NXDOMAIN");
}

// ---- what is lost bit by bit

#[test]
fn a_signal_lost_replica_by_replica_keeps_all_of_its_ask() {
    let mut tier = tier();
    tier.at("10:00").ready(6).kv(0.8).expect(6);
    for lost in 0..6 {
        // A rolling upgrade renames the metric, and all six stay as full as they were.
        if let Some(load) = &mut tier.seen.replicas[lost].load {
            load.kv_usage = None;
        }
        tier.at(&format!("10:00:{:02}", 10 * (lost + 1) - 5));
        let answer = tier.round().required();
        assert!(answer >= Some(6), "{answer:?} after {lost} more were lost");
    }
    tier.at("10:09");
    let answer = tier.round().required();
    assert!(answer >= Some(6), "{answer:?}");
    tier.at("10:11").expect_unknown("kvCache has been missing");
}

#[test]
fn addresses_where_nothing_listens_are_neither_replicas_nor_in_use() {
    let mut tier = to_zero();
    tier.at("10:00").activator(0.0).ready(0).and(6, Absent).expect(0);
    tier.at("10:30").expect(0);
    let mut tier = Timeline::with_memory(policy(), Memory::started(instant("10:00")));
    tier.at("10:00").ready(2).and(6, Absent).kv(0.4);
    assert_eq!(tier.round().required(), Some(2), "the two that serve, not the eight listed");
}

#[test]
fn requests_at_the_activator_wake_a_tier_that_nobody_can_see() {
    let mut tier = to_zero();
    tier.at("10:00").replicas_unknown("no such name").activator(0.0).expect_unknown("no such name");
    tier.at("10:01").activator(3.0).expect(1);
    let mut tier = Timeline::new(policy());
    tier.at("10:00").replicas_unknown("no such name").activator(3.0).expect_unknown("no such name");
}

#[test]
fn an_activator_that_can_t_be_read_any_more_lowers_nothing() {
    let mut tier = to_zero();
    tier.at("10:00").ready(3).kv(0.1).activator(500.0);
    let before = tier.round().required();
    assert!(before >= Some(3), "{before:?}");
    tier.at("10:01").activator_unreadable();
    for minute in 2..40 {
        tier.at(&format!("10:{minute:02}"));
        assert_eq!(tier.round().required(), before, "minute {minute}");
    }
}

#[test]
fn replicas_that_kubernetes_cut_off_from_traffic_aren_t_given_back_for_being_idle() {
    let pods: Vec<Pod> = (0..4).map(|n| Pod::new(&format!("r{n}"), instant("06:00"), 180)).collect();
    let mut tier = tier();
    let listed = |tier: &mut Timeline, cut_off: usize| {
        tier.seen.replicas = pods.iter().map(|pod| pod.seen(tier.now)).collect();
        for replica in &mut tier.seen.replicas[..cut_off] {
            replica.start.as_mut().unwrap().ready = None;
        }
    };
    tier.at("10:00");
    listed(&mut tier, 0);
    tier.kv(0.7).work(0.7).running(20.0).waiting(0.0).expect(4);
    // The API server was away: all nodes' leases ran out, and Services have no endpoint left.
    tier.at("10:05");
    listed(&mut tier, 4);
    tier.kv(0.0).work(0.0).running(0.0).waiting(0.0).expect(4);
    tier.at("10:30").expect(4).because("unknownLoad").notes("4 replicas not ready for Kubernetes any more");
    // One that stays so takes a place that it doesn't fill.
    tier.at("10:31");
    listed(&mut tier, 1);
    tier.kv(0.1).work(0.1).running(2.0).waiting(0.0).expect(4);
    tier.at("10:50").expect(2);
}
