//! The clairvoyant's bound over a week in slots of 5 s with twenty replicas, beside a yardstick: one addition and one
//! comparison for each state of its table in each slot, which any dynamic programme over them has to do. And a week of the
//! scaler itself.

#![allow(clippy::unwrap_used, reason = "a benchmark's own set-up")]
#![allow(missing_docs, reason = "criterion's macros")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use keda_vllm_scaler::backtest::trace::Arrivals;
use keda_vllm_scaler::backtest::work::Size;
use keda_vllm_scaler::backtest::{Backtest, Contender, Settings, Trace};
use keda_vllm_scaler::decision::policy::TokenRates;
use keda_vllm_scaler::decision::{Policy, TierId};
use keda_vllm_scaler::simulate::autoscaler::AutoscalerSettings;

const WEEK_SLOTS: usize = 7 * 17_280;
/// A fleet of 23 replicas, each with a queue of 5 s in quarters of a second.
const STATES: usize = 23 * (23 * 20 + 1);

/// A smoke run, without optimisation, shows that all of it works: a quarter of a day will do.
fn slots() -> usize {
    if std::env::args().any(|argument| argument == "--test") { WEEK_SLOTS / 28 } else { WEEK_SLOTS }
}

/// Days with a peak at noon and noise from minute to minute.
fn week() -> Trace {
    let slot = |slot: usize| {
        let day = (slot as f64 / 17_280.0 * std::f64::consts::TAU).sin();
        let noise = ((slot / 12) as f64 * 12.9898).sin() * 43_758.545;
        let load = 10.0 + 7.0 * day + 2.0 * noise.fract();
        Arrivals { requests: load * 10.0, input_tokens: load * 20_000.0, output_tokens: load * 1_750.0 }
    };
    Trace { slots: (0..slots()).map(slot).collect(), bin_seconds: 5.0, rows: slots() as u64, begins: None }
}

fn backtest() -> Backtest {
    let rates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };
    let policy = Policy::with_defaults(TierId::new("serving", "chat"), 40, rates);
    let chain = AutoscalerSettings::recommended(policy.min, policy.max);
    let settings = Settings {
        policies: vec![Contender { name: "ours".to_owned(), policy, chain }],
        rates,
        rivals: Vec::new(),
        size: Size::Peak(20),
        cold_start: Duration::from_secs(180),
        acceptable_queue: Duration::from_secs(5),
        begins: chrono::DateTime::UNIX_EPOCH,
        score_from: Duration::ZERO,
        seed: 0,
        details: false,
        split: false,
    };
    Backtest::new(&week(), settings).unwrap()
}

fn yardstick(table: &mut [f32]) {
    for slot in 0..slots() {
        let price = (slot % 7) as f32;
        for value in &mut *table {
            let other = *value + price;
            *value = if other < 3.0 { other } else { 3.0 };
        }
        black_box(&mut *table);
    }
}

fn benches(criterion: &mut Criterion) {
    let backtest = backtest();
    let mut table = vec![0.0_f32; STATES];
    let mut group = criterion.benchmark_group("a week in slots of 5 s, 20 replicas");
    group.sample_size(10);
    group.bench_function("yardstick: one addition and one comparison a state", |b| {
        b.iter(|| yardstick(&mut table));
    });
    group.bench_function("the clairvoyant's bound", |b| b.iter(|| black_box(backtest.bound_gpu_hours())));
    group.bench_function("the scaler itself", |b| b.iter(|| black_box(backtest.score_of_first())));
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
