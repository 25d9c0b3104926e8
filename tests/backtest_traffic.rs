//! Where the traffic of a backtest may come from, through the command itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use keda_vllm_scaler::decision::TierId;
use keda_vllm_scaler::history::{HistoryPoint, Store};

fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/backtest/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn backtest(arguments: &[&str]) -> Output {
    assert_cmd::Command::cargo_bin("keda-vllm-scaler")
        .unwrap()
        .args(["backtest", "--peak-replicas", "4", "--cold-start", "30s", "--json"])
        .args(arguments)
        .output()
        .unwrap()
}

#[track_caller]
fn played(arguments: &[&str]) -> serde_json::Value {
    let output = backtest(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn refused(arguments: &[&str], words: &str) {
    let output = backtest(arguments);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{told}");
    assert!(told.contains(words), "{told}");
}

#[test]
fn request_traces_are_played_by_name_and_by_their_first_line() {
    for (file, format) in [
        ("azure-2023-conversation.csv", "azure"),
        ("mooncake-conversation.jsonl", "mooncake"),
        ("burstgpt-made-up.csv", "burstgpt"),
    ] {
        let file = fixture(file);
        let detected = played(&["--trace", &file]);
        assert!(detected["boundGpuHours"].as_f64().unwrap() > 0.0, "{detected}");
        assert_eq!(detected, played(&["--trace", &file, "--format", format]));
    }
    refused(&["--trace", &fixture("six-hours.csv"), "--format", "azure"], "no column `TIMESTAMP`");
    refused(&["--trace", &fixture("six-hours.csv"), "--format", "parquet"], "--format");
}

#[test]
fn a_law_of_arrivals_is_played_and_a_slip_in_it_is_named() {
    let law = "poisson rate=4 for=10m; ramp from=4 to=20 for=10m seed=3";
    assert_eq!(played(&["--arrivals", law]), played(&["--arrivals", law]));
    refused(&["--arrivals", "poisson rate=x for=10m"], "rate=x is no number");
}

#[test]
fn traffic_comes_from_one_place() {
    refused(&[], "--trace, --arrivals, --history or --prometheus");
    refused(&["--trace", "a.csv", "--arrivals", "poisson rate=1 for=1m"], "cannot be used with");
    refused(&["--history", "/nowhere"], "--tier");
    refused(&["--replay", "/nowhere", "--trace", "a.csv"], "cannot be used with");
}

#[test]
fn a_saved_answer_of_prometheus_is_played_and_what_is_missing_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("load.json");
    let values: Vec<String> =
        (0..60).filter(|n| n % 20 != 7).map(|n| format!("[{},\"{}\"]", n * 60, n + 3)).collect();
    let series =
        |kind: &str| format!("{{\"metric\":{{\"kind\":\"{kind}\"}},\"values\":[{}]}}", values.join(","));
    let matrix = format!(
        "{{\"status\":\"success\",\"data\":{{\"resultType\":\"matrix\",\"result\":[{},{}]}}}}",
        series("requests"),
        series("input")
    );
    std::fs::write(&file, matrix).unwrap();
    let output = backtest(&["--prometheus", file.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("3 of 60 steps were not measured, up to 1 in a row"), "{told}");
    std::fs::write(&file, "{}").unwrap();
    refused(&["--prometheus", file.to_str().unwrap()], "not an answer of /api/v1/query_range");
}

fn filled(folder: &Path) -> Store {
    let begins = "2026-03-02T00:00:00Z".parse().unwrap();
    let mut store = Store::open(folder, Duration::from_secs(14 * 86_400), begins);
    let points: Vec<(TierId, HistoryPoint)> = (0..180)
        .filter(|n| n % 60 != 30)
        .map(|n| {
            let minute = begins.timestamp() / 60 + n;
            let requests = 100.0 + (n as f32 / 10.0).sin() * 80.0;
            let point = HistoryPoint {
                minute,
                requests,
                uncached_input_tokens: requests * 900.0,
                output_tokens: requests * 200.0,
                rejected: 0.0,
                kv_tokens: f32::NAN,
                running: f32::NAN,
                waiting: f32::NAN,
                ready: 3.0,
                demand: f32::NAN,
                required: 3.0,
            };
            (TierId::new("serving", "chat"), point)
        })
        .collect();
    store.commit(begins + chrono::TimeDelta::minutes(180), &points, &[]);
    assert_eq!(store.alarm(), None);
    store
}

#[test]
fn what_the_store_of_a_scaler_saw_is_played_and_not_a_byte_of_it_changes() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().to_str().unwrap();
    let history = ["--history", folder, "--tier", "serving/chat"];
    refused(&history, "no store in it");

    let store = filled(scratch.path());
    refused(&history, &format!("is in use by process {}", std::process::id()));
    drop(store);

    let bytes = || std::fs::read(scratch.path().join("history.redb")).unwrap();
    let before = bytes();
    let output = backtest(&history);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("3 of 180 steps were not measured, up to 1 in a row"), "{told}");
    assert!(before == bytes());
    let gone = backtest(&["--history", "/nowhere", "--tier", "serving/chat"]);
    assert_eq!(gone.status.code(), Some(1), "as a file that can't be read");
    refused(&["--history", folder, "--tier", "serving/code"], "it knows no tier serving/code");
    refused(&["--history", folder, "--tier", "chat"], "write NAMESPACE/NAME");

    let played: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(played["begins"], "2026-03-02T00:00:00Z", "the store has a calendar");
    let scenario = scratch.path().join("scenario.yaml");
    std::fs::write(&scenario, "history: {folder: ., tier: serving/chat}\n").unwrap();
    let of_scenario = backtest(&[scenario.to_str().unwrap()]);
    assert_eq!(of_scenario.stdout, output.stdout);
}

#[test]
fn a_scenario_has_the_traffic_that_the_flags_have() {
    let scratch = tempfile::tempdir().unwrap();
    let scenario = scratch.path().join("scenario.yaml");
    let path = scenario.to_str().unwrap();
    let trace = fixture("burstgpt-made-up.csv");
    for (text, flags) in [
        (format!("trace: {trace}\nformat: burstgpt\n"), ["--trace", &trace]),
        (
            "arrivals: poisson rate=4 for=10m seed=3\n".to_owned(),
            ["--arrivals", "poisson rate=4 for=10m seed=3"],
        ),
    ] {
        std::fs::write(&scenario, text).unwrap();
        assert_eq!(played(&[path]), played(&flags));
    }
    // A flag goes before what the scenario says, whichever source that is.
    assert_eq!(played(&[path, "--trace", &trace]), played(&["--trace", &trace]));
    std::fs::write(&scenario, "arrivals: [poisson rate=x for=1m, ramp from=1]\nhistory: {folder: s}\n")
        .unwrap();
    refused(&[path], "arrivals[1]: `ramp from=1`");
}
