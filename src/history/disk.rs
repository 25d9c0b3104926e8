//! The embedded database: what is written in one commit, and what can go wrong.
//!
//! Tables of format 1: `points` from (hour, namespace, tier) to an hour's block; `learned` from (namespace, tier) to a
//! checksummed snapshot; `tiers` from (namespace, tier) to the newest hour with points; `meta` with the format. The hour
//! comes first in the key: a commit writes neighbouring pages, and the oldest hours of all tiers are one range.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::HistoryPoint;
use super::block::{self, checksum, hour_of};
use crate::decision::TierId;

/// What this code writes. A larger number on disk was written by a later release and is left alone.
const FORMAT: u64 = 1;

/// Pages kept in memory. redb takes 1 GiB unless told; what is read often is the current hour of each tier.
const CACHE_BYTES: usize = 8 << 20;

/// Files smaller than this are not compacted: there is nothing to win.
const COMPACT_ABOVE_BYTES: u64 = 8 << 20;

/// Hours pruned in one pass, a pass an hour. A clock that is wrong for a while can't delete the whole history; a
/// scaler that was off for two weeks is done in some hours.
const PRUNED_HOURS_A_PASS: i64 = 24;

/// The checksum of a snapshot is not bound to an hour.
const LEARNED_KEY: i64 = 0;

const POINTS: TableDefinition<'_, (i64, &str, &str), &[u8]> = TableDefinition::new("points");
const LEARNED: TableDefinition<'_, (&str, &str), &[u8]> = TableDefinition::new("learned");
const TIERS: TableDefinition<'_, (&str, &str), i64> = TableDefinition::new("tiers");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const FORMAT_KEY: &str = "format";

/// Why the disk can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// What is there is not what was written.
    #[error("{0}")]
    Corrupt(String),
    /// A later release wrote it.
    #[error("format {0} is of a later release than this one, which knows format {FORMAT}")]
    Newer(u64),
    /// Another process has it.
    #[error("{0}")]
    InUse(String),
    /// Full, read-only, gone.
    #[error("{0}")]
    Io(String),
}

impl From<redb::Error> for Fault {
    fn from(error: redb::Error) -> Self {
        use redb::Error;
        let text = error.to_string();
        match error {
            Error::Io(io) if is_damage(io.kind()) => Self::Corrupt(text),
            Error::Corrupted(_)
            | Error::UpgradeRequired(_)
            | Error::TableTypeMismatch { .. }
            | Error::TableIsMultimap(_)
            | Error::TypeDefinitionChanged { .. } => Self::Corrupt(text),
            Error::DatabaseAlreadyOpen => Self::InUse(text),
            _ => Self::Io(text),
        }
    }
}

/// redb says that a file is not a database, or shorter than its own header tells, by these kinds of I/O errors.
fn is_damage(kind: std::io::ErrorKind) -> bool {
    matches!(kind, std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof)
}

/// One commit.
#[derive(Debug, Default)]
pub(super) struct Batch<'a> {
    pub(super) points: Vec<(&'a TierId, HistoryPoint)>,
    pub(super) learned: Vec<(&'a TierId, &'a [u8])>,
    /// Drop hours before this one; None leaves everything.
    pub(super) oldest_hour: Option<i64>,
}

/// An open database.
#[derive(Debug)]
pub(super) struct Disk {
    database: Option<Database>,
    /// Tiers with points and the newest hour of each.
    newest_hour: BTreeMap<TierId, i64>,
}

impl Disk {
    /// Opens or makes the database in a file.
    pub(super) fn open(file: &Path) -> Result<Self, Fault> {
        let length = std::fs::metadata(file).map_or(0, |metadata| metadata.len());
        guarded(|| Self::prepare(builder().create(file).map_err(redb::Error::from)?, length))
    }

    /// The same on any storage.
    #[cfg(test)]
    pub(super) fn open_on(storage: impl redb::StorageBackend) -> Result<Self, Fault> {
        guarded(|| Self::prepare(builder().create_with_backend(storage).map_err(redb::Error::from)?, 0))
    }

    fn prepare(mut database: Database, length: u64) -> Result<Self, Fault> {
        let newest_hour = prepare_tables(&database)?;
        if length > COMPACT_ABOVE_BYTES && is_mostly_empty(&database, length)? {
            database.compact().map_err(redb::Error::from)?;
        }
        Ok(Self { database: Some(database), newest_hour })
    }

    /// Tiers with points.
    pub(super) fn tiers(&self) -> impl Iterator<Item = &TierId> {
        self.newest_hour.keys()
    }

    /// Writes all of a batch, or nothing.
    pub(super) fn commit(&mut self, batch: &Batch<'_>) -> Result<(), Fault> {
        let database = self.database()?;
        let mut newest_hour = self.newest_hour.clone();
        guarded(|| write(database, batch, &mut newest_hour).map_err(Fault::from))?;
        self.newest_hour = newest_hour;
        Ok(())
    }

    /// The points of a tier from one minute to another, both included, and how many hours of them are broken.
    pub(super) fn points(
        &self,
        tier: &TierId,
        from_minute: i64,
        to_minute: i64,
    ) -> Result<(Vec<HistoryPoint>, usize), Fault> {
        let database = self.database()?;
        guarded(|| read_points(database, tier, from_minute, to_minute).map_err(Fault::from))
    }

    /// What was learned of a tier; None also where the snapshot is broken.
    pub(super) fn learned(&self, tier: &TierId) -> Result<Option<Vec<u8>>, Fault> {
        let database = self.database()?;
        guarded(|| read_learned(database, tier).map_err(Fault::from))
    }

    fn database(&self) -> Result<&Database, Fault> {
        self.database.as_ref().ok_or_else(|| Fault::Io("the database is closed".to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let Some(database) = self.database.take() else {
            return;
        };
        // Closing a database that panicked before may panic again; there is nothing more to lose.
        if let Err(fault) = guarded(|| database.close().map_err(|error| redb::Error::from(error).into())) {
            tracing::debug!(%fault, "history database closed uncleanly");
        }
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    // Without it redb trusts a file that was closed cleanly, and a damaged one would be found by wrong numbers.
    builder.set_check_integrity_on_open(true);
    builder
}

/// Runs something that redb may panic in.
///
/// The one place that catches panics: redb checks a file when it is opened, and its documentation says that it may panic
/// where the file is damaged in a way that the check doesn't cover or after the check. A history that can't be read must
/// not end the process that answers KEDA. Whatever was touched is dropped by the caller.
pub(super) fn guarded<T>(run: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        Err(Fault::Corrupt(format!("the database library gave up: {}", panic_text(panic.as_ref()))))
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

/// Makes the tables of a new database, or checks the format of an old one; the tiers that it has.
fn prepare_tables(database: &Database) -> Result<BTreeMap<TierId, i64>, Fault> {
    prepare_in_one_commit(database).map_err(Fault::from)?.map_err(Fault::Newer)
}

type Prepared = Result<BTreeMap<TierId, i64>, u64>;

fn prepare_in_one_commit(database: &Database) -> Result<Prepared, redb::Error> {
    let transaction = database.begin_write()?;
    let mut newest_hour = BTreeMap::new();
    {
        let mut meta = transaction.open_table(META)?;
        let format = meta.get(FORMAT_KEY)?.map(|format| format.value());
        match format {
            Some(FORMAT) => {}
            None => {
                meta.insert(FORMAT_KEY, FORMAT)?;
            }
            Some(format) => return Ok(Err(format)),
        }
        transaction.open_table(POINTS)?;
        transaction.open_table(LEARNED)?;
        for entry in transaction.open_table(TIERS)?.iter()? {
            let (key, hour) = entry?;
            let (namespace, name) = key.value();
            newest_hour.insert(TierId::new(namespace, name), hour.value());
        }
    }
    transaction.commit()?;
    Ok(Ok(newest_hour))
}

/// More than half of the file is free pages: pruned hours leave some that only compacting returns.
fn is_mostly_empty(database: &Database, length: u64) -> Result<bool, redb::Error> {
    let transaction = database.begin_write()?;
    let stats = transaction.stats()?;
    transaction.abort()?;
    Ok(stats.allocated_pages() * stats.page_size() as u64 * 2 < length)
}

fn write(
    database: &Database,
    batch: &Batch<'_>,
    newest_hour: &mut BTreeMap<TierId, i64>,
) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut points = transaction.open_table(POINTS)?;
        let mut tiers = transaction.open_table(TIERS)?;
        let mut learned = transaction.open_table(LEARNED)?;
        for ((hour, tier), added) in by_block(&batch.points) {
            let key = (hour, tier.namespace.as_str(), tier.name.as_str());
            // A block that can't be read is replaced: its minutes are lost, and unknown.
            let mut block = points
                .get(key)?
                .and_then(|bytes| block::decode(hour, bytes.value()).ok())
                .unwrap_or_default();
            for point in added {
                block::insert(&mut block, point);
            }
            points.insert(key, block::encode(hour, &block).as_slice())?;
            let newest = newest_hour.entry(tier.clone()).or_insert(i64::MIN);
            if hour > *newest {
                *newest = hour;
                tiers.insert((tier.namespace.as_str(), tier.name.as_str()), hour)?;
            }
        }
        for (tier, snapshot) in &batch.learned {
            let mut bytes = checksum(LEARNED_KEY, snapshot).to_le_bytes().to_vec();
            bytes.extend_from_slice(snapshot);
            learned.insert((tier.namespace.as_str(), tier.name.as_str()), bytes.as_slice())?;
        }
        if let Some(oldest) = batch.oldest_hour {
            prune_points(&mut points, oldest)?;
            let gone: Vec<TierId> = newest_hour
                .iter()
                .filter(|(_, newest)| **newest < oldest)
                .map(|(tier, _)| tier.clone())
                .collect();
            for tier in gone {
                let key = (tier.namespace.as_str(), tier.name.as_str());
                tiers.remove(key)?;
                learned.remove(key)?;
                newest_hour.remove(&tier);
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

type BlockKey<'a> = (i64, &'a TierId);

fn by_block<'a>(points: &[(&'a TierId, HistoryPoint)]) -> BTreeMap<BlockKey<'a>, Vec<HistoryPoint>> {
    let mut blocks: BTreeMap<BlockKey<'a>, Vec<HistoryPoint>> = BTreeMap::new();
    for (tier, point) in points {
        blocks.entry((hour_of(point.minute), tier)).or_default().push(*point);
    }
    blocks
}

/// Drops hours before `oldest`, a bounded number of them.
///
/// Hours ahead of now stay: a clock that is wrong now would delete what one that was right has written, and what a wrong
/// one wrote is small and gets old, too.
fn prune_points(
    points: &mut redb::Table<'_, (i64, &'static str, &'static str), &'static [u8]>,
    oldest: i64,
) -> Result<(), redb::Error> {
    let Some(first) = points.first()?.map(|(key, _)| key.value().0).filter(|first| *first < oldest) else {
        return Ok(());
    };
    let end = oldest.min(first.saturating_add(PRUNED_HOURS_A_PASS));
    points.retain_in::<(i64, &str, &str), _>(..(end, "", ""), |_, _| false)?;
    Ok(())
}

fn read_points(
    database: &Database,
    tier: &TierId,
    from_minute: i64,
    to_minute: i64,
) -> Result<(Vec<HistoryPoint>, usize), redb::Error> {
    let table = database.begin_read()?.open_table(POINTS)?;
    let (mut points, mut broken) = (Vec::new(), 0);
    let Some((first, last)) = ends(&table)? else {
        return Ok((points, broken));
    };
    for hour in hour_of(from_minute).max(first)..=hour_of(to_minute).min(last) {
        let Some(bytes) = table.get((hour, tier.namespace.as_str(), tier.name.as_str()))? else {
            continue;
        };
        match block::decode(hour, bytes.value()) {
            Ok(block) => points
                .extend(block.into_iter().filter(|point| (from_minute..=to_minute).contains(&point.minute))),
            Err(_) => broken += 1,
        }
    }
    Ok((points, broken))
}

/// The first and the last hour with points of any tier.
fn ends(
    table: &redb::ReadOnlyTable<(i64, &'static str, &'static str), &'static [u8]>,
) -> Result<Option<(i64, i64)>, redb::Error> {
    let first = table.first()?.map(|(key, _)| key.value().0);
    let last = table.last()?.map(|(key, _)| key.value().0);
    Ok(first.zip(last))
}

fn read_learned(database: &Database, tier: &TierId) -> Result<Option<Vec<u8>>, redb::Error> {
    let table = database.begin_read()?.open_table(LEARNED)?;
    let Some(bytes) = table.get((tier.namespace.as_str(), tier.name.as_str()))? else {
        return Ok(None);
    };
    let snapshot = bytes
        .value()
        .split_first_chunk::<4>()
        .filter(|(sum, snapshot)| u32::from_le_bytes(**sum) == checksum(LEARNED_KEY, snapshot));
    Ok(snapshot.map(|(_, snapshot)| snapshot.to_vec()))
}
