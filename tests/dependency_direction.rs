//! The pure rooms stay pure: what they may not name, and the one direction of the way of the data.

#![allow(clippy::unwrap_used, reason = "a file that can't be read fails the test")]

use std::fs;
use std::path::{Path, PathBuf};

/// Rooms without a clock, a file, a network or a runtime.
const PURE: [&str; 9] =
    ["units", "quantile", "supply", "exposition", "engines", "aggregate", "schedule", "decision", "forecast"];

/// Rooms that are as pure, but for what they use of the simulated world.
const PURE_BESIDE_SIMULATE: [&str; 1] = ["backtest"];

/// Crates and parts of the standard library that would end that.
const IMPURE: [&str; 10] =
    ["tokio", "reqwest", "tonic", "kube", "hyper", "axum", "redb", "std::fs", "std::net", "std::env"];

/// Ways to read a clock. `std::time::Duration` is a span and no clock.
const CLOCKS: [&str; 6] = ["Utc::now", "Local::now", "SystemTime", "Instant", "tokio::time", "crate::clock"];

/// Rooms that a room may not use: nothing flows back.
const NO_WAY_BACK: [(&str, &[&str]); 7] = [
    ("quantile", &["supply", "exposition", "engines", "aggregate", "schedule", "decision"]),
    ("units", &["supply", "exposition", "engines", "aggregate", "schedule", "decision"]),
    ("schedule", &["decision", "aggregate", "engines", "config"]),
    ("exposition", &["engines", "aggregate", "decision"]),
    ("engines", &["aggregate", "decision"]),
    ("aggregate", &["control_loop", "serve"]),
    ("decision", &["aggregate", "engines", "exposition"]),
];

/// Rooms at the edge, which no pure room may use.
const EDGE: [&str; 13] = [
    "sources",
    "scrape",
    "serve",
    "server",
    "history",
    "peers",
    "config",
    "control_loop",
    "snapshot",
    "simulate",
    "cli",
    "supervise",
    "clock",
];

/// `src/room.rs` and everything below `src/room/`.
fn files(room: &str) -> Vec<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let file = source.join(format!("{room}.rs"));
    if file.exists() {
        found.push(file);
    }
    let mut folders = vec![source.join(room)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.file_stem().is_some_and(|stem| stem == "tests") {
                // Tests may read files.
            } else if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// The code of a file, without its comments and its inline tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let without_tests = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
    without_tests.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// Does the code name this path, as a word of its own?
fn names(code: &str, path: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(path).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + path.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Does the code use a crate or a part of the standard library: `use tokio`, `tokio::`?
fn uses(code: &str, path: &str) -> bool {
    names(code, &format!("use {path}")) || code.contains(&format!("{path}::")) && names(code, path)
}

#[test]
fn pure_rooms_name_no_runtime_no_file_and_no_network() {
    for room in PURE.into_iter().chain(PURE_BESIDE_SIMULATE) {
        for file in files(room) {
            let code = code(&file);
            for path in IMPURE {
                assert!(!uses(&code, path), "{} uses {path}", file.display());
            }
        }
    }
}

#[test]
fn pure_rooms_read_no_clock() {
    for room in PURE.into_iter().chain(PURE_BESIDE_SIMULATE) {
        for file in files(room) {
            let code = code(&file);
            for clock in CLOCKS {
                assert!(!names(&code, clock), "{} reads a clock: {clock}", file.display());
            }
        }
    }
}

#[test]
fn pure_rooms_use_no_room_at_the_edge() {
    for room in PURE {
        for file in files(room) {
            let code = code(&file);
            for edge in EDGE {
                assert!(!names(&code, &format!("crate::{edge}")), "{} uses {edge}", file.display());
            }
        }
    }
}

#[test]
fn nothing_flows_back() {
    for (room, later) in NO_WAY_BACK {
        for file in files(room) {
            let code = code(&file);
            for other in later {
                assert!(!names(&code, &format!("crate::{other}")), "{} uses {other}", file.display());
            }
        }
    }
}

#[test]
fn the_rooms_are_where_this_test_looks() {
    for room in ["units", "schedule", "decision", "engines"] {
        assert!(!files(room).is_empty(), "no file of {room}");
    }
    assert!(files("decision").len() > 10);
}

#[test]
fn the_test_finds_what_it_looks_for() {
    assert!(uses("use tokio::time::Instant;", "tokio"));
    assert!(uses("let x = std::fs::read(p);", "std::fs"));
    assert!(!uses("let tokio_like = 1;", "tokio"));
    assert!(names("use std::time::{Duration, Instant};", "Instant"));
    assert!(!names("let instantly = 1;", "Instant"));
}
