//! `decide` for a large tier, beside a yardstick: adding up five numbers of each of its replicas, which any decision has
//! to do.

#![allow(clippy::unwrap_used, reason = "a benchmark's own set-up")]
#![allow(missing_docs, reason = "criterion's macros")]

use std::hint::black_box;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use criterion::{Criterion, criterion_group, criterion_main};
use keda_vllm_scaler::decision::policy::{BatchSignal, Combine, Floor, ForecastPolicy, Ramp, TokenRates};
use keda_vllm_scaler::decision::{
    CountedTotals, Memory, Observation, Policy, ReplicaLoad, ReplicaObservation, ReplicaState, StepSample,
    TierId, TierLoad, decide,
};
use keda_vllm_scaler::quantile::Quantile;
use keda_vllm_scaler::schedule::Window;

const REPLICAS: u32 = 100;

fn policy() -> Policy {
    let floors = (0..5)
        .map(|n| Floor {
            name: format!("floor {n}"),
            window: Window::parse("UTC", &format!("0 {} * * *", 7 + n), &format!("30 {} * * *", 16 + n))
                .unwrap(),
            replicas: 10 * (n + 1),
        })
        .collect();
    let rates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };
    let mut policy = Policy::with_defaults(TierId::new("serving", "chat-h100"), 200, rates);
    policy.control_delay = Duration::from_secs(30);
    policy.signals.batch = BatchSignal {
        weight: 1.0,
        inter_token_latency: Some(Duration::from_millis(40)),
        max_running: Some(256.0),
    };
    policy.signals.latency.weight = 1.0;
    policy.signals.latency.queue_time_p95 = Some(Duration::from_secs(2));
    policy.combine = Combine::Weighted;
    policy.floors = floors;
    policy.max_ramp = Some(Ramp { factor: 2.0, within: Duration::from_mins(10) });
    policy
}

/// Every tenth replica is silent.
fn observation(round: u32) -> Observation {
    let replicas = (0..REPLICAS)
        .map(|n| {
            let x = f64::from((n * 7 + round * 13) % 50) / 50.0;
            let silent = n % 10 == 9;
            ReplicaObservation {
                id: format!("8b6f7c1e-{n:04}-4d1f-9a53-0c5d1f6b2e{n:02}"),
                name: format!("chat-h100-6f9c7d-{n}"),
                state: if silent { ReplicaState::Silent } else { ReplicaState::Ready },
                since: None,
                start: None,
                load: (!silent).then(|| ReplicaLoad {
                    running: Some(20.0 + 20.0 * x),
                    waiting: Some((x * 3.0).floor()),
                    kv_usage: Some(0.4 + 0.4 * x),
                    kv_tokens: Some(404_000.0),
                    input_tokens_per_second: Some(5000.0 * x + 900.0),
                    uncached_input_tokens_per_second: Some(3000.0 * x + 500.0),
                    output_tokens_per_second: Some(300.0 + 100.0 * x),
                    requests_per_second: Some(2.0),
                    rejected_per_second: Some(0.0),
                    waiting_deferred: Some(0.0),
                    engines: Some(1.0),
                    preemptions_per_second: Some(0.0),
                    rates_over: Some(Duration::from_secs(60)),
                    steps: Some(StepSample {
                        steps: 400.0,
                        inter_token_count: 8_000.0,
                        inter_token_mean_seconds: 0.007
                            + 60e-6 * 40.0 * x
                            + 2e-4 * (20.0 + 9.0 * (x * 40.0).sin()),
                        prefill_tokens_per_step: 40.0 * x,
                        decode_tokens_per_step: 20.0 + 9.0 * (x * 40.0).sin(),
                    }),
                }),
                page_age: Some(Duration::from_secs(u64::from(n % 5))),
                error: silent.then(|| "timeout".to_owned()),
            }
        })
        .collect();
    Observation {
        replicas,
        replicas_unknown: None,
        authoritative: true,
        current: Some(95),
        scale: None,
        load: TierLoad {
            waiting_growth_per_second: Some(0.2),
            mean_input_tokens: Some(1155.0),
            mean_uncached_input_tokens: Some(700.0),
            mean_output_tokens: Some(211.0),
            queue_time_p95_seconds: Some(Quantile::between(2.4)),
            ..TierLoad::default()
        },
        activator: None,
        totals: CountedTotals::default(),
    }
}

/// Ten minutes of rounds.
fn watched(policy: &Policy) -> (Memory, DateTime<Utc>) {
    let mut now = DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::hours(12);
    let mut memory = Memory::started(now);
    for round in 0..120 {
        now += TimeDelta::seconds(5);
        let seen = observation(round);
        memory.learn(policy, &seen, now);
        memory.record(&decide(policy, &seen, &memory, now));
    }
    (memory, now)
}

fn sum(seen: &Observation) -> f64 {
    seen.replicas
        .iter()
        .filter_map(|replica| replica.load.as_ref())
        .map(|load| {
            load.running.unwrap_or(0.0)
                + load.waiting.unwrap_or(0.0)
                + load.kv_usage.unwrap_or(0.0)
                + load.uncached_input_tokens_per_second.unwrap_or(0.0)
                + load.output_tokens_per_second.unwrap_or(0.0)
        })
        .sum()
}

fn benches(criterion: &mut Criterion) {
    let policy = policy();
    let (memory, now) = watched(&policy);
    let seen = observation(121);
    let decision = decide(&policy, &seen, &memory, now);
    assert!(decision.required().is_some() && decision.capacity.source == "learned", "{decision:#?}");

    let mut group = criterion.benchmark_group("100 replicas");
    group.bench_function("yardstick: add up five numbers of each replica", |b| {
        b.iter(|| sum(black_box(&seen)));
    });
    group.bench_function("decide, five floors, all signals", |b| {
        b.iter(|| decide(black_box(&policy), black_box(&seen), black_box(&memory), now));
    });
    group.bench_function("decide with a memory that was just read", |b| {
        let restarted = Memory::from_bytes(&memory.to_bytes()).unwrap();
        b.iter(|| decide(black_box(&policy), black_box(&seen), black_box(&restarted), now));
    });
    group.bench_function("learn, decide and record", |b| {
        let (mut memory, mut now) = (memory.clone(), now);
        b.iter(|| {
            now += TimeDelta::seconds(5);
            memory.learn(black_box(&policy), black_box(&seen), now);
            memory.record(&decide(&policy, &seen, &memory, now));
        });
    });
    // A day and a half are learned first: its own rules, their fleets and the day before are all at work then.
    let priced = Policy { forecast: Some(ForecastPolicy::default()), ..policy.clone() };
    let (mut memory_of_priced, mut then, mut counting) = (Memory::started(now), now, observation(121));
    for replica in &mut counting.replicas {
        // The forecast learns from bins in which every replica was seen.
        replica.state = ReplicaState::Ready;
        replica.load.get_or_insert_with(|| ReplicaLoad { waiting: Some(0.0), ..ReplicaLoad::default() });
    }
    for bin in 0..8640 {
        then += TimeDelta::seconds(15);
        // A wave over the day, with noise.
        let load = 1.0 + 0.5 * (f64::from(bin) / 917.0).sin() + 0.1 * f64::from(bin * 7919 % 101) / 101.0;
        counting.totals.uncached_input_tokens += load * 15.0 * 200_000.0;
        counting.totals.output_tokens += load * 15.0 * 20_000.0;
        memory_of_priced.learn(&priced, &counting, then);
    }
    let forecast = decide(&priced, &counting, &memory_of_priced, then).forecast.unwrap();
    assert!(forecast.instead_of_headroom && forecast.frontier.is_some(), "{forecast:?}");
    let bytes = memory_of_priced.to_bytes().len();
    eprintln!("memory with a forecast: {} kB, most 1000", bytes / 1000);
    assert!(bytes < 1_000_000);
    group.bench_function("decide with a forecast", |b| {
        b.iter(|| decide(black_box(&priced), black_box(&counting), black_box(&memory_of_priced), then));
    });
    group.bench_function("learn, decide and record with a forecast", |b| {
        b.iter(|| {
            then += TimeDelta::seconds(5);
            counting.totals.uncached_input_tokens += 5.0 * 200_000.0;
            memory_of_priced.learn(black_box(&priced), black_box(&counting), then);
            memory_of_priced.record(&decide(&priced, &counting, &memory_of_priced, then));
        });
    });
    group.bench_function("write the memory", |b| b.iter(|| black_box(&memory).to_bytes()));
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
