//! The forecast in the decision: what it takes the place of, what it never does, and that a restart changes nothing.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "common/timeline.rs"]
mod timeline;

use keda_vllm_scaler::decision::policy::ForecastPolicy;
use keda_vllm_scaler::decision::{BoundKind, Decision, Memory, Policy, ReplicaState, decide};
use timeline::{Timeline, policy};

fn priced() -> Policy {
    Policy { forecast: Some(ForecastPolicy::default()), ..policy() }
}

/// Four replicas that together serve `load` replicas' worth of tokens, half of it input, for so many rounds of 5 s.
fn serve(tier: &mut Timeline, rounds: usize, load: impl Fn(usize) -> f64) -> Vec<Decision> {
    (0..rounds)
        .map(|round| {
            let load = load(round);
            tier.now += chrono::TimeDelta::seconds(5);
            tier.seen.totals.uncached_input_tokens += load * 5.0 * 4000.0;
            tier.seen.totals.input_tokens += load * 5.0 * 4000.0;
            tier.seen.totals.output_tokens += load * 5.0 * 350.0;
            for replica in &mut tier.seen.replicas {
                if let Some(seen) = &mut replica.load {
                    seen.uncached_input_tokens_per_second = Some(load * 4000.0 / 4.0);
                    seen.output_tokens_per_second = Some(load * 350.0 / 4.0);
                    (seen.running, seen.waiting, seen.kv_usage) = (Some(4.0), Some(0.0), Some(0.1));
                }
            }
            tier.round().clone()
        })
        .collect()
}

fn required(decision: &Decision) -> u32 {
    decision.required().unwrap()
}

#[test]
fn it_is_silent_for_an_hour_and_then_takes_the_place_of_the_headroom() {
    let mut tier = Timeline::new(priced());
    tier.ready(4);
    let first = serve(&mut tier, 700, |_| 3.5);
    assert!(first.iter().all(|decision| decision.forecast.is_none()));
    assert_eq!(required(&first[650]), 5, "3.5 / 0.8");
    let later = serve(&mut tier, 400, |_| 3.5);
    let last = later.last().unwrap();
    let forecast = last.forecast.as_ref().unwrap();
    assert!((forecast.outlook.expected - 3.4).abs() < 0.2, "{forecast:?}");
    assert_eq!(required(last), 4, "a load that never moves needs nothing to spare: {last:#?}");
    assert!(last.bounds.iter().any(|bound| bound.kind == BoundKind::Forecast));
    let told = &forecast.because;
    assert!(told.starts_with("3.5 now, 3.") && told.ends_with("leads"), "{told}");
}

#[test]
fn a_load_that_jumps_gets_spare_replicas_that_a_calm_one_does_not() {
    let mut tier = Timeline::new(priced());
    tier.ready(4);
    // Four minutes of three more, every half an hour.
    let decisions = serve(&mut tier, 4 * 720, |round| if round % 360 < 48 { 5.0 } else { 2.0 });
    let calm: Vec<u32> = decisions
        .iter()
        .enumerate()
        .filter(|(n, _)| *n > 2200 && n % 360 == 300)
        .map(|(_, d)| required(d))
        .collect();
    assert!(calm.iter().all(|replicas| *replicas >= 4), "{calm:?}");
}

#[test]
fn replicas_that_fall_silent_lower_nothing() {
    let mut tier = Timeline::new(priced());
    tier.ready(4);
    serve(&mut tier, 900, |_| 3.5);
    let before = required(tier.last.as_ref().unwrap());
    tier.state_of("r0", ReplicaState::Silent);
    let silent = serve(&mut tier, 100, |_| 3.5);
    assert!(silent.iter().all(|decision| required(decision) >= before), "{before}");
}

#[test]
fn a_restart_from_what_was_written_decides_the_same() {
    let mut tier = Timeline::new(priced());
    tier.ready(4);
    serve(&mut tier, 1000, |round| 3.0 + f64::from(u8::from(round % 90 < 20)));
    let again = Memory::from_bytes(&tier.memory.to_bytes()).unwrap();
    let now = tier.now;
    assert_eq!(
        decide(&tier.policy, &tier.seen, &again, now),
        decide(&tier.policy, &tier.seen, &tier.memory, now)
    );
}

#[test]
fn without_it_nothing_is_kept_of_it() {
    let mut tier = Timeline::new(priced());
    tier.ready(4);
    serve(&mut tier, 50, |_| 3.0);
    assert!(tier.memory.to_bytes().len() > 50_000);
    tier.policy = policy();
    serve(&mut tier, 1, |_| 3.0);
    assert!(tier.memory.to_bytes().len() < 20_000);
}

#[test]
fn never_less_than_the_load_of_now_and_never_more_than_the_maximum() {
    let mut tier = Timeline::new(Policy { max: 6, ..priced() });
    tier.ready(4);
    // Whatever the load does.
    let mut walk = 2.0_f64;
    let loads: Vec<f64> = (0..3000_u64)
        .map(|round| {
            let step = (round.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f64 / f64::from(1 << 24) - 0.5;
            walk = (walk + step).clamp(0.0, 9.0);
            walk
        })
        .collect();
    let decisions = serve(&mut tier, loads.len(), |round| loads[round]);
    for (decision, load) in decisions.iter().zip(&loads).skip(1) {
        let replicas = f64::from(required(decision));
        assert!(replicas <= 6.0 && replicas + 1e-6 >= load.min(6.0).ceil(), "{load}: {decision:#?}");
    }
}
