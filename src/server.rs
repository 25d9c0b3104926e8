//! The whole server, put together: store, control loop, gRPC, health, HTTP, and the watch on the configuration file.
//!
//! The ports are bound before anything runs, so a busy port is an error at once and not a silent half server.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::clock::Clock;
use crate::config::Config;
use crate::config_watch;
use crate::control_loop::{self, ConfigUpdate};
use crate::decision::TierId;
use crate::history::HistoryHandle;
use crate::serve;
use crate::snapshot::Published;
use crate::supervise::Supervisor;
use crate::supply::Discovered;
use crate::telemetry::Counters;

/// How long the store may take to write its last minute at the end.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

/// What a server is made of.
#[derive(Debug)]
pub struct ServerOptions {
    /// The configuration.
    pub config: Config,
    /// Its file: watched and read again on SIGHUP. None for a configuration that was made in memory.
    pub config_file: Option<PathBuf>,
    /// The clock.
    pub clock: Clock,
    /// Replicas for tiers whose source is `Injected`.
    pub injected: HashMap<TierId, watch::Receiver<Discovered>>,
}

/// A server that runs.
#[derive(Debug)]
pub struct Running {
    /// Where KEDA calls.
    pub grpc_addr: SocketAddr,
    /// Where people and Prometheus look.
    pub http_addr: SocketAddr,
    /// Where the kubelet probes.
    pub health_addr: SocketAddr,
    /// What the control loop publishes.
    pub published: Published,
    updates: mpsc::Sender<ConfigUpdate>,
    hangups: mpsc::Sender<()>,
    supervisor: Supervisor,
    control_stop: CancellationToken,
    history: HistoryHandle,
}

/// Starts a server.
///
/// # Errors
/// When a port can't be bound.
pub async fn start(options: ServerOptions) -> anyhow::Result<Running> {
    let ServerOptions { config, config_file, clock, injected } = options;
    let listen = config.listen;
    let http = bind(listen.http, "listen.http").await?;
    let grpc = bind(listen.grpc, "listen.grpc").await?;
    let health = bind(listen.health, "listen.health").await?;
    let (http_addr, grpc_addr, health_addr) = (http.local_addr()?, grpc.local_addr()?, health.local_addr()?);

    let history = HistoryHandle::start(config.store.clone(), clock.now());
    let counters = Arc::new(Counters::default());
    let mut supervisor = Supervisor::default();
    // Its own token: the servers drain first, answering from the last snapshot, and the loop ends after them.
    let control_stop = CancellationToken::new();
    let grpc_settings = config.grpc.clone();
    let (published, updates, control) = control_loop::start(control_loop::Options {
        config,
        config_file: config_file.as_ref().map_or_else(|| "(in memory)".to_owned(), |f| f.display().to_string()),
        clock,
        history: history.clone(),
        injected,
        counters: Arc::clone(&counters),
        stop: control_stop.clone(),
    })
    .await;
    supervisor.spawn("control loop", control);

    let (hangups, hangups_out) = mpsc::channel(1);
    if let Some(file) = config_file {
        let watch = config_watch::run(file, hangups_out, updates.clone(), supervisor.stopping());
        supervisor.spawn("configuration watch", watch);
    }

    let stop = supervisor.stopping();
    let scaler = serve::grpc::serve(grpc, grpc_settings, published.clone(), Arc::clone(&counters), stop.clone());
    supervisor.spawn("grpc", scaler);
    supervisor.spawn("health", serve::health::serve(health, published.clone(), stop.clone()));
    let page = {
        let (published, counters) = (published.clone(), Arc::clone(&counters));
        serve::http::router(
            published.clone(),
            Arc::new(move || serve::metrics::render(&published.now(), &counters)),
        )
    };
    supervisor.spawn("http", serve::http::serve(http, page, stop));
    info!(grpc = %grpc_addr, http = %http_addr, health = %health_addr, "listening");
    Ok(Running {
        grpc_addr,
        http_addr,
        health_addr,
        published,
        updates,
        hangups,
        supervisor,
        control_stop,
        history,
    })
}

async fn bind(addr: SocketAddr, key: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(addr).await.with_context(|| format!("{key}: can't listen on {addr}"))
}

impl Running {
    /// Puts another configuration into force; returns when its tiers are decided by it. Ports stay as they are.
    ///
    /// # Errors
    /// When the control loop has ended.
    pub async fn reload(&self, config: Config) -> anyhow::Result<()> {
        let (done, applied) = oneshot::channel();
        self.updates
            .send(ConfigUpdate::Accepted(Box::new(config), Some(done)))
            .await
            .context("the control loop has ended")?;
        applied.await.context("the control loop has ended")
    }

    /// A way to say that the file should be read again (SIGHUP).
    #[must_use]
    pub fn hangups(&self) -> mpsc::Sender<()> {
        self.hangups.clone()
    }

    /// Waits until a task ends that should not have.
    ///
    /// # Errors
    /// Always: names the task.
    pub async fn failed(&mut self) -> anyhow::Result<()> {
        self.supervisor.failed().await
    }

    /// Ends: not ready, streams end with OK, calls drain, then the loop, then the store.
    ///
    /// # Errors
    /// When something had to be cut off at its deadline.
    pub async fn stop(self) -> anyhow::Result<()> {
        let Self { mut supervisor, control_stop, history, .. } = self;
        supervisor.drain(&["control loop"]).await?;
        control_stop.cancel();
        supervisor.drain(&[]).await?;
        tokio::time::timeout(FLUSH_PATIENCE, history.flush_and_stop())
            .await
            .context("the store did not write its last minute in time")
    }
}
