//! Keeps the long-lived tasks of a process together: none may die quietly, and all end within a deadline.
//!
//! A task that returns, fails or panics before it was told to stop ends the process and is named. The first SIGTERM or
//! SIGINT stops everything in order, a second one gives up waiting. SIGHUP reloads.

use std::fmt;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

mod running;
mod signals;

use running::Running;
pub use signals::{Signal, Signals};

/// How a task ended that shouldn't have.
#[derive(Debug)]
pub enum TaskEnd {
    /// Without an error.
    Returned,
    /// With one.
    Failed(anyhow::Error),
    /// By a panic, with its message.
    Panicked(String),
}

impl fmt::Display for TaskEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Returned => f.write_str("returned before it was told to stop"),
            Self::Failed(error) => write!(f, "failed: {error:#}"),
            Self::Panicked(message) => write!(f, "panicked: {message}"),
        }
    }
}

/// Why the process ends with an error.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A task died.
    #[error("task {name} {how}")]
    TaskEnded {
        /// Which.
        name: String,
        /// How.
        how: TaskEnd,
    },
    /// Tasks were still running at the deadline and were aborted.
    #[error("tasks still running {} s after the stop: {}", .deadline.as_secs_f64(), .names.join(", "))]
    DeadlinePassed {
        /// How long they had.
        deadline: Duration,
        /// Which.
        names: Vec<String>,
    },
    /// A second signal came during the drain.
    #[error("stopped by a second {signal} while these were running: {}", .names.join(", "))]
    Aborted {
        /// The signal.
        signal: &'static str,
        /// Which.
        names: Vec<String>,
    },
}

/// Starts tasks that are watched. Cheap to clone: rooms that start tasks at run time hold one.
#[derive(Clone, Debug)]
pub struct Tasks {
    started: mpsc::UnboundedSender<Started>,
    stop: CancellationToken,
}

#[derive(Debug)]
struct Started {
    name: String,
    stop: CancellationToken,
    handle: JoinHandle<anyhow::Result<()>>,
}

impl Tasks {
    /// Cancelled when the process stops. Tasks end on it, or on a child of it.
    #[must_use]
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Starts a task that lives as long as the process.
    pub fn spawn(
        &self,
        name: impl Into<String>,
        task: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.spawn_until(name, self.stop.clone(), task);
    }

    /// Starts a task that may end once its own `stop` is cancelled: that of a tier which a reload removes.
    pub fn spawn_until(
        &self,
        name: impl Into<String>,
        stop: CancellationToken,
        task: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        let started = Started { name: name.into(), stop, handle: tokio::spawn(task) };
        if let Err(mpsc::error::SendError(late)) = self.started.send(started) {
            // The supervisor is done, and so is the process.
            late.handle.abort();
        }
    }
}

/// Watches tasks and signals.
#[derive(Debug)]
pub struct Supervisor {
    tasks: Tasks,
    started: mpsc::UnboundedReceiver<Started>,
}

impl Default for Supervisor {
    fn default() -> Self {
        Self::new()
    }
}

impl Supervisor {
    /// Without a task yet.
    #[must_use]
    pub fn new() -> Self {
        let (sender, started) = mpsc::unbounded_channel();
        Self { tasks: Tasks { started: sender, stop: CancellationToken::new() }, started }
    }

    /// Where tasks are started.
    #[must_use]
    pub fn tasks(&self) -> Tasks {
        self.tasks.clone()
    }

    /// Runs until a signal, a task's death, or until somebody cancels the stop token; then stops every task and waits
    /// for them, at most `deadline`.
    ///
    /// # Errors
    /// The first thing that went wrong: a task's death before all, since it is why the process ends.
    pub async fn run(
        mut self,
        mut signals: Signals,
        mut reload: impl FnMut() + Send,
        deadline: Duration,
    ) -> Result<(), Failure> {
        let stop = self.tasks.stop.clone();
        let mut running = Running::default();
        let death = loop {
            tokio::select! {
                () = stop.cancelled() => break None,
                Some(started) = self.started.recv() => running.add(started),
                Some(ended) = running.next() => {
                    let ended = running.remove(ended);
                    if !ended.stop.is_cancelled() {
                        tracing::error!(task = ended.name, how = %ended.how, "task ended");
                        break Some(Failure::TaskEnded { name: ended.name, how: ended.how });
                    }
                    ended.tell();
                }
                signal = signals.next() => match signal {
                    Signal::Reload => reload(),
                    Signal::Stop(signal) => {
                        tracing::info!(signal, "stopping");
                        break None;
                    }
                },
            }
        };
        stop.cancel();
        let drained = self.drain(&mut running, &mut signals, deadline).await;
        match death {
            Some(death) => Err(death),
            None => drained,
        }
    }

    async fn drain(
        &mut self,
        running: &mut Running,
        signals: &mut Signals,
        deadline: Duration,
    ) -> Result<(), Failure> {
        let out_of_time = tokio::time::sleep(deadline);
        tokio::pin!(out_of_time);
        loop {
            while let Ok(started) = self.started.try_recv() {
                running.add(started);
            }
            if running.is_empty() {
                return Ok(());
            }
            tokio::select! {
                Some(started) = self.started.recv() => running.add(started),
                Some(ended) = running.next() => running.remove(ended).tell(),
                signal = signals.next() => if let Signal::Stop(signal) = signal {
                    return Err(Failure::Aborted { signal, names: running.abort() });
                },
                () = &mut out_of_time => {
                    return Err(Failure::DeadlinePassed { deadline, names: running.abort() });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);

    async fn until_stopped(stop: CancellationToken) -> anyhow::Result<()> {
        stop.cancelled().await;
        Ok(())
    }

    fn supervised() -> (Supervisor, Tasks, CancellationToken) {
        let supervisor = Supervisor::new();
        let tasks = supervisor.tasks();
        let stop = tasks.stop_token();
        tasks.spawn("steady", until_stopped(stop.clone()));
        (supervisor, tasks, stop)
    }

    fn nobody() -> Signals {
        Signals::by_hand().1
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_returns_fails_or_panics_ends_the_process_and_is_named() {
        for (name, expected) in [
            ("returns", "task returns returned before it was told to stop"),
            ("fails", "task fails failed: no page: refused"),
            ("panics", "task panics panicked: index out of range"),
        ] {
            let (supervisor, tasks, stop) = supervised();
            tasks.spawn(name, async move {
                match name {
                    "returns" => Ok(()),
                    "fails" => Err(anyhow::anyhow!("refused").context("no page")),
                    _ => panic!("index out of range"),
                }
            });
            let failure = supervisor.run(nobody(), || {}, DEADLINE).await.unwrap_err();
            assert_eq!(failure.to_string(), expected);
            assert!(stop.is_cancelled(), "the others were told to stop");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_signal_stops_everything_in_order() {
        let (supervisor, _, _) = supervised();
        let (send, signals) = Signals::by_hand();
        send.send(Signal::Stop("SIGTERM")).await.unwrap();
        supervisor.run(signals, || {}, DEADLINE).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_hang_up_reloads_and_stops_nothing() {
        let (supervisor, _, _) = supervised();
        let (send, signals) = Signals::by_hand();
        for signal in [Signal::Reload, Signal::Reload, Signal::Stop("SIGTERM")] {
            send.send(signal).await.unwrap();
        }
        let mut reloads = 0;
        supervisor.run(signals, || reloads += 1, DEADLINE).await.unwrap();
        assert_eq!(reloads, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_doesnt_stop_is_named_at_the_deadline() {
        let (supervisor, tasks, stop) = supervised();
        tasks.spawn("stubborn", std::future::pending());
        let began = tokio::time::Instant::now();
        stop.cancel();
        let failure = supervisor.run(nobody(), || {}, DEADLINE).await.unwrap_err();
        assert_eq!(failure.to_string(), "tasks still running 10 s after the stop: stubborn");
        assert_eq!(began.elapsed(), DEADLINE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_gives_up_waiting() {
        let (supervisor, tasks, _) = supervised();
        tasks.spawn("stubborn", std::future::pending());
        let (send, signals) = Signals::by_hand();
        send.send(Signal::Stop("SIGTERM")).await.unwrap();
        send.send(Signal::Stop("SIGINT")).await.unwrap();
        let began = tokio::time::Instant::now();
        let failure = supervisor.run(signals, || {}, DEADLINE).await.unwrap_err();
        assert!(matches!(failure, Failure::Aborted { signal: "SIGINT", .. }), "{failure}");
        assert!(failure.to_string().contains("stubborn"), "{failure}");
        assert!(began.elapsed() < DEADLINE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_whose_own_stop_came_may_end() {
        let (supervisor, tasks, stop) = supervised();
        let removed = stop.child_token();
        tasks.spawn_until("scrape serving/chat", removed.clone(), until_stopped(removed.clone()));
        let run = tokio::spawn(supervisor.run(nobody(), || {}, DEADLINE));
        removed.cancel();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!run.is_finished(), "a tier was removed, nothing died");
        stop.cancel();
        run.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_task_started_after_the_end_is_aborted() {
        let (supervisor, tasks, stop) = supervised();
        stop.cancel();
        supervisor.run(nobody(), || {}, DEADLINE).await.unwrap();
        let (alive, mut dropped) = mpsc::channel::<()>(1);
        tasks.spawn("late", async move {
            let _alive = alive;
            std::future::pending().await
        });
        assert_eq!(dropped.recv().await, None, "the task was dropped");
    }
}
