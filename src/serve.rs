//! What others ask: KEDA over gRPC, people and Prometheus over HTTP. Everybody reads the one published snapshot.

pub mod api;
pub mod http;
pub mod page;
pub mod words;
