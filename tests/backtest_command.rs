//! The command `backtest`: its table, its JSON, the same bytes for the same input, and what it refuses.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::io::Write as _;
use std::process::Output;

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/backtest/six-hours.csv");

fn backtest(arguments: &[&str]) -> Output {
    assert_cmd::Command::cargo_bin("keda-vllm-scaler")
        .unwrap()
        .arg("backtest")
        .args(arguments)
        .output()
        .unwrap()
}

fn played(arguments: &[&str]) -> serde_json::Value {
    let all = [&["--trace", TRACE, "--peak-replicas", "6", "--json"], arguments].concat();
    let output = backtest(&all);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn policy<'a>(report: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let policies = report["policies"].as_array().unwrap();
    policies.iter().find(|row| row["policy"].as_str().unwrap().starts_with(name)).unwrap()
}

#[track_caller]
fn refused(arguments: &[&str], code: i32, words: &str) {
    let output = backtest(arguments);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
    assert!(told.contains(words), "{arguments:?}: {told}");
    assert!(!told.contains("panicked"), "{told}");
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    for json in [&["--json"][..], &[]] {
        let all = [&["--trace", TRACE, "--peak-replicas", "6", "--cold-start", "60s"], json].concat();
        let (one, two) = (backtest(&all), backtest(&all));
        assert!(one.status.success(), "{}", String::from_utf8_lossy(&one.stderr));
        assert!(!one.stdout.is_empty() && one.stdout == two.stdout);
        assert!(one.stderr.is_empty(), "no progress without a terminal");
    }
}

#[test]
fn nobody_without_late_work_is_cheaper_than_the_bound() {
    for cold_start in ["0s", "60s", "180s"] {
        let report = played(&["--cold-start", cold_start]);
        assert!(report["boundGpuHours"].as_f64().unwrap() > 0.0, "{report}");
        for row in report["policies"].as_array().unwrap() {
            if row["lateWork"].as_f64().unwrap() == 0.0 {
                assert!(row["ratio"].as_f64().unwrap() >= 1.0, "{cold_start}: {row}");
            }
        }
        let constant = policy(&report, "static peak");
        assert_eq!((&constant["lateWork"], &constant["starts"]), (&0.0.into(), &0.into()));
        assert_eq!(report["policies"].as_array().unwrap().len(), 13);
    }
}

#[test]
fn the_table_has_a_line_a_policy() {
    let output = backtest(&["--trace", TRACE, "--peak-replicas", "6", "--days", "0.1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "policy ",
        "clairvoyant bound ",
        "keda-vllm-scaler ",
        "best fixed target",
        "HPA, work at 80 % ",
        "static peak",
    ] {
        assert!(text.lines().any(|told| told.starts_with(line)), "{line}\n{text}");
    }
    assert!(
        text.starts_with("0.10 days, peak 6 replicas, cold start 180 s, late after 5 s of queue"),
        "{text}"
    );
}

#[test]
fn the_policy_of_a_servers_file_is_the_one_that_is_played() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let text = "tiers:\n- name: chat\n  namespace: serving\n  source: {fixed: {urls: ['http://10.0.0.1:8000/metrics']}}\n  \
                replicas: {min: 9, max: 9}\n  coldStart: 90s\n  acceptableQueue: 7s\n";
    file.write_all(text.as_bytes()).unwrap();
    let report = played(&["--policy", file.path().to_str().unwrap()]);
    let ours = policy(&report, "keda-vllm-scaler");
    assert!((ours["gpuHours"].as_f64().unwrap() - 9.0 * 6.0).abs() < 1e-9, "{ours}");
    assert_eq!((&report["coldStartSeconds"], &report["acceptableQueueSeconds"]), (&90.0.into(), &7.0.into()));
}

#[test]
fn bad_traces_exit_with_64_and_name_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let header = "t_seconds,requests,input_tokens,output_tokens\n";
    for (rows, words) in [
        ("", "no rows"),
        ("a,b\n1,2\n", "line 1: the first line must be"),
        (header, "no rows"),
        (&format!("{header}0,1,1,1\n"), "one row tells no width"),
        (
            &format!("{header}0,1,1,1\n10,1,1,1\n5,1,1,1\n"),
            "line 4: t_seconds 5 is not after the row before it",
        ),
        (&format!("{header}0,1,1,1\n10,-1,1,1\n"), "line 3: requests is negative"),
        (&format!("{header}0,1,1,1\n10,1,NaN,1\n"), "line 3: input_tokens is NaN"),
        (&format!("{header}0,0,0,0\n10,0,0,0\n"), "nothing arrives"),
    ] {
        let file = folder.path().join("trace.csv");
        std::fs::write(&file, rows).unwrap();
        refused(&["--trace", file.to_str().unwrap(), "--peak-replicas", "6"], 64, words);
    }
}

#[test]
fn flags_that_make_no_sense_exit_with_64_and_are_named() {
    for (flag, value) in [
        ("--peak-replicas", "0"),
        ("--peak-replicas", "501"),
        ("--cold-start", "180"),
        ("--cold-start", "2h"),
        ("--acceptable-queue", "-5s"),
        ("--acceptable-queue", "2h"),
        ("--days", "0"),
        ("--days", "NaN"),
        ("--begins", "noon"),
        ("--begins", "2026-03-02"),
        ("--begins", "+262142-12-31T23:00:00Z"),
        ("--begins", "1800-01-01T00:00:00Z"),
    ] {
        let mut arguments = vec!["--trace", TRACE, flag, value];
        if flag != "--peak-replicas" {
            arguments.extend(["--peak-replicas", "6"]);
        }
        let output = backtest(&arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{flag} {value}: {told}");
        assert!(!told.contains("panicked"), "{told}");
    }
    refused(&["--trace", TRACE], 64, "--peak-replicas");
    refused(
        &["--trace", TRACE, "--peak-replicas", "500", "--acceptable-queue", "1h"],
        64,
        "too much for the exact bound",
    );
}

#[test]
fn a_policy_file_must_have_one_tier_and_be_good() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiers.yaml");
    let tier = |name: &str| {
        format!(
            "- {{name: {name}, namespace: serving, source: {{fixed: {{urls: ['http://10.0.0.1:8000/metrics']}}}}, \
             replicas: {{min: 1, max: 9}}}}\n"
        )
    };
    for (text, words) in [
        (format!("tiers:\n{}{}", tier("a"), tier("b")), "2 tiers"),
        ("tiers:\n- {nam: a}\n".to_owned(), "nam"),
    ] {
        std::fs::write(&file, text).unwrap();
        let arguments = ["--trace", TRACE, "--peak-replicas", "6", "--policy", file.to_str().unwrap()];
        refused(&arguments, 64, words);
    }
}

#[test]
fn a_file_that_can_t_be_read_exits_with_1() {
    refused(&["--trace", "/no/such/trace.csv", "--peak-replicas", "6"], 1, "/no/such/trace.csv");
    let missing = ["--trace", TRACE, "--peak-replicas", "6", "--policy", "/no/such/tiers.yaml"];
    refused(&missing, 1, "/no/such/tiers.yaml");
}

#[test]
fn help_tells_every_flag() {
    let output = backtest(&["--help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    for flag in [
        "--trace",
        "--peak-replicas",
        "--cold-start",
        "--policy",
        "--days",
        "--acceptable-queue",
        "--begins",
        "--json",
    ] {
        assert!(text.contains(flag), "{flag}\n{text}");
    }
}
