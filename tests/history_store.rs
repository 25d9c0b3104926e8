//! The store survives what happens to disks and processes.
#![expect(clippy::unwrap_used, reason = "a test that finds nothing where something must be has failed")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use chrono::{DateTime, Utc};
use keda_vllm_scaler::decision::TierId;
use keda_vllm_scaler::history::{DEFAULT_RETENTION, HistoryHandle, HistoryPoint, Store};

/// The minute that the tests begin at.
const BEGIN: i64 = 29_932_850;

/// Where a child process keeps its store: set, the test binary is the child.
const CHILD_FOLDER: &str = "HISTORY_TEST_FOLDER";

fn minute(minute: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(minute * 60, 0).unwrap()
}

fn chat() -> TierId {
    TierId::new("serving", "chat-h100")
}

fn point(minute: i64) -> HistoryPoint {
    let n = (minute - BEGIN) as f32;
    HistoryPoint {
        minute,
        requests: n,
        uncached_input_tokens: n * 1000.5,
        output_tokens: n.sin(),
        rejected: f32::NAN,
        kv_tokens: 1e9,
        running: 0.1,
        waiting: -0.0,
        ready: 3.0,
        demand: 2.75,
        required: 3.0,
    }
}

fn bits(points: &[HistoryPoint]) -> Vec<(i64, u32, u32, u32, u32)> {
    points
        .iter()
        .map(|p| {
            (
                p.minute,
                p.requests.to_bits(),
                p.output_tokens.to_bits(),
                p.rejected.to_bits(),
                p.waiting.to_bits(),
            )
        })
        .collect()
}

fn expected(minutes: std::ops::Range<i64>) -> Vec<(i64, u32, u32, u32, u32)> {
    bits(&minutes.map(point).collect::<Vec<_>>())
}

fn open(folder: &Path, now: i64) -> Store {
    Store::open(folder, DEFAULT_RETENTION, minute(now))
}

fn fill(store: &mut Store, minutes: std::ops::Range<i64>) {
    for now in minutes {
        store.commit(minute(now), &[(chat(), point(now))], &[(chat(), now.to_le_bytes().to_vec())]);
    }
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn every_bit_comes_back_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(&folder.path().join("made/on/demand"), BEGIN);
    assert_eq!((store.alarm(), store.learned(&chat())), (None, None));
    fill(&mut store, BEGIN..BEGIN + 150);
    drop(store);

    let mut store = open(&folder.path().join("made/on/demand"), BEGIN + 150);
    assert_eq!(store.alarm(), None);
    assert_eq!(bits(&store.all_points(&chat())), expected(BEGIN..BEGIN + 150));
    assert_eq!(bits(&store.points(&chat(), BEGIN + 59, BEGIN + 61)), expected(BEGIN + 59..BEGIN + 62));
    assert_eq!(store.learned(&chat()), Some((BEGIN + 149).to_le_bytes().to_vec()));
    let other = TierId::new("chat-h100", "serving");
    assert_eq!((store.points(&other, 0, i64::MAX).len(), store.learned(&other)), (0, None));
}

#[test]
fn a_minute_that_comes_again_replaces_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), BEGIN);
    store.commit(minute(BEGIN), &[(chat(), HistoryPoint { ready: 9.0, ..point(BEGIN) })], &[]);
    store.commit(minute(BEGIN), &[(chat(), point(BEGIN))], &[]);
    let points = store.points(&chat(), 0, i64::MAX);
    assert_eq!((points.len(), points[0].ready), (1, 3.0));
}

#[test]
fn points_older_than_the_retention_go() {
    let folder = tempfile::tempdir().unwrap();
    let retention = std::time::Duration::from_hours(48);
    let mut store = Store::open(folder.path(), retention, minute(BEGIN));
    let gone = TierId::new("serving", "gone");
    store.commit(minute(BEGIN), &[(gone.clone(), point(BEGIN))], &[(gone.clone(), vec![1])]);
    for hour in 0..60 {
        let now = BEGIN + hour * 60;
        store.commit(minute(now), &[(chat(), point(now))], &[]);
    }
    let points = store.points(&chat(), 0, i64::MAX);
    assert_eq!(points.first().unwrap().minute.div_euclid(60), (BEGIN + 59 * 60).div_euclid(60) - 48);
    assert_eq!((store.points(&gone, 0, i64::MAX).len(), store.learned(&gone)), (0, None));
}

#[test]
fn a_file_that_is_mostly_free_pages_shrinks_when_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let tiers: Vec<TierId> = (0..200).map(|n| TierId::new("serving", n.to_string())).collect();
    let day: Vec<(TierId, HistoryPoint)> = tiers
        .iter()
        .flat_map(|tier| (BEGIN..BEGIN + 1440).map(|minute| (tier.clone(), point(minute))))
        .collect();
    let mut store = open(folder.path(), BEGIN);
    store.commit(minute(BEGIN), &day, &[]);
    let large = store.size_bytes();
    for hour in 0..3 {
        let later = BEGIN + 15 * 1440 + hour * 60;
        store.commit(minute(later), &[(chat(), point(later))], &[]);
    }
    drop(store);
    let mut store = open(folder.path(), BEGIN + 15 * 1440 + 180);
    assert_eq!((store.alarm(), store.all_points(&chat()).len()), (None, 3));
    assert!(store.size_bytes() * 4 < large, "{} of {large} bytes are left", store.size_bytes());
}

#[test]
fn a_clock_that_is_wrong_for_a_while_deletes_a_day_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), BEGIN);
    for hour in 0..100 {
        let now = BEGIN + hour * 60;
        store.commit(minute(now), &[(chat(), point(now))], &[]);
    }
    store.commit(minute(BEGIN + 500_000), &[], &[]);
    store.commit(minute(BEGIN + 100 * 60), &[], &[]);
    store.commit(minute(5), &[(chat(), point(5))], &[]);
    assert_eq!(store.points(&chat(), BEGIN, i64::MAX).len(), 76);
}

type Damage = fn(&mut Vec<u8>);

fn damage(file: &Path, how: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file).unwrap();
    how(&mut bytes);
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn a_damaged_database_is_put_aside_and_a_new_one_begins() {
    let cases: [(&str, Damage); 5] = [
        ("half", |bytes| bytes.truncate(bytes.len() / 2)),
        ("header", |bytes| bytes[..64].fill(0xa5)),
        ("html", |bytes| *bytes = b"<html>not a database</html>".repeat(1000)),
        ("one byte", |bytes| bytes.truncate(1)),
        // A bit in each 64 bytes behind the header: every page of the trees.
        ("everywhere", |bytes| bytes.iter_mut().skip(4096).step_by(64).for_each(|byte| *byte ^= 0x10)),
    ];
    for (name, how) in cases {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path(), BEGIN);
        fill(&mut store, BEGIN..BEGIN + 130);
        drop(store);
        damage(&folder.path().join("history.redb"), how);

        let mut store = open(folder.path(), BEGIN + 130);
        let alarm = store.alarm().unwrap_or_else(|| panic!("{name}: no alarm"));
        assert!(alarm.contains("put aside"), "{name}: {alarm}");
        assert_eq!(store.all_points(&chat()).len(), 0, "{name}");
        fill(&mut store, BEGIN + 130..BEGIN + 132);
        drop(store);
        let mut store = open(folder.path(), BEGIN + 132);
        assert_eq!(bits(&store.all_points(&chat())), expected(BEGIN + 130..BEGIN + 132), "{name}");
        assert_eq!(store.alarm(), None, "{name}");
        let aside = files(folder.path()).into_iter().filter(|name| name.contains(".corrupt-")).count();
        assert_eq!(aside, 1, "{name}");
    }
}

#[test]
fn a_flipped_bit_anywhere_is_never_a_false_number() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.redb");
    let mut store = open(folder.path(), BEGIN);
    fill(&mut store, BEGIN..BEGIN + 70);
    drop(store);
    let sound = std::fs::read(&file).unwrap();
    let truth = expected(BEGIN..BEGIN + 70);
    for step in 0..60 {
        let mut bytes = sound.clone();
        let index = (step * 7919 + 13) % bytes.len();
        bytes[index] ^= 1 << (step % 8);
        std::fs::write(&file, &bytes).unwrap();
        let mut store = open(folder.path(), BEGIN + 70);
        let found = bits(&store.all_points(&chat()));
        // A bit of a free page changes nothing; a broken last commit falls back to the one before it.
        let told = store.alarm().is_some();
        assert!(
            found == truth || found == truth[..truth.len() - 1] || (told && found.is_empty()),
            "byte {index}"
        );
        let learned = store.learned(&chat());
        let newest = [BEGIN + 69, BEGIN + 68].map(|minute| Some(minute.to_le_bytes().to_vec()));
        assert!(newest.contains(&learned) || (told && learned.is_none()), "byte {index}: {learned:?}");
    }
}

#[test]
fn only_the_newest_damaged_databases_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    for now in 0..5 {
        drop(open(folder.path(), BEGIN + now));
        damage(&folder.path().join("history.redb"), |bytes| bytes[..32].fill(0));
    }
    drop(open(folder.path(), BEGIN + 5));
    assert_eq!(files(folder.path()).len(), 4, "{:?}", files(folder.path()));
}

#[test]
fn a_database_of_a_later_release_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path(), BEGIN);
    fill(&mut store, BEGIN..BEGIN + 2);
    drop(store);
    {
        let database = redb::Database::open(folder.path().join("history.redb")).unwrap();
        let transaction = database.begin_write().unwrap();
        let meta = redb::TableDefinition::<&str, u64>::new("meta");
        transaction.open_table(meta).unwrap().insert("format", 2).unwrap();
        transaction.commit().unwrap();
    }
    let mut store = open(folder.path(), BEGIN + 2);
    fill(&mut store, BEGIN + 2..BEGIN + 3);
    assert!(store.alarm().unwrap().contains("format 2 is of a later release"));
    assert!(!files(folder.path()).iter().any(|name| name.contains("corrupt")));
}

#[test]
fn a_folder_that_cant_be_made_degrades_to_memory_and_is_taken_up_when_it_can() {
    let root = tempfile::tempdir().unwrap();
    let blocked = root.path().join("blocked");
    std::fs::write(&blocked, "a file where the folder should be").unwrap();
    let mut store = open(&blocked.join("store"), BEGIN);
    fill(&mut store, BEGIN..BEGIN + 3);
    assert!(store.alarm().unwrap().contains("memory only"));
    assert_eq!(bits(&store.points(&chat(), 0, i64::MAX)), expected(BEGIN..BEGIN + 3));

    std::fs::remove_file(&blocked).unwrap();
    fill(&mut store, BEGIN + 3..BEGIN + 4);
    assert_eq!(store.alarm(), None);
    drop(store);
    let mut store = open(&blocked.join("store"), BEGIN + 4);
    assert_eq!(bits(&store.all_points(&chat())), expected(BEGIN..BEGIN + 4));
}

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
        .args(["child_that_writes", "--exact", "--nocapture", "--test-threads=1"])
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

#[tokio::test]
async fn the_handle_keeps_minutes_and_gives_them_back() {
    let folder = tempfile::tempdir().unwrap();
    let start =
        |now| HistoryHandle::start(Some(folder.path().to_owned()), DEFAULT_RETENTION, minute(now)).unwrap();
    let history = start(BEGIN);
    for now in BEGIN..BEGIN + 10 {
        history.commit(minute(now), vec![(chat(), point(now))], vec![(chat(), vec![7])]);
    }
    assert_eq!(bits(&history.recent(&chat(), BEGIN + 4).await), expected(BEGIN + 4..BEGIN + 10));
    history.flush_and_stop().await;
    assert!(history.status().size_bytes > 0);
    assert!(history.status().alarm.unwrap().contains("ended"));
    history.commit(minute(BEGIN), Vec::new(), Vec::new());
    assert!(history.recent(&chat(), BEGIN).await.is_empty());

    let history = start(BEGIN + 10);
    let (learned, points) = history.load(&chat()).await;
    assert_eq!((learned, bits(&points)), (Some(vec![7]), expected(BEGIN..BEGIN + 10)));
    assert_eq!(history.status().alarm, None);
    history.flush_and_stop().await;
}

#[tokio::test]
async fn a_handle_without_a_folder_keeps_the_last_day_in_memory() {
    let history = HistoryHandle::start(None, DEFAULT_RETENTION, minute(BEGIN)).unwrap();
    history.commit(minute(BEGIN), vec![(chat(), point(BEGIN))], vec![(chat(), vec![1])]);
    let (learned, points) = history.load(&chat()).await;
    assert_eq!((learned, points.len()), (Some(vec![1]), 1));
    let status = history.status();
    assert_eq!((status.path, status.alarm, status.size_bytes), (None, None, 0));
    history.flush_and_stop().await;
}

#[test]
#[ignore = "prints figures; run it alone: cargo test --release --test history_store -- --ignored --nocapture"]
fn two_weeks_of_points() {
    let folder = tempfile::tempdir().unwrap();
    let tiers: Vec<TierId> = (0..10).map(|n| TierId::new("serving", format!("tier-{n}"))).collect();
    let mut store = open(folder.path(), BEGIN);
    let (minutes, mut slowest) = (15 * 24 * 60, std::time::Duration::ZERO);
    let began = tokio::time::Instant::now();
    for now in BEGIN..BEGIN + minutes {
        let points: Vec<_> = tiers.iter().map(|tier| (tier.clone(), point(now))).collect();
        let commit = tokio::time::Instant::now();
        store.commit(minute(now), &points, &[]);
        slowest = slowest.max(commit.elapsed());
    }
    let (all, size) = (began.elapsed(), store.size_bytes());
    let kept = store.all_points(&tiers[0]).len() * tiers.len();
    drop(store);
    let opening = tokio::time::Instant::now();
    let mut store = open(folder.path(), BEGIN + minutes);
    let opened = opening.elapsed();
    let reading = tokio::time::Instant::now();
    let read = store.all_points(&tiers[0]).len();
    println!(
        "{kept} points in {size} bytes: {:.1} bytes a point; commit {:?} mean, {slowest:?} slowest; open {opened:?}; \
         {read} points of a tier read in {:?}",
        size as f64 / kept as f64,
        all / minutes as u32,
        reading.elapsed()
    );
    assert!(size < kept as u64 * 80, "bounded");
}
