//! The store on a thread of its own: the control loop hands over a minute and goes on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::{mpsc, oneshot, watch};

use super::HistoryPoint;
use super::store::Store;
use crate::decision::TierId;
use crate::snapshot::StoreStatus;

/// Commands that may wait. One commit a minute and some reads: a queue that is full has a disk that hangs, and more
/// memory wouldn't help.
const QUEUE: usize = 64;

/// The way to the store. Cheap to clone; the thread ends when all clones are gone or one of them stops it.
#[derive(Clone, Debug)]
pub struct HistoryHandle {
    commands: mpsc::Sender<Command>,
    status: watch::Receiver<StoreStatus>,
    /// Minutes that found the queue full since the last one that didn't.
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Command {
    Commit { now: DateTime<Utc>, points: Vec<(TierId, HistoryPoint)>, learned: Vec<(TierId, Vec<u8>)> },
    Recent { tier: TierId, from_minute: i64, reply: oneshot::Sender<Vec<HistoryPoint>> },
    Load { tier: TierId, reply: oneshot::Sender<Loaded> },
    Stop { reply: oneshot::Sender<()> },
}

/// What a tier's history holds: the snapshot of what was learned, and the points.
type Loaded = (Option<Vec<u8>>, Vec<HistoryPoint>);

impl HistoryHandle {
    /// Starts the thread and opens the store on it: in `folder`, or in memory without one.
    ///
    /// # Errors
    /// When the operating system can't start a thread.
    pub fn start(folder: Option<PathBuf>, retention: Duration, now: DateTime<Utc>) -> std::io::Result<Self> {
        let path = folder.as_ref().map(|folder| folder.display().to_string());
        let (commands, queue) = mpsc::channel(QUEUE);
        let (publish, status) = watch::channel(StoreStatus { path, alarm: None, size_bytes: 0 });
        thread::Builder::new().name("history".to_owned()).spawn(move || {
            let store = match folder {
                Some(folder) => Store::open(&folder, retention, now),
                None => Store::in_memory(now),
            };
            work(store, queue, &publish);
        })?;
        Ok(Self { commands, status, dropped: Arc::default() })
    }

    /// Hands over finished minutes and snapshots of what was learned. Never waits: where the queue is full they are
    /// dropped, and [`HistoryHandle::status`] says so.
    pub fn commit(
        &self,
        now: DateTime<Utc>,
        points: Vec<(TierId, HistoryPoint)>,
        learned: Vec<(TierId, Vec<u8>)>,
    ) {
        let taken = self.commands.try_send(Command::Commit { now, points, learned }).is_ok();
        if taken {
            self.dropped.store(0, Ordering::Relaxed);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The points of a tier from a minute on, ascending. Empty where the thread has ended.
    pub async fn recent(&self, tier: &TierId, from_minute: i64) -> Vec<HistoryPoint> {
        let tier = tier.clone();
        self.ask(|reply| Command::Recent { tier, from_minute, reply }).await.unwrap_or_default()
    }

    /// All that is kept of a tier: what was learned, and every point within the retention.
    pub async fn load(&self, tier: &TierId) -> (Option<Vec<u8>>, Vec<HistoryPoint>) {
        let tier = tier.clone();
        self.ask(|reply| Command::Load { tier, reply }).await.unwrap_or_default()
    }

    /// How the store is: path, alarm, size.
    #[must_use]
    pub fn status(&self) -> StoreStatus {
        let mut status = self.status.borrow().clone();
        let dropped = self.dropped.load(Ordering::Relaxed);
        if self.commands.is_closed() && status.alarm.is_none() {
            status.alarm = Some("the history thread has ended".to_owned());
        } else if dropped > 0 {
            status.alarm =
                Some(format!("the history doesn't keep up: {dropped} minutes in a row were not kept"));
        }
        status
    }

    /// Writes what is under way, closes the store and ends the thread. The caller bounds how long it waits.
    pub async fn flush_and_stop(&self) {
        self.ask(|reply| Command::Stop { reply }).await.unwrap_or_default();
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.ok()?;
        answer.await.ok()
    }
}

fn work(mut store: Store, mut queue: mpsc::Receiver<Command>, publish: &watch::Sender<StoreStatus>) {
    report(&store, publish);
    while let Some(command) = queue.blocking_recv() {
        match command {
            Command::Commit { now, points, learned } => store.commit(now, &points, &learned),
            Command::Recent { tier, from_minute, reply } => {
                answer(reply, store.points(&tier, from_minute, i64::MAX));
            }
            Command::Load { tier, reply } => {
                answer(reply, (store.learned(&tier), store.all_points(&tier)));
            }
            Command::Stop { reply } => {
                drop(store);
                queue.close();
                answer(reply, ());
                return;
            }
        }
        report(&store, publish);
    }
}

fn report(store: &Store, publish: &watch::Sender<StoreStatus>) {
    publish.send_modify(|status| {
        status.alarm = store.alarm();
        status.size_bytes = store.size_bytes();
    });
}

/// Whoever asked may have gone.
fn answer<T>(reply: oneshot::Sender<T>, value: T) {
    drop(reply.send(value));
}
