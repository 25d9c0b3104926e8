//! gRPC health (`grpc.health.v1`), on KEDA's port and on a plaintext port of its own.
//!
//! `liveness` is SERVING as long as anything answers. `readiness`, the whole server (empty name) and KEDA's service are
//! SERVING from the first round under a valid configuration until the shutdown begins, and never fall in between: a
//! scaler that nobody can ask holds its replicas at whatever they are.
//!
//! The service is our own because tonic-health's says SERVING for the empty name from construction, and because its
//! watches never end, which a drain would have to wait for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::codegen::BoxStream;
use tonic::server::NamedService;
use tonic::{Request, Response, Status, async_trait};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::accepting::{Accepting, HTTP2_PREFACE, Limits, WhenFull};
use super::grpc::{Drained, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, ServeError, drain_within};
use super::observed::Observed;
use crate::proto::external_scaler_server::ExternalScalerServer;
use crate::snapshot::{Published, Snapshot};

/// Drain of the health listener: probes are single short calls.
const DRAIN_DEADLINE: Duration = Duration::from_secs(1);

/// Connections at a time: a kubelet opens one for each probe and closes it; the rest is for people with `grpcurl`.
const CONNECTIONS: usize = 32;

/// Is the server ready? Shared by every listener, so that they agree.
#[derive(Clone, Debug)]
pub struct Readiness {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    stopping: CancellationToken,
    /// Once ready, ready until the shutdown, whatever a later snapshot says.
    was_ready: Arc<AtomicBool>,
}

impl Readiness {
    /// Ready from the first snapshot that says so until `stopping` is cancelled.
    #[must_use]
    pub fn new(published: &Published, stopping: CancellationToken) -> Self {
        Self { snapshots: published.snapshot.clone(), stopping, was_ready: Arc::new(AtomicBool::new(false)) }
    }

    /// Ready now?
    #[must_use]
    pub fn is_ready(&self) -> bool {
        if self.stopping.is_cancelled() {
            return false;
        }
        if self.was_ready.load(Ordering::Relaxed) {
            return true;
        }
        let ready = self.snapshots.borrow().ready;
        if ready {
            self.was_ready.store(true, Ordering::Relaxed);
        }
        ready
    }

    /// Waits until it may have changed.
    async fn changed(&mut self) {
        let stopping = self.stopping.clone();
        if stopping.is_cancelled() {
            std::future::pending::<()>().await;
        }
        tokio::select! {
            () = stopping.cancelled() => {}
            changed = self.snapshots.changed() => {
                if changed.is_err() {
                    stopping.cancelled().await;
                }
            }
        }
    }
}

/// The health service of one listener.
#[derive(Clone, Debug)]
pub(super) struct HealthService {
    readiness: Readiness,
    end: CancellationToken,
}

impl HealthService {
    /// Watches end when `end` is cancelled.
    pub(super) fn server(readiness: Readiness, end: CancellationToken) -> HealthServer<Self> {
        HealthServer::new(Self { readiness, end })
    }
}

/// None for a service that isn't here.
fn status_of(service: &str, readiness: &Readiness) -> Option<ServingStatus> {
    if service == "liveness" {
        return Some(ServingStatus::Serving);
    }
    let keda = <ExternalScalerServer<Observed<()>> as NamedService>::NAME;
    if !matches!(service, "" | "readiness") && service != keda {
        return None;
    }
    Some(if readiness.is_ready() { ServingStatus::Serving } else { ServingStatus::NotServing })
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status as i32 }
}

#[async_trait]
impl Health for HealthService {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        status_of(&request.get_ref().service, &self.readiness)
            .map(|status| Response::new(response(status)))
            .ok_or_else(|| Status::not_found("unknown service"))
    }

    type WatchStream = BoxStream<HealthCheckResponse>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let watching = Watching {
            service: request.into_inner().service,
            readiness: self.readiness.clone(),
            end: self.end.clone(),
            told: None,
        };
        Ok(Response::new(Box::pin(stream::unfold(watching, Watching::next))))
    }
}

struct Watching {
    service: String,
    readiness: Readiness,
    end: CancellationToken,
    told: Option<ServingStatus>,
}

impl Watching {
    async fn next(mut self) -> Option<(Result<HealthCheckResponse, Status>, Self)> {
        loop {
            let status = status_of(&self.service, &self.readiness).unwrap_or(ServingStatus::ServiceUnknown);
            if self.told.replace(status) != Some(status) {
                return Some((Ok(response(status)), self));
            }
            tokio::select! {
                biased;
                // Before the end, so that a watch hears NOT_SERVING where both come at once.
                () = self.readiness.changed() => {}
                () = self.end.cancelled() => return None,
            }
        }
    }
}

/// The plaintext listener for probes: a kubelet speaks no TLS and shows no certificate.
#[derive(Debug)]
pub struct HealthListener {
    accepting: Accepting,
    readiness: Readiness,
}

impl HealthListener {
    /// Binds the port; nothing is answered before [`HealthListener::run`].
    ///
    /// # Errors
    /// When the port can't be bound.
    pub async fn bind(address: SocketAddr, readiness: Readiness) -> Result<Self, ServeError> {
        let limits = Limits {
            connections: CONNECTIONS,
            when_full: WhenFull::CloseOldest,
            first_bytes: Some(HTTP2_PREFACE),
        };
        Ok(Self { accepting: Accepting::bind(address, limits).await?, readiness })
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.accepting.local_addr()
    }

    /// Answers probes until `end`. That should come after KEDA's port has drained, so that probes see `NOT_SERVING` and
    /// not a closed port meanwhile.
    ///
    /// # Errors
    /// When the transport fails.
    pub async fn run(self, end: CancellationToken) -> Result<Drained, ServeError> {
        let service = HealthService::server(self.readiness, end.clone());
        let serving = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .add_service(service)
            .serve_with_incoming_shutdown(self.accepting.connections(), end.clone().cancelled_owned());
        drain_within(DRAIN_DEADLINE, end, serving).await
    }
}
