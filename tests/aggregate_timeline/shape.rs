//! What the tier carries as a whole: latency, lengths of requests, backlog, the cost of a step, the activator.

use std::time::Duration;

use keda_vllm_scaler::engines::{EnginePage, EngineSample};
use keda_vllm_scaler::supply::Phase;

use super::{at, engine, histogram, only, page, page_of, targets, tier};

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
    assert!((growth - 1.0).abs() < 1e-9, "-2 a second, but for half of the span: {growth}");
    assert_eq!(tier.observe(at(100.0)).load.waiting_growth_per_second, None);
}

#[test]
fn a_queue_that_goes_from_the_activator_to_a_replica_is_no_growth() {
    let mut tier = tier(&["a"], Phase::Ready);
    let waiting = |waiting: f64| page_of(vec![EngineSample { waiting: Some(waiting), ..engine("0", 0.0) }]);
    // 2 requests a second come for half a minute, and nobody serves.
    for half in 0..=60 {
        tier.activator(at(f64::from(half) / 2.0), Ok(f64::from(half)));
    }
    let load = tier.observe(at(30.0)).load;
    assert_eq!(load.waiting_growth_per_second, Some(2.0));
    assert_eq!(load.rates_over, Some(Duration::from_secs(30)));
    // The replica is there, and all 60 go to it within a second.
    tier.page("a", at(30.0), Ok(waiting(0.0)));
    tier.page("a", at(31.0), Ok(waiting(62.0)));
    tier.activator(at(31.0), Ok(0.0));
    let growth = tier.observe(at(31.0)).load.waiting_growth_per_second.unwrap();
    assert!((growth - 2.0).abs() < 0.05, "62 here, 2 less there than half a minute ago: {growth}");
}

#[test]
fn an_activator_that_fails_or_whose_clock_jumps_tells_no_growth() {
    let mut tier = tier(&[], Phase::Ready);
    tier.activator(at(0.0), Ok(5.0));
    assert_eq!(tier.observe(at(0.0)).load.waiting_growth_per_second, None, "one reading");
    tier.activator(at(5.0), Ok(15.0));
    assert_eq!(tier.observe(at(5.0)).load.waiting_growth_per_second, Some(2.0));
    tier.activator(at(10.0), Err("refused".to_owned()));
    assert_eq!(tier.observe(at(40.0)).load.waiting_growth_per_second, None, "too old");
    tier.activator(at(3.0), Ok(20.0));
    assert_eq!(tier.observe(at(3.0)).load.waiting_growth_per_second, None, "the clock was set back");
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
