//! KEDA's listener: the transport, its limits, and the order of shutdown.
//!
//! KEDA's client pools one connection per address for all its ScaledObjects, sets no deadline, no keepalive and no
//! retry. So the server pings, allows many streams, and drains by itself:
//!
//! 1. `shutdown` is cancelled: readiness falls, the listener closes, connections get a GOAWAY, streams end with OK.
//! 2. Calls in flight are answered.
//! 3. What is still open at the drain's deadline is left to the end of the process. tonic alone would wait for ever.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tonic::transport::Server as TonicServer;

use super::accepting::{Accepting, HTTP2_PREFACE, Limits, WhenFull};
use super::external_scaler::Scaler;
use super::health::{HealthService, Readiness};
use super::observed::Observed;
use crate::clock::Clock;
use crate::proto;
use crate::proto::external_scaler_server::ExternalScalerServer;
use crate::snapshot::Published;
use crate::telemetry::Counters;

/// Streams on one connection, which KEDA shares between all ScaledObjects: two long-lived ones per push trigger, plus
/// the unary calls. Three times the 20,000 of a very large cluster; without a number h2's clients assume 100 until the
/// first SETTINGS frame, and hyper's own default would be 200.
const MAX_CONCURRENT_STREAMS: u32 = 65_536;

/// Bytes of requests that one connection may have on their way: a few hundred each, for every stream that is allowed
/// at once. h2 also takes half of it as its budget for small DATA frames that nobody has read yet, and closes the
/// connection with `ENHANCE_YOUR_CALM` above that (h2 0.4.16 and later): with hyper's 1 MiB a burst of 3,500 small
/// requests on a busy machine cost every stream of the connection.
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// Pings on an idle connection: KEDA's client sends none, and a dead peer would keep its streams for ever.
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// How long a ping may stay unanswered.
pub(super) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Largest request: a ScaledObject's metadata, which etcd limits to 1.5 MiB with everything around it.
const MAX_REQUEST_BYTES: usize = 2 * 1024 * 1024;

/// Connections at a time. KEDA's operator opens one for each address and set of TLS settings (since 2.20; one per address
/// before). A file holds up to 1000 tiers; if each had a TLS set-up of its own, and the operator had just been restarted
/// while pings still keep the connections of the old one, that would be 2000. The usual figure is 1.
const CONNECTIONS: usize = 2048;

/// The default of [`Options::drain`]; a pod's `terminationGracePeriodSeconds` must be longer.
pub const DRAIN_DEADLINE: Duration = Duration::from_secs(10);

/// Why a listener can't run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port can't be had.
    #[error("can't listen on {address}")]
    Bind {
        /// Which.
        address: SocketAddr,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The transport failed.
    #[error("grpc transport")]
    Transport(#[from] tonic::transport::Error),
    /// The description for reflection can't be read.
    #[error("grpc reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// How a shutdown went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Every call and stream has ended.
    Completely,
    /// Something was still open at the deadline.
    DeadlinePassed,
}

/// What the server is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is answered.
    pub published: Published,
    /// The clock that decisions were made by.
    pub clock: Clock,
    /// Where calls are counted.
    pub counters: Counters,
    /// Shared with the other listeners.
    pub readiness: Readiness,
    /// Let clients ask for the proto (`grpcurl` needs it).
    pub reflection: bool,
    /// How long a shutdown may take: [`DRAIN_DEADLINE`].
    pub drain: Duration,
}

/// KEDA's listener, bound.
#[derive(Debug)]
pub struct Server {
    accepting: Accepting,
    options: Options,
}

impl Server {
    /// Binds the port; nothing is answered before [`Server::run`].
    ///
    /// # Errors
    /// When the port can't be bound.
    pub async fn bind(address: SocketAddr, options: Options) -> Result<Self, ServeError> {
        let limits =
            Limits { connections: CONNECTIONS, when_full: WhenFull::Wait, first_bytes: Some(HTTP2_PREFACE) };
        Ok(Self { accepting: Accepting::bind(address, limits).await?, options })
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.accepting.local_addr()
    }

    /// Answers until `shutdown`, then drains.
    ///
    /// # Errors
    /// When the transport fails.
    pub async fn run(self, shutdown: CancellationToken) -> Result<Drained, ServeError> {
        let Options { published, clock, counters, readiness, reflection, drain } = self.options;
        let scaler = Scaler::new(published, clock, counters.clone(), shutdown.clone());
        let service = ExternalScalerServer::new(Observed::new(scaler.clone(), counters))
            .max_decoding_message_size(MAX_REQUEST_BYTES);

        let mut router = TonicServer::builder()
            .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .add_service(service)
            .add_service(HealthService::server(readiness, shutdown.clone()));
        if reflection {
            // Two names of one service: grpcurl and Postman differ in which they try.
            router = router.add_service(described().build_v1()?).add_service(described().build_v1alpha()?);
        }
        let serving = router
            .serve_with_incoming_shutdown(self.accepting.connections(), shutdown.clone().cancelled_owned());

        tokio::select! {
            drained = drain_within(drain, shutdown, serving) => drained,
            () = scaler.wake_streams() => unreachable!("it never returns"),
        }
    }
}

fn described() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// Runs a server whose own shutdown is under way from `shutdown` on, and gives up at the deadline.
pub(super) async fn drain_within(
    deadline: Duration,
    shutdown: CancellationToken,
    serving: impl Future<Output = Result<(), tonic::transport::Error>>,
) -> Result<Drained, ServeError> {
    tokio::select! {
        served = serving => {
            served?;
            Ok(Drained::Completely)
        }
        () = async {
            shutdown.cancelled().await;
            tokio::time::sleep(deadline).await;
        } => {
            tracing::warn!(deadline_seconds = deadline.as_secs_f64(), "connections still open after the drain");
            Ok(Drained::DeadlinePassed)
        }
    }
}
