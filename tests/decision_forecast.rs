//! The forecast in the decision: what it takes the place of, what it never does, and that a restart changes nothing.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "common/timeline.rs"]
mod timeline;

use keda_vllm_scaler::decision::observation::QueueTimes;
use keda_vllm_scaler::decision::policy::ForecastPolicy;
use keda_vllm_scaler::decision::{BoundKind, Decision, Memory, Observation, Policy, ReplicaState, decide};
use keda_vllm_scaler::forecast::LateCount;
use proptest::prelude::*;
use timeline::{Timeline, policy};

fn priced() -> Policy {
    Policy { forecast: Some(ForecastPolicy::default()), ..policy() }
}

fn without() -> Policy {
    Policy { forecast: None, ..policy() }
}

fn budgeted() -> Policy {
    Policy {
        forecast: Some(ForecastPolicy { late_budget: Some(0.001), ..ForecastPolicy::default() }),
        ..policy()
    }
}

/// Between 0 and 1, the same in every run.
fn noise(round: usize) -> f64 {
    ((round as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f64 / f64::from(1 << 24)
}

/// A wave with noise that four replicas can carry.
fn wave(round: usize) -> f64 {
    2.5 + (round as f64 / 120.0).sin() + 0.6 * (noise(round) - 0.5)
}

/// A tier of four that has watched the wave for longer than a day, in either mode.
fn watched(policy: Policy) -> Timeline {
    let mut tier = Timeline::new(policy);
    tier.ready(4);
    serve_every(15, &mut tier, 5_700, |bin| wave(3 * bin));
    serve(&mut tier, 300, wave);
    assert!(tier.last.as_ref().unwrap().forecast.as_ref().unwrap().instead_of_headroom);
    tier
}

/// Four replicas that together serve `load` replicas' worth of tokens, half of it input, for so many rounds of 5 s.
fn serve(tier: &mut Timeline, rounds: usize, load: impl Fn(usize) -> f64) -> Vec<Decision> {
    serve_every(5, tier, rounds, load)
}

/// The same with so many seconds from one round to the next.
fn serve_every(
    seconds: u32,
    tier: &mut Timeline,
    rounds: usize,
    load: impl Fn(usize) -> f64,
) -> Vec<Decision> {
    (0..rounds)
        .map(|round| {
            let load = load(round);
            tier.now += chrono::TimeDelta::seconds(i64::from(seconds));
            let seconds = f64::from(seconds);
            tier.seen.totals.uncached_input_tokens += load * seconds * 4000.0;
            tier.seen.totals.input_tokens += load * seconds * 4000.0;
            tier.seen.totals.output_tokens += load * seconds * 350.0;
            for replica in &mut tier.seen.replicas {
                if let Some(seen) = &mut replica.load {
                    seen.uncached_input_tokens_per_second = Some(load * 4000.0 / 4.0);
                    seen.output_tokens_per_second = Some(load * 350.0 / 4.0);
                    let (running, kv) = if load > 0.0 { (4.0, 0.1) } else { (0.0, 0.0) };
                    (seen.running, seen.waiting, seen.kv_usage) = (Some(running), Some(0.0), Some(kv));
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
fn what_was_learned_outlasts_an_hour_in_which_it_is_off() {
    let mut tier = watched(priced());
    tier.policy = without();
    serve(&mut tier, 720, wave);
    assert!(tier.last.as_ref().unwrap().forecast.is_none());
    tier.policy = priced();
    serve(&mut tier, 6, wave);
    let forecast = tier.last.as_ref().unwrap().forecast.clone().unwrap();
    assert!(forecast.instead_of_headroom, "{forecast:?}");
    assert!((1.0..4.5).contains(&forecast.outlook.expected), "{forecast:?}");
}

#[test]
fn it_is_silent_for_an_hour_stands_beside_the_headroom_for_a_day_and_then_takes_its_place() {
    let mut tier = Timeline::new(priced());
    tier.ready(4);
    let first = serve(&mut tier, 700, |_| 3.5);
    assert!(first.iter().all(|decision| decision.forecast.is_none()));
    assert_eq!(required(&first[650]), 5, "3.5 / 0.8");
    let later = serve(&mut tier, 400, |_| 3.5);
    let beside = later.last().unwrap();
    assert_eq!(required(beside), 5, "it knows no day yet: {beside:#?}");
    assert!(beside.forecast.as_ref().unwrap().because.ends_with("on its first day beside the token target"));
    let next_day = serve_every(15, &mut tier, 5_500, |_| 3.5);
    let last = next_day.last().unwrap();
    let forecast = last.forecast.as_ref().unwrap();
    assert!((forecast.outlook.expected - 3.4).abs() < 0.2, "{forecast:?}");
    assert_eq!(required(last), 4, "a load that never moves needs nothing to spare: {last:#?}");
    assert!(last.bounds.iter().any(|bound| bound.kind == BoundKind::Forecast));
    let told = &forecast.because;
    assert!(told.starts_with("3.5 now, 3.") && told.ends_with("leads"), "{told}");
}

#[test]
fn a_tier_that_may_sleep_is_not_kept_awake_by_it_and_is_woken_one_lead_before_its_usual_hour() {
    let mut tier = Timeline::new(Policy { min: 0, ..priced() });
    tier.ready(4);
    tier.activator(0.0);
    // Four bins a minute; from eight to sixteen o'clock of each day.
    let office = |bin: usize| if (1920..3840).contains(&(bin % 5760)) { 3.0 } else { 0.0 };
    let first_day = serve_every(15, &mut tier, 5_760, office);
    assert!(first_day[2_000..3_800].iter().all(|decision| required(decision) >= 3));
    assert!(
        first_day[4_200..].iter().all(|decision| required(decision) == 0),
        "idle, and nothing is expected: {:#?}",
        first_day[4_200..].iter().find(|decision| required(decision) > 0)
    );
    let second = serve_every(15, &mut tier, 1_920, office);
    assert!(second[..1_800].iter().all(|decision| required(decision) == 0));
    let woken = second.iter().position(|decision| required(decision) > 0).unwrap();
    let lead_bins = tier.policy.lead().as_secs() as usize / 15;
    assert!((1_920 - 3 * lead_bins..=1_920 - lead_bins).contains(&woken), "{woken}: {:#?}", second[woken]);
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
fn a_forecast_that_another_version_wrote_is_learned_again_and_the_rest_stays() {
    let tier = watched(priced());
    let mut written: serde_json::Value = serde_json::from_slice(&tier.memory.to_bytes()).unwrap();
    written["memory"]["forecast"].as_object_mut().unwrap().remove("days").unwrap();
    let read = Memory::from_bytes(&serde_json::to_vec(&written).unwrap()).unwrap();
    assert!(read.forecast().is_none());
    let without = Policy { forecast: None, ..tier.policy.clone() };
    assert_eq!(
        decide(&without, &tier.seen, &read, tier.now),
        decide(&without, &tier.seen, &tier.memory, tier.now)
    );
}

#[test]
fn without_it_nothing_is_kept_of_it_for_longer_than_it_remembers_days() {
    let mut tier = Timeline::new(priced());
    tier.ready(4);
    serve(&mut tier, 50, |_| 3.0);
    assert!(tier.memory.to_bytes().len() > 50_000);
    tier.policy = without();
    serve_every(3600, &mut tier, 8 * 24, |_| 3.0);
    assert!(tier.memory.to_bytes().len() > 50_000);
    serve_every(3600, &mut tier, 2, |_| 3.0);
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

#[test]
fn with_a_budget_it_tells_the_dial_and_what_was_used() {
    let tier = watched(budgeted());
    let forecast = tier.last.as_ref().unwrap().forecast.as_ref().unwrap();
    let budget = forecast.budget.unwrap();
    assert!(
        forecast.because.contains(": safety ") && forecast.because.ends_with("% this week"),
        "{forecast:?}"
    );
    assert!(budget.counted == LateCount::Waiting && budget.late_budget == 0.001, "{budget:?}");
}

#[test]
fn late_work_is_what_the_replicas_count_where_they_tell() {
    let mut tier = Timeline::new(budgeted());
    tier.ready(4);
    for round in 0..900_u32 {
        // From the first round on, so that nothing is a lump.
        let told = QueueTimes { requests: 10.0 * f64::from(round), late: f64::from(round) };
        tier.seen.totals.queue_times = Some(told);
        serve(&mut tier, 1, |_| 2.5);
    }
    let budget = tier.last.as_ref().unwrap().forecast.as_ref().unwrap().budget.unwrap();
    assert!(budget.counted == LateCount::QueueTimes && (budget.late_share - 0.1).abs() < 0.01, "{budget:?}");
    assert!(budget.safety > 0.6 && budget.used > 0.1, "{budget:?}");
}

#[test]
fn a_tier_whose_requests_queue_at_single_replicas_says_how_often_its_late_minutes_count() {
    let mut tier = watched(priced());
    for round in 0..720_u32 {
        // A tenth of a round's requests in every fourth minute.
        let told = QueueTimes { requests: 10.0 * f64::from(round), late: f64::from(round / 48) };
        tier.seen.totals.queue_times = Some(told);
        serve(&mut tier, 1, wave);
    }
    let because = &tier.last.as_ref().unwrap().forecast.as_ref().unwrap().because;
    assert!(
        because.contains(" leads, late minutes counted 3.") && because.ends_with("times, as requests queued"),
        "{because}"
    );
}

#[test]
fn two_scalers_of_which_one_was_restarted_without_its_store_agree_from_its_first_answer_on() {
    for policy in [priced(), budgeted()] {
        let mut holder = watched(policy.clone());
        let mut other = Timeline::with_memory(policy, Memory::started(holder.now));
        (other.seen, other.now) = (holder.seen.clone(), holder.now);
        other.memory.take_learned(&holder.memory.learned());
        // Over the wire, as it is.
        let wire = serde_json::to_vec(holder.memory.forecast().unwrap()).unwrap();
        assert!(wire.len() < 400_000, "{}", wire.len());
        let taken = other.memory.take_forecast(&other.policy.clone(), serde_json::from_slice(&wire).unwrap());
        assert!(taken);
        assert!(!other.memory.learned().wants_forecast_of(&holder.memory.learned()), "once is enough");
        // It may be a minute old.
        serve(&mut holder, 12, |round| wave(900 + round));
        (other.seen, other.now) = (holder.seen.clone(), holder.now);
        for round in 912..2400 {
            let load = |_| wave(round) + if round % 400 < 20 { 1.0 } else { 0.0 };
            let one = required(&serve(&mut holder, 1, load)[0]);
            let two = required(&serve(&mut other, 1, load)[0]);
            let may_differ = (0.02 * f64::from(one)).max(1.0);
            assert!(f64::from(one.abs_diff(two)) <= may_differ, "round {round}: {one} {two}");
        }
    }
}

#[test]
fn a_forecast_that_knows_less_or_is_not_wanted_is_not_taken() {
    let mut holder = watched(priced());
    let young = Timeline::with_memory(priced(), Memory::started(holder.now));
    assert!(!holder.memory.learned().wants_forecast_of(&young.memory.learned()));
    let own = holder.memory.forecast().cloned().unwrap();
    assert!(!holder.memory.take_forecast(&holder.policy.clone(), own.clone()), "it has seen no more");
    let mut unwilling = Timeline::new(without());
    assert!(!unwilling.memory.take_forecast(&unwilling.policy.clone(), own));
}

#[test]
fn what_comes_later_changes_no_decision_before() {
    let decisions = |wild_from: usize| {
        let mut tier = Timeline::new(priced());
        tier.ready(4);
        serve(&mut tier, 1100, |round| if round < wild_from { wave(round) } else { 9.0 * noise(round) })
    };
    let (calm, wild) = (decisions(1100), decisions(1000));
    assert_eq!(calm[..1000], wild[..1000]);
    assert_ne!(calm[1000..], wild[1000..]);
}

#[test]
fn a_steady_load_gets_a_steady_answer_in_either_mode() {
    for policy in [priced(), budgeted()] {
        let mut tier = Timeline::new(policy);
        tier.ready(4);
        let decisions = serve_every(15, &mut tier, 6_200, |_| 3.5);
        let answers: Vec<u32> = decisions[5_800..].iter().map(required).collect();
        assert!(answers.iter().all(|answer| *answer == 4), "{answers:?}");
    }
}

/// The tier of this moment, its replicas carrying so much of what they carried and so many requests waiting at each.
fn carrying(tier: &Timeline, times: f64, waiting: f64) -> Observation {
    let mut seen = tier.seen.clone();
    for load in seen.replicas.iter_mut().filter_map(|replica| replica.load.as_mut()) {
        for rate in [&mut load.uncached_input_tokens_per_second, &mut load.output_tokens_per_second] {
            *rate = rate.map(|rate| rate * times);
        }
        load.kv_usage = load.kv_usage.map(|usage| (usage * times).min(1.0));
        load.waiting = Some(waiting);
    }
    seen
}

fn both_modes() -> &'static [Timeline; 2] {
    static WATCHED: std::sync::OnceLock<[Timeline; 2]> = std::sync::OnceLock::new();
    WATCHED.get_or_init(|| [watched(priced()), watched(budgeted())])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn more_demand_never_gives_fewer_replicas(
        mode in 0..2_usize, times in 0.0..4.0_f64, more in 0.0..4.0_f64, waiting in 0.0..40.0_f64, others in 0.0..40.0_f64,
    ) {
        // The forecast and its spread are in the memory, which stays.
        let tier = &both_modes()[mode];
        let answer = |times, waiting| {
            required(&decide(&tier.policy, &carrying(tier, times, waiting), &tier.memory, tier.now))
        };
        prop_assert!(answer(times + more, waiting + others) >= answer(times, waiting));
    }

    #[test]
    fn the_answer_is_within_its_bounds_and_never_below_the_demand_of_now(
        mode in 0..2_usize, times in 0.0..12.0_f64, waiting in 0.0..90.0_f64, min in 1..4_u32, above in 0..12_u32,
    ) {
        let tier = &both_modes()[mode];
        let policy = Policy { min, max: min + above, ..tier.policy.clone() };
        let decision = decide(&policy, &carrying(tier, times, waiting), &tier.memory, tier.now);
        let answer = required(&decision);
        prop_assert!((min..=min + above).contains(&answer), "{answer}");
        let demand = decision.demand.unwrap().ceil().min(f64::from(policy.max));
        prop_assert!(f64::from(answer) >= demand - 1e-6, "{answer} {demand}");
    }

    #[test]
    fn replicas_that_say_nothing_never_lower_the_answer(
        mode in 0..2_usize, times in 0.0..3.0_f64, waiting in 0.0..20.0_f64, silent in 0..16_u32,
    ) {
        let tier = &both_modes()[mode];
        let seen = carrying(tier, times, waiting);
        let mut less = seen.clone();
        for (at, replica) in less.replicas.iter_mut().enumerate().filter(|(at, _)| silent & (1 << at) != 0) {
            (replica.state, replica.load) = (ReplicaState::Silent, None);
            prop_assert!(at < 4);
        }
        let mut memory = tier.memory.clone();
        let mut decided = |seen: &Observation, seconds: i64| {
            let now = tier.now + chrono::TimeDelta::seconds(seconds);
            memory.learn(&tier.policy, seen, now);
            let decision = decide(&tier.policy, seen, &memory, now);
            memory.record(&decision);
            decision.required()
        };
        let (all, some) = (decided(&seen, 5).unwrap(), decided(&less, 10));
        prop_assert!(some.is_none_or(|some| some >= all), "{some:?} {all}");
    }
}
