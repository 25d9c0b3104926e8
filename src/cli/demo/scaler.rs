//! The real server inside the demo: the one place of the demo that knows how it is put together.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use tokio::sync::watch;

use super::file;
use super::options::TierOptions;
use crate::clock::Clock;
use crate::config::{self, Config, SourceSettings};
use crate::server::{self, Running, ServerOptions};
use crate::snapshot::TierStatus;
use crate::supply::Discovered;

/// The server of the demo's tier.
#[derive(Debug)]
pub(super) struct Scaler {
    running: Running,
    router_url: String,
}

impl Scaler {
    /// Starts the server on the demo's file, with the pods handed in.
    pub(super) async fn start(
        options: &TierOptions,
        router_url: String,
        clock: Clock,
        discovered: watch::Receiver<Discovered>,
    ) -> anyhow::Result<Self> {
        let config = config(options, &router_url)?;
        let injected = HashMap::from([(file::tier(), discovered)]);
        let running = server::start(ServerOptions { config, config_file: None, clock, injected }).await?;
        Ok(Self { running, router_url })
    }

    pub(super) fn grpc(&self) -> SocketAddr {
        self.running.grpc_addr
    }

    pub(super) fn http(&self) -> SocketAddr {
        self.running.http_addr
    }

    /// What the tier is answered, and why; None before the first decision.
    pub(super) fn tier(&self) -> Option<Arc<TierStatus>> {
        self.running.published.now().tiers.get(&file::tier()).cloned()
    }

    /// Puts changed options into force, as an edited file would.
    pub(super) async fn reload(&self, options: &TierOptions) -> anyhow::Result<()> {
        self.running.reload(config(options, &self.router_url)?).await
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.running.stop().await
    }
}

fn config(options: &TierOptions, router_url: &str) -> anyhow::Result<Config> {
    let mut config = config::load(&file::text(options, router_url))
        .map_err(|problems| anyhow::anyhow!("{problems}"))
        .context("the options make no valid configuration")?;
    for tier in &mut config.tiers {
        tier.source = SourceSettings::Injected;
    }
    Ok(config)
}
