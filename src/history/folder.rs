//! The store's folder: one process at a time, and what is put aside in it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};

use super::disk::Fault;

/// The database.
pub(super) const DATABASE: &str = "history.redb";
const LOCK: &str = "lock";

/// Broken databases kept for a look at them. Each may be as large as the store.
const KEPT_ASIDE: usize = 2;

/// Bytes read of a lock file's text: who holds it.
const MAX_HOLDER_BYTES: u64 = 200;

/// Held while the store is used. The operating system gives it up when the process ends, however that happens.
#[derive(Debug)]
pub(super) struct FolderLock {
    /// Locked until it is closed.
    _file: File,
}

impl FolderLock {
    /// Makes the folder where there is none, and takes it.
    pub(super) fn take(folder: &Path) -> Result<Self, Fault> {
        let failed = |error: std::io::Error| Fault::Io(format!("{}: {error}", folder.display()));
        fs::create_dir_all(folder).map_err(failed)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.join(LOCK))
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = holder(&mut file).unwrap_or_else(|| "another process".to_owned());
                return Err(Fault::InUse(format!("{} is in use by {holder}", folder.display())));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // The text is for people; the lock holds without it, even on a full disk.
        if let Err(error) = write_holder(&mut file) {
            tracing::debug!(folder = %folder.display(), %error, "lock holder not written");
        }
        Ok(Self { _file: file })
    }
}

impl FolderLock {
    /// Holds off whoever would begin to use the store, and changes nothing. None where there is no lock: nobody ever had it
    /// open, or it is a copy.
    pub(super) fn look(folder: &Path) -> Result<Option<Self>, Fault> {
        let failed = |error: std::io::Error| Fault::Io(format!("{}: {error}", folder.display()));
        let mut file = match File::open(folder.join(LOCK)) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => {
                let holder = holder(&mut file).unwrap_or_else(|| "another process".to_owned());
                Err(Fault::InUse(format!("{} is in use by {holder}", folder.display())))
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

fn write_holder(file: &mut File) -> std::io::Result<()> {
    // In a container every process is number 1: the host name tells two pods apart.
    let host = std::env::var("HOSTNAME").unwrap_or_default();
    let on = if host.is_empty() { String::new() } else { format!(" on {host}") };
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "process {}{on}", std::process::id())
}

fn holder(file: &mut File) -> Option<String> {
    let mut text = String::new();
    file.take(MAX_HOLDER_BYTES).read_to_string(&mut text).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Moves a database that can't be used out of the way, and deletes the oldest of those put aside before.
pub(super) fn put_aside(folder: &Path, now: DateTime<Utc>) -> Result<PathBuf, Fault> {
    let failed = |error: std::io::Error| Fault::Io(format!("{}: {error}", folder.display()));
    let prefix = format!("{DATABASE}.corrupt-");
    let aside = folder.join(format!("{prefix}{}", now.format("%Y%m%dT%H%M%SZ")));
    fs::rename(folder.join(DATABASE), &aside).map_err(failed)?;
    let mut all: Vec<PathBuf> = fs::read_dir(folder)
        .map_err(failed)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)))
        .collect();
    all.sort();
    let surplus = all.len().saturating_sub(KEPT_ASIDE);
    for path in all.into_iter().filter(|path| *path != aside).take(surplus) {
        fs::remove_file(path).map_err(failed)?;
    }
    Ok(aside)
}
