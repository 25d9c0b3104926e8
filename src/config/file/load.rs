//! The keys that say where a tier's load comes from: the cluster, the sources, the reading of pages, the activator.

use std::time::Duration;

use super::{DAY, FLAG, HOUR, MINUTE, SECOND, span};
use crate::config::shape::{Key, Kind, Scalar};

/// Replicas in a fixed list.
const MAX_FIXED: usize = 2_000;

/// The cluster.
pub(in crate::config) const CLUSTER: &[Key] = &[
    Key::optional("kubeconfig", Kind::Scalar(Scalar::File), "Instead of the pod's own service account."),
    Key::optional(
        "context",
        Kind::Scalar(Scalar::Text { most: 253 }),
        "Of the kubeconfig; absent, its current one.",
    ),
    Key::with_default(
        "events",
        FLAG,
        "true",
        "Writes Kubernetes Events on the ScaledObjects: of several scalers the holder of the Lease does. `false` writes nothing to the cluster, the Lease included: for a dry run.",
    ),
    Key::with_default(
        "lease",
        Scalar::ObjectName,
        "keda-vllm-scaler",
        "The Lease of those who write, in the scaler's own namespace: of the scalers that share it one writes, and the others take over what that one has learned.",
    ),
];

pub(in crate::config) const SOURCE: &[Key] = &[
    Key::optional(
        "kubernetes",
        Kind::Section(PODS),
        "The pods of a scale target, watched. The only source that can tell zero from unknown.",
    ),
    Key::optional(
        "dns",
        Kind::Section(DNS),
        "A headless Service or any name with several addresses, A and AAAA.",
    ),
    Key::optional("fixed", Kind::Section(FIXED), "A list that never changes."),
];

/// Sources that the design knows and this version doesn't have yet.
pub(in crate::config) const LATER_SOURCES: &[&str] = &["prometheus"];

pub(in crate::config) const PODS: &[Key] = &[
    Key::optional(
        "target",
        Kind::Section(SCALE_TARGET),
        "What is scaled; absent, the `scaleTargetRef` of the ScaledObject that asks for the tier.",
    ),
    Key::derived(
        "port",
        Kind::Scalar(Scalar::PodPort),
        "the annotation `prometheus.io/port`, else the container port named `metrics` or `http`, else the only one, else 8000",
        "Of the metrics page: a number, or the name of a container's port.",
    ),
    Key::derived(
        "path",
        Kind::Scalar(Scalar::UrlPath),
        "the annotation `prometheus.io/path`, else /metrics",
        "Of the metrics page.",
    ),
    Key::with_default("scheme", Scalar::Word(&["http", "https"]), "http", "Of the metrics page."),
    Key::with_default(
        "nodeWait",
        span(SECOND, DAY),
        "10m",
        "How long a pod may be without a node before it counts as blocked instead of starting. Longer than a node takes to come.",
    ),
];

pub(in crate::config) const SCALE_TARGET: &[Key] = &[
    Key::with_default(
        "apiVersion",
        Scalar::Text { most: 253 },
        "apps/v1",
        "As in the ScaledObject's scaleTargetRef.",
    ),
    Key::with_default(
        "kind",
        Scalar::Text { most: 63 },
        "Deployment",
        "Deployment, StatefulSet, LeaderWorkerSet, or anything with a scale subresource that tells a selector.",
    ),
    Key::required("name", Kind::Scalar(Scalar::ObjectName), "In the tier's namespace."),
];

pub(in crate::config) const DNS: &[Key] = &[
    Key::required(
        "host",
        Kind::Scalar(Scalar::Host),
        "Resolved again and again. No answer is unknown, not zero.",
    ),
    Key::required(
        "port",
        Kind::Scalar(Scalar::Port),
        "Of the metrics page, or `srv`: then `host` is looked up as SRV.",
    ),
    Key::with_default("scheme", Scalar::Word(&["http", "https"]), "http", "Of the metrics page."),
    Key::with_default("path", Scalar::UrlPath, "/metrics", "Of the metrics page."),
    Key::with_default("resolveEvery", span(SECOND, HOUR), "5s", "Between two look-ups."),
];

pub(in crate::config) const FIXED: &[Key] = &[Key::required(
    "urls",
    Kind::Scalars { of: Scalar::PageUrl, most: MAX_FIXED },
    "Metrics pages, one for each replica: a balancer behind one URL would be read as one replica. `host:port` stands for `http://host:port/metrics`.",
)];

pub(in crate::config) const SERVER_NAME: Key = Key::optional(
    "serverName",
    Kind::Scalar(Scalar::Host),
    "The name that an https certificate must hold instead of the URL's host, for pages read by address. Needs `ca`; not sent as SNI.",
);

pub(in crate::config) const BEARER_TOKEN_FILE: Key = Key::optional(
    "bearerTokenFile",
    Kind::Scalar(Scalar::File),
    "Its content is sent as `Authorization: Bearer`.",
);

pub(in crate::config) const SCRAPE: &[Key] = &[
    Key::with_default(
        "interval",
        span(SECOND, Duration::from_mins(5)),
        "5s",
        "Between two rounds; the fetches are spread over it.",
    ),
    Key::with_default(
        "timeout",
        span(Duration::from_millis(50), MINUTE),
        "2s",
        "For one page, from the connection to the last byte.",
    ),
    Key::derived(
        "connectTimeout",
        Kind::Scalar(span(Duration::from_millis(10), MINUTE)),
        "1s, or `timeout` where that is shorter",
        "For the connection alone.",
    ),
    Key::derived(
        "staleAfter",
        Kind::Scalar(span(SECOND, HOUR)),
        "3 x interval, at least 15s",
        "A page older than this is no longer known.",
    ),
    Key::derived(
        "rateWindow",
        Kind::Scalar(span(SECOND, HOUR)),
        "6 x interval, at least 30s",
        "Over which counters become rates.",
    ),
    Key::with_default(
        "concurrency",
        Scalar::Count { least: 1, most: 1_000 },
        "32",
        "Pages of this tier fetched at a time.",
    ),
    Key::with_default(
        "maxBodyBytes",
        Scalar::Size { least: 1 << 10, most: 256 << 20 },
        "8MiB",
        "Bytes of a page on the wire. A longer page is refused, not cut.",
    ),
    Key::with_default(
        "maxExpandedBytes",
        Scalar::Size { least: 1 << 10, most: 256 << 20 },
        "32MiB",
        "Bytes of a page after decompression.",
    ),
    Key::optional(
        "ca",
        Kind::Scalar(Scalar::File),
        "PEM certificates trusted for https instead of the system's.",
    ),
    SERVER_NAME,
    Key::optional("clientCert", Kind::Scalar(Scalar::File), "PEM certificate chain shown to https pages."),
    Key::optional("clientKey", Kind::Scalar(Scalar::File), "PEM key of `clientCert`."),
    BEARER_TOKEN_FILE,
];

pub(in crate::config) const ACTIVATOR: &[Key] = &[
    Key::required("url", Kind::Scalar(Scalar::Url), "The page that shows the queue."),
    Key::required(
        "metric",
        Kind::Scalar(Scalar::MetricName),
        "The queue's metric. Samples that match are summed; above 0 the tier is wanted.",
    ),
    Key::optional("labels", Kind::Labels, "Labels that a sample must have."),
    Key::with_default(
        "interval",
        span(Duration::from_millis(100), MINUTE),
        "500ms",
        "Between two reads while no replica is ready.",
    ),
    Key::with_default("timeout", span(Duration::from_millis(50), MINUTE), "1s", "For one read."),
    Key::optional(
        "ca",
        Kind::Scalar(Scalar::File),
        "PEM certificates trusted for https instead of the system's.",
    ),
    SERVER_NAME,
    Key::optional("clientCert", Kind::Scalar(Scalar::File), "PEM certificate chain shown to an https page."),
    Key::optional("clientKey", Kind::Scalar(Scalar::File), "PEM key of `clientCert`."),
    BEARER_TOKEN_FILE,
];
