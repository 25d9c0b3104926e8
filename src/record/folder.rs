//! The folder of a recording: its files in order, and no more of them than may be.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, Utc};

const PREFIX: &str = "record-";
const SUFFIX: &str = ".jsonl.gz";
const LOCK: &str = "lock";

/// Tries to get hold of a folder, a second in all.
const TRIES: u32 = 20;

const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// The files of a recording in a folder, oldest first. Other files are passed over.
///
/// # Errors
/// When the folder can't be read.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if number(&path).is_some() {
            found.push(path);
        }
    }
    found.sort_by_key(|path| number(path));
    Ok(found)
}

/// The number in a file's name, which orders files whatever the clock did.
fn number(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let rest = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    rest.split('-').next()?.parse().ok()
}

/// A folder that this process alone writes.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Locked until it is closed; the operating system gives it up when the process ends, however that happens.
    _lock: File,
}

impl Folder {
    /// Makes the folder where there is none, and takes it.
    pub(super) fn take(path: &Path) -> Result<Self, String> {
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        fs::create_dir_all(path).map_err(failed)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join(LOCK))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                Err(format!("{}: another process records there", path.display()))
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// The same, after a moment of patience: a recording that has just been configured anew may not have ended yet.
    pub(super) fn wait_for(path: &Path) -> Result<Self, String> {
        for _ in 1..TRIES {
            if let Ok(folder) = Self::take(path) {
                return Ok(folder);
            }
            std::thread::sleep(BETWEEN_TRIES);
        }
        Self::take(path)
    }

    /// Begins a new file, after the oldest have made room for it: all together stay within `keep` bytes.
    pub(super) fn begin(&self, at: DateTime<Utc>, keep: u64) -> Result<File, String> {
        let failed = |error: io::Error| format!("{}: {error}", self.path.display());
        let existing = files(&self.path).map_err(failed)?;
        let next = existing.last().and_then(|newest| number(newest)).map_or(1, |newest| newest + 1);
        let sizes: Vec<u64> =
            existing.iter().map(|file| file.metadata().map_or(0, |metadata| metadata.len())).collect();
        let mut total: u64 = sizes.iter().sum();
        for (file, size) in existing.iter().zip(sizes) {
            if total <= keep {
                break;
            }
            fs::remove_file(file).map_err(failed)?;
            total -= size;
        }
        let name = format!("{PREFIX}{next:08}-{}{SUFFIX}", at.format("%Y%m%dT%H%M%SZ"));
        OpenOptions::new().write(true).create_new(true).open(self.path.join(name)).map_err(failed)
    }

    /// Bytes of all files.
    pub(super) fn size_bytes(&self) -> u64 {
        let Ok(files) = files(&self.path) else { return 0 };
        files.iter().filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_in_the_order_of_their_numbers_and_the_oldest_make_room() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = Folder::take(scratch.path()).unwrap();
        for day in (1..=12).rev() {
            // A clock that runs backward.
            let at = format!("2026-03-{day:02}T00:00:00Z").parse().unwrap();
            io::Write::write_all(&mut folder.begin(at, 1000).unwrap(), &[0; 400]).unwrap();
        }
        fs::write(scratch.path().join("notes.txt"), "kept").unwrap();
        let names: Vec<String> = files(scratch.path())
            .unwrap()
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(
            names,
            [
                "record-00000010-20260303T000000Z.jsonl.gz",
                "record-00000011-20260302T000000Z.jsonl.gz",
                "record-00000012-20260301T000000Z.jsonl.gz"
            ]
        );
        assert!(scratch.path().join("notes.txt").exists());
    }

    #[test]
    fn a_folder_has_one_writer() {
        let scratch = tempfile::tempdir().unwrap();
        let first = Folder::take(scratch.path()).unwrap();
        let told = Folder::take(scratch.path()).unwrap_err();
        assert!(told.contains("another process records there"), "{told}");
        drop(first);
        Folder::take(scratch.path()).unwrap();
    }
}
