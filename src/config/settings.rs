//! What the sources and the scrape are told: plain values, checked by the configuration. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Where a tier's replicas are found.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceSettings {
    /// A list of metrics pages.
    Fixed {
        /// Their URLs.
        urls: Vec<String>,
    },
    /// A name, resolved again and again.
    Dns {
        /// A headless Service's name, a host, an IP address; for SRV the service's name (`_http._tcp.vllm.serving`).
        host: String,
        /// Where the port comes from.
        port: DnsPort,
        /// Of the metrics page.
        scheme: Scheme,
        /// Of the metrics page, with its leading slash.
        path: String,
        /// Clock time between two resolutions.
        resolve_every: Duration,
    },
    /// Handed in by the caller (demo, tests); can't be written in the file.
    Injected,
}

/// Where the port of a DNS source comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsPort {
    /// The same for all replicas.
    Number(u16),
    /// SRV records.
    Srv,
}

/// Scheme of a metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plain.
    Http,
    /// TLS.
    Https,
}

/// How pages are fetched.
#[derive(Clone, Debug, PartialEq)]
pub struct ScrapeSettings {
    /// Clock time between two rounds.
    pub interval: Duration,
    /// Real time for a whole page.
    pub timeout: Duration,
    /// Real time for a connection, TLS included.
    pub connect_timeout: Duration,
    /// Clock time after which a page says nothing any more.
    pub stale_after: Duration,
    /// Clock time over which rates are formed.
    pub rate_window: Duration,
    /// Fetches at the same time.
    pub concurrency: usize,
    /// Bytes on the wire.
    pub max_body_bytes: usize,
    /// Bytes after gunzip.
    pub max_expanded_bytes: usize,
    /// Certificates.
    pub tls: TlsSettings,
    /// A file whose content is sent as bearer token.
    pub bearer_token_file: Option<PathBuf>,
}

/// Certificates of a connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TlsSettings {
    /// PEM bundle that is trusted, and nothing else; the system's roots without it.
    pub ca_file: Option<PathBuf>,
    /// PEM client certificate, with its chain.
    pub client_cert_file: Option<PathBuf>,
    /// PEM key of the client certificate.
    pub client_key_file: Option<PathBuf>,
}

/// A gateway that holds requests while a tier is at zero, read by metric name.
#[derive(Clone, Debug, PartialEq)]
pub struct ActivatorSettings {
    /// Of its metrics page.
    pub url: String,
    /// A gauge of queued requests, or a counter of arrivals (`_total`).
    pub metric: String,
    /// Labels that a series must have; the matching series are summed.
    pub labels: BTreeMap<String, String>,
    /// Clock time between two readings while no replica is ready.
    pub interval: Duration,
    /// Real time for a reading.
    pub timeout: Duration,
    /// Certificates.
    pub tls: TlsSettings,
    /// A file whose content is sent as bearer token.
    pub bearer_token_file: Option<PathBuf>,
}
