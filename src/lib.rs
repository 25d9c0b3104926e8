//! keda-vllm-scaler: required replicas for vLLM serving tiers, answered to KEDA.
//!
//! The way of the data is one line, without a way back:
//!
//! ```text
//! discover -> scrape -> read -> aggregate -> decide -> publish -> serve
//! sources     scrape    engines  aggregate    decision  control_   serve
//!                       exposition                      loop
//! ```
//!
//! Pure rooms (no clock, no file, no network, no async): [`units`], [`quantile`], [`supply`], [`exposition`],
//! [`engines`], [`aggregate`], [`schedule`], [`forecast`], [`decision`]. `tests/dependency_direction.rs` keeps them so.

pub mod aggregate;
pub mod backtest;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod config_watch;
pub mod control_loop;
pub mod decision;
pub mod engines;
pub mod exposition;
pub mod forecast;
pub mod history;
pub mod peers;
pub mod quantile;
pub mod record;
pub mod schedule;
pub mod scrape;
pub mod serve;
pub mod server;
pub mod simulate;
pub mod snapshot;
pub mod sources;
pub mod supervise;
pub mod supply;
pub mod telemetry;
pub mod units;
pub mod writers;

/// The generated half of KEDA's contract.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod proto {
    tonic::include_proto!("externalscaler");

    /// For gRPC reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/externalscaler.bin"));
}
