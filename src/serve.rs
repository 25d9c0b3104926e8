//! What others ask: KEDA over gRPC, probes over gRPC health, Prometheus over HTTP.
//!
//! Everything here reads one published [`crate::snapshot::Snapshot`] and nothing else: no request waits for a scrape,
//! and no two answers can contradict each other. Translation to the wire happens here and nowhere else.

mod accepting;
mod answer;
pub mod api;
mod edges;
pub mod external_scaler;
pub mod grpc;
pub mod health;
pub mod http;
pub mod metrics;
mod observed;
pub mod page;
mod streams;
pub mod words;
