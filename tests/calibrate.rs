//! `backtest calibrate` on real runs of vLLM: within ten per cent on the requests that the fit never saw.
//!
//! The laws that the search found are scored on all runs, and one search is made; `cargo test --release --test calibrate --
//! --ignored` makes them all.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::process::Output;

const RUNS: [&str; 3] = ["RTX4090_Llama-3.1-8B", "RTXPRO6000_Llama-3.1-8B", "RTXPRO6000_Qwen3-32B"];

fn log(run: &str) -> String {
    format!("{}/tests/fixtures/calibrate/{run}.jsonl.gz", env!("CARGO_MANIFEST_DIR"))
}

fn calibrate(requests: &str, arguments: &[&str]) -> Output {
    assert_cmd::Command::cargo_bin("keda-vllm-scaler")
        .unwrap()
        .args(["backtest", "calibrate", "--requests", requests])
        .args(arguments)
        .output()
        .unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn all_within(scores: &serde_json::Value, most: f64) {
    let scores = scores.as_array().unwrap();
    assert_eq!(scores.len(), 9, "p50, p90 and p99 of three quantities");
    for score in scores {
        assert!(score["error"].as_f64().unwrap().abs() <= most, "{score}");
    }
}

/// Laws as the command prints them for the runs, with nothing stated.
#[test]
fn the_laws_that_were_found_predict_their_runs() {
    let laws = [
        (RUNS[0], "19.7126,92.6211,0.2553,106.0459,2.8624", ["42048", "256", "2048"]),
        (RUNS[1], "14.5513,51.1126,30.7021,55.8788,1.0467", ["1000000", "128", "8192"]),
        (RUNS[2], "26.2273,151.6314,0,241.4472,17.7105", ["1000000", "128", "2048"]),
    ];
    for (run, law, [kv_tokens, sequences, budget]) in laws {
        let limits = [
            "--kv-tokens",
            kv_tokens,
            "--max-num-seqs",
            sequences,
            "--token-budget",
            budget,
            "--law",
            law,
            "--json",
        ];
        all_within(&json(&calibrate(&log(run), &limits)), 0.06);
    }
}

/// Two runs of one vLLM 0.32 on a CPU with other rates, lengths and arrivals (`tests/vllm/calibrate`); the law is what the
/// command found in the first.
#[test]
fn a_law_fitted_to_one_run_predicts_another() {
    let limits = ["--kv-tokens", "8192", "--max-num-seqs", "8", "--token-budget", "512"];
    let law = ["--law", "25.1390,1300.8966,280.5816,1577.0170,12.5648", "--json"];
    all_within(&json(&calibrate(&log("vllm-0.32-cpu-other"), &[&limits[..], &law].concat())), 0.10);
}

#[test]
#[ignore = "minutes without optimisation, 15 s with it: cargo test --release --test calibrate -- --ignored"]
fn a_law_is_found_for_each_run_with_nothing_stated() {
    for run in RUNS {
        let found = json(&calibrate(&log(run), &["--json"]));
        all_within(&found["scores"], 0.10);
        assert_eq!(found["heldOut"], 150, "{found}");
        match run {
            // Told by the engine: 41,408.
            "RTX4090_Llama-3.1-8B" => {
                let kv_tokens = found["kvTokens"]["value"].as_f64().unwrap();
                assert!((kv_tokens / 41_408.0 - 1.0).abs() < 0.05, "{kv_tokens}");
                assert_eq!(found["kvTokens"]["known"], "fitted");
            }
            _ => assert_eq!(found["maxNumSeqs"], serde_json::json!({"value": 128, "known": "seen"})),
        }
    }
}

#[test]
fn a_run_with_nothing_stated_is_met_within_ten_per_cent_and_told_for_people() {
    let output = calibrate(&log(RUNS[2]), &[]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for words in [
        "even ones of 300 requests",
        "--law ",
        "within 10 % everywhere",
        "128 (seen: others waited while so many ran)",
        "not seen to bind",
        "capacity: {",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn what_can_t_be_read_or_can_t_teach_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("log.csv");
    let refused = |text: &str, more: &[&str], code: i32, words: &str| {
        std::fs::write(&file, text).unwrap();
        let output = calibrate(file.to_str().unwrap(), more);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(words), "{told}");
    };
    let header = "arrived,first_token_seconds,last_token_seconds,input_tokens,output_tokens\n";
    refused("", &[], 64, "the log is empty");
    refused(&format!("{header}0,1,2,3,-4\n"), &[], 64, "line 2: output_toks is -4");
    refused(&format!("{header}0,1,2,3,4\n"), &[], 64, "at least 40 are needed");
    refused(header, &["--law", "1,2,3,4,5"], 64, "--kv-tokens");
    refused(header, &["--trace", "x.csv"], 64, "unexpected argument");
    let output = calibrate("/nowhere/log.jsonl", &[]);
    assert_eq!(output.status.code(), Some(1));
}
