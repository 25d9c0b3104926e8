//! The command `backtest --rivals`: who is played, who isn't and why, and what hindsight is worth.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::process::Output;

use serde_json::Value;

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/backtest/six-hours.csv");

fn backtest(arguments: &[&str]) -> Output {
    assert_cmd::Command::cargo_bin("keda-vllm-scaler")
        .unwrap()
        .args(["backtest", "--trace", TRACE, "--peak-replicas", "6", "--json"])
        .args(arguments)
        .output()
        .unwrap()
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    let output = backtest(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["policies"].as_array().unwrap().clone()
}

fn names(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["policy"].as_str().unwrap()).collect()
}

#[track_caller]
fn refused(rivals: &str, words: &[&str]) {
    let output = backtest(&["--rivals", rivals]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{rivals}: {told}");
    assert!(words.iter().all(|word| told.contains(word)), "{rivals}: {told}");
}

#[test]
fn all_that_the_fluid_model_can_play_are_played_unless_told_otherwise() {
    let all = rows(&[]);
    assert!(all.len() >= 13, "{:?}", names(&all));
    for name in
        ["keda-waiting", "keda-cron-waiting", "keda-kaito", "hpa-cpu", "hpa-gpu", "token-velocity", "oracle"]
    {
        assert!(names(&all).contains(&name), "{name} of {:?}", names(&all));
    }
    assert!(!names(&all).contains(&"hpa-kv"), "a fluid has no KV cache");
    assert_eq!(names(&rows(&["--rivals", "none"])), ["keda-vllm-scaler"]);
    assert_eq!(
        names(&rows(&["--rivals", "keda-waiting,oracle"])),
        ["keda-vllm-scaler", "oracle", "keda-waiting"]
    );
}

#[test]
fn the_oracle_has_no_late_work_and_nobody_without_late_work_is_cheaper() {
    for cold_start in ["60s", "180s"] {
        let all = rows(&["--cold-start", cold_start]);
        let hours = |row: &Value| row["gpuHours"].as_f64().unwrap();
        let oracle = all.iter().find(|row| row["policy"] == "oracle").unwrap();
        assert_eq!(oracle["lateWork"].as_f64(), Some(0.0), "{oracle}");
        assert!((1.0..1.1).contains(&oracle["ratio"].as_f64().unwrap()), "near the bound: {oracle}");
        for row in all.iter().filter(|row| row["lateWork"].as_f64() == Some(0.0)) {
            assert!(hours(row) >= hours(oracle), "{cold_start}: {row}");
        }
    }
}

#[test]
fn a_rival_plays_the_same_whoever_else_is_played() {
    let all = rows(&[]);
    for name in ["keda-waiting", "keda-kaito", "dynamo-throughput"] {
        let alone = rows(&["--rivals", name]);
        assert_eq!(all.iter().find(|row| row["policy"] == name), alone.get(1), "{name}");
    }
}

#[test]
fn a_name_that_nobody_has_is_answered_with_those_that_can_be_played() {
    refused(
        "keda-wating",
        &["no rival is named \"keda-wating\"", "keda-waiting, keda-cron-waiting", "skyserve"],
    );
    refused("hpa-80,,oracle", &["no rival is named \"\""]);
}

#[test]
fn a_rival_that_goes_by_what_a_fluid_lacks_is_refused_with_the_reason() {
    refused("aibrix-apa", &["aibrix-apa goes by KV cache usage, which this model of the fleet doesn't have"]);
    refused("wva-v2", &["KV cache usage and the size of the KV cache"]);
    refused("oracle,knative-kpa", &["knative-kpa goes by running requests"]);
}
