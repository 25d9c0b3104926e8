//! A capacity that is thought wrong is put right by what replicas serve while requests wait at them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

#[path = "common/timeline.rs"]
mod timeline;

use std::time::Duration;

use keda_vllm_scaler::decision::Policy;
use timeline::{Timeline, policy};

/// Four replicas of which each serves this work, in what it is thought to carry.
fn four(policy: Policy, work: f64, waiting: f64) -> Timeline {
    let mut tier = Timeline::new(policy);
    tier.at("09:00").ready(4).running(20.0).work(work).waiting(waiting);
    tier.each(|load| load.rates_over = Some(Duration::from_secs(30)));
    tier.round();
    tier
}

fn input_rate(tier: &Timeline) -> f64 {
    tier.last.as_ref().unwrap().capacity.rates.input_tokens_per_second
}

#[test]
fn replicas_that_serve_less_than_thought_while_requests_wait_are_thought_smaller() {
    let mut tier = four(policy(), 0.8, 3.0);
    // Two minutes to warm up, and ten replica-minutes of four replicas.
    tier.at("09:04").round();
    assert_eq!(input_rate(&tier), 8000.0);
    tier.at("09:06").round();
    assert!((input_rate(&tier) - 6400.0).abs() < 1e-6, "{}", input_rate(&tier));
    let told = &tier.last.as_ref().unwrap().capacity.fit;
    assert!(told.contains("x 0.80, as served in") && told.contains("with requests waiting"), "{told}");

    // The queue is gone: what was learned stays. 0.64 of 8,000 and 700 is 0.8 of what they really carry.
    tier.waiting(0.0).work(0.64).at("09:30").expect(4).because("tokens asks 4.00");
}

#[test]
fn replicas_that_serve_more_than_thought_are_thought_larger() {
    let mut tier = four(policy(), 1.25, 3.0);
    tier.at("09:06").round();
    assert!((input_rate(&tier) - 10_000.0).abs() < 1e-6, "{}", input_rate(&tier));
}

#[test]
fn without_a_queue_nothing_is_checked() {
    let mut tier = four(policy(), 0.8, 0.0);
    tier.at("10:00").round();
    assert_eq!(input_rate(&tier), 8000.0);
}

#[test]
fn a_request_that_waits_on_one_page_is_no_queue() {
    let mut tier = four(policy(), 0.4, 0.0);
    for minute in 1..=40 {
        tier.at(&format!("09:{minute:02}:00")).waiting(1.0).at(&format!("09:{minute:02}:10")).waiting(0.0);
    }
    tier.round();
    assert_eq!(input_rate(&tier), 8000.0);
}

#[test]
fn one_that_hangs_with_requests_waiting_makes_no_other_look_slow() {
    let mut tier = four(policy(), 0.5, 0.0);
    let hung = tier.seen.replicas[0].load.as_mut().unwrap();
    timeline::work_of(hung, 0.0);
    hung.waiting = Some(400.0);
    tier.at("10:00").round();
    assert_eq!(input_rate(&tier), 8000.0);
}

#[test]
fn learning_that_is_off_checks_nothing() {
    let mut fixed = policy();
    fixed.capacity.learn = false;
    let mut tier = four(fixed, 0.8, 3.0);
    tier.at("09:30").round();
    assert_eq!(input_rate(&tier), 8000.0);
}
