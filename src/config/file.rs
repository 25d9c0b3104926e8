//! The file as it may be written: every key, in one table.
//!
//! A new key goes here, into [`super::resolve`] where its value is used, and into `deploy/examples/full.yaml`; the
//! schema and the reference follow by themselves, and tests fail while one of the three is missing.

use std::time::Duration;

use super::shape::{Key, Kind, Scalar};

mod load;

use load::{ACTIVATOR, CLUSTER, SOURCE};
pub(super) use load::{BEARER_TOKEN_FILE, LATER_SOURCES, SCRAPE, SERVER_NAME};

/// Tiers of one process.
pub(super) const MAX_TIERS: usize = 1_000;
/// Floors of one tier: a week of hours is 168 and better said with fewer.
pub(super) const MAX_FLOORS: usize = 200;
/// Replicas of one tier: beyond any known vLLM fleet, and a guard against a slip of the pen.
pub(super) const MAX_REPLICAS: u32 = 10_000;
/// Nothing that is waited for here takes longer than a day.
const DAY: Duration = Duration::from_hours(24);
const HOUR: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);
const SECOND: Duration = Duration::from_secs(1);

const fn span(least: Duration, most: Duration) -> Scalar {
    Scalar::Span { least, most }
}

const WEIGHT: Scalar = Scalar::Number { least: 0.0, most: 1_000.0 };
const TOKENS: Scalar = Scalar::Number { least: 1.0, most: 1e9 };
const FLAG: Scalar = Scalar::Flag;
const REPLICAS: Scalar = Scalar::Count { least: 1, most: MAX_REPLICAS };

/// The whole file.
pub(super) const ROOT: &[Key] = &[
    Key::section("listen", LISTEN, "Where the server listens. A change needs a restart."),
    Key::section("grpc", GRPC, "How KEDA is answered. A change needs a restart."),
    Key::optional(
        "store",
        Kind::Section(STORE),
        "Keeps demand history and learned state over restarts. A change needs a restart.",
    ),
    Key::optional(
        "record",
        Kind::Section(RECORD),
        "Writes down what was seen and decided, so that it can be decided again: see `backtest --replay`. May be switched on and off while the server runs.",
    ),
    Key::optional(
        "kubernetes",
        Kind::Section(CLUSTER),
        "The cluster that `kubernetes` sources watch; absent, the pod's own, or that of $KUBECONFIG. With it, tiers that metadata declares watch the pods of their ScaledObject's target. A change needs a restart.",
    ),
    Key::with_default(
        "allowMetadataTiers",
        FLAG,
        "false",
        "Lets a ScaledObject's metadata declare floors, bounds, targets and a warm pool for a tier that this file doesn't have.",
    ),
    Key::optional(
        "defaults",
        Kind::Partial(TIER),
        "What every tier inherits, key by key. Everything that a tier may hold but `name`, `model` and `source`.",
    ),
    Key::optional(
        "tiers",
        Kind::Sections { keys: TIER, most: MAX_TIERS, inherit: Some("defaults") },
        "The tiers. May be absent only with `allowMetadataTiers`.",
    ),
];

pub(super) const LISTEN: &[Key] = &[
    Key::with_default("grpc", Scalar::Socket, "0.0.0.0:6000", "KEDA's external scaler."),
    Key::with_default("http", Scalar::Socket, "0.0.0.0:8080", "Status page, API and `/metrics`."),
    Key::with_default("health", Scalar::Socket, "0.0.0.0:8081", "gRPC health for the kubelet."),
];

pub(super) const GRPC: &[Key] = &[
    Key::with_default("reflection", FLAG, "false", "Offers gRPC reflection, for grpcurl."),
    Key::with_default(
        "drainDeadline",
        span(SECOND, Duration::from_mins(10)),
        "20s",
        "How long a shutdown waits for calls and streams to end. Keep it below the pod's terminationGracePeriodSeconds.",
    ),
];

pub(super) const STORE: &[Key] = &[
    Key::required("path", Kind::Scalar(Scalar::File), "A folder that this process alone writes."),
    Key::with_default(
        "retention",
        span(HOUR, Duration::from_hours(2160)),
        "14d",
        "How long a minute of demand history is kept.",
    ),
];

pub(super) const RECORD: &[Key] = &[
    Key::required("path", Kind::Scalar(Scalar::File), "A folder that this process alone writes."),
    Key::with_default(
        "maxSize",
        Scalar::Size { least: 1 << 20, most: 1 << 40 },
        "256MiB",
        "Of all its files together, compressed. The oldest go.",
    ),
];

/// A tier, and what `defaults` may hold.
pub(super) const TIER: &[Key] = &[
    Key::required("name", Kind::Scalar(Scalar::ObjectName), "Unique in its namespace. A ScaledObject of this name finds the tier by itself; any other in the namespace says `tier:`.").tier_only(),
    Key::required("namespace", Kind::Scalar(Scalar::Namespace), "The namespace of its ScaledObject: nobody else's may ask for it."),
    Key::optional("model", Kind::Scalar(Scalar::Text { most: 500 }), "Counts only this `model_name` where a page shows several.").tier_only(),
    Key::required("source", Kind::OneOf(SOURCE), "Who the replicas are.").tier_only(),
    Key::section("scrape", SCRAPE, "How the replicas' metrics pages are read."),
    Key::optional("activator", Kind::Section(ACTIVATOR), "A queue in front of the tier. With the sources `dns` and `fixed` it alone can tell idle from unknown when no replica is there; with any it is what wakes a tier from zero."),
    Key::required("replicas", Kind::Section(REPLICA_BOUNDS), "Bounds of the answer. Give the ScaledObject the same."),
    Key::with_default("coldStart", span(SECOND, DAY), "180s", "From the decision for a new replica until it is ready, until that is learned. Capacity is asked for this much ahead."),
    Key::with_default("learnColdStart", FLAG, "true", "Learns the cold start from the pods' own times and prefers it to `coldStart` once five starts were seen. Needs a source that knows pods."),
    Key::with_default("drain", span(Duration::ZERO, DAY), "30s", "How long a replica that is told to go still works; Kubernetes' own terminationGracePeriodSeconds is 30."),
    Key::derived("controlDelay", Kind::Scalar(span(Duration::ZERO, HOUR)), "scrape.interval + 20s", "What passes between a new number and a new pod besides the cold start: age of the data, the HPA's sync (15 s) and the steps of its rate limit."),
    Key { absent: super::shape::Absent::Default("5s"), ..Key::optional("acceptableQueue", Kind::Allowance, "What may queue before it counts as late: seconds of the present demand, requests, or tokens. 0s lets nothing queue.") },
    Key::section("signals", SIGNALS, "Weights and targets of the asks. A weight of 0 turns a signal off."),
    Key::with_default("combine", Scalar::Word(&["max", "weighted"]), "max", "`max`: the largest ask. `weighted`: the weighted mean, never below a saturated signal's ask."),
    Key::section("capacity", CAPACITY, "What one replica can serve."),
    Key::optional("floors", Kind::Sections { keys: FLOOR, most: MAX_FLOORS, inherit: None }, "Replicas promised by the clock, ready *at* the start. Where several are open the largest counts."),
    Key::optional("warmPool", Kind::Section(WARM_POOL), "Spare replicas for growth that outruns a cold start."),
    Key::section("forecast", FORECAST, "What the load will need one lead ahead, learned from the load itself."),
    Key::section("scaleDown", SCALE_DOWN, "How capacity is given back."),
    Key::with_default("holdUnknown", span(Duration::ZERO, DAY), "10m", "How long the last answer stands when too few replicas are known; then KEDA gets an error and the HPA holds."),
    Key::section("hpa", HPA, "What the HPA does to the answer."),
];

pub(super) const REPLICA_BOUNDS: &[Key] = &[
    Key::with_default(
        "min",
        Scalar::Count { least: 0, most: MAX_REPLICAS },
        "1",
        "Never fewer. 0 needs an `activator`, or the source `kubernetes`.",
    ),
    Key::required("max", Kind::Scalar(REPLICAS), "Never more."),
];

pub(super) const SIGNALS: &[Key] = &[
    Key::section("kvCache", KV_CACHE, "KV cache in use, with what the waiting requests will take."),
    Key::section("tokens", TOKEN_RATES, "Offered token work against the capacity of a replica."),
    Key::section("waiting", WAITING, "The backlog, in tokens."),
    Key::section("batch", BATCH, "Size of the running batch against the largest that keeps its bounds."),
    Key::section(
        "latency",
        LATENCY,
        "Queue time or time to first token against a target. A late signal: a corrector.",
    ),
];

pub(super) const KV_CACHE: &[Key] = &[
    Key::with_default("weight", WEIGHT, "1", "In the blend."),
    Key::with_default("target", Scalar::Share, "0.8", "Usage to aim at."),
];

pub(super) const TOKEN_RATES: &[Key] = &[
    Key::with_default("weight", WEIGHT, "1", "In the blend."),
    Key::with_default("target", Scalar::Share, "0.8", "Share of a replica's capacity to aim at."),
];

pub(super) const WAITING: &[Key] = &[
    Key::with_default("weight", WEIGHT, "1", "In the blend."),
    Key::with_default("drain", span(SECOND, DAY), "60s", "In how long the backlog should be gone."),
];

pub(super) const BATCH: &[Key] = &[
    Key::with_default("weight", WEIGHT, "0", "In the blend."),
    Key::optional(
        "interTokenLatency",
        Kind::Scalar(span(Duration::from_millis(1), MINUTE)),
        "Inter-token latency to keep; it bounds the batch once the cost of a step is learned.",
    ),
    Key::optional(
        "maxRunning",
        Kind::Scalar(Scalar::Count { least: 1, most: 1_000_000 }),
        "`--max-num-seqs` of one replica; vLLM doesn't show it.",
    ),
];

pub(super) const LATENCY: &[Key] = &[
    Key::with_default("weight", WEIGHT, "0", "In the blend. Above 0 it needs a target."),
    Key::optional(
        "queueTimeP95",
        Kind::Scalar(span(Duration::from_millis(1), HOUR)),
        "Target of the 95th percentile of the queue time.",
    ),
    Key::optional(
        "timeToFirstTokenP95",
        Kind::Scalar(span(Duration::from_millis(1), HOUR)),
        "Target of the 95th percentile of the time to first token.",
    ),
];

pub(super) const CAPACITY: &[Key] = &[
    Key::optional(
        "inputTokensPerSecond",
        Kind::Scalar(TOKENS),
        "Uncached input tokens a second that a replica serves when it does only that. Give both rates or neither.",
    ),
    Key::optional(
        "outputTokensPerSecond",
        Kind::Scalar(TOKENS),
        "Output tokens a second that a replica serves when it does only that.",
    ),
    Key::optional(
        "kvTokens",
        Kind::Scalar(TOKENS),
        "KV cache tokens of one replica, where its page doesn't tell.",
    ),
    Key::optional(
        "gpu",
        Kind::Scalar(Scalar::Gpu),
        "Kind and number of GPUs of one replica: takes rates from the built-in table. Needs `modelSize`.",
    ),
    Key::optional("modelSize", Kind::Scalar(Scalar::ModelSize), "Parameters of the model. Needs `gpu`."),
    Key::optional(
        "precision",
        Kind::Scalar(Scalar::Word(&["bf16", "fp8", "w4a16"])),
        "Of the weights. Without it the slowest row of the table counts.",
    ),
    Key::with_default(
        "learn",
        FLAG,
        "true",
        "Learns the cost of a step from inter-token times and prefers it once it is well conditioned.",
    ),
];

pub(super) const FLOOR: &[Key] = &[
    Key::derived("name", Kind::Scalar(Scalar::Text { most: 100 }), "`start` - `end`", "For people."),
    Key::required(
        "timezone",
        Kind::Scalar(Scalar::Text { most: 100 }),
        "IANA time zone, such as Europe/Berlin.",
    ),
    Key::required(
        "start",
        Kind::Scalar(Scalar::Text { most: 200 }),
        "Five cron fields, as KEDA's cron trigger reads them. In quotes.",
    ),
    Key::required(
        "end",
        Kind::Scalar(Scalar::Text { most: 200 }),
        "Five cron fields. The floor holds from each start to the next end.",
    ),
    Key::required(
        "desiredReplicas",
        Kind::Scalar(REPLICAS),
        "Promised while the floor is open; at most `replicas.max`.",
    ),
];

pub(super) const WARM_POOL: &[Key] = &[Key::required(
    "maxRamp",
    Kind::Scalar(Scalar::Ramp),
    "The steepest growth to be ready for. Spare replicas cover it over one lead time, less what may queue.",
)];

pub(super) const FORECAST: &[Key] = &[
    Key::with_default(
        "mode",
        Scalar::Word(&["off", "price", "budget"]),
        "price",
        "`price`: answers what the load will need, with as much spare for its spread as late minutes are worth. `budget`: with as much as keeps the late work within `lateBudget`. Either says nothing in its first hour, stands beside the headroom in `signals.tokens.target` on its first day, and takes its place from then on. `off`: that headroom alone.",
    ),
    Key::with_default(
        "shortageCost",
        span(SECOND, DAY),
        "30m",
        "What a minute with more waiting than `acceptableQueue` is worth, in time of the whole tier. In mode `budget` what a safety of 1 stands for.",
    ),
    Key::with_default(
        "lateBudget",
        Scalar::Share,
        "0.1%",
        "In mode `budget`: share of the tier's work that may be served later than `acceptableQueue`, over weeks.",
    ),
    Key::derived(
        "timezone",
        Kind::Scalar(Scalar::Text { most: 100 }),
        "the floors' where they all have one, else UTC",
        "IANA time zone of the people whose days the load follows: after a change of their clocks yesterday's nine o'clock is still nine o'clock.",
    ),
];

pub(super) const SCALE_DOWN: &[Key] = &[
    Key::with_default(
        "hold",
        Scalar::SpanOrAuto { most: DAY },
        "auto",
        "How long a lower number must have been enough. auto: the longer of one lead time (coldStart + controlDelay) and drain + coldStart.",
    ),
    Key::with_default(
        "maxStep",
        Scalar::Step,
        "50%",
        "The largest step down in one hold: a share of the present answer, at least one replica, or a number of replicas.",
    ),
];

pub(super) const HPA: &[Key] = &[
    Key::with_default(
        "tolerance",
        Scalar::Number { least: 0.0, most: 1.0 },
        "0.1",
        "`behavior.scaleUp.tolerance` of the HPA; Kubernetes' default is 0.1.",
    ),
    Key::with_default(
        "deadBand",
        Scalar::Word(&["exceed", "stay"]),
        "exceed",
        "When the HPA would ignore a higher number: answer the smallest that moves it (`exceed`), or the number itself (`stay`).",
    ),
];
