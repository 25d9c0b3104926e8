//! `backtest --replay`: a recording decided again, and whether it came out as it was answered.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::Value;

use crate::backtest::replay::{Difference, Replay, Replayed};
use crate::cli::print::answer;
use crate::record;

/// Characters of one part of a decision that are printed; `--json` prints all.
const SHOWN: usize = 400;

/// Replays a file or all recordings of a folder, and prints what came out.
///
/// # Errors
/// When a file can't be read. Decisions that differ, and files that can't be replayed, are exit code 1.
pub(super) fn run(path: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let mut replay = Replay::default();
    for file in files(path)? {
        let opened = File::open(&file).with_context(|| file.display().to_string())?;
        let name = file.display().to_string();
        replay.file(&name, BufReader::new(opened)).with_context(|| name.clone())?;
    }
    let replayed = replay.finish();
    let text = if json { format!("{}\n", serde_json::to_string_pretty(&replayed)?) } else { told(&replayed) };
    answer(&text)?;
    Ok(if replayed.is_equal() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let files = record::files(path).with_context(|| path.display().to_string())?;
    anyhow::ensure!(!files.is_empty(), "{}: no recording in it (record-*.jsonl.gz)", path.display());
    Ok(files)
}

fn told(replayed: &Replayed) -> String {
    let mut lines = Vec::new();
    let span = match (replayed.from, replayed.to) {
        (Some(from), Some(to)) => {
            format!(", {} to {}", from.format("%Y-%m-%d %H:%M:%SZ"), to.format("%Y-%m-%d %H:%M:%SZ"))
        }
        _ => String::new(),
    };
    lines.push(format!(
        "{} decisions of {} tiers in {} files{span}",
        replayed.decisions,
        replayed.tiers.len(),
        replayed.files
    ));
    let others: Vec<&str> =
        replayed.versions.iter().filter(|v| **v != replayed.replayed_by).map(String::as_str).collect();
    if !others.is_empty() {
        lines.push(format!(
            "recorded by version {}, replayed by {}: another version may decide otherwise",
            others.join(", "),
            replayed.replayed_by
        ));
    }
    if replayed.lost > 0 {
        lines.push(format!("{} decisions were not recorded: the writer did not keep up", replayed.lost));
    }
    for file in &replayed.unfinished {
        lines.push(format!("{file}: no last line: its process was killed, or still writes"));
    }
    lines.extend(replayed.faults.iter().cloned());
    let untold = replayed.fault_count - replayed.faults.len() as u64;
    if untold > 0 {
        lines.push(format!("and {untold} more faults"));
    }
    if replayed.skipped > 0 {
        lines.push(format!(
            "{} decisions were left out: the state before them is not known",
            replayed.skipped
        ));
    }
    if let Some(difference) = &replayed.first_difference {
        first(&mut lines, difference);
    }
    lines.push(verdict(replayed));
    lines.push(String::new());
    lines.join("\n")
}

fn verdict(replayed: &Replayed) -> String {
    if replayed.is_equal() {
        return "equal: every decision came out as it was recorded, byte for byte".to_owned();
    }
    match (replayed.decisions, replayed.differences) {
        (0, _) => "nothing was replayed".to_owned(),
        (_, 0) => "those that could be made again are equal, but the recording is not whole".to_owned(),
        (all, differ) => format!("different: {differ} of {all} decisions"),
    }
}

fn first(lines: &mut Vec<String>, difference: &Difference) {
    let Difference { file, line, tier, at, parts, recorded, replayed } = difference;
    lines.push(format!("first difference: {file} line {line}, {tier} at {}", at.to_rfc3339()));
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let (recorded, replayed) = (value(recorded.get()), value(replayed.get()));
    for part in parts {
        lines.push(format!("  {part}"));
        lines.push(format!("    recorded {}", short(&recorded[part])));
        lines.push(format!("    replayed {}", short(&replayed[part])));
    }
    if parts.is_empty() {
        lines.push("  the same values, written otherwise".to_owned());
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    }
}
