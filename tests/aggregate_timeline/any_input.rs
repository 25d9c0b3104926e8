//! Clocks that jump, numbers that are none, and any history at all.

use std::time::Duration;

use keda_vllm_scaler::aggregate::FailureKind;
use keda_vllm_scaler::decision::ReplicaState;
use keda_vllm_scaler::engines::EngineSample;
use keda_vllm_scaler::supply::Phase;
use proptest::prelude::*;

use super::{at, engine, failure, histogram, only, output_rate, page, page_of, tier};

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
