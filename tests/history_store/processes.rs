//! Processes that are killed, and two that want one folder.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{BEGIN, bits, chat, expected, fill, open};

/// Where a child process keeps its store: set, the test binary is the child.
const CHILD_FOLDER: &str = "HISTORY_TEST_FOLDER";

/// Not a test of its own: the process that the next tests kill. It writes minutes and says which are durable.
#[test]
fn child_that_writes() {
    let Ok(folder) = std::env::var(CHILD_FOLDER) else {
        return;
    };
    let mut store = open(Path::new(&folder), BEGIN);
    let begin = store.points(&chat(), 0, i64::MAX).last().map_or(BEGIN, |point| point.minute + 1);
    for now in begin..begin + 100_000 {
        fill(&mut store, now..now + 1);
        let state = if store.alarm().is_some() { "alarm" } else { "durable" };
        // A line of its own: the test harness writes on the same stream.
        println!("\n{state} {now}");
    }
}

fn child(folder: &Path, shell: &str) -> std::process::Child {
    let this = std::env::current_exe().unwrap();
    Command::new("sh")
        .args(["-c", shell, "sh"])
        .arg(this)
        .args(["processes::child_that_writes", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD_FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Reads what the child says until `enough`, then kills it with SIGKILL; the last minute that it called durable.
fn kill_after(mut child: std::process::Child, mut enough: impl FnMut(&str) -> bool) -> i64 {
    let mut durable = BEGIN - 1;
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines.by_ref() {
        let line = line.unwrap();
        if let Some(minute) = line.strip_prefix("durable ") {
            durable = minute.parse().unwrap();
        }
        if enough(&line) {
            break;
        }
    }
    child.kill().unwrap();
    // What it said before it died counts, too.
    for line in lines {
        if let Some(minute) = line.unwrap().strip_prefix("durable ") {
            durable = minute.parse().unwrap_or(durable);
        }
    }
    child.wait().unwrap();
    durable
}

#[test]
fn kill_9_at_any_instant_loses_at_most_the_minute_under_way() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..6_u32 {
        let mut left = 20 + round * 17;
        let durable = kill_after(child(folder.path(), "exec \"$@\""), |line| {
            left -= u32::from(line.starts_with("durable"));
            left == 0
        });
        let mut store = open(folder.path(), durable + 1);
        assert_eq!(store.alarm(), None, "round {round}");
        let points = store.points(&chat(), 0, i64::MAX);
        let last = points.last().unwrap().minute;
        assert!(
            last == durable || last == durable + 1,
            "round {round}: {durable} was durable, {last} is there"
        );
        assert_eq!(bits(&points), expected(BEGIN..last + 1), "round {round}");
        assert_eq!(store.learned(&chat()), Some(last.to_le_bytes().to_vec()), "one commit for both");
    }
}

#[test]
fn a_second_process_is_refused_told_by_whom_and_takes_over_when_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = child(folder.path(), "exec \"$@\"");
    let pid = first.id();
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("durable")));

    let late = BEGIN + 10_000; // a week: nothing is pruned
    let mut second = open(folder.path(), late);
    let alarm = second.alarm().unwrap();
    assert!(
        alarm.contains(&format!("is in use by process {pid}")) && alarm.contains("memory only"),
        "{alarm}"
    );
    fill(&mut second, late..late + 1);
    assert_eq!(second.points(&chat(), 0, i64::MAX).len(), 1, "it sees what it has seen itself");

    first.kill().unwrap();
    first.wait().unwrap();
    fill(&mut second, late + 1..late + 2);
    assert_eq!(second.alarm(), None);
    let points = second.points(&chat(), 0, i64::MAX);
    assert_eq!((points[0].minute, points.len() > 2), (BEGIN, true));
    assert_eq!(bits(&points[points.len() - 2..]), expected(late..late + 2));
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_may_not_grow_degrades_to_memory_and_keeps_what_was_durable() {
    let folder = tempfile::tempdir().unwrap();
    // 400 blocks of 512 bytes, and the signal for it ignored, so that the write fails as on a full disk.
    let limited = "trap '' XFSZ; ulimit -f 400; exec \"$@\"";
    let mut alarms = 0;
    let durable = kill_after(child(folder.path(), limited), |line| {
        alarms += u32::from(line.starts_with("alarm"));
        alarms == 3
    });
    assert_eq!(alarms, 3, "the child went on after the disk was full");
    assert!(durable > BEGIN);
    let mut store = open(folder.path(), durable + 1);
    assert_eq!(store.alarm(), None);
    assert_eq!(bits(&store.points(&chat(), 0, durable)), expected(BEGIN..durable + 1));
}
