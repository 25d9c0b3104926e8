//! The command `demo`: the real server, simulated replicas and KEDA's stand-in through one morning.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::io::{BufRead as _, BufReader};
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
fn flags_that_make_no_sense_exit_with_64_and_are_named() {
    for (flag, value) in [
        ("--speed", "0"),
        ("--speed", "fast"),
        ("--max-ramp", "1x in 120s"),
        ("--cold-start", "30h"),
        ("--floor", "99"),
        ("--signal", "all"),
        ("--http", "nowhere"),
    ] {
        let output = demo(&[flag, value, "--for", "1s"]);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{flag} {value}: {told}");
        assert!(told.contains(flag) && !told.contains("tiers[0]"), "{flag} {value}: {told}");
    }
}

#[test]
fn the_servers_file_that_is_printed_is_one_that_check_takes() {
    let folder = tempfile::tempdir().unwrap();
    for line in [&["--min", "0"][..], &["--floor", "0"], &["--max-ramp", "2x in 2m", "--floor", "3"]] {
        let output = demo(&[&["--print-config"], line].concat());
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let floors = text.lines().filter(|line| line.contains("desiredReplicas")).count();
        assert_eq!(floors, usize::from(line != ["--floor", "0"]), "{text}");
        let file = folder.path().join("demo.yaml");
        std::fs::write(&file, &text).unwrap();
        let mut check = assert_cmd::Command::cargo_bin("keda-vllm-scaler").unwrap();
        let checked = check.arg("check").arg(&file).output().unwrap();
        assert!(checked.status.success(), "{text}{}", String::from_utf8_lossy(&checked.stdout));
    }
}

#[test]
fn a_sigterm_ends_the_demo_with_its_table() {
    let mut running = std::process::Command::new(env!("CARGO_BIN_EXE_keda-vllm-scaler"))
        .args(["demo", "--no-tui", "--every", "10s"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines().map(Result::unwrap);
    // The first line of the day: everything runs.
    lines.find(|line| line.starts_with("08:4")).unwrap();
    let kill = std::process::Command::new("kill").arg(running.id().to_string()).status().unwrap();
    assert!(kill.success());
    let rest: Vec<String> = lines.collect();
    assert!(running.wait().unwrap().success(), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("GPU-hours")), "{rest:?}");
}
