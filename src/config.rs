//! The configuration: one YAML file, or a ScaledObject's metadata, to checked settings.
//!
//! Every problem is told at once, with its path, its line and what to write instead. The way of a file:
//!
//! ```text
//! text -> yaml (tree with lines) -> shape_check (each key by itself, against the table in file)
//!                                -> resolve (keys together) -> Config, with lint's warnings
//! ```
//!
//! [`trigger`] puts metadata into the same tree, so that a tier declared there meets the same checks. All of it is
//! pure but [`load_file`] and [`missing_files`], which read the disk.

use std::io::Read as _;
use std::path::Path;

mod address;
mod file;
mod lint;
pub mod manifest;
mod misplaced;
mod problem;
mod profiles;
mod quantity;
mod resolve;
pub mod scenario;
pub mod schema;
mod section;
mod settings;
mod shape;
mod shape_check;
pub mod trigger;
mod yaml;

pub(crate) use address::page_url;
pub use lint::keda_differences;
pub use problem::{Problem, Problems};
pub(crate) use quantity::ramp;
pub use settings::{
    ActivatorSettings, Changes, ClusterSettings, Config, DnsPort, FileReference, FloorReference,
    GrpcSettings, Listen, PodPort, PodSettings, RecordSettings, ScaleTarget, Scheme, ScrapeSettings,
    SourceSettings, TierSettings, TlsSettings,
};

/// Larger files are refused unread: a ConfigMap ends at 1 MiB too.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// Why a file could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file can't be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// Above [`MAX_FILE_BYTES`].
    #[error("larger than 1 MiB, the most that a ConfigMap holds")]
    TooLarge,
    /// Not text.
    #[error("not UTF-8 text (byte {0})")]
    NotText(usize),
    /// It was read and is wrong.
    #[error("{0}")]
    Problems(#[from] Problems),
}

/// Reads a configuration.
///
/// # Errors
/// All problems, in the order of the file.
pub fn load(text: &str) -> Result<Config, Problems> {
    let mut found = resolve::Findings::default();
    // A byte order mark is an editor's, not YAML's.
    match yaml::read(text.strip_prefix('\u{feff}').unwrap_or(text), &mut found.problems) {
        Ok(root) => resolve::config(&root, found),
        Err(problem::Reported) => Err(found.problems.sorted()),
    }
}

/// Reads the text of a configuration file.
///
/// # Errors
/// When the file can't be read, is too large or no text.
pub fn read_text(path: impl AsRef<Path>) -> Result<String, LoadError> {
    let path = path.as_ref();
    if !std::fs::metadata(path)?.is_file() {
        // Opening a pipe would wait for somebody to write.
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file").into());
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(LoadError::TooLarge);
    }
    String::from_utf8(bytes).map_err(|error| LoadError::NotText(error.utf8_error().valid_up_to()))
}

/// Reads a configuration file.
///
/// # Errors
/// When the file can't be read, is too large or no text, or has problems.
pub fn load_file(path: impl AsRef<Path>) -> Result<Config, LoadError> {
    Ok(load(&read_text(path)?)?)
}

/// Certificates, keys and tokens that the configuration names and that are not on this machine: warnings for `check`,
/// which may run elsewhere, and problems for the server.
#[must_use]
pub fn missing_files(config: &Config) -> Vec<Problem> {
    resolve::missing_files(config)
}
