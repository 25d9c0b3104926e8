//! The whole server, put together: store, control loop, gRPC, health, HTTP, and the watch on the configuration file.
//!
//! The ports are bound before anything runs, so a busy port is an error at once and not a silent half server.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::config_watch;
use crate::control_loop::{self, ConfigUpdate, Inputs};
use crate::decision::TierId;
use crate::history::HistoryHandle;
use crate::peers;
use crate::serve::grpc::{self, Drained};
use crate::serve::health::{HealthListener, Readiness};
use crate::serve::{http, metrics};
use crate::snapshot::Published;
use crate::supervise::{Signals, Supervisor};
use crate::supply::Discovered;
use crate::telemetry::Counters;
use crate::writers;
use crate::writers::lease::{Identity, Leadership};

/// What a stop may take beyond the drain of the gRPC port: tasks that end after it, and the store's last minute.
const STOP_AFTER_DRAIN: Duration = Duration::from_secs(5);

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

/// A server that runs. Dropping it stops nothing: call [`Running::run`] or [`Running::stop`].
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
    drain: Duration,
    history: HistoryHandle,
}

/// Starts a server.
///
/// # Errors
/// When a port can't be bound.
pub async fn start(options: ServerOptions) -> anyhow::Result<Running> {
    let ServerOptions { config, config_file, clock, injected } = options;
    let supervisor = Supervisor::new();
    let tasks = supervisor.tasks();
    let stop = tasks.stop_token();
    let (listen, drain, reflection) = (config.listen, config.grpc.drain_deadline, config.grpc.reflection);

    let page = http::PagePort::bind(listen.http).await.context("listen.http")?;
    let http_addr = page.local_addr();
    let counters = Counters::default();
    let cluster_settings = config.kubernetes.clone().unwrap_or_default();
    let writes = config.uses_kubernetes() && cluster_settings.events;
    let cluster = Cluster::new(cluster_settings.clone());
    let history = HistoryHandle::start(config.store.clone(), config.history_retention, clock.now())
        .context("the store's thread doesn't start")?;
    let (published, inputs, control) = control_loop::start(control_loop::Options {
        config,
        config_file: config_file
            .as_ref()
            .map_or_else(|| "(in memory)".to_owned(), |f| f.display().to_string()),
        clock,
        history: history.clone(),
        injected,
        cluster: cluster.clone(),
        counters: counters.clone(),
        stop: stop.clone(),
    })
    .await;
    let readiness = Readiness::new(&published, stop.clone());
    let scaler = grpc::Server::bind(
        listen.grpc,
        grpc::Options {
            published: published.clone(),
            clock,
            counters: counters.clone(),
            readiness: readiness.clone(),
            reflection,
            drain,
        },
    )
    .await
    .context("listen.grpc")?;
    let health = HealthListener::bind(listen.health, readiness).await.context("listen.health")?;
    let (grpc_addr, health_addr) = (scaler.local_addr(), health.local_addr());

    let Inputs { updates, learned } = inputs;
    tasks.spawn("control loop", async move {
        control.await;
        Ok(())
    });
    let (hangups, hangups_out) = mpsc::channel(1);
    if let Some(file) = config_file {
        let watch = config_watch::run(file, hangups_out, updates.clone(), stop.clone());
        tasks.spawn("configuration watch", async move {
            watch.await;
            Ok(())
        });
    }
    // Probes are answered until KEDA's port has drained, so that they see NOT_SERVING and not a closed port.
    let drained = CancellationToken::new();
    let after_drain = drained.clone();
    let draining = stop.clone();
    tasks.spawn("grpc", async move {
        let ended = scaler.run(draining).await;
        after_drain.cancel();
        anyhow::ensure!(
            ended? == Drained::Completely,
            "calls were still open after {}s",
            drain.as_secs_f64()
        );
        Ok(())
    });
    tasks.spawn("health", async move {
        health.run(drained).await?;
        Ok(())
    });
    if writes {
        let identity = Identity::from_environment(&cluster_settings.lease, http_addr);
        let (leadership, who_leads) = watch::channel(Leadership::default());
        let peers =
            peers::run(who_leads, published.snapshot.clone(), learned, counters.clone(), stop.clone());
        let writers = writers::run(cluster, identity, published.clone(), clock, leadership, stop.clone());
        tasks.spawn("writers", async move {
            tokio::join!(writers, peers);
            Ok(())
        });
    }
    let own_metrics = {
        let published = published.clone();
        Arc::new(move || metrics::render(&published.now(), &counters))
    };
    let router = http::router(published.clone(), own_metrics, clock);
    tasks.spawn("http", async move {
        // A page that somebody reloads must not keep the process: what is open at the stop is cut with it.
        tokio::select! {
            never = page.serve(router) => match never {},
            () = stop.cancelled() => Ok(()),
        }
    });
    info!(grpc = %grpc_addr, http = %http_addr, health = %health_addr, "listening");
    Ok(Running { grpc_addr, http_addr, health_addr, published, updates, hangups, supervisor, drain, history })
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

    /// Runs until a signal, or until a task ends that must not; then stops in order.
    ///
    /// The order: not ready, streams end with OK, calls drain, health goes, the store writes its last minute.
    ///
    /// # Errors
    /// Names the task that ended, or what had to be cut off at its deadline.
    pub async fn run(self, signals: Signals) -> anyhow::Result<()> {
        let Self { supervisor, hangups, drain, history, .. } = self;
        let reload = move || {
            if hangups.try_send(()).is_err() {
                info!("a reload is on its way already, or there is no file to read again");
            }
        };
        let ended = supervisor.run(signals, reload, drain + STOP_AFTER_DRAIN).await;
        let flushed = tokio::time::timeout(FLUSH_PATIENCE, history.flush_and_stop()).await;
        ended?;
        flushed.context("the store did not write its last minute in time")
    }

    /// Stops in the same order.
    ///
    /// # Errors
    /// As [`Running::run`].
    pub async fn stop(self) -> anyhow::Result<()> {
        self.supervisor.tasks().stop_token().cancel();
        self.run(Signals::by_hand().1).await
    }
}
