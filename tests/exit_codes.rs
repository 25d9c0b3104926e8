//! One exit code for bad flags, whichever command they are of.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::process::Output;

fn command(arguments: &[&str]) -> Output {
    assert_cmd::Command::cargo_bin("keda-vllm-scaler").unwrap().args(arguments).output().unwrap()
}

#[test]
fn bad_flags_of_every_command_exit_with_64() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/examples/minimal.yaml");
    for arguments in [
        &[][..],
        &["--no-such-flag"],
        &["no-such-command"],
        &["serve"],
        &["serve", "--config", file, "--log", "scrape=loud"],
        &["serve", "--config", file, "--log-format", "xml"],
        &["check"],
        &["check", file, "--no-such-flag"],
        &["schema", "--no-such-flag"],
        &["read"],
        &["read", "ftp://a/metrics"],
        &["explain", "--server", "ftp://a"],
        &["explain", "--server", "http://"],
        &["demo", "--min", "minus one"],
        &["demo", "--floor", "x"],
        &["backtest"],
        &["backtest", "--trace", file, "--peak-replicas", "4"],
    ] {
        let output = command(arguments);
        assert_eq!(
            output.status.code(),
            Some(64),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn help_and_version_are_no_failure_and_help_tells_the_codes() {
    for arguments in [&["--help"][..], &["--version"], &["help", "demo"], &["demo", "--help"]] {
        let output = command(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(!output.stdout.is_empty(), "{arguments:?}");
    }
    let help = String::from_utf8(command(&["--help"]).stdout).unwrap();
    assert!(help.contains("64  a bad configuration, or bad flags"), "{help}");
}
