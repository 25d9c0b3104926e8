//! A look into a store that nobody has open: at a copy, so that not a byte of it changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::HistoryPoint;
use super::disk::{Disk, Fault};
use super::folder::{DATABASE, FolderLock};
use crate::decision::TierId;

/// All points of a tier, ascending; empty where the store doesn't know it.
///
/// The store of a scaler that was killed is looked at as well: what it needs to be repaired is done to the copy, in the
/// system's folder for temporary files, which takes as many bytes as the store.
///
/// # Errors
/// When there is no store in the folder, a scaler has it open, or it can't be copied or read.
pub fn look(folder: &Path, tier: &TierId) -> Result<Vec<HistoryPoint>, String> {
    let database = folder.join(DATABASE);
    if !database.is_file() {
        return Err(format!("no store in it: there is no {DATABASE}"));
    }
    let lock = FolderLock::look(folder).map_err(|fault| match fault {
        Fault::InUse(what) => format!("{what}: stop it, or copy the folder"),
        other => other.to_string(),
    })?;
    let copy = Copy::of(&database).map_err(|error| format!("it can't be copied: {error}"))?;
    drop(lock);
    let disk = Disk::open(&copy.folder.join(DATABASE)).map_err(|fault| fault.to_string())?;
    let (points, broken) = disk.points(tier, 0, i64::MAX).map_err(|fault| fault.to_string())?;
    if broken > 0 {
        tracing::warn!(hours = broken, "hours of the history can't be read");
    }
    Ok(points)
}

/// A copy that goes when it is done with.
struct Copy {
    folder: PathBuf,
}

impl Copy {
    fn of(database: &Path) -> std::io::Result<Self> {
        static COPIES: AtomicU64 = AtomicU64::new(0);
        let number = COPIES.fetch_add(1, Ordering::Relaxed);
        let name = format!("keda-vllm-scaler-look-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // Fails where somebody else made it: nothing of theirs is written to.
        fs::create_dir(&folder)?;
        let copy = Self { folder };
        fs::copy(database, copy.folder.join(DATABASE))?;
        Ok(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::debug!(folder = %self.folder.display(), %error, "a copy of the store was left behind");
        }
    }
}
