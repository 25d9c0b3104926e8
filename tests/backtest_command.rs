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
fn a_folder_is_no_trace_and_a_negative_number_is_told_as_a_number() {
    refused(&["--trace", "/tmp", "--peak-replicas", "6"], 64, "trace /tmp: a folder: name a file in it");
    refused(&["--prometheus", "/tmp", "--peak-replicas", "6"], 64, "prometheus /tmp: a folder");
    refused(&["--trace", TRACE, "--peak-replicas", "6", "--days", "-1"], 64, "--days -1: from 0.00006");
    refused(&["--trace", TRACE, "--scale", "-2"], 64, "--scale -2: above 0");
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    for json in [&["--json"][..], &[]] {
        let all = [&["--trace", TRACE, "--peak-replicas", "6", "--cold-start", "60s"], json].concat();
        let (one, two) = (backtest(&all), backtest(&all));
        assert!(one.status.success(), "{}", String::from_utf8_lossy(&one.stderr));
        assert!(!one.stdout.is_empty() && one.stdout == two.stdout);
        assert!(one.stderr.is_empty(), "nothing is told of a play of seconds");
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
        text.starts_with("0.10 days of 144 rows from Mon 2024-01-01 00:00 UTC, peak 6 replicas, cold start 180 s, late after"),
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
    let rates = &report["replicaRates"];
    assert_eq!(
        (&rates["inputTokensPerSecond"], &rates["outputTokensPerSecond"]),
        (&6000.0.into(), &1000.0.into())
    );
}

#[test]
fn a_policy_file_that_is_given_twice_is_refused() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/examples/minimal.yaml");
    let flags = ["--trace", TRACE, "--peak-replicas", "6", "--policy", file, "--policy", file];
    refused(&flags, 64, "minimal.yaml: given twice");
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
        ("--days", "0.00001"),
        ("--score-from", "1"),
        ("--score-from", "1d"),
        ("--scale", "0"),
        ("--scale", "1e9"),
        ("--seed", "-1"),
        ("--begins", "noon"),
        ("--begins", "2026-03-02"),
        ("--begins", "+262142-12-31T23:00:00Z"),
        ("--begins", "1800-01-01T00:00:00Z"),
    ] {
        let mut arguments = vec!["--trace", TRACE, flag, value];
        if flag != "--peak-replicas" && flag != "--scale" {
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
fn a_policy_file_must_have_a_tier_and_be_good() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiers.yaml");
    for (text, words) in [("allowMetadataTiers: true\n", "no tier to play"), ("tiers:\n- {nam: a}\n", "nam")]
    {
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
        "--score-from",
        "--scale",
        "--seed",
        "--split",
        "--json",
        "--csv",
        "--report",
    ] {
        assert!(text.contains(flag), "{flag}\n{text}");
    }
}

/// A server's file with these tiers: a name, and keys of their own.
fn tiers(folder: &std::path::Path, file: &str, tiers: &[(&str, &str)]) -> String {
    let tier = |(name, keys): &(&str, &str)| {
        format!(
            "- name: {name}\n  namespace: serving\n  source: {{fixed: {{urls: ['http://10.0.0.1:8000/metrics']}}}}\n  \
             capacity: {{inputTokensPerSecond: 8000, outputTokensPerSecond: 700}}\n  {keys}\n"
        )
    };
    let text = format!("tiers:\n{}", tiers.iter().map(tier).collect::<String>());
    let path = folder.join(file);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn several_policies_are_a_row_each() {
    let folder = tempfile::tempdir().unwrap();
    let two = tiers(
        folder.path(),
        "two.yaml",
        &[("chat", "replicas: {max: 20}"), ("code", "replicas: {min: 7, max: 7}")],
    );
    let one = tiers(folder.path(), "one.yaml", &[("chat", "replicas: {min: 8, max: 8}")]);
    let report = played(&["--policy", &two, "--policy", &one]);
    let names: Vec<&str> =
        report["policies"].as_array().unwrap().iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(names[..3], [format!("{two}:chat"), format!("{two}:code"), format!("{one}:chat")]);
    assert_eq!(policy(&report, &format!("{two}:code"))["gpuHours"], 42.0);
    assert_eq!(policy(&report, &format!("{one}:chat"))["gpuHours"], 48.0);
}

#[test]
fn a_scale_multiplies_what_arrives_and_is_the_other_way_to_say_the_peak() {
    let by_peak = played(&["--days", "0.1"]);
    let scale = by_peak["scale"].as_f64().unwrap();
    let output = backtest(&[
        "--trace",
        TRACE,
        "--scale",
        &scale.to_string(),
        "--days",
        "0.1",
        "--json",
        "--seed",
        "3",
    ]);
    let by_scale: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!((by_scale["peakReplicas"].as_f64().unwrap() - 6.0).abs() < 1e-6);
    assert_eq!((&by_scale["seed"], &by_scale["rowsRead"]), (&3.into(), &144.into()));
    let hours = |report: &serde_json::Value| policy(report, "static peak")["gpuHours"].as_f64().unwrap();
    assert!((hours(&by_scale) - hours(&by_peak)).abs() < 1e-9);
    refused(&["--trace", TRACE, "--scale", "1", "--peak-replicas", "6"], 64, "--scale");
}

#[test]
fn what_comes_before_the_scored_part_costs_nothing_and_nobody_is_late_in_it() {
    let all = played(&[]);
    let scored = played(&["--score-from", "3h"]);
    assert_eq!(scored["scoredFromSeconds"], 10_800.0);
    let hours = |report: &serde_json::Value| policy(report, "static peak")["gpuHours"].as_f64().unwrap();
    assert!((hours(&scored) * 2.0 - hours(&all)).abs() < 1e-9, "half of six hours");
    assert!(scored["boundGpuHours"].as_f64().unwrap() < all["boundGpuHours"].as_f64().unwrap());
    for row in scored["policies"].as_array().unwrap() {
        assert!(row["lateWork"].as_f64().unwrap() > 0.0 || row["ratio"].as_f64().unwrap() >= 1.0, "{row}");
    }
    refused(&["--trace", TRACE, "--peak-replicas", "6", "--score-from", "6h"], 64, "anything is scored");
}

#[test]
fn the_example_scenario_plays_and_flags_go_before_it() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/examples/backtest.yaml");
    let read = |arguments: &[&str]| -> serde_json::Value {
        let output = backtest(&[&[scenario, "--json"], arguments].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let report = read(&[]);
    let names: Vec<&str> =
        report["policies"].as_array().unwrap().iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["as today", "a higher target", "a floor for the morning"]);
    assert_eq!((&report["peakReplicas"], &report["scoredFromSeconds"]), (&12.0.into(), &1_800.0.into()));
    let flags = read(&["--peak-replicas", "6", "--cold-start", "60s", "--days", "0.1", "--score-from", "0s"]);
    assert_eq!((&flags["peakReplicas"], &flags["coldStartSeconds"]), (&6.0.into(), &60.0.into()));
    assert_eq!((&flags["rowsRead"], &flags["scoredFromSeconds"]), (&144.into(), &0.0.into()));
}

#[test]
fn every_problem_of_a_scenario_is_told_at_once_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.yaml");
    std::fs::write(&file, "trace: t.csv\npeakreplicas: 5\ncoldStart: 9\npolicies:\n- name: a\n").unwrap();
    let output = backtest(&[file.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{told}");
    for problem in [
        "line 2: peakreplicas: unknown key `peakreplicas`: did you mean `peakReplicas`?",
        "line 3: coldStart: ",
        "line 5: policies[0].tier: missing",
    ] {
        assert!(told.contains(problem), "{problem}\n{told}");
    }
    std::fs::write(&file, "peakReplicas: 5").unwrap();
    refused(&[file.to_str().unwrap()], 64, "unless a scenario says it");
    std::fs::write(&file, format!("trace: {TRACE}\npeakReplicas: 5\nrivals: [nobody]")).unwrap();
    refused(&[file.to_str().unwrap()], 64, "rivals");
    refused(&["/no/such/scenario.yaml"], 1, "/no/such/scenario.yaml");
}

#[test]
fn numbers_that_tell_nothing_come_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let file = tiers(
        folder.path(),
        "kv.yaml",
        &[("kv", "replicas: {max: 20}\n  signals: {tokens: {weight: 0}, waiting: {weight: 0}}")],
    );
    let output = backtest(&["--trace", TRACE, "--peak-replicas", "6", "--policy", &file, "--json"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("warning: keda-vllm-scaler: without the tokens signal it rests on kvCache"),
        "{told}"
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["warnings"][0].as_str().unwrap().contains("tells nothing"), "{report}");
}

#[test]
fn a_minimum_that_no_fleet_here_has_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = tiers(folder.path(), "huge.yaml", &[("huge", "replicas: {min: 5000, max: 9000}")]);
    refused(&["--trace", TRACE, "--peak-replicas", "6", "--policy", &file], 64, "promises 5000 replicas");
}

#[test]
fn csv_and_the_page_are_the_same_bytes_for_the_same_input() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for name in ["one.html", "two.html"] {
        let page = folder.path().join(name);
        let output = backtest(&[
            "--trace",
            TRACE,
            "--peak-replicas",
            "6",
            "--days",
            "0.1",
            "--split",
            "--csv",
            "--report",
            page.to_str().unwrap(),
        ]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        seen.push((output.stdout, std::fs::read(page).unwrap()));
    }
    assert!(seen[0] == seen[1]);
    let csv = String::from_utf8(seen[0].0.clone()).unwrap();
    let columns = csv.lines().next().unwrap().split(',').count();
    assert_eq!((csv.lines().count(), columns), (15, 13), "{csv}");
    let page = String::from_utf8(seen[0].1.clone()).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("Where the excess goes"));
    refused(&["--trace", TRACE, "--peak-replicas", "6", "--json", "--csv"], 64, "--csv");
    let nowhere =
        ["--trace", TRACE, "--peak-replicas", "6", "--days", "0.1", "--report", "/no/such/page.html"];
    refused(&nowhere, 1, "/no/such/page.html");
}

#[test]
fn the_split_adds_up_to_the_excess() {
    let report = played(&["--days", "0.15", "--split"]);
    let split = &report["splits"][0];
    let sum: f64 =
        split["parts"].as_array().unwrap().iter().map(|part| part["gpuHours"].as_f64().unwrap()).sum();
    assert!((sum - split["excessGpuHours"].as_f64().unwrap()).abs() < 1e-6, "{split}");
}
