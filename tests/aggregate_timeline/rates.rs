//! Rates, resets and missed rounds.

use keda_vllm_scaler::aggregate::FailureKind;
use keda_vllm_scaler::engines::{EnginePage, EngineSample};
use keda_vllm_scaler::supply::{Discovered, Phase, Target};

use super::{at, engine, failure, only, output_rate, page, page_of, target, tier};

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
    let discovered =
        Discovered::Targets { targets: vec![successor], authoritative: true, current: Some(1), scale: None };
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
        &Discovered::Targets { targets: vec![moved], authoritative: true, current: None, scale: None },
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
fn a_number_that_no_replica_can_have_counted_is_in_no_total() {
    let mut tier = tier(&["a"], Phase::Listed);
    tier.page("a", at(0.0), Ok(page(100.0)));
    tier.page("a", at(5.0), Ok(page(1e300)));
    assert_eq!(tier.observe(at(5.0)).totals.output_tokens, 0.0);
    // It fell: as after a restart it has counted from zero.
    tier.page("a", at(10.0), Ok(page(130.0)));
    tier.page("a", at(15.0), Ok(page(150.0)));
    assert_eq!(tier.observe(at(15.0)).totals.output_tokens, 150.0);
}

#[test]
fn what_was_served_while_the_clock_was_set_back_a_little_is_in_the_totals() {
    let mut tier = tier(&["a"], Phase::Listed);
    tier.page("a", at(5.0), Ok(page(100.0)));
    tier.page("a", at(4.9), Ok(page(5100.0)));
    tier.page("a", at(9.9), Ok(page(5200.0)));
    assert_eq!(tier.observe(at(9.9)).totals.output_tokens, 5100.0);
}

#[test]
fn two_lives_behind_one_address_without_a_start_time_give_no_rate_beyond_what_a_replica_can_do() {
    let mut tier = tier(&["a"], Phase::Listed);
    for turn in 0..10 {
        // A process that began long ago and one that is young answer in turn.
        let counted = if turn % 2 == 0 { 1e3 } else { 1e8 };
        tier.page("a", at(f64::from(turn) * 5.0), Ok(page(counted + f64::from(turn))));
        let load = tier.observe(at(f64::from(turn) * 5.0)).replicas[0].load.clone().unwrap();
        assert_eq!(load.output_tokens_per_second, None, "turn {turn}");
    }
    let counted = tier.observe(at(45.0)).totals.output_tokens;
    assert!(counted < 1e5, "nor a load: {counted}");
}
