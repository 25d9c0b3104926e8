//! Ports that can't be held shut: how many connections each may have, and how long one may stay silent.
//!
//! File descriptors are shared by all ports and the scrapes. A port without a bound gives whoever opens connections on it,
//! and sends nothing, the power to close the others; so each port has its own bound, and KEDA's is far above the pages'.
//!
//! A connection is closed when it hasn't said [`Limits::first_bytes`] in time, and, on ports whose visitors come and go
//! ([`WhenFull::CloseOldest`]), when its place is needed.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::{Connected, TcpConnectInfo};

use super::grpc::ServeError;

/// Pause after a failed accept: out of file descriptors is not over at once, and the loop must not spin meanwhile.
const PAUSE_AFTER_ACCEPT_ERROR: Duration = Duration::from_millis(100);

/// What a port bears.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at a time.
    pub(super) connections: usize,
    /// What becomes of one more.
    pub(super) when_full: WhenFull,
    /// What a connection must have sent, and how soon. None where the protocol above sees to that.
    pub(super) first_bytes: Option<FirstBytes>,
}

/// What becomes of a connection that comes when all places are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenFull {
    /// It waits in the kernel's queue until a place is free: those that are served are long-lived and worth more.
    Wait,
    /// It takes the place of the connection that has been open longest. Requests here are short, so the one that came last
    /// is answered whoever holds the other places.
    CloseOldest,
}

/// The least that a peer sends of its own accord, and within what time.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstBytes {
    pub(super) bytes: usize,
    pub(super) within: Duration,
}

/// RFC 9113, section 3.4: a client begins with 24 octets. What comes after them is watched over by pings.
///
/// KEDA's client sends them as soon as it is connected; ten seconds is more than a lost packet or two.
pub(super) const HTTP2_PREFACE: FirstBytes = FirstBytes { bytes: 24, within: Duration::from_secs(10) };

/// A bound port.
#[derive(Debug)]
pub(super) struct Accepting {
    listener: TcpListener,
    address: SocketAddr,
    limits: Limits,
    open: Arc<Open>,
    next_number: u64,
    full: bool,
    failing: bool,
}

impl Accepting {
    pub(super) async fn bind(address: SocketAddr, limits: Limits) -> Result<Self, ServeError> {
        let refused = |error| ServeError::Bind { address, error };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let open = Arc::new(Open { connections: Mutex::default(), room: Notify::new() });
        Ok(Self { listener, address, limits, open, next_number: 0, full: false, failing: false })
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The connections as they come.
    pub(super) fn connections(self) -> impl Stream<Item = io::Result<Connection>> {
        stream::unfold(self, |mut accepting| async move {
            let connection = accepting.next().await;
            Some((Ok(connection), accepting))
        })
    }

    /// The next connection. An accept that fails is told once, and tried again after a pause. Nothing is lost when this is
    /// dropped before it is ready.
    pub(super) async fn next(&mut self) -> Connection {
        loop {
            if self.limits.when_full == WhenFull::Wait {
                self.wait_for_room().await;
            }
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    if std::mem::take(&mut self.failing) {
                        tracing::info!(port = %self.address, "connections accepted again");
                    }
                    match stream.set_nodelay(true) {
                        Ok(()) => return self.admit(stream),
                        Err(error) => tracing::debug!(%error, "connection closed before it was served"),
                    }
                }
                Err(error) if is_of_the_peer(&error) => {
                    tracing::debug!(%error, "connection closed before it was accepted");
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.failing, true) {
                        tracing::warn!(port = %self.address, %error, "connections can't be accepted");
                    }
                    sleep(PAUSE_AFTER_ACCEPT_ERROR).await;
                }
            }
        }
    }

    async fn wait_for_room(&mut self) {
        while self.open.count() >= self.limits.connections {
            self.tell_full(true);
            self.open.room.notified().await;
        }
        self.tell_full(false);
    }

    fn admit(&mut self, stream: TcpStream) -> Connection {
        if self.limits.when_full == WhenFull::CloseOldest {
            let full = self.open.count() >= self.limits.connections;
            if full {
                self.open.close_oldest();
            }
            self.tell_full(full);
        }
        let (number, closed) = (self.next_number, CancellationToken::new());
        self.next_number += 1;
        self.open.lock().insert(number, closed.clone());
        Connection {
            stream,
            first_bytes: self
                .limits
                .first_bytes
                .map(|first| Missing { bytes: first.bytes, deadline: Box::pin(sleep(first.within)) }),
            closed: Box::pin(closed.cancelled_owned()),
            _place: Place { number, open: Arc::clone(&self.open) },
        }
    }

    fn tell_full(&mut self, full: bool) {
        if std::mem::replace(&mut self.full, full) == full {
            return;
        }
        let (port, limit) = (self.address, self.limits.connections);
        if full {
            tracing::warn!(%port, limit, "as many connections as this port takes");
        } else {
            tracing::info!(%port, limit, "room for connections again");
        }
    }
}

/// Errors of one connection that was gone before it was taken: nothing is wrong with the port.
fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

/// The connections of a port, by number: the smallest is the oldest.
#[derive(Debug)]
struct Open {
    connections: Mutex<BTreeMap<u64, CancellationToken>>,
    room: Notify,
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, CancellationToken>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) -> usize {
        self.lock().len()
    }

    fn close_oldest(&self) {
        let oldest = self.lock().pop_first();
        if let Some((_, close)) = oldest {
            close.cancel();
        }
    }
}

/// Frees a connection's place when it goes.
#[derive(Debug)]
struct Place {
    number: u64,
    open: Arc<Open>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.lock().remove(&self.number);
        self.open.room.notify_one();
    }
}

/// What a connection still has to say before the deadline.
#[derive(Debug)]
struct Missing {
    bytes: usize,
    deadline: Pin<Box<Sleep>>,
}

/// An accepted connection, which gives its place back when it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    first_bytes: Option<Missing>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    _place: Place,
}

impl Connection {
    /// Is it still wanted? Also where the task learns, while it waits for the peer, that it isn't any more.
    fn still_open(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.closed.as_mut().poll(context).is_ready() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "its place was needed"));
        }
        let Some(missing) = &mut self.first_bytes else {
            return Ok(());
        };
        if missing.deadline.as_mut().poll(context).is_ready() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "connected and said nothing"));
        }
        Ok(())
    }

    fn heard(&mut self, bytes: usize) {
        if let Some(missing) = &mut self.first_bytes {
            missing.bytes = missing.bytes.saturating_sub(bytes);
            if missing.bytes == 0 {
                self.first_bytes = None;
            }
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.still_open(context)?;
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.heard(buffer.filled().len() - before);
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.still_open(context)?;
        Pin::new(&mut self.stream).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.still_open(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

#[cfg(test)]
mod tests;
