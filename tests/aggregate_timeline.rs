//! Pages of a tier in, an observation out, told as timelines.

#![expect(clippy::unwrap_used, reason = "a test that finds nothing where something must be has failed")]

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use keda_vllm_scaler::aggregate::{FailureKind, MAX_REPLICAS, PageFailure, TierWindow, WindowSettings};
use keda_vllm_scaler::decision::{Observation, ReplicaObservation, ReplicaState};
use keda_vllm_scaler::engines::{Dialect, EnginePage, EngineSample, Histogram};
use keda_vllm_scaler::supply::{Discovered, Phase, Target};
use proptest::prelude::*;

const SETTINGS: WindowSettings = WindowSettings {
    rate_window: Duration::from_secs(30),
    stale_after: Duration::from_secs(15),
    shape_window: Duration::from_mins(2),
    hold_unknown: Duration::from_mins(10),
};

/// `seconds` into the timeline.
fn at(seconds: f64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_795_971_000, 0).unwrap() + TimeDelta::microseconds((seconds * 1e6) as i64)
}

fn target(id: &str, phase: Phase) -> Target {
    Target {
        id: id.to_owned(),
        name: format!("name of {id}"),
        url: Some(format!("http://{id}/metrics")),
        phase,
        since: None,
    }
}

fn targets(ids: &[&str], phase: Phase) -> Discovered {
    Discovered::Targets {
        targets: ids.iter().map(|id| target(id, phase)).collect(),
        authoritative: phase != Phase::Listed,
        current: None,
    }
}

fn tier(ids: &[&str], phase: Phase) -> TierWindow {
    let mut tier = TierWindow::new(SETTINGS);
    tier.discovered(&targets(ids, phase), at(0.0));
    tier
}

/// An engine that has counted this much, idle otherwise.
fn engine(name: &str, counted: f64) -> EngineSample {
    EngineSample {
        engine: name.to_owned(),
        running: Some(0.0),
        waiting: Some(0.0),
        kv_usage: Some(0.0),
        prompt_tokens_total: Some(counted * 10.0),
        computed_prompt_tokens_total: Some(counted * 6.0),
        generation_tokens_total: Some(counted),
        preemptions_total: Some(0.0),
        finished_total: Some(counted / 10.0),
        ..EngineSample::default()
    }
}

fn page_of(engines: Vec<EngineSample>) -> EnginePage {
    EnginePage {
        dialect: Dialect::VllmV1,
        model: Some("tiny".to_owned()),
        process_start_seconds: Some(1.7e9),
        engines,
        kv_tokens_per_engine: Some(1536.0),
        awake: Some(true),
        rejected_total: Some(0.0),
        speculative: false,
        missing: Vec::new(),
    }
}

fn page(counted: f64) -> EnginePage {
    page_of(vec![engine("0", counted)])
}

fn failure(kind: FailureKind) -> PageFailure {
    PageFailure { kind, message: format!("it is {}", kind.name()) }
}

fn only(observation: &Observation) -> &ReplicaObservation {
    assert_eq!(observation.replicas.len(), 1);
    &observation.replicas[0]
}

fn output_rate(observation: &Observation) -> Option<f64> {
    only(observation).load.as_ref().and_then(|load| load.output_tokens_per_second)
}

fn histogram(bounds: &[f64], cumulative: &[f64], sum: f64) -> Histogram {
    let count = cumulative.last().copied().unwrap_or(0.0);
    Histogram { bounds: bounds.to_vec(), cumulative: cumulative.to_vec(), count, sum }
}

#[test]
fn the_first_page_of_a_process_gives_no_rate_and_the_second_does() {
    let mut tier = tier(&["a"], Phase::Listed);
    tier.page("a", at(0.0), Ok(page(1000.0)));
    let first = tier.observe(at(1.0));
    assert_eq!(output_rate(&first), None);
    assert_eq!(only(&first).load.as_ref().unwrap().running, Some(0.0));

    tier.page("a", at(5.0), Ok(page(1100.0)));
    let load = only(&tier.observe(at(6.0))).load.clone().unwrap();
    assert_eq!(load.output_tokens_per_second, Some(20.0));
    assert_eq!(load.input_tokens_per_second, Some(200.0));
    assert_eq!(load.uncached_input_tokens_per_second, Some(120.0));
    assert_eq!(load.requests_per_second, Some(2.0));
    assert_eq!(load.rejected_per_second, Some(0.0));
    assert_eq!(load.preemptions_per_second, Some(0.0));
}

#[test]
fn a_rate_is_the_mean_over_the_rate_window() {
    let mut tier = tier(&["a"], Phase::Listed);
    // 100 a second for 30 s, then nothing for 15 s.
    for second in (0..=45).step_by(5) {
        tier.page("a", at(f64::from(second)), Ok(page(f64::from(second.min(30) * 100))));
    }
    assert_eq!(output_rate(&tier.observe(at(45.0))), Some(50.0));
}

#[test]
fn a_series_absent_on_an_earlier_page_of_the_same_process_was_zero() {
    let mut tier = tier(&["a"], Phase::Listed);
    let without = EngineSample { finished_total: None, ..engine("0", 0.0) };
    tier.page("a", at(0.0), Ok(page_of(vec![without])));
    let with = EngineSample { finished_total: Some(10.0), ..engine("0", 0.0) };
    tier.page("a", at(5.0), Ok(page_of(vec![with])));
    assert_eq!(only(&tier.observe(at(5.0))).load.as_ref().unwrap().requests_per_second, Some(2.0));
}

#[test]
fn a_histogram_that_appears_with_the_first_request_counts_from_zero() {
    let mut tier = tier(&["a"], Phase::Listed);
    tier.page("a", at(0.0), Ok(page(0.0)));
    let with =
        EngineSample { queue_time: Some(histogram(&[1.0, 2.0], &[0.0, 10.0], 15.0)), ..engine("0", 0.0) };
    tier.page("a", at(5.0), Ok(page_of(vec![with])));
    assert_eq!(tier.observe(at(5.0)).load.queue_time_p95_seconds.map(|p95| p95.value), Some(1.95));
}

#[test]
fn a_counter_that_the_page_never_had_has_no_rate() {
    let mut tier = tier(&["a"], Phase::Listed);
    for second in [0.0, 5.0] {
        let engine = EngineSample { generation_tokens_total: None, ..engine("0", second) };
        tier.page("a", at(second), Ok(page_of(vec![engine])));
    }
    assert_eq!(output_rate(&tier.observe(at(5.0))), None);
}

#[test]
fn a_counter_that_fell_is_another_process_and_gives_no_rate_until_its_second_page() {
    let mut tier = tier(&["a"], Phase::Listed);
    tier.page("a", at(0.0), Ok(page(1000.0)));
    tier.page("a", at(5.0), Ok(page(1500.0)));
    tier.page("a", at(10.0), Ok(page(20.0)));
    assert_eq!(output_rate(&tier.observe(at(10.0))), None);
    tier.page("a", at(15.0), Ok(page(70.0)));
    assert_eq!(output_rate(&tier.observe(at(15.0))), Some(10.0));
}

#[test]
fn a_restart_is_seen_by_its_start_time_even_where_the_counters_are_already_higher() {
    let mut tier = tier(&["a"], Phase::Listed);
    tier.page("a", at(0.0), Ok(page(10.0)));
    let restarted = EnginePage { process_start_seconds: Some(1.8e9), ..page(5000.0) };
    tier.page("a", at(5.0), Ok(restarted));
    assert_eq!(output_rate(&tier.observe(at(5.0))), None);
}

#[test]
fn a_new_replica_on_the_same_address_begins_anew() {
    let mut tier = tier(&["pod-1"], Phase::Ready);
    tier.page("pod-1", at(0.0), Ok(page(10.0)));
    let successor = Target { url: Some("http://pod-1/metrics".to_owned()), ..target("pod-2", Phase::Ready) };
    let discovered = Discovered::Targets { targets: vec![successor], authoritative: true, current: Some(1) };
    tier.discovered(&discovered, at(3.0));
    tier.page("pod-1", at(4.0), Ok(page(20.0))); // was under way when the pod vanished
    tier.page("pod-2", at(5.0), Ok(page(5000.0)));
    let observation = tier.observe(at(5.0));
    assert_eq!(only(&observation).id, "pod-2");
    assert_eq!(output_rate(&observation), None);
}

#[test]
fn a_replica_at_another_address_is_another_server() {
    let mut tier = tier(&["a"], Phase::Ready);
    tier.page("a", at(0.0), Ok(page(10.0)));
    let moved = Target { url: Some("http://elsewhere/metrics".to_owned()), ..target("a", Phase::Ready) };
    tier.discovered(
        &Discovered::Targets { targets: vec![moved], authoritative: true, current: None },
        at(1.0),
    );
    assert_eq!(only(&tier.observe(at(1.0))).load, None);
}

#[test]
fn a_missed_round_gives_the_mean_over_the_longer_gap() {
    let mut tier = tier(&["a"], Phase::Listed);
    tier.page("a", at(0.0), Ok(page(0.0)));
    tier.page("a", at(5.0), Err(failure(FailureKind::Timeout)));
    tier.page("a", at(10.0), Ok(page(100.0)));
    assert_eq!(output_rate(&tier.observe(at(10.0))), Some(10.0));
}

#[test]
fn a_gap_beyond_the_stale_limit_gives_no_rate() {
    let mut tier = tier(&["a"], Phase::Listed);
    tier.page("a", at(0.0), Ok(page(0.0)));
    tier.page("a", at(15.5), Ok(page(100.0)));
    assert_eq!(output_rate(&tier.observe(at(16.0))), None);
    tier.page("a", at(20.5), Ok(page(150.0)));
    assert_eq!(output_rate(&tier.observe(at(21.0))), Some(10.0));
}

#[test]
fn a_series_that_vanishes_and_returns_never_counts_twice() {
    let mut tier = tier(&["a"], Phase::Listed);
    tier.page("a", at(0.0), Ok(page(1000.0)));
    let lost = EngineSample { generation_tokens_total: None, ..engine("0", 1000.0) };
    tier.page("a", at(5.0), Ok(page_of(vec![lost])));
    tier.page("a", at(10.0), Ok(page(1010.0)));
    assert_eq!(output_rate(&tier.observe(at(10.0))), None);
    tier.page("a", at(15.0), Ok(page(1015.0)));
    assert!(output_rate(&tier.observe(at(15.0))).unwrap() <= 1.0);
}

#[test]
fn computed_input_that_is_made_from_two_counters_may_dip_without_a_restart() {
    let mut tier = tier(&["a"], Phase::Listed);
    let computed = |total: f64, counted: f64| {
        page_of(vec![EngineSample { computed_prompt_tokens_total: Some(total), ..engine("0", counted) }])
    };
    tier.page("a", at(0.0), Ok(computed(100.0, 10.0)));
    tier.page("a", at(5.0), Ok(computed(90.0, 20.0)));
    let load = only(&tier.observe(at(5.0))).load.clone().unwrap();
    assert_eq!(
        (load.uncached_input_tokens_per_second, load.output_tokens_per_second),
        (Some(0.0), Some(2.0))
    );
    tier.page("a", at(10.0), Ok(computed(150.0, 30.0)));
    let load = only(&tier.observe(at(10.0))).load.clone().unwrap();
    assert_eq!(load.uncached_input_tokens_per_second, Some(5.0));
}

#[test]
fn engines_are_summed_and_their_kv_usage_is_averaged() {
    let mut tier = tier(&["a"], Phase::Listed);
    let engines = |counted: f64| {
        let busy = EngineSample {
            running: Some(4.0),
            waiting: Some(3.0),
            waiting_deferred: Some(1.0),
            kv_usage: Some(0.8),
            ..engine("0", counted)
        };
        // Its gauges have not been set yet; its counters stand at what they are.
        let unset =
            EngineSample { running: None, waiting: None, kv_usage: None, ..engine("1", 2.0 * counted) };
        page_of(vec![busy, unset])
    };
    tier.page("a", at(0.0), Ok(engines(0.0)));
    tier.page("a", at(5.0), Ok(engines(100.0)));
    let load = only(&tier.observe(at(5.0))).load.clone().unwrap();
    assert_eq!((load.running, load.waiting, load.waiting_deferred), (Some(4.0), Some(3.0), Some(1.0)));
    assert_eq!((load.kv_usage, load.kv_tokens), (Some(0.4), Some(3072.0)));
    assert_eq!(load.output_tokens_per_second, Some(60.0));
}

#[test]
fn one_engine_that_restarts_is_not_hidden_by_the_growth_of_another() {
    let mut tier = tier(&["a"], Phase::Listed);
    tier.page("a", at(0.0), Ok(page_of(vec![engine("0", 1000.0), engine("1", 1000.0)])));
    tier.page("a", at(5.0), Ok(page_of(vec![engine("0", 9000.0), engine("1", 10.0)])));
    assert_eq!(output_rate(&tier.observe(at(5.0))), None);
}

#[test]
fn a_replica_without_a_fresh_page_is_silent_and_its_load_unknown() {
    let mut tier = tier(&["a", "b"], Phase::Ready);
    tier.page("a", at(0.0), Ok(page(0.0)));
    tier.page("b", at(0.0), Ok(page(0.0)));
    tier.page("a", at(10.0), Err(failure(FailureKind::Timeout)));
    tier.page("b", at(10.0), Ok(page(0.0)));
    let fresh = tier.observe(at(15.0));
    assert_eq!((fresh.count(ReplicaState::Ready), &fresh.replicas[0].error), (2, &None));

    let observation = tier.observe(at(16.0));
    let silent = &observation.replicas[0];
    assert_eq!((silent.state, &silent.load), (ReplicaState::Silent, &None));
    assert_eq!(silent.page_age, Some(Duration::from_secs(16)));
    assert_eq!(silent.error.as_deref(), Some("it is timeout"));
    assert_eq!(observation.replicas[1].state, ReplicaState::Ready);
    assert_eq!(observation.replicas_unknown, None);
}

#[test]
fn a_page_that_cant_be_read_keeps_its_reason() {
    let mut tier = tier(&["a"], Phase::Ready);
    tier.page("a", at(0.0), Err(failure(FailureKind::BadPage)));
    assert_eq!(only(&tier.observe(at(1.0))).error.as_deref(), Some("it is badPage"));
    tier.page("a", at(5.0), Ok(page_of(Vec::new())));
    let observation = tier.observe(at(5.0));
    assert_eq!(only(&observation).state, ReplicaState::Silent);
    assert_eq!(only(&observation).error.as_deref(), Some("0 engines on the page"));
}

#[test]
fn listed_replicas_of_which_none_can_be_read_are_unknown_and_never_zero() {
    let mut tier = tier(&["a", "b"], Phase::Listed);
    let before_the_first_round = tier.observe(at(0.0));
    assert!(before_the_first_round.replicas_unknown.unwrap().contains("not read yet: 2"));

    tier.page("a", at(1.0), Err(failure(FailureKind::Refused)));
    tier.page("b", at(1.0), Err(failure(FailureKind::Refused)));
    let refused = tier.observe(at(1.0));
    assert_eq!(refused.count(ReplicaState::Absent), 2);
    assert!(refused.replicas_unknown.unwrap().contains("refused: 2"));

    tier.page("a", at(5.0), Ok(page(0.0)));
    let one_serves = tier.observe(at(5.0));
    assert_eq!(one_serves.replicas_unknown, None);
    assert_eq!((one_serves.count(ReplicaState::Ready), one_serves.count(ReplicaState::Absent)), (1, 1));

    let stale = tier.observe(at(60.0));
    assert_eq!(stale.count(ReplicaState::Silent), 1);
    assert!(stale.replicas_unknown.unwrap().contains("stale: 1"));
}

#[test]
fn a_listed_replica_that_served_and_refuses_is_silent_until_the_hold_is_over() {
    let mut tier = tier(&["a", "b"], Phase::Listed);
    tier.page("a", at(0.0), Ok(page(0.0)));
    for minute in 1..=11 {
        let now = at(f64::from(minute) * 60.0);
        tier.page("a", now, Err(failure(FailureKind::Refused)));
        tier.page("b", now, Ok(page(0.0)));
        let state = tier.observe(now).replicas[0].state;
        let expected = if minute <= 10 { ReplicaState::Silent } else { ReplicaState::Absent };
        assert_eq!(state, expected, "minute {minute}");
    }
}

#[test]
fn a_starting_replica_with_a_page_stays_starting_and_its_load_counts() {
    let mut tier = tier(&["a"], Phase::Starting);
    tier.page("a", at(0.0), Ok(page(0.0)));
    let observation = tier.observe(at(1.0));
    assert_eq!(only(&observation).state, ReplicaState::Starting);
    assert!(only(&observation).load.is_some());
}

#[test]
fn a_terminating_replica_carries_load_while_its_page_is_fresh() {
    let mut tier = tier(&["a"], Phase::Terminating);
    tier.page("a", at(0.0), Ok(page(0.0)));
    assert!(only(&tier.observe(at(1.0))).load.is_some());
    let gone_quiet = tier.observe(at(20.0));
    assert_eq!((only(&gone_quiet).state, &only(&gone_quiet).load), (ReplicaState::Terminating, &None));
}

#[test]
fn a_sleeping_engine_doesnt_claim_to_be_idle() {
    let mut tier = tier(&["a"], Phase::Listed);
    tier.page("a", at(0.0), Ok(EnginePage { awake: Some(false), ..page(0.0) }));
    let observation = tier.observe(at(1.0));
    assert_eq!(only(&observation).state, ReplicaState::Asleep);
    let load = only(&observation).load.as_ref().unwrap();
    assert_eq!((load.running, load.waiting, load.kv_usage), (None, None, None));
}

#[test]
fn an_empty_answer_is_zero_replicas_only_from_a_source_that_can_tell() {
    let mut tier = tier(&["a"], Phase::Ready);
    let empty = |authoritative| Discovered::Targets { targets: Vec::new(), authoritative, current: Some(0) };
    tier.discovered(&empty(true), at(1.0));
    let none = tier.observe(at(1.0));
    assert_eq!((none.replicas_unknown, none.replicas.len(), none.current), (None, 0, Some(0)));
    assert!(none.authoritative);

    tier.discovered(&empty(false), at(2.0));
    assert!(tier.observe(at(2.0)).replicas_unknown.is_some());
}

#[test]
fn a_source_that_cant_say_leaves_the_replicas_last_seen() {
    let mut tier = tier(&["a"], Phase::Listed);
    tier.page("a", at(0.0), Ok(page(0.0)));
    tier.discovered(&Discovered::Unknown { why: "NXDOMAIN".to_owned() }, at(2.0));
    tier.page("a", at(5.0), Ok(page(50.0)));
    let observation = tier.observe(at(5.0));
    assert_eq!(observation.replicas_unknown.as_deref(), Some("NXDOMAIN"));
    assert_eq!(output_rate(&observation), Some(10.0));
    assert!(TierWindow::new(SETTINGS).observe(at(0.0)).replicas_unknown.is_some());
}

#[test]
fn a_source_that_lists_everything_is_not_believed() {
    let mut tier = tier(&["a"], Phase::Ready);
    let targets: Vec<Target> =
        (0..=MAX_REPLICAS).map(|index| target(&index.to_string(), Phase::Ready)).collect();
    tier.discovered(&Discovered::Targets { targets, authoritative: true, current: None }, at(1.0));
    let observation = tier.observe(at(1.0));
    assert!(observation.replicas_unknown.unwrap().contains("5001 replicas"));
    assert_eq!(observation.replicas.len(), 1);
}

#[test]
fn a_replica_listed_twice_is_one() {
    let mut tier = tier(&["a", "a"], Phase::Ready);
    assert_eq!(tier.observe(at(0.0)).replicas.len(), 1);
}

#[test]
fn since_is_the_sources_word_where_it_set_the_state() {
    let mut tier = TierWindow::new(SETTINGS);
    let created = at(-100.0);
    let starting = Target { since: Some(created), ..target("a", Phase::Starting) };
    let ready = Target { since: Some(created), ..target("b", Phase::Ready) };
    let discovered =
        Discovered::Targets { targets: vec![starting, ready], authoritative: true, current: None };
    tier.discovered(&discovered, at(0.0));
    let observation = tier.observe(at(5.0));
    assert_eq!(observation.replicas[0].since, Some(created));
    assert_eq!(
        (observation.replicas[1].state, observation.replicas[1].since),
        (ReplicaState::Silent, Some(at(5.0)))
    );
}

#[test]
fn latency_quantiles_are_over_the_tier_and_the_shape_window() {
    let mut tier = tier(&["a", "b"], Phase::Listed);
    let with = |bounds: &[f64], cumulative: &[f64]| {
        page_of(vec![EngineSample {
            time_to_first_token: Some(histogram(bounds, cumulative, 0.0)),
            ..engine("0", 0.0)
        }])
    };
    tier.page("a", at(0.0), Ok(with(&[1.0, 2.0], &[500.0, 500.0])));
    tier.page("b", at(0.0), Ok(with(&[4.0], &[0.0])));
    assert_eq!(
        tier.observe(at(0.0)).load.time_to_first_token_p95_seconds,
        None,
        "what was before counts not"
    );

    tier.page("a", at(5.0), Ok(with(&[1.0, 2.0], &[510.0, 510.0])));
    tier.page("b", at(5.0), Ok(with(&[4.0], &[10.0])));
    let load = tier.observe(at(5.0)).load;
    // At 1 s lie the ten of a and 2.5 of the ten of b: the median is at 10/12.5.
    assert!((load.time_to_first_token_p50_seconds.unwrap().value - 0.8).abs() < 1e-9);
    assert!((load.time_to_first_token_p95_seconds.unwrap().value - 3.6).abs() < 1e-9);
    assert_eq!(tier.observe(at(200.0)).load.time_to_first_token_p95_seconds, None);
}

#[test]
fn mean_lengths_come_from_finished_requests() {
    let mut tier = tier(&["a"], Phase::Listed);
    let lengths = |finished: f64| {
        page_of(vec![EngineSample {
            request_prompt_tokens: Some(histogram(&[1000.0], &[finished], finished * 300.0)),
            request_generation_tokens: Some(histogram(&[1000.0], &[finished], finished * 50.0)),
            ..engine("0", finished)
        }])
    };
    tier.page("a", at(0.0), Ok(lengths(100.0)));
    let first = tier.observe(at(0.0)).load.mean_input_tokens;
    assert_eq!(first, Some(300.0), "of those that it had finished before");
    tier.page("a", at(5.0), Ok(lengths(110.0)));
    let load = tier.observe(at(5.0)).load;
    assert_eq!((load.mean_input_tokens, load.mean_output_tokens), (Some(300.0), Some(50.0)));
    assert!((load.mean_uncached_input_tokens.unwrap() - 180.0).abs() < 1e-9);
    // They outlive the replica and the shape window, and end with the longer one.
    tier.discovered(&targets(&["b"], Phase::Listed), at(6.0));
    assert_eq!(tier.observe(at(500.0)).load.mean_input_tokens, Some(300.0));
    assert_eq!(tier.observe(at(700.0)).load.mean_input_tokens, None);
}

#[test]
fn mean_lengths_fall_back_to_tokens_by_finished_requests() {
    let mut tier = tier(&["a"], Phase::Listed);
    tier.page("a", at(0.0), Ok(page(0.0)));
    tier.page("a", at(5.0), Ok(page(100.0)));
    let load = tier.observe(at(5.0)).load;
    assert_eq!((load.mean_input_tokens, load.mean_output_tokens), (Some(100.0), Some(10.0)));
    assert_eq!(load.mean_uncached_input_tokens, Some(60.0));
}

#[test]
fn the_backlog_grows_only_by_replicas_that_were_there_before() {
    let mut tier = tier(&["a", "b"], Phase::Listed);
    let waiting = |waiting: f64| page_of(vec![EngineSample { waiting: Some(waiting), ..engine("0", 0.0) }]);
    for second in [0.0, 5.0, 10.0] {
        tier.page("a", at(second), Ok(waiting(second * 2.0)));
    }
    tier.page("b", at(10.0), Ok(waiting(5000.0)));
    let growth = tier.observe(at(10.0)).load.waiting_growth_per_second.unwrap();
    assert!((growth - 2.0).abs() < 1e-9, "{growth}");
    tier.page("b", at(15.0), Ok(waiting(4990.0)));
    let growth = tier.observe(at(15.0)).load.waiting_growth_per_second.unwrap();
    assert!(growth.abs() < 1e-9, "{growth}");
    assert_eq!(tier.observe(at(100.0)).load.waiting_growth_per_second, None);
}

/// 10 steps, 20 inter-token times of 30 ms, 10 output and 60 computed input tokens for each `counted`.
fn teaching(counted: f64) -> EnginePage {
    page_of(vec![EngineSample {
        inter_token: Some(histogram(&[0.1], &[counted * 20.0], counted * 0.6)),
        iteration_tokens: Some(histogram(&[100.0], &[counted * 10.0], counted * 700.0)),
        ..engine("0", counted * 10.0)
    }])
}

#[test]
fn a_page_teaches_the_cost_of_a_step_once() {
    let mut tier = tier(&["a"], Phase::Listed);
    tier.page("a", at(0.0), Ok(teaching(1.0)));
    assert_eq!(only(&tier.observe(at(0.0))).load.as_ref().unwrap().steps, None);
    tier.page("a", at(5.0), Ok(teaching(11.0)));
    let steps = only(&tier.observe(at(5.0))).load.as_ref().unwrap().steps.unwrap();
    assert_eq!((steps.steps, steps.inter_token_count), (100.0, 200.0));
    assert!((steps.inter_token_mean_seconds - 0.03).abs() < 1e-9);
    assert_eq!((steps.prefill_tokens_per_step, steps.decode_tokens_per_step), (6.0, 1.0));
    assert_eq!(only(&tier.observe(at(6.0))).load.as_ref().unwrap().steps, None, "not twice");
}

#[test]
fn speculative_sleeping_and_restarted_engines_dont_teach() {
    let speculative = EnginePage { speculative: true, ..teaching(11.0) };
    let asleep = EnginePage { awake: Some(false), ..teaching(11.0) };
    let restarted = EnginePage { process_start_seconds: Some(1.8e9), ..teaching(11.0) };
    let idle = teaching(1.0);
    for page in [speculative, asleep, restarted, idle] {
        let mut tier = tier(&["a"], Phase::Listed);
        tier.page("a", at(0.0), Ok(teaching(1.0)));
        tier.page("a", at(5.0), Ok(page));
        assert_eq!(only(&tier.observe(at(5.0))).load.as_ref().unwrap().steps, None);
    }
}

#[test]
fn the_activators_number_has_an_age_and_ends_with_it() {
    let mut tier = tier(&["a"], Phase::Listed);
    assert_eq!(tier.observe(at(0.0)).activator, None);
    tier.activator(at(0.0), Err("connection refused".to_owned()));
    let unread = tier.observe(at(0.0)).activator.unwrap();
    assert_eq!((unread.queued, unread.error.as_deref()), (None, Some("connection refused")));

    tier.activator(at(1.0), Ok(7.0));
    let read = tier.observe(at(2.0)).activator.unwrap();
    assert_eq!((read.queued, read.age, read.error), (Some(7.0), Some(Duration::from_secs(1)), None));

    tier.activator(at(5.0), Ok(f64::NAN));
    let stale = tier.observe(at(20.0)).activator.unwrap();
    assert_eq!(stale.queued, None);
    assert!(stale.error.unwrap().contains("NaN"));
}

#[test]
fn a_clock_that_is_set_back_makes_no_stale_page_fresh_and_no_rate_negative() {
    let mut tier = tier(&["a"], Phase::Ready);
    tier.page("a", at(3600.0), Ok(page(0.0)));
    tier.page("a", at(3605.0), Ok(page(50.0)));
    assert_eq!(output_rate(&tier.observe(at(3605.0))), Some(10.0));

    assert_eq!(output_rate(&tier.observe(at(0.0))), None);
    assert_eq!(only(&tier.observe(at(16.0))).state, ReplicaState::Silent);

    tier.page("a", at(17.0), Ok(page(1000.0)));
    tier.page("a", at(10.0), Ok(page(1100.0))); // set back again, by less
    assert_eq!(output_rate(&tier.observe(at(10.0))), None);
    tier.page("a", at(15.0), Ok(page(1200.0)));
    assert_eq!(output_rate(&tier.observe(at(15.0))), Some(20.0));
}

#[test]
fn two_pages_at_one_instant_make_no_infinite_rate() {
    let mut tier = tier(&["a"], Phase::Ready);
    tier.page("a", at(0.0), Ok(page(0.0)));
    tier.page("a", at(0.0), Ok(page(100.0)));
    assert_eq!(output_rate(&tier.observe(at(0.0))), None);
    tier.page("a", at(10.0), Ok(page(200.0)));
    assert_eq!(output_rate(&tier.observe(at(10.0))), Some(20.0));
}

#[test]
fn numbers_that_are_none_are_unknown() {
    let mut tier = tier(&["a"], Phase::Ready);
    let broken = EngineSample {
        running: Some(f64::NAN),
        waiting: Some(f64::INFINITY),
        generation_tokens_total: Some(f64::INFINITY),
        ..engine("0", 10.0)
    };
    tier.page("a", at(0.0), Ok(page(0.0)));
    tier.page("a", at(5.0), Ok(page_of(vec![broken])));
    let load = only(&tier.observe(at(5.0))).load.clone().unwrap();
    assert_eq!((load.running, load.waiting, load.output_tokens_per_second), (None, None, None));
}

/// What one round does to one replica.
#[derive(Clone, Debug)]
enum Round {
    Work(u32),
    Restart(u32),
    Miss,
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let round = prop_oneof![
        6 => (0_u32..5000).prop_map(Round::Work),
        1 => (0_u32..50).prop_map(Round::Restart),
        1 => Just(Round::Miss),
    ];
    prop::collection::vec(round, 2..60)
}

proptest! {
    #[test]
    fn no_reset_miss_or_jump_of_the_clock_makes_a_rate_negative_or_infinite(
        rounds in rounds(),
        pauses in prop::collection::vec(-20.0_f64..20.0, 60),
    ) {
        let mut tier = tier(&["a"], Phase::Listed);
        let (mut counted, mut second, mut highest) = (0.0, 0.0, 0.0_f64);
        for (round, pause) in rounds.iter().zip(pauses) {
            second += pause;
            match round {
                Round::Work(more) => counted += f64::from(*more),
                Round::Restart(fresh) => counted = f64::from(*fresh),
                Round::Miss => {
                    tier.page("a", at(second), Err(failure(FailureKind::Timeout)));
                    continue;
                }
            }
            highest = highest.max(5000.0 / 1e-6);
            tier.page("a", at(second), Ok(page(counted)));
            if let Some(load) = &only(&tier.observe(at(second))).load {
                for rate in [
                    load.input_tokens_per_second,
                    load.uncached_input_tokens_per_second,
                    load.output_tokens_per_second,
                    load.requests_per_second,
                ].into_iter().flatten() {
                    prop_assert!(rate.is_finite() && rate >= 0.0 && rate <= highest * 10.0, "{rate}");
                }
                let uncached = load.uncached_input_tokens_per_second.unwrap_or(0.0);
                prop_assert!(uncached <= load.input_tokens_per_second.unwrap_or(f64::MAX));
            }
        }
    }

    #[test]
    fn splitting_a_count_over_engines_or_pages_doesnt_change_the_rate(
        parts in prop::collection::vec(0_u32..1000, 1..6), pages in 1_u32..6,
    ) {
        let whole: f64 = parts.iter().map(|part| f64::from(*part)).sum();
        let mut split = tier(&["a"], Phase::Listed);
        let mut single = tier(&["a"], Phase::Listed);
        single.page("a", at(0.0), Ok(page(0.0)));
        single.page("a", at(12.0), Ok(page(whole)));
        for step in 0..=pages {
            let share = f64::from(step) / f64::from(pages);
            let engines =
                parts.iter().enumerate().map(|(n, part)| engine(&n.to_string(), f64::from(*part) * share));
            split.page("a", at(12.0 * share), Ok(page_of(engines.collect())));
        }
        let split = output_rate(&split.observe(at(12.0))).unwrap();
        let single = output_rate(&single.observe(at(12.0))).unwrap();
        prop_assert!((split - single).abs() < 1e-6, "{split} {single}");
    }

    #[test]
    fn the_order_of_the_replicas_doesnt_matter(
        work in prop::collection::vec((0_u32..1000, 0_u32..50), 2..12).prop_shuffle(), turn in 1_usize..11,
    ) {
        let ids: Vec<String> = (0..work.len()).map(|n| format!("replica-{n}")).collect();
        let observed = |order: &[usize]| {
            let names: Vec<&str> = order.iter().map(|n| ids[*n].as_str()).collect();
            let mut tier = tier(&names, Phase::Ready);
            for step in 0..4_u32 {
                for n in order {
                    let (counted, waiting) = work[*n];
                    let engine = EngineSample {
                        waiting: Some(f64::from(waiting * step)),
                        // Whole numbers: sums of fractions differ in the last digit with their order.
                        finished_total: Some(f64::from(counted * step)),
                        queue_time: Some(histogram(&[1.0, 2.0], &[f64::from(counted * step), f64::from(2 * counted * step)], 0.0)),
                        ..engine("0", f64::from(counted * step))
                    };
                    tier.page(&ids[*n], at(f64::from(step) * 5.0), Ok(page_of(vec![engine])));
                }
            }
            let mut observation = tier.observe(at(16.0));
            observation.replicas.sort_by(|a, b| a.id.cmp(&b.id));
            observation
        };
        let order: Vec<usize> = (0..work.len()).collect();
        let mut turned = order.clone();
        turned.rotate_left(turn % work.len());
        prop_assert_eq!(observed(&order), observed(&turned));
    }
}

#[test]
#[ignore = "prints a figure; run it alone: cargo test --release --test aggregate_timeline -- --ignored --nocapture"]
fn a_round_of_a_thousand_replicas() {
    let ids: Vec<String> = (0..1000).map(|n| format!("replica-{n}")).collect();
    let names: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut tier = tier(&names, Phase::Ready);
    let (mut pages, mut observing) = (Duration::ZERO, Duration::ZERO);
    let bounds: Vec<f64> = (1..=22).map(f64::from).collect();
    for round in 0..20_u32 {
        let counted = f64::from(round);
        let latency = histogram(&bounds, &[counted * 3.0; 22], counted);
        let engine = EngineSample {
            time_to_first_token: Some(latency.clone()),
            inter_token: Some(latency.clone()),
            queue_time: Some(latency),
            ..engine("0", counted)
        };
        let read = vec![page_of(vec![engine]); ids.len()];
        let started = tokio::time::Instant::now();
        for (id, page) in ids.iter().zip(read) {
            tier.page(id, at(counted * 5.0), Ok(page));
        }
        pages += started.elapsed();
        let started = tokio::time::Instant::now();
        assert_eq!(tier.observe(at(counted * 5.0)).replicas.len(), 1000);
        observing += started.elapsed();
    }
    println!(
        "1,000 replicas: {:?} for the pages of a round, {:?} an observation",
        pages / 20,
        observing / 20
    );
}

#[test]
fn totals_are_exact_over_missed_rounds_and_restarts() {
    let mut tier = tier(&["a", "b"], Phase::Listed);
    tier.page("a", at(0.0), Ok(page(100.0)));
    tier.page("b", at(0.0), Ok(page(7.0)));
    assert_eq!(tier.observe(at(0.0)).totals.output_tokens, 0.0, "what was before counts not");
    tier.page("a", at(5.0), Ok(page(130.0)));
    // Far too long for a rate, and still the same process.
    tier.page("b", at(100.0), Ok(page(17.0)));
    assert_eq!(tier.observe(at(100.0)).totals.output_tokens, 40.0);
    // A process that began anew has counted from zero.
    tier.page("a", at(105.0), Ok(page(4.0)));
    let totals = tier.observe(at(105.0)).totals;
    assert_eq!(
        (totals.output_tokens, totals.input_tokens, totals.uncached_input_tokens),
        (44.0, 440.0, 264.0)
    );
}

#[test]
fn listed_replicas_of_which_most_refuse_stay_silent_beyond_the_hold() {
    let ids = ["a", "b", "c", "d", "e", "f"];
    let mut tier = tier(&ids, Phase::Listed);
    for id in ids {
        tier.page(id, at(0.0), Ok(page(0.0)));
    }
    let late = at(60.0 * 30.0);
    for (place, id) in ids.into_iter().enumerate() {
        let answer = if place < 2 { Ok(page(0.0)) } else { Err(failure(FailureKind::Refused)) };
        tier.page(id, late, answer);
    }
    let seen = tier.observe(late);
    assert_eq!((seen.count(ReplicaState::Ready), seen.count(ReplicaState::Silent)), (2, 4));
}
