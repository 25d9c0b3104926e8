//! The command `demo`: the real server, simulated replicas and KEDA's stand-in through one morning.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::process::Output;

fn demo(arguments: &[&str]) -> Output {
    assert_cmd::Command::cargo_bin("keda-vllm-scaler").unwrap().arg("demo").args(arguments).output().unwrap()
}

#[test]
fn capacity_is_ready_at_nine_before_the_ramp() {
    let output = demo(&["--start", "08:50", "--for", "14m", "--speed", "120", "--every", "1m", "--no-tui"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let at = |time: &str| -> Vec<f64> {
        let line =
            text.lines().find(|line| line.starts_with(time)).unwrap_or_else(|| panic!("{time}\n{text}"));
        // time, requests a second, demand, required, ready
        line.split_whitespace().skip(1).take(4).map(|word| word.parse().unwrap()).collect()
    };
    let (before, after) = (at("08:52"), at("09:01"));
    assert!(before[2] < 8.0 && before[3] < 8.0, "{text}");
    assert!(after[2] >= 10.0 && after[3] >= 10.0, "{text}");
    for row in
        ["queueing minutes", "GPU-hours", "time to first token, p95", "replica starts", "plain KV target"]
    {
        assert!(text.contains(row), "{row}\n{text}");
    }
}

#[test]
fn arguments_that_make_no_sense_exit_with_64() {
    let output = demo(&["--speed", "0"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--speed"));
}

#[test]
fn the_servers_file_can_be_printed() {
    let output = demo(&["--print-config", "--min", "0"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("replicas: {min: 0, max: 24}") && text.contains("desiredReplicas: 10"), "{text}");
}
