//! The whole server in this process.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "shared by test files, each of which uses a part of it"
)]

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use keda_vllm_scaler::clock::Clock;
use keda_vllm_scaler::config;
use keda_vllm_scaler::server::{self, Running, ServerOptions};
use keda_vllm_scaler::snapshot::Snapshot;

/// Only a failing test waits so long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server with this configuration, which it watches.
pub async fn start(file: &Path) -> Running {
    drop(rustls::crypto::ring::default_provider().install_default());
    server::start(ServerOptions {
        config: config::load_file(file).unwrap(),
        config_file: Some(file.to_owned()),
        clock: Clock::system(),
        injected: HashMap::new(),
    })
    .await
    .unwrap()
}

/// Waits for a snapshot of which this holds.
pub async fn until<T>(running: &Running, what: &str, mut of: impl FnMut(&Snapshot) -> Option<T>) -> T {
    let mut snapshots = running.published.snapshot.clone();
    let found = async {
        loop {
            if let Some(found) = of(&snapshots.borrow_and_update()) {
                return found;
            }
            snapshots.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("never: {what}"))
}
