//! The command `backtest` where what it says can't be written: the disk is full.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::fs::OpenOptions;
use std::process::{Command, Output, Stdio};

const SHORT: [&str; 8] = [
    "--trace",
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/backtest/six-hours.csv"),
    "--peak-replicas",
    "6",
    "--days",
    "0.05",
    "--rivals",
    "none",
];

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

fn backtest(arguments: &[&str], stdout: Stdio, stderr: Stdio) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("keda-vllm-scaler"));
    command.arg("backtest").args(arguments).stdout(stdout).stderr(stderr);
    command.spawn().unwrap().wait_with_output().unwrap()
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    let output = backtest(&SHORT, full(), Stdio::piped());
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("standard output: No space left on device"), "{told}");
}

#[test]
fn an_error_that_nobody_can_be_told_is_no_panic() {
    let output = backtest(&["--trace", "/nowhere.csv", "--peak-replicas", "6"], Stdio::piped(), full());
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_page_that_cannot_be_written_does_not_take_the_table_with_it() {
    let output = backtest(&[&SHORT[..], &["--report", "/dev/full"]].concat(), Stdio::piped(), Stdio::piped());
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("/dev/full: No space left on device"), "{told}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("clairvoyant bound"));
}
