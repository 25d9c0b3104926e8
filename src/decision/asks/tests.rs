//! Each ask against its formula, by hand.

use super::*;
use crate::decision::fixtures::{observation, policy, replica};
use crate::decision::observation::{
    ActivatorObservation, ReplicaLoad, ReplicaObservation, ReplicaState, TierLoad,
};
use crate::decision::sight::Sight;
use crate::quantile::Quantile;

fn ready(name: &str, load: ReplicaLoad) -> ReplicaObservation {
    ReplicaObservation { load: Some(load), ..replica(name, ReplicaState::Ready) }
}

/// Half a KV cache of 100,000 tokens; 0.5 + 0.25 replica-seconds of tokens a second.
fn busy() -> ReplicaLoad {
    ReplicaLoad {
        running: Some(20.0),
        waiting: Some(0.0),
        kv_usage: Some(0.5),
        kv_tokens: Some(100_000.0),
        uncached_input_tokens_per_second: Some(4000.0),
        output_tokens_per_second: Some(175.0),
        requests_per_second: Some(2.0),
        ..ReplicaLoad::default()
    }
}

/// A request costs 0.1 + 0.2 replica-seconds and takes 870 tokens of KV.
fn lengths() -> TierLoad {
    TierLoad { mean_input_tokens: Some(800.0), mean_output_tokens: Some(140.0), ..TierLoad::default() }
}

fn asks(policy: &Policy, observation: &Observation, memory: &Memory) -> Vec<Considered> {
    let shape = RequestShape::observed(&observation.load).unwrap_or(RequestShape::ASSUMED);
    let capacity = ReplicaCapacity::of(policy, observation, memory, &shape);
    let load = Load::of(observation, memory, &capacity, &Sight::Known);
    let now = crate::decision::fixtures::at("10:00");
    let horizon = memory.horizon(policy, 0);
    let coming = Coming::of(observation, memory, &horizon, now, 0);
    let scene = Scene {
        policy,
        observation,
        memory,
        load: &load,
        capacity: &capacity,
        shape: &shape,
        coming: &coming,
        token_target: policy.signals.tokens.target,
    };
    all(&scene, 0)
}

fn ask(policy: &Policy, observation: &Observation, signal: SignalKind) -> Considered {
    asks(policy, observation, &Memory::default()).swap_remove(signal as usize)
}

#[track_caller]
fn assert_asks(considered: &Considered, low: f64, high: f64) {
    let asked = considered.asked.as_ref().unwrap_or_else(|| panic!("{}", considered.absent));
    assert!((asked.low - low).abs() < 1e-9, "low {} instead of {low}: {}", asked.low, asked.because);
    assert!((asked.high - high).abs() < 1e-9, "high {} instead of {high}: {}", asked.high, asked.because);
}

#[test]
fn kv_cache_counts_what_is_held_and_what_the_waiting_will_take() {
    let mut seen =
        observation(vec![ready("a", busy()), ready("b", ReplicaLoad { waiting: Some(50.0), ..busy() })]);
    seen.load = lengths();
    let kv = ask(&policy(), &seen, SignalKind::KvCache);
    // 1.0 in use, 50 x 870 / 100,000 to come, over 0.8.
    let expected = (1.0 + 0.435) / 0.8;
    assert_asks(&kv, expected, expected);
    assert_eq!(
        kv.asked.unwrap().because,
        "1.00 KV caches in use on 2 replicas + 0.43 for 50 waiting requests, / 0.80"
    );
}

#[test]
fn a_silent_replica_is_idle_going_up_and_full_going_down() {
    let seen = observation(vec![ready("a", busy()), replica("b", ReplicaState::Silent)]);
    assert_asks(&ask(&policy(), &seen, SignalKind::KvCache), 0.5 / 0.8, 1.5 / 0.8);
    assert_asks(&ask(&policy(), &seen, SignalKind::Tokens), 0.75 / 0.8, 1.75 / 0.8);
}

#[test]
fn a_silent_replica_is_at_least_as_loaded_as_it_was_last_seen() {
    let overloaded = ReplicaLoad { waiting: Some(200.0), ..busy() };
    let mut before = observation(vec![ready("a", busy()), ready("b", overloaded)]);
    before.load = lengths();
    let mut memory = Memory::default();
    memory.learn(&policy(), &before, crate::decision::fixtures::at("10:00"));
    let mut after = before.clone();
    after.replicas[1] = replica("b", ReplicaState::Silent);
    let waiting = asks(&policy(), &after, &memory).swap_remove(SignalKind::Waiting as usize);
    // 200 x 0.3 / 60 = 1.0 on top of the token ask of each view.
    assert_asks(&waiting, 0.75 / 0.8, 1.75 / 0.8 + 1.0);
}

#[test]
fn a_terminating_replica_s_load_counts() {
    let leaving = ReplicaObservation { state: ReplicaState::Terminating, ..ready("b", busy()) };
    let seen = observation(vec![ready("a", busy()), leaving]);
    assert_asks(&ask(&policy(), &seen, SignalKind::KvCache), 1.0 / 0.8, 1.0 / 0.8);
}

#[test]
fn offered_tokens_are_served_ones_and_what_a_saturated_tier_leaves_undone() {
    let mut seen = observation(vec![ready("a", ReplicaLoad { rejected_per_second: Some(1.0), ..busy() })]);
    seen.load = TierLoad { waiting_growth_per_second: Some(0.5), ..lengths() };
    let expected = (0.75 + 0.5 * 0.3 + 1.0 * 0.3) / 0.8;
    let tokens = ask(&policy(), &seen, SignalKind::Tokens);
    assert_asks(&tokens, expected, expected);
    assert_eq!(
        tokens.asked.unwrap().because,
        "1 replica running: 0.75 replica-seconds of tokens a second (4000 in, 175 out) + 0.15 backlog growth + 0.30 \
         refused, / 0.80"
    );
}

#[test]
fn clients_that_give_up_are_still_demand() {
    let mut seen = observation(vec![ready("a", busy())]);
    seen.load = TierLoad { waiting_growth_per_second: Some(-2.0), ..lengths() };
    assert_asks(&ask(&policy(), &seen, SignalKind::Tokens), 0.75 / 0.8, 0.75 / 0.8);
}

#[test]
fn a_storm_of_retries_counts_for_three_times_what_is_served() {
    let mut seen = observation(vec![ready("a", ReplicaLoad { rejected_per_second: Some(500.0), ..busy() })]);
    seen.load = lengths();
    let expected = (0.75 + 6.0 * 0.3) / 0.8;
    assert_asks(&ask(&policy(), &seen, SignalKind::Tokens), expected, expected);
}

#[test]
fn cached_input_costs_nothing() {
    let cached = ReplicaLoad {
        input_tokens_per_second: Some(40_000.0),
        uncached_input_tokens_per_second: Some(4000.0),
        ..busy()
    };
    assert_asks(&ask(&policy(), &observation(vec![ready("a", cached)]), SignalKind::Tokens), 0.9375, 0.9375);
}

#[test]
fn a_backlog_comes_on_top_of_the_arrivals() {
    let mut seen = observation(vec![ready("a", ReplicaLoad { waiting: Some(400.0), ..busy() })]);
    seen.load = lengths();
    // 400 x 0.3 / 60 = 2.
    let waiting = ask(&policy(), &seen, SignalKind::Waiting);
    assert_asks(&waiting, 0.9375 + 2.0, 0.9375 + 2.0);
    assert_eq!(
        waiting.asked.unwrap().because,
        "400 requests wait: 120.0 replica-seconds of work / 60 s = 2.00, on top of 0.94"
    );
}

#[test]
fn deferred_requests_would_wait_on_another_replica_too() {
    let load = ReplicaLoad { waiting: Some(400.0), waiting_deferred: Some(300.0), ..busy() };
    let mut seen = observation(vec![ready("a", load)]);
    seen.load = lengths();
    assert_asks(&ask(&policy(), &seen, SignalKind::Waiting), 0.9375 + 0.5, 0.9375 + 0.5);
}

#[test]
fn without_token_rates_those_that_let_requests_wait_are_busy() {
    let load = ReplicaLoad { waiting: Some(400.0), ..ReplicaLoad::default() };
    let mut seen = observation(vec![ready("a", load)]);
    seen.load = lengths();
    assert_asks(&ask(&policy(), &seen, SignalKind::Waiting), 3.0, 3.0);
    seen.replicas[0].load = Some(ReplicaLoad { waiting: Some(0.0), ..ReplicaLoad::default() });
    assert_eq!(ask(&policy(), &seen, SignalKind::Waiting).asked, None, "a zero would pull a mean down");
}

#[test]
fn the_activator_s_queue_waits_too() {
    let mut seen = observation(vec![]);
    seen.load = lengths();
    seen.activator = Some(ActivatorObservation { queued: Some(500.0), age: None, error: None });
    assert_asks(&ask(&policy(), &seen, SignalKind::Waiting), 2.5, 2.5);
}

#[test]
fn the_batch_names_what_binds_it() {
    let mut policy = policy();
    policy.signals.batch.max_running = Some(16.0);
    let mut seen = observation(vec![ready("a", ReplicaLoad { waiting: Some(4.0), ..busy() })]);
    seen.load = lengths();
    let batch = ask(&policy, &seen, SignalKind::Batch);
    assert_asks(&batch, 1.5, 1.5);
    assert_eq!(batch.asked.unwrap().because, "(20 running + 4 waiting) / 16 a replica (max-num-seqs)");
}

fn with_latency_target() -> Policy {
    let mut policy = policy();
    policy.signals.latency.weight = 1.0;
    policy.signals.latency.queue_time_p95 = Some(Duration::from_secs(2));
    policy
}

fn three_ready(queue_time: Option<f64>) -> Observation {
    let mut seen = observation(vec![ready("a", busy()), ready("b", busy()), ready("c", busy())]);
    seen.load.queue_time_p95_seconds = queue_time.map(Quantile::between);
    seen
}

#[test]
fn latency_enters_only_above_its_target_and_no_more_than_doubles() {
    let latency = |p95| ask(&with_latency_target(), &three_ready(Some(p95)), SignalKind::Latency);
    assert_eq!(latency(1.9).asked, None);
    assert_asks(&latency(3.0), 4.5, 4.5);
    assert_asks(&latency(180.0), 6.0, 6.0);
}

#[test]
fn a_p95_in_the_first_bucket_asks_as_before_and_is_told_as_an_estimate() {
    let mut policy = with_latency_target();
    policy.signals.latency.queue_time_p95 = Some(Duration::from_millis(200));
    let mut seen = three_ready(None);
    seen.load.queue_time_p95_seconds = Some(Quantile::in_the_first_bucket(0.285, 0.3));
    let asked = ask(&policy, &seen, SignalKind::Latency);
    assert_asks(&asked, 3.0 * 1.425, 3.0 * 1.425);
    let because = asked.asked.unwrap().because;
    assert!(because.contains("estimated in a first bucket of 0.3 s"), "{because}");
}

#[test]
fn latency_is_off_without_a_target() {
    assert_eq!(ask(&policy(), &three_ready(Some(60.0)), SignalKind::Latency).absent, "no target");
}

#[test]
fn what_is_coming_is_taken_off_the_latency_s_ask_upward_only() {
    let mut seen = three_ready(Some(180.0));
    seen.replicas.push(replica("d", ReplicaState::Starting));
    assert_asks(&ask(&with_latency_target(), &seen, SignalKind::Latency), 5.0, 6.0);
    seen.replicas.push(replica("e", ReplicaState::Starting));
    seen.replicas.push(replica("f", ReplicaState::Starting));
    assert_asks(&ask(&with_latency_target(), &seen, SignalKind::Latency), 6.0, 6.0);
}

#[test]
fn an_idle_tier_has_no_latency_to_miss() {
    let mut seen = three_ready(None);
    for replica in &mut seen.replicas {
        let idle = ReplicaLoad { requests_per_second: Some(0.0), running: Some(0.0), ..busy() };
        replica.load = Some(idle);
    }
    assert_eq!(ask(&with_latency_target(), &seen, SignalKind::Latency).absent, "no request finished lately");
}

#[test]
fn impossible_numbers_are_unknown_numbers() {
    let broken = ReplicaLoad { kv_usage: Some(f64::NAN), output_tokens_per_second: Some(-1.0), ..busy() };
    let seen = observation(vec![ready("a", busy()), ready("b", broken)]);
    assert_asks(&ask(&policy(), &seen, SignalKind::KvCache), 0.5 / 0.8, 1.5 / 0.8);
    assert_asks(&ask(&policy(), &seen, SignalKind::Tokens), 0.75 / 0.8, 1.75 / 0.8);
}
