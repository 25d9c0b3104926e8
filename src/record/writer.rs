//! The thread that writes. Whatever a disk does, it takes what is handed over, and says what it could not keep.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use chrono::{DateTime, Utc};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::folder::Folder;
use super::line::{End, EndReason, FORMAT, Head, Written, memory_text};
use super::recorder::Shared;
use crate::config::RecordSettings;
use crate::decision::{Memory, Policy};
use crate::snapshot::{RecordStatus, TierStatus};
use crate::units::since;

/// Files that a full folder holds. More of them keep more when the oldest goes; fewer repeat less state.
const FILES: u64 = 8;

/// After a failure, until the next try.
const RETRY: Duration = Duration::from_secs(30);

/// What the recorder hands over.
#[derive(Debug)]
pub(super) enum Message {
    /// What follows goes into a new file; so many decisions before it were dropped.
    NewFile { at: DateTime<Utc>, lost: u64 },
    /// A tier's state before its next decision.
    Begin { at: DateTime<Utc>, policy: Arc<Policy>, memory: Box<Memory> },
    /// A decision.
    Decided(Arc<TierStatus>),
}

/// Writes until nobody hands over any more.
pub(super) fn run(
    settings: RecordSettings,
    messages: &Receiver<Message>,
    shared: &Shared,
    publish: &watch::Sender<RecordStatus>,
) {
    let mut recording = Recording {
        settings,
        shared,
        folder: None,
        output: None,
        failed: None,
        size: 0,
        now: DateTime::UNIX_EPOCH,
    };
    while let Ok(message) = messages.recv() {
        recording.take(message);
        while let Ok(message) = messages.try_recv() {
            recording.take(message);
        }
        recording.flush();
        recording.publish(publish);
    }
    recording.end(EndReason::Stopped, 0);
    recording.publish(publish);
}

struct Recording<'a> {
    settings: RecordSettings,
    shared: &'a Shared,
    folder: Option<Folder>,
    output: Option<Output>,
    /// Why nothing is written, and since when.
    failed: Option<(String, DateTime<Utc>)>,
    /// Bytes of the files before the present one.
    size: u64,
    /// The time of the newest message.
    now: DateTime<Utc>,
}

impl Recording<'_> {
    fn take(&mut self, message: Message) {
        match message {
            Message::NewFile { at, lost } => {
                self.now = at;
                self.end(if lost > 0 { EndReason::Lost } else { EndReason::Rotated }, lost);
                if let Err(why) = self.begin() {
                    self.fail(why);
                }
            }
            Message::Begin { at, policy, memory } => {
                self.now = at;
                let Some(output) = &mut self.output else { return };
                let n = output.lines;
                let written = memory_text(&memory).map_err(io::Error::other).and_then(|memory| {
                    output.write(&Written::Begin { n, tier: &policy.tier, policy: &policy, memory })
                });
                if let Err(error) = written {
                    let why = self.told(&error);
                    self.fail(why);
                }
            }
            Message::Decided(status) => {
                self.decided(&status);
                let replicas = status.observation.replicas.len() + 1;
                self.shared.waiting_replicas.fetch_sub(replicas, Ordering::Relaxed);
            }
        }
    }

    fn decided(&mut self, status: &TierStatus) {
        let at = status.decision.at;
        self.now = at;
        let Some(output) = &mut self.output else {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            if self
                .failed
                .as_ref()
                .is_some_and(|(_, since_then)| at < *since_then || since(at, *since_then) >= RETRY)
            {
                self.shared.wants_file.store(true, Ordering::Relaxed);
            }
            return;
        };
        let n = output.lines;
        let decision = serde_json::to_string(&status.decision).and_then(RawValue::from_string);
        let written = decision.map_err(io::Error::other).and_then(|decision| {
            let (tier, observation) = (&status.decision.tier, &status.observation);
            output.write(&Written::Decided { n, tier, at, observation, decision })
        });
        let (bytes, full) = (output.bytes(), self.settings.max_size / FILES);
        if let Err(error) = written {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            let why = self.told(&error);
            self.fail(why);
        } else if bytes >= 2 * full {
            // What was on its way fills it beyond its size: whatever comes until the next one is lost.
            self.end(EndReason::Lost, 0);
            self.fail("a file was full before another could begin: write a larger `maxSize`".to_owned());
        } else if bytes >= full && !std::mem::replace(&mut output.asked, true) {
            self.shared.wants_file.store(true, Ordering::Relaxed);
        }
    }

    fn begin(&mut self) -> Result<(), String> {
        let folder = match self.folder.take() {
            Some(folder) => folder,
            None => Folder::wait_for(&self.settings.path)?,
        };
        let keep = self.settings.max_size - 2 * (self.settings.max_size / FILES);
        let file = folder.begin(self.now, keep);
        self.size = folder.size_bytes();
        self.folder = Some(folder);
        let mut output = Output::new(file?);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let lost = self.shared.lost.load(Ordering::Relaxed);
        output
            .write(&Written::Record(Head { format: FORMAT, version, at: self.now, lost }))
            .map_err(|error| self.told(&error))?;
        self.output = Some(output);
        if self.failed.take().is_some() {
            tracing::info!(path = %self.settings.path.display(), "decisions are recorded again");
        }
        Ok(())
    }

    fn end(&mut self, why: EndReason, lost: u64) {
        let Some(mut output) = self.output.take() else { return };
        let n = output.lines;
        let ended = output.write(&Written::End(End { n, why, lost })).and_then(|()| output.gzip.try_finish());
        if let Err(error) = ended {
            tracing::debug!(%error, "a recording ends without its last line");
        }
    }

    fn flush(&mut self) {
        let Some(output) = &mut self.output else { return };
        if let Err(error) = output.gzip.flush() {
            self.output = None;
            let why = self.told(&error);
            self.fail(why);
        }
    }

    /// Nothing is written until a new file can be begun.
    fn fail(&mut self, why: String) {
        if self.failed.as_ref().is_none_or(|(before, _)| *before != why) {
            tracing::warn!(%why, "decisions are not recorded");
        }
        self.output = None;
        self.failed = Some((why, self.now));
    }

    fn told(&self, error: &io::Error) -> String {
        format!("{}: {error}", self.settings.path.display())
    }

    fn publish(&self, publish: &watch::Sender<RecordStatus>) {
        let size_bytes = self.size + self.output.as_ref().map_or(0, Output::bytes);
        publish.send_modify(|status| {
            status.alarm = self.failed.as_ref().map(|(why, _)| format!("decisions are not recorded: {why}"));
            status.size_bytes = size_bytes;
        });
    }
}

/// A file that is written.
struct Output {
    gzip: GzEncoder<Counted>,
    /// Lines so far, which is the number of the next one.
    lines: u64,
    /// Another file was asked for: once, as lines that wait already still come into this one.
    asked: bool,
}

impl Output {
    fn new(file: File) -> Self {
        Self {
            gzip: GzEncoder::new(Counted { file, bytes: 0 }, Compression::default()),
            lines: 0,
            asked: false,
        }
    }

    /// Writes a line, or the part of it that the disk takes.
    fn write(&mut self, line: &Written<'_>) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.gzip.write_all(&text)?;
        self.lines += 1;
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.gzip.get_ref().bytes
    }
}

/// A file that knows how much was written to it.
struct Counted {
    file: File,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
