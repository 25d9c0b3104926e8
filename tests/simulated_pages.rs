//! The page of a simulated replica against the page of a real vLLM 0.32.0 server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::collections::BTreeMap;
use std::io::Read as _;

use keda_vllm_scaler::simulate::page::{self, PageIdentity};
use keda_vllm_scaler::simulate::{EngineModel, EngineSettings, Moment, Request};

/// Everything about a family but its numbers and its help text.
#[derive(Debug, PartialEq)]
struct Family {
    name: String,
    kind: String,
    /// Sample name and labels as written, without the values of labels that name a server.
    series: Vec<String>,
}

fn families(page: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            families.push(Family { name: name.to_owned(), kind: kind.to_owned(), series: Vec::new() });
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok() || value == "+Inf", "{line}");
            families.last_mut().unwrap().series.push(series.to_owned());
        }
    }
    families
}

fn real_page() -> String {
    let packed = include_bytes!("fixtures/simulate/vllm-0.32.0-page.txt.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
    text
}

/// A server with the settings of the captured one where they show: its model's name and its longest request.
fn simulated_engine() -> EngineModel {
    let mut settings = EngineSettings::rtx4090_8b();
    settings.max_model_len = 1024;
    let mut engine = EngineModel::new(settings, Moment::START);
    for id in 0..50 {
        let arrived = Moment::from_seconds(id as f64 / 10.0);
        engine.arrive(Request { id, arrived, input: 300, cached: 100, output: 60 }, arrived);
    }
    engine.advance(Moment::from_seconds(6.0));
    engine
}

fn simulated_page() -> String {
    let engine = simulated_engine();
    let identity = PageIdentity {
        model: "tiny",
        process_start_seconds: 1_795_971_434.92,
        created_seconds: 1_795_971_498.598_504_2,
    };
    page::render(&identity, engine.settings(), engine.metrics())
}

/// Label names alone, for the series whose label values are settings of the server.
fn label_names(series: &str) -> Vec<&str> {
    let labels = series.split_once('{').unwrap().1.trim_end_matches('}');
    labels.split("\",").map(|pair| pair.split_once('=').unwrap().0).collect()
}

#[test]
fn families_order_labels_and_bounds_are_those_of_a_real_server() {
    let (real, simulated) = (real_page(), simulated_page());
    let only = |page: &str| {
        let mut families = families(page);
        families.retain(|family| family.name.starts_with("vllm:"));
        families
    };
    let (real, simulated) = (only(&real), only(&simulated));
    let names = |families: &[Family]| families.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&real), names(&simulated));
    for (real, simulated) in real.iter().zip(&simulated) {
        assert_eq!(real.kind, simulated.kind, "{}", real.name);
        if real.name == "vllm:cache_config_info" {
            assert_eq!(label_names(&real.series[0]), label_names(&simulated.series[0]));
        } else {
            assert_eq!(real.series, simulated.series, "{}", real.name);
        }
    }
}

#[test]
fn the_start_of_the_process_is_written_as_a_real_server_writes_it() {
    let line = "process_start_time_seconds 1.79597143492e+09";
    assert!(real_page().lines().any(|l| l == line));
    assert!(simulated_page().lines().any(|l| l == line));
    assert!(
        simulated_page()
            .contains("vllm:num_preemptions_created{engine=\"0\",model_name=\"tiny\"} 1.7959714985985")
    );
}

#[test]
fn numbers_on_the_page_agree_with_each_other() {
    let page = simulated_page();
    let values: BTreeMap<&str, f64> = page
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(series, value)| (series, value.parse().unwrap_or(f64::INFINITY)))
        .collect();
    let get = |name: &str| values[format!("vllm:{name}{{engine=\"0\",model_name=\"tiny\"}}").as_str()];
    let with = |name: &str, label: &str| {
        values[format!("vllm:{name}{{engine=\"0\",model_name=\"tiny\",{label}}}").as_str()]
    };
    let finished =
        values["vllm:request_success_total{engine=\"0\",finished_reason=\"stop\",model_name=\"tiny\"}"];
    assert!(finished > 0.0 && finished < 50.0, "{finished}");
    assert_eq!(finished, get("e2e_request_latency_seconds_count"));
    assert_eq!(finished * 60.0, get("request_generation_tokens_sum"));
    assert_eq!(get("prompt_tokens_total"), 300.0 * get("time_to_first_token_seconds_count"));
    assert_eq!(
        get("prompt_tokens_total"),
        with("prompt_tokens_by_source_total", "source=\"local_compute\"")
            + with("prompt_tokens_by_source_total", "source=\"local_cache_hit\"")
    );
    assert_eq!(
        get("generation_tokens_total"),
        get("inter_token_latency_seconds_count") + get("time_to_first_token_seconds_count")
    );
    assert_eq!(get("num_requests_waiting"), with("num_requests_waiting_by_reason", "reason=\"capacity\""));
    let computed = get("prompt_tokens_total") / 300.0 * 200.0;
    assert_eq!(get("iteration_tokens_total_sum"), get("generation_tokens_total") + computed);
    assert!(get("kv_cache_usage_perc") > 0.0 && get("kv_cache_usage_perc") < 1.0);
    assert!(get("request_queue_time_seconds_sum") > 0.0);
    // 41,408 tokens and the null block.
    assert!(page.contains("block_size=\"16\"") && page.contains("num_gpu_blocks=\"2589\""));
}

#[test]
fn the_scaler_s_own_reader_misses_nothing_on_it() {
    let engine = simulated_engine();
    let page = simulated_page();
    let read = keda_vllm_scaler::engines::read_page(page.as_bytes(), None, None).unwrap();
    assert_eq!(read.missing, []);
    assert_eq!(read.kv_tokens_per_engine, Some(f64::from(engine.settings().kv_blocks * 16)));
    assert_eq!(read.engines[0].running, Some(f64::from(engine.metrics().gauges.running)));
    assert_eq!(read.engines[0].finished_total, Some(engine.metrics().finished as f64));
}
