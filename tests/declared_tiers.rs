//! Tiers that ScaledObjects declare: bounded, so that nobody's ScaledObjects take the memory of all.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::collections::HashMap;

use keda_vllm_scaler::clock::Clock;
use keda_vllm_scaler::config;
use keda_vllm_scaler::decision::policy::{Policy, TierId, TokenRates};
use keda_vllm_scaler::server::{self, Running, ServerOptions};
use keda_vllm_scaler::snapshot::Declare;
use tokio::sync::oneshot;

/// As `control_loop` bounds them.
const OF_A_NAMESPACE: usize = 500;

async fn start() -> Running {
    drop(rustls::crypto::ring::default_provider().install_default());
    let text = "listen: {grpc: '127.0.0.1:0', http: '127.0.0.1:0', health: '127.0.0.1:0'}\nallowMetadataTiers: true\n";
    server::start(ServerOptions {
        config: config::load(text).unwrap(),
        config_file: None,
        clock: Clock::system(),
        injected: HashMap::new(),
    })
    .await
    .unwrap()
}

/// Declares a tier as a call of KEDA's does. True when it was taken.
async fn declare(running: &Running, namespace: &str, name: &str, max: u32) -> bool {
    let rates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };
    let defaults = Policy::with_defaults(TierId::new(namespace, name), max, rates);
    let policy = Policy { floors_only: true, ..defaults };
    let (done, told) = oneshot::channel();
    running.published.declare.send(Declare { policy, warnings: Vec::new(), done }).await.unwrap();
    told.await.is_ok()
}

#[tokio::test]
async fn a_namespace_declares_no_more_than_its_share_and_shuts_out_nobody() {
    let running = start().await;
    for number in 0..OF_A_NAMESPACE {
        assert!(declare(&running, "generated", &format!("tier-{number}"), 8).await, "tier {number}");
    }
    assert!(!declare(&running, "generated", "one-more", 8).await, "beyond the share of a namespace");
    let declared = running.published.now().tiers.len();
    assert_eq!(declared, OF_A_NAMESPACE);
    assert!(declare(&running, "serving", "chat", 8).await, "another namespace has its own share");
    assert!(declare(&running, "generated", "tier-7", 8).await, "those that are there stay asked for");
    running.stop().await.unwrap();
}
