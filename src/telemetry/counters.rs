//! What is counted between two looks at `/metrics`. Everything else on that page comes from the snapshot.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use chrono::{DateTime, Utc};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tonic::Code;

use super::complaints::{Complaints, Fault};
use crate::decision::TierId;

/// Upper bounds of the buckets of an RPC's time, in seconds. Answers take tens of microseconds; the last bounds show
/// what KEDA would notice.
const HANDLING_SECONDS: [f64; 13] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];

/// Counts of this process. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    tiers: Arc<RwLock<BTreeMap<TierId, TierCounters>>>,
    complaints: Arc<RwLock<Complaints>>,
    config: Arc<RwLock<ConfigReloads>>,
    peers: Arc<RwLock<PeerReadings>>,
    grpc: Grpc,
}

/// Counts of one tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierCounters {
    /// Pages asked for.
    pub scrapes: u64,
    /// Pages that couldn't be had or read, by cause.
    pub scrape_failures: BTreeMap<&'static str, u64>,
    /// Readings of the activator that failed.
    pub activator_failures: u64,
}

/// Reloads of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfigReloads {
    /// Taken, the first load included.
    pub succeeded: u64,
    /// Refused.
    pub rejected: u64,
    /// When one was last taken.
    pub last_success: Option<DateTime<Utc>>,
    /// When one was last refused.
    pub last_rejected: Option<DateTime<Utc>>,
}

/// Readings of what the holder of the Lease has learned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerReadings {
    /// Taken.
    pub succeeded: u64,
    /// Failed.
    pub failed: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Grpc {
    pub(crate) handled: Family<Handled, Counter>,
    pub(crate) handling_seconds: Family<Method, Histogram>,
    pub(crate) streams_open: Family<Method, Gauge>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Handled {
    method: &'static str,
    code: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Method {
    method: &'static str,
}

impl Default for Grpc {
    fn default() -> Self {
        Self {
            handled: Family::default(),
            handling_seconds: Family::new_with_constructor(|| Histogram::new(HANDLING_SECONDS)),
            streams_open: Family::default(),
        }
    }
}

impl Counters {
    /// A page of this tier was asked for.
    pub fn scraped(&self, tier: &TierId) {
        self.count(tier, |counters| counters.scrapes += 1);
    }

    /// A page of this tier couldn't be had or read. `cause` is a word of the program's own, so that it stays a label.
    pub fn scrape_failed(&self, tier: &TierId, cause: &'static str) {
        self.count(tier, |counters| *counters.scrape_failures.entry(cause).or_default() += 1);
    }

    /// A reading of this tier's activator failed.
    pub fn activator_failed(&self, tier: &TierId) {
        self.count(tier, |counters| counters.activator_failures += 1);
    }

    /// Drops the counts of a tier that is gone.
    pub fn forget(&self, tier: &TierId) {
        write(&self.tiers).remove(tier);
        write(&self.complaints).forget(tier);
    }

    /// The counts of a tier so far.
    #[must_use]
    pub fn tier(&self, tier: &TierId) -> TierCounters {
        read(&self.tiers).get(tier).cloned().unwrap_or_default()
    }

    fn count(&self, tier: &TierId, change: impl FnOnce(&mut TierCounters)) {
        let mut tiers = write(&self.tiers);
        if let Some(counters) = tiers.get_mut(tier) {
            return change(counters);
        }
        change(tiers.entry(tier.clone()).or_default());
    }

    /// What the holder of the Lease has learned was read, or couldn't be.
    pub fn peer_read(&self, succeeded: bool) {
        let mut peers = write(&self.peers);
        if succeeded {
            peers.succeeded += 1;
        } else {
            peers.failed += 1;
        }
    }

    /// Readings of the holder of the Lease so far.
    #[must_use]
    pub fn peers(&self) -> PeerReadings {
        *read(&self.peers)
    }

    /// A configuration was taken.
    pub fn config_loaded(&self, at: DateTime<Utc>) {
        let mut config = write(&self.config);
        config.succeeded += 1;
        config.last_success = Some(at);
    }

    /// A configuration was refused; the one before it stays in force.
    pub fn config_rejected(&self, at: DateTime<Utc>) {
        let mut config = write(&self.config);
        config.rejected += 1;
        config.last_rejected = Some(at);
    }

    /// Reloads so far.
    #[must_use]
    pub fn config(&self) -> ConfigReloads {
        *read(&self.config)
    }

    /// A ScaledObject asked, with these faults or with none. A fault is logged when it is new and kept for the page until
    /// the ScaledObject asks without it.
    pub(crate) fn asked_with(&self, namespace: &str, name: &str, faults: Vec<Fault>, now: DateTime<Utc>) {
        if faults.is_empty() && !read(&self.complaints).knows(namespace, name) {
            return;
        }
        let news = write(&self.complaints).asked(namespace, name, faults, now);
        for Fault { tier, text } in news {
            let scaled_object = format!("{namespace}/{name}");
            if let Some(tier) = tier {
                tracing::warn!(%tier, scaled_object, warning = text, "odd trigger metadata");
            } else {
                tracing::warn!(scaled_object, why = text, "ScaledObject refused");
            }
        }
    }

    /// What is odd about the metadata that names this tier, each with who wrote it. For the page and `explain`.
    #[must_use]
    pub fn trigger_warnings(&self, tier: &TierId, now: DateTime<Utc>) -> Vec<String> {
        read(&self.complaints).about(tier, now)
    }

    /// ScaledObjects (`namespace/name`) that are refused an answer whatever is known of the load, each with the reason.
    #[must_use]
    pub fn refused(&self, now: DateTime<Utc>) -> Vec<(String, String)> {
        read(&self.complaints).refused(now)
    }

    pub(crate) fn grpc(&self) -> &Grpc {
        &self.grpc
    }

    pub(crate) fn grpc_handled(&self, method: &'static str, code: Code) {
        self.grpc.handled.get_or_create(&Handled { method, code: code_name(code) }).inc();
    }

    pub(crate) fn grpc_took(&self, method: &'static str, span: Duration) {
        self.grpc.handling_seconds.get_or_create(&Method { method }).observe(span.as_secs_f64());
    }

    pub(crate) fn grpc_stream_opened(&self, method: &'static str) {
        self.grpc.streams_open.get_or_create(&Method { method }).inc();
    }

    pub(crate) fn grpc_stream_closed(&self, method: &'static str) {
        self.grpc.streams_open.get_or_create(&Method { method }).dec();
    }

    /// Streams of one method that are open now.
    #[must_use]
    pub fn streams_open(&self, method: &'static str) -> i64 {
        self.grpc.streams_open.get_or_create(&Method { method }).get()
    }
}

/// A thread that panicked while it counted leaves a count behind, not a broken invariant.
fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// A gRPC code as Go's `codes.Code` prints it, which is what the label `grpc_code` of other Kubernetes servers carries.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_count_together_and_a_forgotten_tier_starts_anew() {
        let chat = TierId::new("serving", "chat");
        let counters = Counters::default();
        counters.clone().scraped(&chat);
        counters.scrape_failed(&chat, "timeout");
        counters.scrape_failed(&chat, "timeout");
        assert_eq!(counters.tier(&chat).scrapes, 1);
        assert_eq!(counters.tier(&chat).scrape_failures["timeout"], 2);
        counters.forget(&chat);
        assert_eq!(counters.tier(&chat), TierCounters::default());
    }
}
