//! A file for what is told when all is played.
//!
//! That it can't be written is told before minutes of playing, not after them. It is written beside its name and then
//! renamed: a disk that is full, or a process that is killed, leaves the page that was there.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::BadFlag;

/// A file that can be written, as far as one can know.
#[derive(Debug)]
pub(super) struct PageFile {
    /// As it was asked for, to name it.
    asked: PathBuf,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// To a regular file, or one that isn't there yet: under another name first.
    Renamed { to: PathBuf, first: PathBuf },
    /// To a pipe or a device.
    Straight,
}

impl PageFile {
    /// Sees whether it can be written; `flag` asks for it.
    ///
    /// # Errors
    /// For a folder (exit code 64), and where nothing can be written (1).
    pub(super) fn new(flag: &str, asked: &Path) -> anyhow::Result<Self> {
        let named = || asked.display().to_string();
        let bad = |told: &str| Err(BadFlag(format!("{flag} {}: {told}", named())).into());
        let there = match fs::metadata(asked) {
            Ok(there) => Some(there),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(named),
        };
        if there.as_ref().is_some_and(fs::Metadata::is_dir) {
            return bad("a folder: name a file in it");
        }
        if there.as_ref().is_some_and(|there| !there.is_file()) {
            return Ok(Self { asked: asked.to_owned(), way: Way::Straight });
        }
        if there.is_some() {
            // A file that may not be written stays, whatever its folder allows.
            OpenOptions::new().append(true).open(asked).with_context(named)?;
        }
        // What a link points to is replaced, not the link.
        let to =
            if there.is_some() { fs::canonicalize(asked).with_context(named)? } else { asked.to_owned() };
        let Some(name) = to.file_name() else { return bad("not the name of a file") };
        let mut first = std::ffi::OsString::from(".");
        first.push(name);
        first.push(format!(".{}", std::process::id()));
        let first = to.with_file_name(first);
        File::create(&first).with_context(named)?;
        fs::remove_file(&first).with_context(named)?;
        Ok(Self { asked: asked.to_owned(), way: Way::Renamed { to, first } })
    }

    /// Writes it.
    ///
    /// # Errors
    /// When it can't be written after all; what was there before stays.
    pub(super) fn write(self, text: &str) -> anyhow::Result<()> {
        let written = match &self.way {
            Way::Straight => fs::write(&self.asked, text),
            Way::Renamed { to, first } => write_synced(first, text).and_then(|()| fs::rename(first, to)),
        };
        if let (Err(_), Way::Renamed { first, .. }) = (&written, &self.way)
            && let Err(error) = fs::remove_file(first)
        {
            tracing::debug!(%error, file = %first.display(), "half a page stays");
        }
        written.with_context(|| self.asked.display().to_string())
    }
}

/// Some file systems tell that they are full only here.
fn write_synced(file: &Path, text: &str) -> std::io::Result<()> {
    let mut file = File::create(file)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_replaces_the_old_one_whole_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.html");
        for text in ["one", "two"] {
            PageFile::new("--report", &page).unwrap().write(text).unwrap();
            assert_eq!(fs::read_to_string(&page).unwrap(), text);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_link_points_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (page, link) = (folder.path().join("page.html"), folder.path().join("link.html"));
        fs::write(&page, "old").unwrap();
        std::os::unix::fs::symlink(&page, &link).unwrap();
        PageFile::new("--report", &link).unwrap().write("new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&page).unwrap(), "new");
    }

    #[test]
    fn a_folder_and_a_missing_folder_are_told_before_anything_is_played() {
        let folder = tempfile::tempdir().unwrap();
        let told = |file: &Path| format!("{:#}", PageFile::new("--report", file).unwrap_err());
        assert!(told(folder.path()).contains("a folder: name a file in it"), "{}", told(folder.path()));
        let nowhere = folder.path().join("none").join("page.html");
        assert!(told(&nowhere).contains("No such file"), "{}", told(&nowhere));
    }

    #[test]
    fn a_page_that_cannot_be_written_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.html");
        fs::write(&page, "old").unwrap();
        let file = PageFile::new("--report", &page).unwrap();
        let Way::Renamed { first, .. } = &file.way else { panic!("{file:?}") };
        // Somebody else's folder has the name by now.
        fs::create_dir(first).unwrap();
        assert!(file.write("new").is_err());
        assert_eq!(fs::read_to_string(&page).unwrap(), "old");
    }
}
