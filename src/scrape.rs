//! Fetches the metrics pages of a tier's replicas.
//!
//! [`Client`] makes one bounded GET: in time, in bytes on the wire, in bytes after gunzip; never through a proxy, never
//! after a redirect. [`rounds`] runs it over all replicas of a tier, once an interval, and streams what it finds. A
//! failure is always an error with its class, never an empty page: nothing here can make a replica look idle.

mod body;
mod client;
mod credentials;
mod error;
pub mod rounds;
mod server_name;

pub use client::{Client, ClientSettings};
pub use credentials::ClientError;
pub use error::ScrapeError;

/// A metrics page as it was served, expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The bytes.
    pub body: Vec<u8>,
    /// `Content-Type`, which chooses between the two text formats. Its version is never a reason to refuse a page:
    /// vLLM 0.32 says `text/plain; version=1.0.0`.
    pub content_type: Option<String>,
}
