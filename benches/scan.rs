//! The cost of reading a page, beside the cost of merely counting its lines.
//!
//! The yardstick is memchr's newline count over the same page: it touches every byte once. A selective scan of 8 gauges and
//! counters with 4 histograms should stay within 12 to 13 times that.

use std::fs;
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use keda_vllm_scaler::engines::read_page;
use keda_vllm_scaler::exposition::{Event, Family, Scanner, Shape, Walk, Wanted};

const GAUGES_AND_COUNTERS: [(&str, Shape); 8] = [
    ("vllm:num_requests_running", Shape::Gauge),
    ("vllm:num_requests_waiting", Shape::Gauge),
    ("vllm:kv_cache_usage_perc", Shape::Gauge),
    ("vllm:num_preemptions", Shape::Counter),
    ("vllm:prompt_tokens", Shape::Counter),
    ("vllm:generation_tokens", Shape::Counter),
    ("vllm:request_success", Shape::Counter),
    ("process_start_time_seconds", Shape::Gauge),
];

const HISTOGRAMS: [(&str, Shape); 4] = [
    ("vllm:time_to_first_token_seconds", Shape::Histogram),
    ("vllm:e2e_request_latency_seconds", Shape::Histogram),
    ("vllm:request_queue_time_seconds", Shape::Histogram),
    ("vllm:inter_token_latency_seconds", Shape::Histogram),
];

fn page(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vllm").join(name);
    let packed = fs::read(path).expect("the fixture is in the repository");
    let mut page = Vec::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut page).expect("the fixture is gzip");
    page
}

fn wanted(families: &[(&str, Shape)]) -> Wanted {
    Wanted::new(&families.iter().map(|(name, shape)| Family::new(*name, *shape)).collect::<Vec<_>>())
}

/// Everything that a reader would look at, folded into one number.
fn scan(page: &[u8], wanted: &Wanted, walk: Walk) -> f64 {
    let mut scanner = Scanner::new(page, wanted, walk);
    let mut sum = 0.0;
    while let Some(event) = scanner.next_event().expect("a recorded page") {
        if let Event::Sample(sample) = event {
            let engine = scanner.label("engine").map_or(0, <[u8]>::len);
            let bound = scanner.label("le").and_then(keda_vllm_scaler::exposition::parse_number);
            sum += sample.value + engine as f64 + bound.filter(|bound| bound.is_finite()).unwrap_or(0.0);
        }
    }
    sum
}

fn benchmarks(c: &mut Criterion) {
    let few = wanted(&GAUGES_AND_COUNTERS);
    let all = wanted(&[&GAUGES_AND_COUNTERS[..], &HISTOGRAMS[..]].concat());
    for (title, name) in [
        ("vllm 0.32, one engine", "0.32.0/single/100.txt.gz"),
        ("vllm 0.32, two engines", "0.32.0/dp2-asc2/100.txt.gz"),
    ] {
        let page = page(name);
        let page = page.as_slice();
        let mut group = c.benchmark_group(title);
        group.throughput(Throughput::Bytes(page.len() as u64));
        group.warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(2));
        group.bench_function("yardstick: count the lines", |b| {
            b.iter(|| memchr::memchr_iter(b'\n', black_box(page)).count());
        });
        group.bench_function("8 metrics", |b| b.iter(|| scan(black_box(page), &few, Walk::Families)));
        group.bench_function("8 metrics and 4 histograms", |b| {
            b.iter(|| scan(black_box(page), &all, Walk::Families));
        });
        group.bench_function("8 metrics and 4 histograms, line by line", |b| {
            b.iter(|| scan(black_box(page), &all, Walk::Lines));
        });
        group.bench_function("read_page", |b| b.iter(|| read_page(black_box(page), None, None)));
        group.finish();
    }
}

criterion_group!(scans, benchmarks);
criterion_main!(scans);
