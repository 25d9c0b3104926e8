//! Pages of real vLLM servers: the reader gives what a slow, obvious one gives, a cut page never gives another number, and
//! no damage makes it panic.
#![expect(clippy::unwrap_used, reason = "a test that can't find its fixtures fails")]
#![expect(clippy::float_cmp, reason = "the very number of the page is wanted")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use keda_vllm_scaler::engines::{Dialect, EnginePage, PageError, read_page};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

#[path = "captures/reference_reader.rs"]
mod reference_reader;

use reference_reader::ReferencePage;

const CLASSIC: &str = "text/plain; version=1.0.0; charset=utf-8";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vllm")
}

fn capture(name: &str) -> Vec<u8> {
    let packed = fs::read(fixtures().join(format!("{name}.txt.gz"))).unwrap();
    let mut page = Vec::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut page).unwrap();
    page
}

/// Every recorded page with vLLM's series, by its path below the fixtures.
fn captures() -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![fixtures()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if let Some(name) = path.to_str().unwrap().strip_suffix(".txt.gz") {
                let name = Path::new(name).strip_prefix(fixtures()).unwrap().to_str().unwrap().to_owned();
                found.insert(name.clone(), capture(&name));
            }
        }
    }
    found.remove("0.32.0/disable-log-stats-page").unwrap();
    found
}

fn content_type(name: &str) -> &'static str {
    if name.contains("rust-frontend") { OPENMETRICS } else { CLASSIC }
}

fn read(name: &str, page: &[u8]) -> EnginePage {
    read_page(page, Some(content_type(name)), None).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn lacks(page: &EnginePage, metric: &str) -> bool {
    page.missing.iter().any(|missing| missing.name == metric)
}

#[test]
fn every_page_reads_to_the_values_of_the_reference_reader() {
    let captures = captures();
    assert!(captures.len() > 160, "only {} pages found", captures.len());
    for (name, page) in captures {
        let read = read(&name, &page);
        let reference = ReferencePage::new(std::str::from_utf8(&page).unwrap());
        let names: Vec<&str> = read.engines.iter().map(|engine| engine.engine.as_str()).collect();
        assert_eq!(names, reference.engines(), "{name}");
        for engine in &read.engines {
            assert_eq!(*engine, reference.sample(&engine.engine), "{name}");
        }
        assert_eq!(reference.models().into_iter().collect::<Vec<_>>(), ["tiny"], "{name}");
        assert_eq!(read.model.as_deref(), Some("tiny"), "{name}");
        assert_eq!(read.process_start_seconds, reference.process_start(), "{name}");
        assert_eq!(read.rejected_total, reference.rejected(), "{name}");
        assert_eq!(read.awake, reference.awake(), "{name}");
        assert_eq!(read.kv_tokens_per_engine, reference.kv_tokens_per_engine(), "{name}");
        assert!(!read.speculative, "{name}");
    }
}

#[test]
fn a_page_reads_alike_without_its_content_type() {
    for (name, page) in captures() {
        assert_eq!(read_page(&page, None, None).unwrap(), read(&name, &page), "{name}");
    }
}

#[test]
fn each_generation_is_recognised() {
    for (name, page) in captures() {
        let expected = if name.contains("rust-frontend") {
            Dialect::VllmRust
        } else if name.starts_with("0.8.5") {
            Dialect::VllmV0
        } else {
            Dialect::VllmV1
        };
        assert_eq!(read(&name, &page).dialect, expected, "{name}");
    }
}

#[test]
fn a_saturated_server_shows_its_load() {
    let page = read("", &capture("0.32.0/single/100"));
    let engine = &page.engines[0];
    assert_eq!((engine.running, engine.waiting), (Some(2.0), Some(20.0)));
    assert_eq!((engine.waiting_for_capacity, engine.waiting_deferred), (Some(20.0), Some(0.0)));
    assert_eq!(engine.kv_usage, Some(0.829_787_234_042_553_2));
    assert_eq!(engine.prompt_tokens_total, Some(3488.0));
    assert_eq!(engine.computed_prompt_tokens_total, Some(2944.0));
    assert_eq!((engine.generation_tokens_total, engine.finished_total), (Some(7505.0), Some(28.0)));
    assert_eq!(engine.preemptions_total, Some(15.0));
    assert_eq!(engine.iteration_tokens.as_ref().unwrap().count, 2597.0);
    assert_eq!(page.kv_tokens_per_engine, Some(1536.0));
    assert_eq!(page.process_start_seconds, Some(1_795_971_434.92));
    assert_eq!(page.rejected_total, Some(0.0));
    assert_eq!(page.missing, []);
}

#[test]
fn two_ranks_are_two_engines_and_the_blocks_of_both_are_not_counted_twice() {
    let page = read("", &capture("0.32.0/dp2-asc2/100"));
    let running: Vec<_> = page.engines.iter().map(|engine| engine.running).collect();
    assert_eq!(running, [Some(3.0), Some(2.0)]);
    assert_eq!(page.kv_tokens_per_engine, Some(1536.0));
    assert!(lacks(&page, "process_start_time_seconds"));
}

#[test]
fn without_the_size_label_the_blocks_of_all_ranks_are_shared_out() {
    let page = String::from_utf8(capture("0.32.0/dp2-asc2/100")).unwrap();
    let page = page.replace("kv_cache_size_tokens=\"1536\"", "kv_cache_size_tokens=\"None\"");
    assert_eq!(read("", page.as_bytes()).kv_tokens_per_engine, Some(32.0 * 96.0 / 2.0));
}

#[test]
fn gauges_without_samples_before_the_first_request_are_zero_on_every_rank() {
    let page = read("", &capture("0.32.0/dp2-asc2-page-before-first-request"));
    assert_eq!(page.engines.len(), 2);
    for engine in &page.engines {
        assert_eq!((engine.running, engine.waiting, engine.kv_usage), (Some(0.0), Some(0.0), Some(0.0)));
        assert_eq!((engine.waiting_for_capacity, engine.waiting_deferred), (Some(0.0), Some(0.0)));
    }
}

#[test]
fn a_sleeping_server_is_not_awake_though_it_looks_idle() {
    let states: Vec<Option<bool>> =
        ["000-awake", "001-sleeping-idle", "002-sleeping-with-3-hung-requests", "003-woken"]
            .map(|name| read("", &capture(&format!("0.32.0/sleep-level0/{name}"))).awake)
            .into();
    assert_eq!(states, [Some(true), Some(false), Some(false), Some(true)]);
}

#[test]
fn the_v0_engine_is_read_by_its_older_names_and_says_what_it_lacks() {
    let page = read("", &capture("0.8.5/v0-single/100"));
    assert_eq!(page.engines[0].engine, "0");
    assert_eq!(page.engines[0].kv_usage, Some(0.958_333_333_333_333_4));
    assert_eq!(page.engines[0].inter_token.as_ref().unwrap().count, 5882.0);
    assert_eq!(page.kv_tokens_per_engine, Some(1536.0));
    assert_eq!(page.engines[0].computed_prompt_tokens_total, None);
    for metric in [
        "vllm:prompt_tokens_by_source",
        "vllm:num_requests_waiting_by_reason",
        "vllm:engine_sleep_state",
        "vllm:admission_rejections",
    ] {
        assert!(lacks(&page, metric), "{metric}");
    }
    assert_eq!(page.missing.len(), 4);
}

#[test]
fn a_v0_server_that_has_served_nothing_has_no_finished_requests_and_no_histograms() {
    let page = read("", &capture("0.8.5/page-before-first-request"));
    assert_eq!(page.engines[0].finished_total, Some(0.0));
    assert_eq!(page.engines[0].queue_time, None);
    let why = page.missing.iter().find(|missing| missing.name == "vllm:request_queue_time_seconds").unwrap();
    assert_eq!(why.why, "nothing was observed yet");
}

#[test]
fn the_rust_front_end_says_what_it_lacks() {
    let name = "0.32.0-rust-frontend-0.33.0/single/100";
    let page = read(name, &capture(name));
    let missing: Vec<&str> = page.missing.iter().map(|missing| missing.name).collect();
    assert_eq!(
        missing,
        [
            "vllm:engine_sleep_state",
            "vllm:admission_rejections",
            "vllm:cache_config_info",
            "process_start_time_seconds"
        ]
    );
    assert_eq!(page.engines[0].finished_total, Some(36.0));
}

#[test]
fn a_server_without_statistics_is_an_error_not_an_idle_server() {
    let page = capture("0.32.0/disable-log-stats-page");
    assert_eq!(read_page(&page, Some(CLASSIC), None), Err(PageError::NoEngineSeries));
}

#[test]
fn a_model_that_the_page_lacks_is_named() {
    let page = capture("0.32.0/single/100");
    assert_eq!(read_page(&page, None, Some("tiny")).unwrap(), read("", &page));
    assert_eq!(
        read_page(&page, None, Some("large")),
        Err(PageError::NoSuchModel { wanted: "large".to_owned(), present: "tiny".to_owned() })
    );
}

const ONE_OF_EACH_KIND: [&str; 8] = [
    "0.32.0/single/100",
    "0.32.0/dp2-asc2/100",
    "0.32.0/dp2-asc2-page-before-first-request",
    "0.32.0/sleep-level0/001-sleeping-idle",
    "0.32.0-rust-frontend-0.33.0/single/100",
    "0.32.0-rust-frontend-0.33.0/page-before-first-request",
    "0.8.5/v0-single/100",
    "0.8.5/page-before-first-request",
];

/// Each value of the cut page is that of the whole one, or unknown. As JSON, so that no field is forgotten.
fn assert_nothing_invented(whole: &serde_json::Value, cut: &serde_json::Value, context: &str) {
    match (whole, cut) {
        (_, serde_json::Value::Null) => {}
        (serde_json::Value::Object(whole), serde_json::Value::Object(cut)) => {
            for (key, value) in cut.iter().filter(|(key, _)| !matches!(key.as_str(), "missing" | "dialect")) {
                assert_nothing_invented(&whole[key], value, &format!("{context}.{key}"));
            }
        }
        (serde_json::Value::Array(whole), serde_json::Value::Array(cut)) => {
            // A replica's load is the sum over its engines: an engine less is another number.
            assert_eq!(whole.len(), cut.len(), "{context}");
            for (whole, cut) in whole.iter().zip(cut) {
                assert_nothing_invented(whole, cut, context);
            }
        }
        _ => assert_eq!(whole, cut, "{context}"),
    }
}

#[test]
fn a_page_cut_anywhere_gives_an_error_or_no_other_number() {
    for name in ONE_OF_EACH_KIND {
        let page = capture(name);
        let whole = serde_json::to_value(read(name, &page)).unwrap();
        let line_ends = (1..page.len()).filter(|at| page[at - 1] == b'\n');
        for end in line_ends.chain((0..page.len()).step_by(61)) {
            for content_type in [Some(content_type(name)), None] {
                let Ok(cut) = read_page(&page[..end], content_type, None) else { continue };
                let context = format!("{name} cut at {end}");
                assert_nothing_invented(&whole, &serde_json::to_value(cut).unwrap(), &context);
            }
        }
    }
}

#[test]
fn a_page_cut_inside_a_line_is_truncated() {
    let page = capture("0.32.0/single/100");
    for end in (1..page.len()).step_by(97).filter(|end| page[end - 1] != b'\n') {
        assert_eq!(read_page(&page[..end], Some(CLASSIC), None), Err(PageError::Truncated), "cut at {end}");
    }
}

#[test]
fn an_openmetrics_page_without_its_end_is_truncated_with_and_without_a_content_type() {
    let page = capture("0.32.0-rust-frontend-0.33.0/single/100");
    let middle = page.windows(2).rposition(|pair| pair == b"\n#").unwrap();
    for content_type in [Some(OPENMETRICS), Some(CLASSIC), None] {
        assert_eq!(read_page(&page[..=middle], content_type, None), Err(PageError::Truncated));
    }
}

#[test]
fn a_gauge_whose_type_line_ends_the_page_is_unknown_not_zero() {
    let page = String::from_utf8(capture("0.32.0/dp2-asc2-page-before-first-request")).unwrap();
    let line = "# TYPE vllm:kv_cache_usage_perc gauge\n";
    let end = page.find(line).unwrap() + line.len();
    let cut = read("", &page.as_bytes()[..end]);
    assert_eq!(cut.engines[0].running, Some(0.0));
    assert_eq!(cut.engines[0].kv_usage, None);
    assert!(cut.missing.iter().any(|m| m.name == "vllm:kv_cache_usage_perc" && m.why.contains("cut short")));
}

#[test]
fn no_damage_makes_the_reader_panic() {
    let mut random = StdRng::seed_from_u64(1);
    for name in ONE_OF_EACH_KIND {
        let page = capture(name);
        for _ in 0..300 {
            let mut damaged = page.clone();
            for _ in 0..random.random_range(1..20) {
                let at = random.random_range(0..damaged.len());
                damaged[at] ^= 1 << random.random_range(0..8);
            }
            if random.random_bool(0.3) {
                let from = random.random_range(0..damaged.len());
                let to = random.random_range(from..damaged.len());
                damaged.drain(from..to);
            }
            // Any answer will do.
            drop(read_page(&damaged, None, None));
            drop(read_page(&damaged, Some(CLASSIC), Some("tiny")));
        }
    }
}

#[test]
fn a_whole_row_of_the_cache_s_size_counts_even_at_the_end_of_a_page() {
    let text = String::from_utf8(capture("0.32.0/single/100")).unwrap();
    let (cache, rest): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.contains("cache_config_info"));
    let moved = format!("{}\n{}\n", rest.join("\n"), cache.join("\n"));
    assert_eq!(read("0.32.0/single/100", moved.as_bytes()).kv_tokens_per_engine, Some(1536.0));
}
