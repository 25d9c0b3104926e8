//! The fleet at the level of requests: twenty replicas under the conversation mix at 80 % of what they carry, ten minutes.
//!
//! The yardstick is the same requests dealt to twenty engines in turn, each run for itself to its end: no router that
//! looks at all of them, nobody who watches, no score. The fleet should take no more than twice that, and a core should
//! play half a million requests a second with the scaler in the loop.

#![allow(missing_docs, reason = "criterion's macros")]

use std::hint::black_box;
use std::time::Duration;

use chrono::DateTime;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use keda_vllm_scaler::backtest::requests::{
    ArrivingRequest, Capacity, Constant, Lengths, RequestSettings, ScalerSizer, Sight, SlotArrivals,
    TraceShape, play,
};
use keda_vllm_scaler::backtest::trace::Arrivals;
use keda_vllm_scaler::decision::{Policy, TierId};
use keda_vllm_scaler::simulate::autoscaler::AutoscalerSettings;
use keda_vllm_scaler::simulate::{EngineModel, EngineSettings, Moment, Request};

const REPLICAS: u32 = 20;
const TEN_MINUTES: u32 = 600;
const LONGEST: u32 = 8192;

/// Found by `Capacity::find`, written down so that the benchmark begins at once.
const REQUESTS_PER_SECOND: f64 = 10.0;

/// A smoke run, without optimisation, shows that all of it works: half a minute will do.
fn seconds() -> u32 {
    if std::env::args().any(|argument| argument == "--test") { TEN_MINUTES / 20 } else { TEN_MINUTES }
}

fn capacity(engine: EngineSettings) -> Capacity {
    Capacity::at(engine, &Lengths::conversation(LONGEST), 0.0, REQUESTS_PER_SECOND)
}

fn arrivals() -> Vec<ArrivingRequest> {
    let requests = f64::from(REPLICAS) * REQUESTS_PER_SECOND * 0.8 * 5.0;
    let slots = vec![Arrivals { requests, ..Arrivals::default() }; (seconds() / 5) as usize];
    let shape = TraceShape::of(slots.iter().copied());
    SlotArrivals::new(slots.into_iter(), &shape, LONGEST, 1.0, 7).collect()
}

fn settings(engine: EngineSettings) -> RequestSettings {
    RequestSettings {
        initial: REPLICAS,
        span: Duration::from_secs(u64::from(seconds())),
        ..RequestSettings::plain(engine, &capacity(engine), Duration::from_secs(180), DateTime::UNIX_EPOCH)
    }
}

/// Every engine for itself; tokens made, so that nothing is left out.
fn engines_alone(engine: EngineSettings, arrivals: &[ArrivingRequest], single_steps: bool) -> u64 {
    let end = Moment::from_seconds(f64::from(seconds()));
    (0..REPLICAS as usize)
        .map(|replica| {
            let mut model = EngineModel::new(engine, Moment::START);
            if single_steps {
                model = model.with_single_steps();
            }
            for (id, arriving) in arrivals.iter().enumerate().skip(replica).step_by(REPLICAS as usize) {
                let (input, output) = (arriving.input, arriving.output);
                let request = Request { id: id as u64, arrived: arriving.at, input, cached: 0, output };
                model.arrive(request, arriving.at);
                black_box(model.drain_events().count());
            }
            model.advance(end);
            model.metrics().generation_tokens
        })
        .sum()
}

fn benches(criterion: &mut Criterion) {
    let engine = EngineSettings::a100_8b();
    let (settings, arrivals) = (settings(engine), arrivals());
    let mut policy =
        Policy::with_defaults(TierId::new("backtest", "trace"), 2 * REPLICAS, capacity(engine).rates);
    policy.dead_band.tolerance = 0.0;

    let mut group = criterion.benchmark_group("requests");
    group.throughput(Throughput::Elements(arrivals.len() as u64));
    group.bench_function("yardstick: the same requests through twenty engines alone", |b| {
        b.iter(|| engines_alone(engine, black_box(&arrivals), false));
    });
    group.bench_function("the same with single steps", |b| {
        b.iter(|| engines_alone(engine, black_box(&arrivals), true));
    });
    group.bench_function("draw the requests", |b| b.iter(|| self::arrivals().len()));
    group.bench_function(BenchmarkId::new("a constant fleet", REPLICAS), |b| {
        b.iter(|| play(&settings, &mut Constant, arrivals.iter().cloned()).finished);
    });
    group.bench_function(BenchmarkId::new("the scaler's fleet", REPLICAS), |b| {
        b.iter(|| {
            let chain = AutoscalerSettings::recommended(policy.min, policy.max);
            let mut scaler = ScalerSizer::new(&policy, chain, Sight::default(), settings.begins, 1);
            play(&settings, &mut scaler, arrivals.iter().cloned()).finished
        });
    });
    group.finish();
}

criterion_group! {
    name = all;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(5));
    targets = benches
}
criterion_main!(all);
