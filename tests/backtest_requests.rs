//! The command `backtest --fidelity requests`: what is scored, what is told of each answer, what is refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::process::Output;

/// A steady quarter of an hour, a step to three times as much.
const LAW: &str = "steps rates=2,6 each=15m input=400 output=60";

fn backtest(arguments: &[&str]) -> Output {
    assert_cmd::Command::cargo_bin("keda-vllm-scaler")
        .unwrap()
        .args(["backtest", "--fidelity", "requests", "--arrivals", LAW, "--peak-replicas", "2"])
        .args(["--cold-start", "60s", "--profile", "rtx4090-8b", "--rivals", "none"])
        .args(arguments)
        .output()
        .unwrap()
}

fn ours(arguments: &[&str]) -> serde_json::Value {
    let output = backtest(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["fidelity"], "requests");
    report
}

#[test]
fn what_comes_before_the_score_is_played_and_not_scored() {
    let (whole, half) = (ours(&[]), ours(&["--score-from", "15m"]));
    assert_eq!(half["scoredFromSeconds"], 900.0);
    let paid = |report: &serde_json::Value| report["policies"][0]["gpuHours"].as_f64().unwrap();
    let bound = |report: &serde_json::Value| report["boundGpuHours"].as_f64().unwrap();
    assert!(paid(&half) > 0.0 && paid(&half) < paid(&whole), "{half}");
    assert!(bound(&half) > 0.0 && bound(&half) < bound(&whole), "{half}");
    let late = backtest(&["--score-from", "1h"]);
    assert_eq!(late.status.code(), Some(64), "{}", String::from_utf8_lossy(&late.stderr));
}

#[test]
fn the_page_has_the_answers_with_their_reasons_and_says_what_this_model_leaves_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    let output = backtest(&["--report", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(
        page.contains("changes of the answer, with their reasons") && page.contains("<td class=\"because\">")
    );
    assert!(page.contains("No prompt shares a prefix") && !page.contains("Work is a fluid"));
}

#[test]
fn where_the_excess_goes_is_refused_with_the_reason() {
    let output = backtest(&["--split"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{told}");
    assert!(told.contains("--split: only as a fluid"), "{told}");
}
