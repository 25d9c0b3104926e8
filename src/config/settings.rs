//! A configuration as the rest of the program uses it: every value checked, every default filled in.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::problem::Problem;
use crate::decision::policy::{Policy, TierId};
use crate::schedule::Window;

/// A whole configuration. Made by [`load`](super::load).
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where to listen.
    pub listen: Listen,
    /// How to answer KEDA.
    pub grpc: GrpcSettings,
    /// The folder of the demand history and of what is learned; without it both end with the process.
    pub store: Option<PathBuf>,
    /// How long a minute of demand history is kept.
    pub history_retention: Duration,
    /// Where decisions are recorded, if they are.
    pub record: Option<RecordSettings>,
    /// The cluster of `kubernetes` sources, where the file says something of it.
    pub kubernetes: Option<ClusterSettings>,
    /// May a ScaledObject's metadata declare a tier of its own?
    pub allow_metadata_tiers: bool,
    /// The tiers, in the order of the file; their names are unique.
    pub tiers: Vec<TierSettings>,
    /// Certificates, keys and tokens that the file names. They are looked for when they are used, not here.
    pub files: Vec<FileReference>,
    /// Where the floors of `tiers` are written, those of `defaults` once.
    pub floors: Vec<FloorReference>,
    /// What is legal but probably wrong.
    pub warnings: Vec<Problem>,
}

/// The three listeners. No two are the same, unless their port is 0 (the system chooses).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// KEDA's external scaler.
    pub grpc: SocketAddr,
    /// The page, the API and our own metrics.
    pub http: SocketAddr,
    /// The kubelet's gRPC health probe, always without TLS.
    pub health: SocketAddr,
}

/// How to answer KEDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrpcSettings {
    /// Offer gRPC reflection, for `grpcurl`.
    pub reflection: bool,
    /// How long a shutdown waits for calls and streams to end.
    pub drain_deadline: Duration,
}

/// Where decisions are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSettings {
    /// A folder that this process alone writes.
    pub path: PathBuf,
    /// Bytes of all its files together.
    pub max_size: u64,
}

/// A tier of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct TierSettings {
    /// What the decision needs.
    pub policy: Policy,
    /// Who the replicas are.
    pub source: SourceSettings,
    /// How their pages are read.
    pub scrape: ScrapeSettings,
    /// The queue in front of the tier, which can tell idle from unknown when no replica is there.
    pub activator: Option<ActivatorSettings>,
    /// The `model_name` to count; a page that shows several models is an error without it.
    pub model: Option<String>,
}

impl TierSettings {
    /// A tier that a ScaledObject's metadata declared. With a cluster it watches the pods of that ScaledObject's target;
    /// without one it has no source of load.
    #[must_use]
    pub fn declared(policy: Policy, with_cluster: bool) -> Self {
        let scrape = ScrapeSettings::default();
        let source = if with_cluster {
            SourceSettings::Kubernetes(PodSettings::default())
        } else {
            SourceSettings::Injected
        };
        Self { policy, source, scrape, activator: None, model: None }
    }
}

/// Who the replicas of a tier are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceSettings {
    /// A list that never changes.
    Fixed {
        /// Metrics pages; at least one, no two alike.
        urls: Vec<String>,
    },
    /// A name that is resolved again and again.
    Dns {
        /// Without scheme and port.
        host: String,
        /// Where the page is served.
        port: DnsPort,
        /// Of the page.
        scheme: Scheme,
        /// Of the page.
        path: String,
        /// Between two look-ups.
        resolve_every: Duration,
    },
    /// The pods of a scale target.
    Kubernetes(PodSettings),
    /// Handed in by the demo or a test. Not to be had in a file.
    Injected,
}

/// Which cluster, and what is written to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Instead of the pod's own service account, or of `$KUBECONFIG`.
    pub kubeconfig: Option<PathBuf>,
    /// Of the kubeconfig.
    pub context: Option<String>,
    /// Write Events.
    pub events: bool,
    /// The name of the Lease that equal scalers share.
    pub lease: String,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self { kubeconfig: None, context: None, events: true, lease: "keda-vllm-scaler".to_owned() }
    }
}

/// The pods of a tier, and where their pages are. [`Default`] is what a file without keys gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSettings {
    /// What is scaled; None takes it from the ScaledObject that asks for the tier.
    pub target: Option<ScaleTarget>,
    /// Of the page.
    pub port: PodPort,
    /// Of the page; None takes the pod's annotation, else `/metrics`.
    pub path: Option<String>,
    /// Of the page.
    pub scheme: Scheme,
    /// How long a pod may be without a node before it is blocked.
    pub node_wait: Duration,
}

impl Default for PodSettings {
    fn default() -> Self {
        Self {
            target: None,
            port: PodPort::Auto,
            path: None,
            scheme: Scheme::Http,
            node_wait: Duration::from_secs(600),
        }
    }
}

/// A scale target in the tier's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleTarget {
    /// `apps/v1`.
    pub api_version: String,
    /// `Deployment`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for ScaleTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// Which port of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodPort {
    /// As the pod itself says: see the reference of `port`.
    Auto,
    /// This one.
    Number(u16),
    /// The container port of this name.
    Name(String),
}

/// Where the port of a replica comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsPort {
    /// The same for all: A and AAAA records.
    Number(u16),
    /// From SRV records.
    Srv,
}

/// How a page is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plaintext.
    Http,
    /// TLS.
    Https,
}

impl Scheme {
    /// As it stands in a URL.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// How the pages of a tier are read. [`Default`] is what a file without a `scrape` section gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeSettings {
    /// Between two rounds.
    pub interval: Duration,
    /// For one page, from the connection to the last byte.
    pub timeout: Duration,
    /// For the connection alone; at most `timeout`.
    pub connect_timeout: Duration,
    /// A page older than this is no longer known; above `interval` + `timeout`.
    pub stale_after: Duration,
    /// Over which counters become rates; at least two intervals.
    pub rate_window: Duration,
    /// Pages fetched at a time.
    pub concurrency: usize,
    /// Bytes on the wire.
    pub max_body_bytes: usize,
    /// Bytes after decompression.
    pub max_expanded_bytes: usize,
    /// For https pages.
    pub tls: TlsSettings,
    /// A file whose content is sent as `Authorization: Bearer`; read anew when it changes.
    pub bearer_token_file: Option<PathBuf>,
}

/// Files for TLS. A client certificate always comes with its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// PEM certificates that are trusted instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM certificate chain that is shown.
    pub client_cert_file: Option<PathBuf>,
    /// PEM key of that certificate.
    pub client_key_file: Option<PathBuf>,
    /// The name that the page's certificate must hold instead of the URL's host. Never without `ca_file`.
    pub server_name: Option<String>,
}

/// The queue in front of a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivatorSettings {
    /// The page with the metric.
    pub url: String,
    /// Its name; the samples that match are summed.
    pub metric: String,
    /// Labels that a sample must have.
    pub labels: BTreeMap<String, String>,
    /// Between two reads while no replica is ready.
    pub interval: Duration,
    /// For one read.
    pub timeout: Duration,
    /// For an https page.
    pub tls: TlsSettings,
    /// A file whose content is sent as `Authorization: Bearer`.
    pub bearer_token_file: Option<PathBuf>,
}

/// A file that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReference {
    /// The key's path.
    pub path: String,
    /// The key's line.
    pub line: usize,
    /// As written; relative ones count from the working directory.
    pub file: PathBuf,
}

/// A floor of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct FloorReference {
    /// Its path.
    pub path: String,
    /// Its line.
    pub line: usize,
    /// When it holds.
    pub window: Window,
}

/// What a new configuration changes, for a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Equal in every setting: they keep their tasks and their memory.
    pub unchanged: Vec<TierId>,
    /// The same name with other settings: tasks begin anew, memory stays.
    pub changed: Vec<TierId>,
    /// New names.
    pub added: Vec<TierId>,
    /// Names that are gone: their streams end cleanly.
    pub removed: Vec<TierId>,
    /// Sections outside the tiers that only a restart can bring into effect.
    pub restart_needed: Vec<&'static str>,
}

impl Config {
    /// A tier by its name.
    #[must_use]
    pub fn tier(&self, id: &TierId) -> Option<&TierSettings> {
        self.tiers.iter().find(|tier| tier.policy.tier == *id)
    }

    /// Is there anything to do with a cluster?
    #[must_use]
    pub fn uses_kubernetes(&self) -> bool {
        let watches = |tier: &TierSettings| matches!(tier.source, SourceSettings::Kubernetes(_));
        self.kubernetes.is_some() || self.tiers.iter().any(watches)
    }

    /// What this configuration changes against the one in effect.
    #[must_use]
    pub fn changes_from(&self, old: &Config) -> Changes {
        let mut before: HashMap<&TierId, &TierSettings> =
            old.tiers.iter().map(|tier| (&tier.policy.tier, tier)).collect();
        let mut changes = Changes::default();
        for tier in &self.tiers {
            let id = tier.policy.tier.clone();
            match before.remove(&id) {
                None => changes.added.push(id),
                Some(same) if same == tier => changes.unchanged.push(id),
                Some(_) => changes.changed.push(id),
            }
        }
        changes.removed = before.into_keys().cloned().collect();
        changes.removed.sort();
        for (section, differs) in [
            ("listen", self.listen != old.listen),
            ("grpc", self.grpc != old.grpc),
            ("kubernetes", self.kubernetes != old.kubernetes),
            ("store", self.store != old.store || self.history_retention != old.history_retention),
        ] {
            if differs {
                changes.restart_needed.push(section);
            }
        }
        changes
    }
}
