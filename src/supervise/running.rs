//! The tasks that run, and how each of them ends.

use std::any::Any;
use std::collections::BTreeMap;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::task::{AbortHandle, JoinError};
use tokio_util::sync::CancellationToken;

use super::{Started, TaskEnd};

/// The tasks that run, by a number of ours, since names may repeat.
#[derive(Default)]
pub(super) struct Running {
    named: BTreeMap<u64, Named>,
    handles: FuturesUnordered<Ending>,
    next_number: u64,
}

type Ending = std::pin::Pin<Box<dyn Future<Output = (u64, Result<anyhow::Result<()>, JoinError>)> + Send>>;

struct Named {
    name: String,
    stop: CancellationToken,
    abort: AbortHandle,
}

pub(super) struct Ended {
    pub(super) name: String,
    pub(super) stop: CancellationToken,
    pub(super) how: TaskEnd,
}

impl Ended {
    /// The end of a task that was told to stop: worth a line only when it went wrong.
    pub(super) fn tell(&self) {
        match &self.how {
            TaskEnd::Returned => tracing::debug!(task = self.name, "task stopped"),
            how => tracing::warn!(task = self.name, %how, "task stopped badly"),
        }
    }
}

impl Running {
    pub(super) fn add(&mut self, started: Started) {
        let number = self.next_number;
        self.next_number += 1;
        let Started { name, stop, handle } = started;
        self.named.insert(number, Named { name, stop, abort: handle.abort_handle() });
        self.handles.push(Box::pin(async move { (number, handle.await) }));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// None while nothing runs: the arm of a `select!` is then off.
    pub(super) async fn next(&mut self) -> Option<(u64, Result<anyhow::Result<()>, JoinError>)> {
        self.handles.next().await
    }

    pub(super) fn remove(&mut self, (number, result): (u64, Result<anyhow::Result<()>, JoinError>)) -> Ended {
        let how = match result {
            Ok(Ok(())) => TaskEnd::Returned,
            Ok(Err(error)) => TaskEnd::Failed(error),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => TaskEnd::Panicked(message_of(&*panic)),
                Err(cancelled) => TaskEnd::Failed(cancelled.into()),
            },
        };
        match self.named.remove(&number) {
            Some(Named { name, stop, .. }) => Ended { name, stop, how },
            // Can't be: numbers are ours. A nameless death still ends the process.
            None => Ended { name: format!("number {number}"), stop: CancellationToken::new(), how },
        }
    }

    pub(super) fn abort(&mut self) -> Vec<String> {
        let named = std::mem::take(&mut self.named);
        named
            .into_values()
            .map(|task| {
                task.abort.abort();
                task.name
            })
            .collect()
    }
}

/// What a panic said.
fn message_of(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|message| (*message).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}
