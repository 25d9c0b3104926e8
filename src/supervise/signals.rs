//! The signals of a process, or of a test.

use std::io;

use tokio::signal::unix;
use tokio::sync::mpsc;

/// Signals that wait to be handled. More than anybody sends; a further one changes nothing.
const WAITING_SIGNALS: usize = 8;

/// What the outside may ask of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// End: the first drains, the second aborts.
    Stop(&'static str),
    /// Read the configuration again.
    Reload,
}

/// Where signals come from.
#[derive(Debug)]
pub struct Signals(Source);

#[derive(Debug)]
enum Source {
    Process { terminate: unix::Signal, interrupt: unix::Signal, hang_up: unix::Signal },
    Channel(mpsc::Receiver<Signal>),
}

impl Signals {
    /// SIGTERM and SIGINT stop, SIGHUP reloads.
    ///
    /// # Errors
    /// When a handler can't be installed.
    pub fn of_the_process() -> io::Result<Self> {
        Ok(Self(Source::Process {
            terminate: unix::signal(unix::SignalKind::terminate())?,
            interrupt: unix::signal(unix::SignalKind::interrupt())?,
            hang_up: unix::signal(unix::SignalKind::hangup())?,
        }))
    }

    /// Signals sent by this program itself. Dropping the sender sends nothing.
    #[must_use]
    pub fn by_hand() -> (mpsc::Sender<Signal>, Self) {
        let (sender, receiver) = mpsc::channel(WAITING_SIGNALS);
        (sender, Self(Source::Channel(receiver)))
    }

    /// The next signal; waits for ever when there can be none.
    pub async fn next(&mut self) -> Signal {
        let signal = match &mut self.0 {
            Source::Process { terminate, interrupt, hang_up } => tokio::select! {
                got = terminate.recv() => got.map(|()| Signal::Stop("SIGTERM")),
                got = interrupt.recv() => got.map(|()| Signal::Stop("SIGINT")),
                got = hang_up.recv() => got.map(|()| Signal::Reload),
            },
            Source::Channel(receiver) => receiver.recv().await,
        };
        match signal {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }
}
