//! Replicas behind a name: a headless Service, or any host.
//!
//! The name is resolved again and again, without a cache of our own. What is published is always a whole answer: where a
//! part of it is missing (a time-out, SERVFAIL, an answer cut for size) it is [`Discovered::Unknown`], because a replica
//! that is left out is load that is left out. An empty answer and NXDOMAIN are unknown too, never zero replicas.

use std::net::IpAddr;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::config::{DnsPort, Scheme, SourceSettings};
use crate::supply::{Discovered, Phase, Target};

mod lookup;

pub use lookup::{LookupError, NameServers};

/// A DNS source: [`SourceSettings::Dns`] as a type of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsSettings {
    /// A name, or an IP address. For SRV the name of the records (`_http._tcp.vllm.serving.svc`).
    pub host: String,
    /// Where the port comes from.
    pub port: DnsPort,
    /// Of the metrics page.
    pub scheme: Scheme,
    /// Of the metrics page.
    pub path: String,
    /// Clock time between two resolutions.
    pub resolve_every: Duration,
}

impl DnsSettings {
    /// The DNS settings of a source; None for another kind of source.
    #[must_use]
    pub fn of(source: &SourceSettings) -> Option<Self> {
        let SourceSettings::Dns { host, port, scheme, path, resolve_every } = source else {
            return None;
        };
        Some(Self {
            host: host.clone(),
            port: *port,
            scheme: *scheme,
            path: path.clone(),
            resolve_every: *resolve_every,
        })
    }
}

/// Resolves with the system's name servers and hosts file until `stop`, and publishes each change.
pub async fn run(
    settings: DnsSettings,
    clock: Clock,
    published: watch::Sender<Discovered>,
    stop: CancellationToken,
) {
    run_with(NameServers::System, settings, clock, published, stop).await;
}

/// The same with name servers of the caller's choice.
pub async fn run_with(
    name_servers: NameServers,
    settings: DnsSettings,
    clock: Clock,
    published: watch::Sender<Discovered>,
    stop: CancellationToken,
) {
    loop {
        let discovered = tokio::select! {
            () = stop.cancelled() => return,
            discovered = resolve(&name_servers, &settings) => discovered,
        };
        publish(&settings, &published, discovered);
        tokio::select! {
            () = stop.cancelled() => return,
            () = published.closed() => return,
            () = clock.sleep(settings.resolve_every) => {}
        }
    }
}

/// Resolves once.
pub async fn resolve(name_servers: &NameServers, settings: &DnsSettings) -> Discovered {
    let endpoints = match settings.port {
        DnsPort::Number(port) => lookup::addresses(name_servers, &settings.host)
            .await
            .map(|addresses| addresses.into_iter().map(|ip| Endpoint { ip, port, host: None }).collect()),
        DnsPort::Srv => lookup::services(name_servers, &settings.host).await,
    };
    match endpoints {
        Ok(endpoints) => targets(settings, endpoints),
        Err(error) => Discovered::Unknown { why: format!("{}: {error}", settings.host) },
    }
}

/// One address of an answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Endpoint {
    ip: IpAddr,
    port: u16,
    /// The SRV record's target.
    host: Option<String>,
}

fn targets(settings: &DnsSettings, mut endpoints: Vec<Endpoint>) -> Discovered {
    endpoints.sort();
    endpoints.dedup_by_key(|endpoint| (endpoint.ip, endpoint.port));
    if endpoints.is_empty() {
        return Discovered::Unknown { why: format!("{}: an empty answer", settings.host) };
    }
    let targets = endpoints.into_iter().map(|endpoint| target(settings, endpoint)).collect();
    Discovered::Targets { targets, authoritative: false, current: None, scale: None }
}

fn target(settings: &DnsSettings, endpoint: Endpoint) -> Target {
    let id = match endpoint.ip {
        IpAddr::V4(ip) => format!("{ip}:{}", endpoint.port),
        IpAddr::V6(ip) => format!("[{ip}]:{}", endpoint.port),
    };
    let scheme = match settings.scheme {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    let path = settings.path.trim_start_matches('/');
    Target {
        url: Some(format!("{scheme}://{id}/{path}")),
        name: endpoint.host.map_or_else(|| id.clone(), |host| format!("{host}:{}", endpoint.port)),
        id,
        phase: Phase::Listed,
        since: None,
        start: None,
    }
}

fn publish(settings: &DnsSettings, published: &watch::Sender<Discovered>, discovered: Discovered) {
    if *published.borrow() == discovered {
        return;
    }
    match &discovered {
        Discovered::Unknown { why } => warn!(host = %settings.host, %why, "replicas unknown"),
        Discovered::Targets { targets, .. } => {
            info!(host = %settings.host, replicas = targets.len(), "replicas resolved");
        }
    }
    published.send_replace(discovered);
}
