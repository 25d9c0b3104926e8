//! The end of the recording that the control loop holds. It hands over and goes on: where the writer doesn't keep up,
//! decisions are dropped, counted, and told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::{oneshot, watch};

use super::writer::{self, Message};
use crate::config::RecordSettings;
use crate::decision::{Memory, Policy};
use crate::snapshot::{RecordStatus, TierStatus};

/// Messages that may wait for the disk: 20 seconds of a thousand tiers.
const QUEUE: usize = 4096;

/// Replicas of all decisions that wait. Each takes up to a kilobyte, so that a disk that hangs costs 50 MB, not more.
const MOST_WAITING_REPLICAS: usize = 50_000;

/// How long the end waits for the last lines.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// What the loop and the writer both know.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The file is full, or another try is due: a new one may begin.
    pub(super) wants_file: AtomicBool,
    /// Replicas of the decisions that wait.
    pub(super) waiting_replicas: AtomicUsize,
    /// Decisions that are in no file.
    pub(super) lost: AtomicU64,
}

/// How far a tier is in the recording.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The file that knows its state; 0 for none.
    file: u64,
    /// The policy that it knows.
    policy: Option<Arc<Policy>>,
}

impl Recorded {
    /// Its memory was changed by something else than a decision: the next one begins with it anew.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

/// Writes decisions down, or nothing where nothing is configured.
#[derive(Debug, Default)]
pub struct Recorder {
    settings: Option<RecordSettings>,
    writer: Option<Writer>,
    /// Why there is no writer although one is asked for.
    no_writer: Option<String>,
    /// Counted over all writers of this process, so that no tier takes an old file for the new one.
    file: u64,
}

#[derive(Debug)]
struct Writer {
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
    status: watch::Receiver<RecordStatus>,
    ended: oneshot::Receiver<()>,
    /// Decisions dropped since the last file that could be begun; while there are some nothing else is handed over.
    gap: u64,
}

impl Recorder {
    /// Begins to record, where that is configured.
    #[must_use]
    pub fn new(settings: Option<RecordSettings>) -> Self {
        let mut recorder = Self::default();
        recorder.start(settings);
        recorder
    }

    /// Takes a new configuration: recording may be switched on and off while the scaler runs.
    pub fn configure(&mut self, settings: Option<&RecordSettings>) {
        if self.settings.as_ref() == settings {
            return;
        }
        // The old writer ends by itself once it has written what waits.
        self.writer = None;
        self.start(settings.cloned());
    }

    fn start(&mut self, settings: Option<RecordSettings>) {
        self.settings.clone_from(&settings);
        self.no_writer = None;
        let Some(settings) = settings else { return };
        let (queue, messages) = sync_channel(QUEUE);
        let shared = Arc::new(Shared::default());
        shared.wants_file.store(true, Ordering::Relaxed);
        let (publish, status) = watch::channel(RecordStatus {
            path: Some(settings.path.display().to_string()),
            ..RecordStatus::default()
        });
        let (end, ended) = oneshot::channel();
        let with_writer = Arc::clone(&shared);
        let spawned = thread::Builder::new().name("record".to_owned()).spawn(move || {
            writer::run(settings, &messages, &with_writer, &publish);
            if end.send(()).is_err() {
                tracing::debug!("nobody waits for the end of the recording");
            }
        });
        match spawned {
            Ok(_) => self.writer = Some(Writer { queue, shared, status, ended, gap: 0 }),
            Err(error) => self.no_writer = Some(format!("the thread that records doesn't start: {error}")),
        }
    }

    /// How the recording is: path, alarm, size, what was lost.
    #[must_use]
    pub fn status(&self) -> RecordStatus {
        let Some(writer) = &self.writer else {
            let path = self.settings.as_ref().map(|settings| settings.path.display().to_string());
            return RecordStatus { path, alarm: self.no_writer.clone(), ..RecordStatus::default() };
        };
        let mut status = writer.status.borrow().clone();
        status.lost = writer.shared.lost.load(Ordering::Relaxed);
        if status.alarm.is_none() && writer.gap > 0 {
            status.alarm = Some("the disk doesn't keep up: decisions are not recorded".to_owned());
        }
        status
    }

    /// Before a decision: must the tier's state be written first? Then [`Recorder::decided`] wants a copy of its memory
    /// as it is now.
    pub fn begins(&mut self, recorded: &Recorded, policy: &Arc<Policy>, at: DateTime<Utc>) -> bool {
        let Some(writer) = &mut self.writer else { return false };
        if writer.gap > 0 || writer.shared.wants_file.swap(false, Ordering::Relaxed) {
            match writer.queue.try_send(Message::NewFile { at, lost: writer.gap }) {
                Ok(()) => {
                    self.file += 1;
                    writer.gap = 0;
                }
                // Asked for again with the next decision.
                Err(_) => writer.shared.wants_file.store(true, Ordering::Relaxed),
            }
        }
        recorded.file != self.file || recorded.policy.as_ref().is_none_or(|known| !Arc::ptr_eq(known, policy))
    }

    /// After a decision: writes it, after the state that it was made from where [`Recorder::begins`] said so.
    pub fn decided(&mut self, recorded: &mut Recorded, before: Option<Memory>, status: &Arc<TierStatus>) {
        let Some(writer) = &mut self.writer else { return };
        let replicas = status.observation.replicas.len() + 1;
        if writer.gap > 0 || !writer.has_room_for(replicas) {
            return writer.lose();
        }
        if let Some(memory) = before {
            let policy = Arc::clone(&status.policy);
            let begin = Message::Begin { at: status.decision.at, policy, memory: Box::new(memory) };
            if writer.queue.try_send(begin).is_err() {
                return writer.lose();
            }
            *recorded = Recorded { file: self.file, policy: Some(Arc::clone(&status.policy)) };
        }
        writer.shared.waiting_replicas.fetch_add(replicas, Ordering::Relaxed);
        if writer.queue.try_send(Message::Decided(Arc::clone(status))).is_err() {
            writer.shared.waiting_replicas.fetch_sub(replicas, Ordering::Relaxed);
            writer.lose();
        }
    }

    /// Writes what waits and ends, or gives up on a disk that hangs.
    pub async fn stop(self) {
        let Some(Writer { queue, ended, .. }) = self.writer else { return };
        drop(queue);
        if tokio::time::timeout(STOP_PATIENCE, ended).await.is_err() {
            tracing::warn!("the recording did not end in time");
        }
    }
}

impl Writer {
    fn has_room_for(&self, replicas: usize) -> bool {
        let waiting = self.shared.waiting_replicas.load(Ordering::Relaxed);
        waiting == 0 || waiting + replicas <= MOST_WAITING_REPLICAS
    }

    fn lose(&mut self) {
        self.gap += 1;
        self.shared.lost.fetch_add(1, Ordering::Relaxed);
    }
}
