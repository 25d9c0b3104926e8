//! Names to addresses, whole answers only.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use hickory_resolver::config::{ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::{Hosts, Resolver, TokioResolver};

use super::Endpoint;

/// Real time for a whole resolution, search domains and SRV targets included: the source must say "unknown" while an
/// answer that old would still be of use. A pod's resolv.conf has four search domains and 5 s for each try.
const RESOLVE_WITHIN: Duration = Duration::from_secs(10);

/// Real time for one question to one server, where resolv.conf says more.
const ASK_WITHIN: Duration = Duration::from_secs(2);

/// SRV targets that are looked up at the same time, where the answer doesn't bring their addresses along.
const LOOKUPS_AT_ONCE: usize = 16;

/// Who is asked.
#[derive(Clone, Debug)]
pub enum NameServers {
    /// `/etc/resolv.conf` and `/etc/hosts`, read anew for each resolution.
    System,
    /// These, without a hosts file.
    Given {
        /// Servers and search domains.
        config: ResolverConfig,
        /// Time-outs and tries.
        options: Box<ResolverOpts>,
    },
}

/// Why a name has no addresses. None of them means zero replicas.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// NXDOMAIN.
    #[error("no such name")]
    NoSuchName,
    /// The name exists and has no records of the kind that was asked for.
    #[error("an empty answer")]
    Empty,
    /// Nobody answered in time.
    #[error("no answer in time")]
    Timeout,
    /// Not a name that DNS can carry.
    #[error("not a host name: {0}")]
    BadName(String),
    /// SERVFAIL, no resolv.conf, a network error.
    #[error("{0}")]
    Failed(String),
}

impl From<NetError> for LookupError {
    fn from(error: NetError) -> Self {
        if error.is_nx_domain() {
            return Self::NoSuchName;
        }
        if error.is_no_records_found() {
            return Self::Empty;
        }
        match error {
            NetError::Timeout => Self::Timeout,
            other => Self::Failed(other.to_string()),
        }
    }
}

/// The addresses of a host: a literal, else the hosts file, else A records, else AAAA records.
///
/// AAAA is asked only where the name has no A record. A dual-stack Service has both for each pod, and a replica that is
/// counted twice is worse than one that is reached by its other address.
pub(super) async fn addresses(name_servers: &NameServers, host: &str) -> Result<Vec<IpAddr>, LookupError> {
    let literal = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if let Ok(ip) = literal.parse::<IpAddr>() {
        return Ok(vec![ip]);
    }
    let name = parse(host)?;
    within_bounds(async {
        let listed = from_hosts_file(name_servers, &name);
        if !listed.is_empty() {
            return Ok(listed);
        }
        let asking = Asking::new(name_servers)?;
        let mut outcome = Err(LookupError::NoSuchName);
        for candidate in asking.candidates(&name) {
            outcome = asking.addresses(&candidate).await;
            if !says_nobody_is_there(&outcome) {
                break;
            }
        }
        outcome
    })
    .await
}

/// The endpoints of a service's SRV records. Priority and weight say whom a client should prefer: every record is a
/// replica.
pub(super) async fn services(
    name_servers: &NameServers,
    service: &str,
) -> Result<Vec<Endpoint>, LookupError> {
    let name = parse(service)?;
    within_bounds(async {
        let asking = Asking::new(name_servers)?;
        let mut outcome = Err(LookupError::NoSuchName);
        for candidate in asking.candidates(&name) {
            outcome = asking.endpoints(&candidate).await;
            if !says_nobody_is_there(&outcome) {
                break;
            }
        }
        outcome
    })
    .await
}

fn says_nobody_is_there<T>(outcome: &Result<T, LookupError>) -> bool {
    matches!(outcome, Err(LookupError::NoSuchName | LookupError::Empty))
}

/// One resolution's resolver. It is made anew each time, so that a changed resolv.conf is followed and nothing is cached.
struct Asking {
    resolver: TokioResolver,
    search: Vec<Name>,
    ndots: usize,
}

impl Asking {
    fn new(name_servers: &NameServers) -> Result<Self, LookupError> {
        let (config, mut options) = match name_servers {
            NameServers::System => hickory_resolver::system_conf::read_system_conf()
                .map_err(|error| LookupError::Failed(format!("resolv.conf: {error}")))?,
            NameServers::Given { config, options } => (config.clone(), (**options).clone()),
        };
        options.timeout = options.timeout.min(ASK_WITHIN);
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        let (search, ndots) = (config.search().to_vec(), options.ndots);
        let resolver = Resolver::builder_with_config(config, TokioRuntimeProvider::default())
            .with_options(options)
            .build()?;
        Ok(Self { resolver, search, ndots })
    }

    /// The names that a name may stand for, in the order of resolv.conf(5). The search is ours because the resolver's own
    /// goes on to the next domain after a failure, and would answer for a tier with whatever lives there.
    fn candidates(&self, name: &Name) -> Vec<Name> {
        let mut absolute = name.clone();
        absolute.set_fqdn(true);
        if name.is_fqdn() || name.is_localhost() {
            return vec![absolute];
        }
        let searched = self.search.iter().filter_map(|domain| name.clone().append_domain(domain).ok());
        let dots = usize::from(name.num_labels()).saturating_sub(1);
        let mut candidates = Vec::with_capacity(self.search.len() + 1);
        if dots >= self.ndots {
            candidates.push(absolute);
            candidates.extend(searched);
        } else {
            candidates.extend(searched);
            candidates.push(absolute);
        }
        candidates
    }

    async fn endpoints(&self, name: &Name) -> Result<Vec<Endpoint>, LookupError> {
        let answer = self.resolver.lookup(name.clone(), RecordType::SRV).await?;
        let records: Vec<(Name, u16)> = answer.answers().iter().filter_map(srv_target).collect();
        if records.is_empty() {
            return Err(LookupError::Empty);
        }
        let known = addresses_by_name(answer.additionals());
        let found: Vec<Vec<Endpoint>> = stream::iter(records)
            .map(|(host, port)| self.endpoints_of(&known, host, port))
            .buffer_unordered(LOOKUPS_AT_ONCE)
            .try_collect()
            .await?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn endpoints_of(
        &self,
        known: &BTreeMap<Name, Vec<IpAddr>>,
        host: Name,
        port: u16,
    ) -> Result<Vec<Endpoint>, LookupError> {
        let addresses = match known.get(&host) {
            Some(addresses) => Ok(addresses.clone()),
            None => self.addresses(&host).await,
        };
        // A pod that went between the two answers. Any other failure would leave a living replica out.
        let addresses = if says_nobody_is_there(&addresses) { Vec::new() } else { addresses? };
        let host = host.to_utf8();
        let host = host.trim_end_matches('.');
        Ok(addresses.into_iter().map(|ip| Endpoint { ip, port, host: Some(host.to_owned()) }).collect())
    }

    async fn addresses(&self, name: &Name) -> Result<Vec<IpAddr>, LookupError> {
        match self.records(name, RecordType::A).await {
            // NXDOMAIN holds for every type; an empty answer for this one alone.
            Err(LookupError::Empty) => self.records(name, RecordType::AAAA).await,
            other => other,
        }
    }

    async fn records(&self, name: &Name, kind: RecordType) -> Result<Vec<IpAddr>, LookupError> {
        let answer = self.resolver.lookup(name.clone(), kind).await?;
        // The answer also holds the CNAMEs that led to it.
        let addresses: Vec<IpAddr> = answer.answers().iter().filter_map(address).collect();
        if addresses.is_empty() { Err(LookupError::Empty) } else { Ok(addresses) }
    }
}

fn from_hosts_file(name_servers: &NameServers, name: &Name) -> Vec<IpAddr> {
    if !matches!(name_servers, NameServers::System) {
        return Vec::new();
    }
    let hosts = Hosts::from_system().unwrap_or_default();
    [RecordType::A, RecordType::AAAA]
        .into_iter()
        .filter_map(|kind| hosts.lookup_static_host(&Query::query(name.clone(), kind)))
        .map(|lookup| lookup.answers().iter().filter_map(address).collect::<Vec<_>>())
        .find(|addresses| !addresses.is_empty())
        .unwrap_or_default()
}

fn parse(host: &str) -> Result<Name, LookupError> {
    Name::from_utf8(host).map_err(|error| LookupError::BadName(error.to_string()))
}

async fn within_bounds<T>(work: impl Future<Output = Result<T, LookupError>>) -> Result<T, LookupError> {
    tokio::time::timeout(RESOLVE_WITHIN, work).await.unwrap_or(Err(LookupError::Timeout))
}

fn address(record: &Record) -> Option<IpAddr> {
    record.data.ip_addr()
}

fn srv_target(record: &Record) -> Option<(Name, u16)> {
    match &record.data {
        // The root as target says that the service is decidedly not available (RFC 2782).
        RData::SRV(srv) if !srv.target.is_root() => Some((srv.target.clone(), srv.port)),
        _ => None,
    }
}

/// Addresses that came along with an SRV answer; of a host with both families the IPv4 ones.
fn addresses_by_name(records: &[Record]) -> BTreeMap<Name, Vec<IpAddr>> {
    let mut by_name: BTreeMap<Name, Vec<IpAddr>> = BTreeMap::new();
    for record in records {
        if let Some(ip) = address(record) {
            by_name.entry(record.name.clone()).or_default().push(ip);
        }
    }
    for addresses in by_name.values_mut() {
        if addresses.iter().any(IpAddr::is_ipv4) {
            addresses.retain(IpAddr::is_ipv4);
        }
    }
    by_name
}
