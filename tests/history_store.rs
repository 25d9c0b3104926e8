//! The store survives what happens to disks and processes.
#![expect(clippy::unwrap_used, reason = "a test that finds nothing where something must be has failed")]

#[path = "history_store/damage.rs"]
mod damage;
#[path = "history_store/processes.rs"]
mod processes;

use std::path::Path;

use chrono::{DateTime, Utc};
use keda_vllm_scaler::decision::TierId;
use keda_vllm_scaler::history::{DEFAULT_RETENTION, HistoryHandle, HistoryPoint, Store};

/// The minute that the tests begin at.
const BEGIN: i64 = 29_932_850;

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
