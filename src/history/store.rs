//! Points and what was learned, kept on disk where that works and in memory where it doesn't.
//!
//! Whatever is not durable yet is pending, in memory and bounded; each commit tries to write all of it. Reading looks at
//! both. So a disk that is full for an hour loses nothing, and one that never works makes this a store in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::HistoryPoint;
use super::block::{hour_of, insert};
use super::disk::{Batch, Disk, Fault};
use super::folder::{DATABASE, FolderLock, put_aside};
use crate::decision::TierId;

/// How long points are kept: two weeks, so that the same weekday can be seen twice.
pub const DEFAULT_RETENTION: Duration = Duration::from_hours(14 * 24);

/// Tiers with history. With two weeks of points each takes about 0.9 MB on disk.
pub const MAX_TIERS: usize = 1_000;

/// Points kept in memory for a tier while they can't be written: a day.
const MAX_PENDING_POINTS: u16 = 24 * 60;

/// The largest snapshot of what was learned of a tier. What is learned is some hundred numbers; a larger one is a fault
/// of ours and must not fill the disk.
const MAX_LEARNED_BYTES: usize = 1 << 20;

/// How long the loss of points is told: long enough for an alert to be seen by people.
const LOSS_TOLD_MINUTES: i64 = 24 * 60;

/// The history of all tiers.
pub struct Store {
    folder: Option<PathBuf>,
    retention_hours: i64,
    open_disk: OpenDisk,
    /// Dropped before the lock: the fields' order matters.
    disk: Option<Disk>,
    lock: Option<FolderLock>,
    /// What is not durable, by tier; ascending minutes.
    pending: BTreeMap<TierId, Pending>,
    /// Why the disk isn't used now.
    fault: Option<String>,
    /// What was lost, and when.
    loss: Option<(String, i64)>,
    pruned_in_hour: Option<i64>,
    /// The minute of the last commit, or of the start.
    minute: i64,
}

type OpenDisk = Box<dyn Fn(&Path) -> Result<Disk, Fault> + Send>;

#[derive(Debug, Default)]
struct Pending {
    points: Vec<HistoryPoint>,
    learned: Option<Vec<u8>>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("folder", &self.folder)
            .field("alarm", &self.alarm())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// A store in memory: it knows the last day and forgets all with the process.
    #[must_use]
    pub fn in_memory(now: DateTime<Utc>) -> Self {
        Self::new(None, DEFAULT_RETENTION, now, Box::new(Disk::open))
    }

    /// Opens the store in a folder, or makes it. Never fails: what is wrong is in [`Store::alarm`], and each commit tries
    /// again. A database that can't be read is put aside under a name with `now` in it.
    #[must_use]
    pub fn open(folder: &Path, retention: Duration, now: DateTime<Utc>) -> Self {
        Self::open_with(folder, retention, now, Box::new(Disk::open))
    }

    fn open_with(folder: &Path, retention: Duration, now: DateTime<Utc>, open_disk: OpenDisk) -> Self {
        let mut store = Self::new(Some(folder.to_owned()), retention, now, open_disk);
        store.use_disk(now);
        store
    }

    fn new(folder: Option<PathBuf>, retention: Duration, now: DateTime<Utc>, open_disk: OpenDisk) -> Self {
        let retention_hours = i64::try_from(retention.as_secs().div_ceil(3600)).unwrap_or(i64::MAX).max(1);
        Self {
            folder,
            retention_hours,
            open_disk,
            disk: None,
            lock: None,
            pending: BTreeMap::new(),
            fault: None,
            loss: None,
            pruned_in_hour: None,
            minute: minute_of(now),
        }
    }

    /// Keeps finished minutes and snapshots of what was learned, in one durable commit. What can't be written now is
    /// kept in memory and written by a later commit.
    pub fn commit(
        &mut self,
        now: DateTime<Utc>,
        points: &[(TierId, HistoryPoint)],
        learned: &[(TierId, Vec<u8>)],
    ) {
        self.minute = minute_of(now);
        if self.loss.as_ref().is_some_and(|(_, since)| self.minute - since >= LOSS_TOLD_MINUTES) {
            self.loss = None;
        }
        for (tier, point) in points {
            if let Some(pending) = self.pending_of(tier) {
                insert(&mut pending.points, *point);
                let surplus = pending.points.len().saturating_sub(MAX_PENDING_POINTS.into());
                pending.points.drain(..surplus);
            }
        }
        for (tier, snapshot) in learned {
            if snapshot.len() > MAX_LEARNED_BYTES {
                let what = format!("what was learned of {tier} is {} bytes and was not kept", snapshot.len());
                self.lose(what);
            } else if let Some(pending) = self.pending_of(tier) {
                pending.learned = Some(snapshot.clone());
            }
        }
        self.use_disk(now);
        if let Err(Fault::Corrupt(_)) = self.write_pending() {
            // What broke under way is put aside and made anew now: nothing waits for the next minute.
            self.use_disk(now);
            // A fault of the second try is in the alarm, and the next commit is the third.
            drop(self.write_pending());
        }
        if self.disk.is_none() {
            let oldest = self.minute.saturating_sub(MAX_PENDING_POINTS.into());
            self.pending
                .retain(|_, pending| pending.points.last().is_none_or(|newest| newest.minute >= oldest));
        }
    }

    /// The points of a tier from one minute to another, both included, ascending.
    pub fn points(&mut self, tier: &TierId, from_minute: i64, to_minute: i64) -> Vec<HistoryPoint> {
        let mut points = self.points_on_disk(tier, from_minute, to_minute);
        if let Some(pending) = self.pending.get(tier) {
            let wanted = |point: &&HistoryPoint| (from_minute..=to_minute).contains(&point.minute);
            for point in pending.points.iter().filter(wanted) {
                insert(&mut points, *point);
            }
        }
        points
    }

    fn points_on_disk(&mut self, tier: &TierId, from_minute: i64, to_minute: i64) -> Vec<HistoryPoint> {
        let Some(disk) = &self.disk else {
            return Vec::new();
        };
        match disk.points(tier, from_minute, to_minute) {
            Ok((points, 0)) => points,
            Ok((points, broken)) => {
                self.lose(format!("{broken} hours of {tier} can't be read and are unknown"));
                points
            }
            Err(fault) => {
                self.give_up(&fault);
                Vec::new()
            }
        }
    }

    /// What was learned of a tier, as it was last committed.
    pub fn learned(&mut self, tier: &TierId) -> Option<Vec<u8>> {
        if let Some(learned) = self.pending.get(tier).and_then(|pending| pending.learned.clone()) {
            return Some(learned);
        }
        match self.disk.as_ref()?.learned(tier) {
            Ok(learned) => learned,
            Err(fault) => {
                self.give_up(&fault);
                None
            }
        }
    }

    /// All points within the retention before the last commit, or the start.
    pub fn all_points(&mut self, tier: &TierId) -> Vec<HistoryPoint> {
        let retention_minutes = self.retention_hours.saturating_mul(60);
        self.points(tier, self.minute.saturating_sub(retention_minutes), self.minute)
    }

    /// What an operator should know: the disk isn't used, or something was lost. None while all is well.
    #[must_use]
    pub fn alarm(&self) -> Option<String> {
        let fault = self.fault.as_ref().map(|fault| format!("history is kept in memory only: {fault}"));
        fault.or_else(|| self.loss.as_ref().map(|(what, _)| what.clone()))
    }

    /// The folder; None in memory.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Bytes that the database takes on disk.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let file = self.folder.as_ref().map(|folder| folder.join(DATABASE));
        file.and_then(|file| file.metadata().ok()).map_or(0, |metadata| metadata.len())
    }

    /// Where a tier's news go until they are durable; None where there are too many tiers.
    fn pending_of(&mut self, tier: &TierId) -> Option<&mut Pending> {
        if !self.pending.contains_key(tier) {
            let known: BTreeSet<&TierId> =
                self.disk.iter().flat_map(Disk::tiers).chain(self.pending.keys()).collect();
            if known.len() >= MAX_TIERS && !known.contains(tier) {
                self.lose(format!("more than {MAX_TIERS} tiers: {tier} has no history"));
                return None;
            }
        }
        Some(self.pending.entry(tier.clone()).or_default())
    }

    /// Sees to it that the disk is open, where there is one and it works.
    fn use_disk(&mut self, now: DateTime<Utc>) {
        let Some(folder) = self.folder.clone() else {
            return;
        };
        if self.disk.is_some() {
            return;
        }
        if self.lock.is_none() {
            match FolderLock::take(&folder) {
                Ok(lock) => self.lock = Some(lock),
                Err(fault) => return self.give_up(&fault),
            }
        }
        let opened = match (self.open_disk)(&folder.join(DATABASE)) {
            Err(Fault::Corrupt(why)) => self.begin_anew(&folder, &why, now),
            opened => opened,
        };
        match opened {
            Ok(disk) => {
                self.disk = Some(disk);
                self.pruned_in_hour = None;
                if self.fault.take().is_some() {
                    tracing::info!("history is kept on disk again");
                }
            }
            Err(fault) => self.give_up(&fault),
        }
    }

    fn begin_anew(&mut self, folder: &Path, why: &str, now: DateTime<Utc>) -> Result<Disk, Fault> {
        let aside = put_aside(folder, now)?;
        let aside = aside.display();
        tracing::warn!(%why, %aside, "history database is damaged, a new one begins");
        let what = format!("the history database was damaged ({why}); it was put aside as {aside}");
        self.lose(what);
        (self.open_disk)(&folder.join(DATABASE))
    }

    fn write_pending(&mut self) -> Result<(), Fault> {
        let Some(disk) = &mut self.disk else {
            return Ok(());
        };
        let hour = hour_of(self.minute);
        let mut batch = Batch::default();
        for (tier, pending) in &self.pending {
            batch.points.extend(pending.points.iter().map(|point| (tier, *point)));
            batch.learned.extend(pending.learned.iter().map(|learned| (tier, learned.as_slice())));
        }
        if self.pruned_in_hour != Some(hour) {
            batch.oldest_hour = Some(hour.saturating_sub(self.retention_hours));
        }
        let written = disk.commit(&batch);
        match &written {
            Ok(()) => {
                self.pending.clear();
                self.pruned_in_hour = Some(hour);
            }
            Err(fault) => self.give_up(fault),
        }
        written
    }

    fn lose(&mut self, what: String) {
        self.loss = Some((what, self.minute));
    }

    /// Goes on in memory until a commit finds the disk in order.
    fn give_up(&mut self, fault: &Fault) {
        let fault_text = fault.to_string();
        if self.fault.as_ref() != Some(&fault_text) {
            tracing::warn!(fault = %fault_text, "history is kept in memory only");
        }
        self.disk = None;
        self.fault = Some(fault_text);
    }
}

fn minute_of(at: DateTime<Utc>) -> i64 {
    at.timestamp().div_euclid(60)
}

#[cfg(test)]
mod tests {
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
        let panics = super::super::disk::guarded::<()>(|| panic!("index out of bounds"));
        assert_eq!(
            panics,
            Err(Fault::Corrupt("the database library gave up: index out of bounds".to_owned()))
        );
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
}
