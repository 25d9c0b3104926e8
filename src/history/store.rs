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

/// Tiers with history. With two weeks of points each takes about 1.5 MB on disk (measured: 72 bytes a point).
pub const MAX_TIERS: usize = 1_000;

/// Points kept in memory for a tier while they can't be written: a day.
const MAX_PENDING_POINTS: usize = 24 * 60;

/// The same as a span of time.
const MAX_PENDING_MINUTES: i64 = 24 * 60;

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
                let surplus = pending.points.len().saturating_sub(MAX_PENDING_POINTS);
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
            let oldest = self.minute.saturating_sub(MAX_PENDING_MINUTES);
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
mod tests;
