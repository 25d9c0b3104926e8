//! Pages of a real vLLM 0.32 under load, a page every four seconds: what the tier is said to carry agrees with the table
//! that the load generator kept beside them.
//!
//! The pages are read by a slow and obvious reader of this test, so that a fault of the page scanner can't hide here.
#![expect(clippy::unwrap_used, reason = "a test that finds nothing where something must be has failed")]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use keda_vllm_scaler::aggregate::{TierWindow, WindowSettings};
use keda_vllm_scaler::decision::{Observation, ReplicaState};
use keda_vllm_scaler::engines::{Dialect, EnginePage, EngineSample, Histogram};
use keda_vllm_scaler::supply::{Discovered, Phase, Target};

const SETTINGS: WindowSettings = WindowSettings {
    rate_window: Duration::from_secs(20),
    stale_after: Duration::from_secs(15),
    shape_window: Duration::from_mins(2),
    hold_unknown: Duration::from_mins(10),
    acceptable_queue: Some(Duration::from_secs(5)),
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vllm/0.32.0/single")
}

/// Every sample of a page: name, then labels as written, then the value.
fn samples(text: &str) -> BTreeMap<String, Vec<(String, f64)>> {
    let mut samples: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        samples.entry(name.to_owned()).or_default().push((labels.to_owned(), value.parse().unwrap()));
    }
    samples
}

fn read(text: &str) -> EnginePage {
    let samples = samples(text);
    let all = |name: &str| samples.get(name).cloned().unwrap_or_default();
    let with = |name: &str, label: &str| {
        all(name).into_iter().find(|(labels, _)| labels.contains(label)).map(|(_, value)| value)
    };
    let one = |name: &str| with(name, "");
    let histogram = |name: &str| {
        let mut histogram = Histogram {
            count: one(&format!("{name}_count"))?,
            sum: one(&format!("{name}_sum"))?,
            ..Histogram::default()
        };
        for (labels, count) in all(&format!("{name}_bucket")) {
            let bound = labels.split("le=\"").nth(1).unwrap().split('"').next().unwrap();
            if bound != "+Inf" {
                histogram.bounds.push(bound.parse().unwrap());
                histogram.cumulative.push(count);
            }
        }
        Some(histogram)
    };
    EnginePage {
        dialect: Dialect::VllmV1,
        model: Some("tiny".to_owned()),
        process_start_seconds: one("process_start_time_seconds"),
        engines: vec![EngineSample {
            engine: "0".to_owned(),
            running: one("vllm:num_requests_running"),
            waiting: one("vllm:num_requests_waiting"),
            waiting_for_capacity: with("vllm:num_requests_waiting_by_reason", "capacity"),
            waiting_deferred: with("vllm:num_requests_waiting_by_reason", "deferred"),
            kv_usage: one("vllm:kv_cache_usage_perc"),
            prompt_tokens_total: one("vllm:prompt_tokens_total"),
            computed_prompt_tokens_total: with("vllm:prompt_tokens_by_source_total", "local_compute"),
            generation_tokens_total: one("vllm:generation_tokens_total"),
            preemptions_total: one("vllm:num_preemptions_total"),
            finished_total: Some(all("vllm:request_success_total").iter().map(|(_, value)| value).sum()),
            time_to_first_token: histogram("vllm:time_to_first_token_seconds"),
            inter_token: histogram("vllm:inter_token_latency_seconds"),
            queue_time: histogram("vllm:request_queue_time_seconds"),
            request_prompt_tokens: histogram("vllm:request_prompt_tokens"),
            request_generation_tokens: histogram("vllm:request_generation_tokens"),
            iteration_tokens: histogram("vllm:iteration_tokens_total"),
        }],
        kv_tokens_per_engine: Some(1536.0),
        awake: with("vllm:engine_sleep_state", "awake").map(|awake| awake > 0.0),
        rejected_total: one("vllm:admission_rejections_total"),
        speculative: false,
        missing: Vec::new(),
    }
}

/// A row of the table: when, in which phase of the load, and the values that it has beside the page.
struct Row {
    at: DateTime<Utc>,
    phase: String,
    values: BTreeMap<String, f64>,
    page: EnginePage,
}

fn rows() -> Vec<Row> {
    let table = std::fs::read_to_string(folder().join("index.csv")).unwrap();
    let mut lines = table.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    let mut rows = Vec::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let file = folder().join(format!("{}.txt.gz", fields[0]));
        if !file.exists() {
            continue; // the table has a row a second, every fourth page is kept
        }
        let mut text = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(file).unwrap()).read_to_string(&mut text).unwrap();
        let unix: f64 = fields[1].parse().unwrap();
        let numbers = columns.iter().zip(&fields);
        rows.push(Row {
            at: DateTime::UNIX_EPOCH + TimeDelta::milliseconds((unix * 1000.0) as i64),
            phase: fields[2].to_owned(),
            values: numbers
                .filter_map(|(column, field)| Some(((*column).to_owned(), field.parse().ok()?)))
                .collect(),
            page: read(&text),
        });
    }
    assert!(rows.len() > 50, "the captured pages are missing: {} rows", rows.len());
    rows
}

fn tier(rows: &[Row]) -> TierWindow {
    let mut tier = TierWindow::new(SETTINGS);
    let target = Target {
        id: "a".to_owned(),
        name: "a".to_owned(),
        url: Some("http://a/metrics".to_owned()),
        phase: Phase::Listed,
        since: None,
        start: None,
    };
    let listed =
        Discovered::Targets { targets: vec![target], authoritative: false, current: None, scale: None };
    tier.discovered(&listed, rows[0].at);
    tier
}

#[test]
fn gauges_and_rates_agree_with_the_table_beside_the_pages() {
    let rows = rows();
    let mut tier = tier(&rows);
    let mut served = 0.0;
    for (index, row) in rows.iter().enumerate() {
        tier.page("a", row.at, Ok(row.page.clone()));
        let observation = tier.observe(row.at);
        assert_eq!(observation.count(ReplicaState::Ready), 1);
        let load = observation.replicas[0].load.clone().unwrap();
        assert_eq!(load.running, row.values.get("vllm:num_requests_running").copied());
        assert_eq!(load.waiting, row.values.get("vllm:num_requests_waiting").copied());
        let kv = row.values["vllm:kv_cache_usage_perc"];
        assert!((load.kv_usage.unwrap() - kv).abs() < 1e-6);
        let Some(before) = index.checked_sub(5).map(|first| &rows[first]) else {
            continue;
        };
        // 20 s are five intervals of this capture.
        let seconds = (row.at - before.at).as_seconds_f64();
        let grown = |name: &str| (row.values[name] - before.values[name]) / seconds;
        let near = |rate: Option<f64>, expected: f64| (rate.unwrap() - expected).abs() < 0.5;
        if seconds <= 20.0 {
            assert!(
                near(load.output_tokens_per_second, grown("vllm:generation_tokens_total")),
                "page {index}"
            );
            assert!(near(load.input_tokens_per_second, grown("vllm:prompt_tokens_total")), "page {index}");
            assert!(near(load.preemptions_per_second, grown("vllm:num_preemptions_total")), "page {index}");
            served += 1.0;
        }
    }
    assert!(served > 20.0, "{served} windows were compared");
}

#[test]
fn under_saturation_the_backlog_grows_the_queue_is_slow_and_steps_teach() {
    let rows = rows();
    let mut tier = tier(&rows);
    let (mut slowest_queue, mut steps, mut growths): (f64, u32, Vec<f64>) = (0.0, 0, Vec::new());
    let mut last: Option<Observation> = None;
    for row in &rows {
        tier.page("a", row.at, Ok(row.page.clone()));
        let observation = tier.observe(row.at);
        if row.phase == "sat" {
            slowest_queue =
                slowest_queue.max(observation.load.queue_time_p95_seconds.map_or(0.0, |p95| p95.value));
            growths.extend(observation.load.waiting_growth_per_second);
        }
        if let Some(step) = observation.replicas[0].load.as_ref().unwrap().steps {
            steps += 1;
            assert!(step.inter_token_mean_seconds > 0.0 && step.inter_token_mean_seconds < 1.0);
            assert!(
                step.decode_tokens_per_step > 0.0 && step.decode_tokens_per_step <= 4.0 + 1e-9,
                "4 slots"
            );
        }
        last = Some(observation);
    }
    assert!(slowest_queue > 10.0, "{slowest_queue} s of queue");
    assert!(growths.iter().any(|growth| *growth > 0.2), "{growths:?}");
    assert!(steps > 30, "{steps} step samples");

    let load = last.unwrap().load;
    let lengths = (load.mean_input_tokens.unwrap(), load.mean_output_tokens.unwrap());
    // Over all finished requests of the run: about 7,000 input and 17,000 output tokens of 62 requests.
    assert!((100.0..130.0).contains(&lengths.0) && (230.0..320.0).contains(&lengths.1), "{lengths:?}");
    assert!(load.mean_uncached_input_tokens.unwrap() < lengths.0, "a part came from the prefix cache");
}

#[test]
fn an_idle_engine_is_zero_and_not_unknown() {
    let rows = rows();
    let mut tier = tier(&rows);
    for row in rows.iter().take_while(|row| row.phase != "ramp") {
        tier.page("a", row.at, Ok(row.page.clone()));
    }
    let observation = tier.observe(rows[0].at);
    let load = observation.replicas[0].load.clone().unwrap();
    assert_eq!((load.running, load.waiting, load.kv_usage), (Some(0.0), Some(0.0), Some(0.0)));
    assert_eq!(observation.load.queue_time_p95_seconds, None, "nothing finished, nothing is said");
}
