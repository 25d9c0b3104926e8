//! What a scaler that has just begun may say. Each test name is a rule.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

#[path = "common/timeline.rs"]
mod timeline;

use keda_vllm_scaler::decision::Memory;
use keda_vllm_scaler::decision::ReplicaState::Silent;
use timeline::{Timeline, instant, policy};

#[test]
fn nothing_is_lowered_until_one_hold_has_been_watched() {
    let mut tier = Timeline::with_memory(policy(), Memory::started(instant("10:00")));
    tier.at("10:00").ready(7).kv(0.1).expect(7).because("justStarted: 7 replicas seen");
    tier.at("10:02").ready(6).kv(0.1).expect(7);
    tier.at("10:03:25").expect(7);
    tier.at("10:03:30").expect(1);
}

#[test]
fn the_current_count_is_the_floor_after_a_start_where_it_is_known() {
    let mut tier = Timeline::with_memory(policy(), Memory::started(instant("10:00")));
    tier.at("10:00").ready(2).current(9).expect(9).because("9 replicas now");
    tier.at("10:04").expect(1);
}

#[test]
fn a_start_without_anything_known_is_no_answer() {
    let mut tier = Timeline::with_memory(policy(), Memory::started(instant("10:00")));
    tier.at("10:00").and(3, Silent).expect_unknown("0 of 3 replicas are known");
}

#[test]
fn a_restart_takes_up_the_answer_and_watches_one_hold() {
    let mut tier = Timeline::new(policy());
    tier.at("10:00").ready(9).kv(0.8).expect(9);
    let kept = Memory::from_bytes(&tier.memory.to_bytes()).unwrap();
    let mut tier = Timeline::with_memory(policy(), kept.resumed(instant("10:02")));
    tier.at("10:02").ready(2).kv(0.1).expect(9).because("hold");
    tier.at("10:05:25").expect(9);
    tier.at("10:05:35").expect(1);
}

#[test]
fn a_restart_renews_no_bounded_hold() {
    let few_known = |tier: &mut Timeline| {
        tier.ready(5).state_of("r0", Silent).state_of("r1", Silent).state_of("r2", Silent);
    };
    let mut tier = Timeline::new(policy());
    tier.at("10:00").ready(5).kv(0.8).expect(5);
    few_known(tier.at("10:05"));
    tier.expect(5).because("the last answer of 5 is kept for 10m");
    tier.at("10:12").expect(5);
    let kept = Memory::from_bytes(&tier.memory.to_bytes()).unwrap();
    let mut tier = Timeline::with_memory(policy(), kept.resumed(instant("10:12:05")));
    few_known(tier.at("10:12:05").current(5));
    tier.expect(5);
    tier.at("10:14:55").expect(5);
    // Ten minutes from 10:05, less the five seconds in which nobody watched.
    tier.at("10:15:15").expect_unknown("2 of 5 replicas are known");
}

#[test]
fn a_restart_that_sees_nothing_answers_nothing_however_fresh_the_last_answer_is() {
    // The answer may have been raised since it was written, by this process's forerunner or by a peer.
    let mut tier = Timeline::new(policy());
    tier.at("10:00").ready(4).kv(0.8).expect(4);
    let kept = Memory::from_bytes(&tier.memory.to_bytes()).unwrap();
    let mut tier = Timeline::with_memory(policy(), kept.resumed(instant("10:00:30")));
    tier.at("10:00:30").and(19, Silent).expect_unknown("0 of 19 replicas are known");
    // What was answered here from what was seen here is kept as ever.
    tier.at("10:01").ready(19).kv(0.8).expect(19);
    tier.at("10:02").replicas_unknown("no answer").expect(19).because("the last answer of 19 is kept");
}

#[test]
fn after_a_restart_a_tier_that_was_at_zero_is_there_only_where_nothing_speaks_against_it() {
    let mut tier = Timeline::new(policy());
    tier.policy.min = 0;
    tier.at("10:00").activator(0.0).expect(0);
    let kept = Memory::from_bytes(&tier.memory.to_bytes()).unwrap();
    let resumed = |at: &str| {
        let mut tier = Timeline::with_memory(tier.policy.clone(), kept.clone().resumed(instant(at)));
        tier.at(at);
        tier
    };
    // Replicas that don't answer were started since.
    resumed("10:01").and(19, Silent).activator(0.0).expect_unknown("0 of 19 replicas are known");
    resumed("10:01").and(19, Silent).activator(5.0).expect_unknown("0 of 19 replicas are known");
    resumed("10:01").replicas_unknown("no address").activator_unreadable().expect_unknown("no address");
    // Nobody listed, and the activator speaks.
    resumed("10:01").replicas_unknown("no address").activator(0.0).expect(0);
    let mut woken = resumed("10:01");
    woken.replicas_unknown("no address").activator(5.0);
    assert!(woken.round().required() >= Some(1));
}

#[test]
fn last_week_s_answer_is_not_taken_up() {
    let mut tier = Timeline::new(policy());
    tier.at("00:10").ready(9).kv(0.8).expect(9);
    let kept = Memory::from_bytes(&tier.memory.to_bytes()).unwrap();
    let mut tier = Timeline::with_memory(policy(), kept.resumed(instant("10:02")));
    tier.at("10:02").ready(2).kv(0.1).expect(2).because("justStarted");
}

#[test]
fn another_version_s_memory_is_not_read() {
    assert!(Memory::from_bytes(br#"{"version":0,"memory":{}}"#).is_none());
    assert!(Memory::from_bytes(b"garbage").is_none());
    assert!(Memory::from_bytes(b"").is_none());
    assert!(Memory::from_bytes(&Memory::default().to_bytes()).is_some());
}
