//! Pages of a tier in, an observation out, told as timelines.

#![expect(clippy::unwrap_used, reason = "a test that finds nothing where something must be has failed")]

#[path = "aggregate_timeline/any_input.rs"]
mod any_input;
#[path = "aggregate_timeline/rates.rs"]
mod rates;
#[path = "aggregate_timeline/shape.rs"]
mod shape;
#[path = "aggregate_timeline/supply.rs"]
mod supply;

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use keda_vllm_scaler::aggregate::{FailureKind, PageFailure, TierWindow, WindowSettings};
use keda_vllm_scaler::decision::{Observation, ReplicaObservation};
use keda_vllm_scaler::engines::{Dialect, EnginePage, EngineSample, Histogram};
use keda_vllm_scaler::supply::{Discovered, Phase, Target};

const SETTINGS: WindowSettings = WindowSettings {
    rate_window: Duration::from_secs(30),
    stale_after: Duration::from_secs(15),
    shape_window: Duration::from_mins(2),
    hold_unknown: Duration::from_mins(10),
    acceptable_queue: Some(Duration::from_secs(5)),
};

/// `seconds` into the timeline.
fn at(seconds: f64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_795_971_000, 0).unwrap() + TimeDelta::microseconds((seconds * 1e6) as i64)
}

fn target(id: &str, phase: Phase) -> Target {
    Target {
        id: id.to_owned(),
        name: format!("name of {id}"),
        url: Some(format!("http://{id}/metrics")),
        phase,
        since: None,
        start: None,
    }
}

fn targets(ids: &[&str], phase: Phase) -> Discovered {
    Discovered::Targets {
        targets: ids.iter().map(|id| target(id, phase)).collect(),
        authoritative: phase != Phase::Listed,
        current: None,
        scale: None,
    }
}

fn tier(ids: &[&str], phase: Phase) -> TierWindow {
    let mut tier = TierWindow::new(SETTINGS);
    tier.discovered(&targets(ids, phase), at(0.0));
    tier
}

/// An engine that has counted this much, idle otherwise.
fn engine(name: &str, counted: f64) -> EngineSample {
    EngineSample {
        engine: name.to_owned(),
        running: Some(0.0),
        waiting: Some(0.0),
        kv_usage: Some(0.0),
        prompt_tokens_total: Some(counted * 10.0),
        computed_prompt_tokens_total: Some(counted * 6.0),
        generation_tokens_total: Some(counted),
        preemptions_total: Some(0.0),
        finished_total: Some(counted / 10.0),
        ..EngineSample::default()
    }
}

fn page_of(engines: Vec<EngineSample>) -> EnginePage {
    EnginePage {
        dialect: Dialect::VllmV1,
        model: Some("tiny".to_owned()),
        process_start_seconds: Some(1.7e9),
        engines,
        kv_tokens_per_engine: Some(1536.0),
        awake: Some(true),
        rejected_total: Some(0.0),
        speculative: false,
        missing: Vec::new(),
    }
}

fn page(counted: f64) -> EnginePage {
    page_of(vec![engine("0", counted)])
}

fn failure(kind: FailureKind) -> PageFailure {
    PageFailure { kind, message: format!("it is {}", kind.name()) }
}

fn only(observation: &Observation) -> &ReplicaObservation {
    assert_eq!(observation.replicas.len(), 1);
    &observation.replicas[0]
}

fn output_rate(observation: &Observation) -> Option<f64> {
    only(observation).load.as_ref().and_then(|load| load.output_tokens_per_second)
}

fn histogram(bounds: &[f64], cumulative: &[f64], sum: f64) -> Histogram {
    let count = cumulative.last().copied().unwrap_or(0.0);
    Histogram { bounds: bounds.to_vec(), cumulative: cumulative.to_vec(), count, sum }
}
