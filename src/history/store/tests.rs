//! The store on a disk that fills up and breaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::*;

/// A file on a disk that can be full.
#[derive(Debug)]
struct Fillable {
    file: FileBackend,
    full: Arc<AtomicBool>,
}

impl Fillable {
    fn room(&self) -> std::io::Result<()> {
        if self.full.load(Ordering::SeqCst) {
            return Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
        }
        Ok(())
    }
}

impl StorageBackend for Fillable {
    fn len(&self) -> std::io::Result<u64> {
        self.file.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.file.read(offset, out)
    }
    fn set_len(&self, length: u64) -> std::io::Result<()> {
        self.room()?;
        self.file.set_len(length)
    }
    fn sync_data(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.room()?;
        self.file.write(offset, data)
    }
}

fn open_on(full: &Arc<AtomicBool>) -> OpenDisk {
    let full = Arc::clone(full);
    Box::new(move |path| {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| Fault::Io(error.to_string()))?;
        let file = FileBackend::new(file).map_err(|error| Fault::Io(error.to_string()))?;
        Disk::open_on(Fillable { file, full: Arc::clone(&full) })
    })
}

fn minute(minute: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(minute * 60, 0).unwrap()
}

fn tier() -> TierId {
    TierId::new("serving", "chat")
}

fn point(minute: i64) -> HistoryPoint {
    HistoryPoint {
        minute,
        requests: minute as f32,
        uncached_input_tokens: 0.0,
        output_tokens: 0.0,
        rejected: 0.0,
        kv_tokens: 0.0,
        running: 0.0,
        waiting: 0.0,
        ready: 0.0,
        demand: 0.0,
        required: 0.0,
    }
}

fn minutes(store: &mut Store) -> Vec<i64> {
    store.points(&tier(), 0, i64::MAX).iter().map(|point| point.minute).collect()
}

#[test]
fn a_full_disk_keeps_minutes_in_memory_and_writes_them_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let full = Arc::new(AtomicBool::new(false));
    let mut store = Store::open_with(folder.path(), DEFAULT_RETENTION, minute(1000), open_on(&full));
    store.commit(minute(1000), &[(tier(), point(1000))], &[(tier(), b"old".to_vec())]);
    assert_eq!(store.alarm(), None);

    full.store(true, Ordering::SeqCst);
    for now in 1001..=1003 {
        store.commit(minute(now), &[(tier(), point(now))], &[(tier(), now.to_string().into_bytes())]);
        assert!(store.alarm().unwrap().contains("memory only"), "{:?}", store.alarm());
    }
    assert_eq!(store.points(&tier(), 1001, 1003).len(), 3, "what is in memory can be read");
    assert_eq!(store.learned(&tier()).as_deref(), Some(b"1003".as_slice()));

    full.store(false, Ordering::SeqCst);
    store.commit(minute(1004), &[(tier(), point(1004))], &[]);
    assert_eq!(store.alarm(), None);
    drop(store);
    let mut reopened = Store::open(folder.path(), DEFAULT_RETENTION, minute(1005));
    assert_eq!(reopened.alarm(), None);
    assert_eq!(minutes(&mut reopened), [1000, 1001, 1002, 1003, 1004]);
    assert_eq!(reopened.learned(&tier()).as_deref(), Some(b"1003".as_slice()));
}

#[test]
fn a_disk_that_is_full_for_days_keeps_the_last_day_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let broken: OpenDisk = Box::new(|_| Err(Fault::Io("read-only".to_owned())));
    let mut store = Store::open_with(folder.path(), DEFAULT_RETENTION, minute(0), broken);
    for now in 0..3000 {
        store.commit(minute(now), &[(tier(), point(now))], &[]);
    }
    let kept = minutes(&mut store);
    assert_eq!((kept.len(), kept[0], kept[1439]), (1440, 1560, 2999));
}

#[test]
fn a_database_that_breaks_under_way_is_put_aside_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let opened = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&opened);
    let breaks_once: OpenDisk = Box::new(move |path| {
        if count.fetch_add(1, Ordering::SeqCst) == 1 {
            return Err(Fault::Corrupt("page 7 differs".to_owned()));
        }
        Disk::open(path)
    });
    let mut store = Store::open_with(folder.path(), DEFAULT_RETENTION, minute(1000), breaks_once);
    store.commit(minute(1000), &[(tier(), point(1000))], &[]);
    store.give_up(&Fault::Corrupt("read of page 7".to_owned()));
    store.commit(minute(1001), &[(tier(), point(1001))], &[]);
    let alarm = store.alarm().unwrap();
    assert!(alarm.contains("page 7 differs") && alarm.contains("corrupt-19700101T164100Z"), "{alarm}");
    assert_eq!(minutes(&mut store), [1001]);

    store.commit(minute(1001 + 24 * 60), &[], &[]);
    assert_eq!(store.alarm(), None, "a loss is told for a day");
}

#[test]
fn a_panic_of_the_database_library_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(&folder.path().join(DATABASE)).unwrap();
    drop(disk);
    let panics = crate::history::disk::guarded::<()>(|| panic!("index out of bounds"));
    assert_eq!(panics, Err(Fault::Corrupt("the database library gave up: index out of bounds".to_owned())));
}

#[test]
fn a_snapshot_that_is_too_large_is_not_kept_and_told() {
    let mut store = Store::in_memory(minute(0));
    store.commit(minute(0), &[], &[(tier(), vec![0; MAX_LEARNED_BYTES + 1])]);
    assert!(store.alarm().unwrap().contains("1048577 bytes"));
    assert_eq!(store.learned(&tier()), None);
}

#[test]
fn tiers_beyond_the_cap_have_no_history_and_the_alarm_says_so() {
    let mut store = Store::in_memory(minute(0));
    let points: Vec<(TierId, HistoryPoint)> =
        (0..=MAX_TIERS).map(|n| (TierId::new("serving", n.to_string()), point(0))).collect();
    store.commit(minute(0), &points, &[]);
    assert!(store.alarm().unwrap().contains("more than 1000 tiers"));
    assert_eq!(store.points(&points[MAX_TIERS].0, 0, 0).len(), 0);
    assert_eq!(store.points(&points[0].0, 0, 0).len(), 1);
}

#[test]
fn a_store_in_memory_forgets_tiers_that_are_gone_for_a_day() {
    let mut store = Store::in_memory(minute(0));
    store.commit(minute(0), &[(tier(), point(0))], &[]);
    store.commit(minute(1440), &[], &[]);
    assert_eq!(minutes(&mut store), [0]);
    store.commit(minute(1441), &[], &[]);
    assert_eq!(minutes(&mut store), [0_i64; 0]);
}
