//! The scaler's own `/metrics`, in OpenMetrics text.
//!
//! Tier series are made from the snapshot at each look, so they vanish with their tier; a number that is unknown has
//! no sample, never a 0. Labels are bounded: `namespace` and `tier` by the configuration, the others by this program's
//! own words. `docs/metrics.md` lists every family.

mod cold_start;
mod families;
mod forecast;

use std::fmt;

use chrono::{DateTime, Utc};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use self::families::{Page, TierSeries};
use crate::decision::{Answer, BoundKind, ReplicaState};
use crate::snapshot::{Snapshot, TierStatus};
use crate::telemetry::{Counters, Rpc};

/// What the page is served as.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PREFIX: &str = "vllm_scaler";

const STATES: [(ReplicaState, &str); 7] = [
    (ReplicaState::Ready, "ready"),
    (ReplicaState::Starting, "starting"),
    (ReplicaState::Blocked, "blocked"),
    (ReplicaState::Terminating, "terminating"),
    (ReplicaState::Asleep, "asleep"),
    (ReplicaState::Silent, "silent"),
    (ReplicaState::Absent, "absent"),
];

/// The page.
#[must_use]
pub fn render(snapshot: &Snapshot, counters: &Counters) -> String {
    let mut page = Page::default();
    process(&mut page, snapshot, counters);
    for (tier, status) in &snapshot.tiers {
        let mut series = TierSeries { page: &mut page, tier };
        answer(&mut series, status);
        demand(&mut series, status);
        supply(&mut series, status);
        cold_start::families(&mut series, &status.decision);
        policy(&mut series, status);
        asked(&mut series, status);
        counted(&mut series, counters, snapshot.at);
    }
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(page));
    grpc(&mut registry, counters);
    let mut text = String::new();
    if let Err(fmt::Error) = encode(&mut text, &registry) {
        // A String takes whatever is written. Half a page would be read as series that are gone.
        text.clear();
    }
    text
}

fn process(page: &mut Page, snapshot: &Snapshot, counters: &Counters) {
    let config = counters.config();
    page.gauge(
        "build_info",
        "The version that runs",
        vec![("version", env!("CARGO_PKG_VERSION").to_owned())],
        1.0,
    );
    page.plain("start_timestamp_seconds", "When this process began", seconds(snapshot.started_at));
    page.plain("snapshot_timestamp_seconds", "When the answers were last published", seconds(snapshot.at));
    page.plain("ready", "1 once a valid configuration had its first round", truth(snapshot.ready));
    page.plain(
        "refused_scaled_objects",
        "ScaledObjects that get no answer whatever is known of the load",
        snapshot.refused.len() as f64,
    );
    page.plain("waiting_tiers", "Configured tiers without a decision yet", snapshot.waiting.len() as f64);
    page.plain(
        "config_rejected",
        "1 while a newer configuration is refused",
        truth(snapshot.config.rejected.is_some()),
    );
    page.plain("config_warnings", "Legal but wrong settings", snapshot.config.warnings.len() as f64);
    page.maybe(
        "config_loaded_timestamp_seconds",
        "When the configuration in force was taken",
        Vec::new(),
        snapshot.config.loaded_at.map(seconds),
    );
    page.maybe(
        "config_rejected_timestamp_seconds",
        "When a configuration was last refused",
        Vec::new(),
        config.last_rejected.map(seconds),
    );
    for (result, count) in [("success", config.succeeded), ("rejected", config.rejected)] {
        page.counter(
            "config_reloads",
            "Loads of the configuration",
            vec![("result", result.to_owned())],
            count,
        );
    }
    let peers = counters.peers();
    for (result, count) in [("success", peers.succeeded), ("failed", peers.failed)] {
        page.counter(
            "peer_readings",
            "Readings of what the holder of the Lease has learned",
            vec![("result", result.to_owned())],
            count,
        );
    }
    page.plain(
        "store_alarm",
        "1 while the store is not used or lost something",
        truth(snapshot.store.alarm.is_some()),
    );
    if snapshot.store.path.is_some() {
        page.plain("store_size_bytes", "Size of the store", snapshot.store.size_bytes as f64);
    }
    if snapshot.record.path.is_some() {
        page.plain(
            "record_alarm",
            "1 while decisions are not recorded although they should be",
            truth(snapshot.record.alarm.is_some()),
        );
        page.plain("record_size_bytes", "Size of the recording", snapshot.record.size_bytes as f64);
        page.plain(
            "record_lost_decisions",
            "Decisions that could not be recorded, since recording was switched on",
            snapshot.record.lost as f64,
        );
    }
}

fn answer(series: &mut TierSeries<'_>, status: &TierStatus) {
    let decision = &status.decision;
    let unknown = matches!(decision.answer, Answer::Unknown { .. });
    series.gauge(
        "required_replicas",
        "What KEDA is answered; absent while unknown",
        decision.required().map(f64::from),
    );
    series.gauge("answer_unknown", "1 while KEDA is answered an error", Some(truth(unknown)));
    series.gauge("decision_timestamp_seconds", "When the answer was decided", Some(seconds(decision.at)));
    series.labelled(
        "binding",
        "1 for what set the answer",
        "kind",
        decision.binding().kind.name(),
        Some(1.0),
    );
    if let Some(held) = &decision.held {
        series.labelled(
            "held",
            "1 for what keeps the answer from being lower",
            "kind",
            held.kind.name(),
            Some(1.0),
        );
    }
    let unknown = matches!(decision.answer, Answer::Unknown { .. });
    for kind in bound_kinds(status) {
        if unknown && kind == BoundKind::TooFewKnown {
            // Not below a last answer that may never have been: a 0 would look like an answer.
            continue;
        }
        let largest =
            decision.bounds.iter().filter(|bound| bound.kind == kind).map(|bound| bound.replicas).max();
        series.labelled(
            "bound_replicas",
            "The number that each bound stands for",
            "kind",
            kind.name(),
            largest.map(f64::from),
        );
    }
    let floor = decision
        .bounds
        .iter()
        .filter(|bound| bound.kind == BoundKind::Floor)
        .map(|bound| bound.replicas)
        .max();
    series.gauge(
        "floor_replicas",
        "The largest scheduled floor in force; absent without one",
        floor.map(f64::from),
    );
}

/// Each kind once, however many bounds are of it.
fn bound_kinds(status: &TierStatus) -> Vec<BoundKind> {
    let mut kinds = Vec::new();
    for bound in &status.decision.bounds {
        if !kinds.contains(&bound.kind) {
            kinds.push(bound.kind);
        }
    }
    kinds
}

fn demand(series: &mut TierSeries<'_>, status: &TierStatus) {
    let decision = &status.decision;
    series.gauge("demand_replicas", "What the blend of the asks needs now", decision.demand);
    series.gauge(
        "ahead_replicas",
        "What is needed one lead time ahead; above demand_replicas it is the warm pool",
        decision.ahead,
    );
    if let Some(forecasted) = &decision.forecast {
        forecast::forecast(series, forecasted);
    }
    for ask in &decision.asks {
        let signal = ask.signal.name();
        series.labelled("ask_replicas", "What each signal alone would need", "signal", signal, ask.replicas);
        series.labelled(
            "ask_saturated",
            "1 for a signal at its end",
            "signal",
            signal,
            Some(truth(ask.saturated)),
        );
        series.labelled(
            "ask_kept",
            "1 for an ask kept while its signal is missing",
            "signal",
            signal,
            Some(truth(ask.kept)),
        );
    }
    if let Some(activator) = &status.observation.activator {
        series.gauge("activator_queued_requests", "Requests that the activator holds", activator.queued);
        series.gauge(
            "activator_age_seconds",
            "Age of the activator's number",
            activator.age.map(|age| age.as_secs_f64()),
        );
    }
}

fn supply(series: &mut TierSeries<'_>, status: &TierStatus) {
    let (decision, observation) = (&status.decision, &status.observation);
    let nobody_knows = observation.replicas_unknown.is_some();
    series.gauge(
        "replicas_unknown",
        "1 while no source can say who the replicas are",
        Some(truth(nobody_knows)),
    );
    // Six zeros where nobody ever said anything would be a claim.
    if !(nobody_knows && observation.replicas.is_empty()) {
        for (state, name) in STATES {
            let count = observation.count(state);
            series.labelled("supply_replicas", "Replicas by state", "state", name, Some(f64::from(count)));
        }
    }
    series.gauge(
        "current_replicas",
        "The scale target's own count, where known",
        observation.current.map(f64::from),
    );
    series.gauge("expected_replicas", "Replicas that should serve", Some(f64::from(decision.known.expected)));
    series.gauge(
        "known_replicas",
        "Of those, the ones with a fresh page",
        Some(f64::from(decision.known.known)),
    );
    let oldest = observation.replicas.iter().filter_map(|replica| replica.page_age).max();
    series.gauge(
        "page_age_max_seconds",
        "Age of the oldest newest page of a replica",
        oldest.map(|age| age.as_secs_f64()),
    );
    let rates = decision.capacity.rates;
    series.gauge(
        "capacity_input_tokens_per_second",
        "Uncached input tokens that a replica serves when it does only that",
        Some(rates.input_tokens_per_second),
    );
    series.gauge(
        "capacity_output_tokens_per_second",
        "Output tokens that a replica serves when it does only that",
        Some(rates.output_tokens_per_second),
    );
}

fn policy(series: &mut TierSeries<'_>, status: &TierStatus) {
    let policy = &status.policy;
    series.gauge("min_replicas", "Never fewer", Some(f64::from(policy.min)));
    series.gauge("max_replicas", "Never more", Some(f64::from(policy.max)));
    series.gauge(
        "cold_start_prior_seconds",
        "Decision to ready, as configured",
        Some(policy.cold_start.as_secs_f64()),
    );
    series.gauge("lead_seconds", "The horizon of the decision", Some(status.decision.lead.as_secs_f64()));
    series.gauge(
        "history_minutes",
        "Minutes of demand history in the store",
        Some(status.history_minutes as f64),
    );
}

fn asked(series: &mut TierSeries<'_>, status: &TierStatus) {
    for rpc in Rpc::ALL {
        series.labelled(
            "last_asked_timestamp_seconds",
            "When each call was last made about the tier by KEDA, an open stream counting as made",
            "method",
            rpc.name(),
            status.asked.last(rpc).map(seconds),
        );
    }
    series.gauge(
        "not_asked",
        "1 while a ScaledObject should ask and has not for minutes",
        Some(truth(status.unasked)),
    );
}

fn counted(series: &mut TierSeries<'_>, counters: &Counters, now: DateTime<Utc>) {
    let count = counters.tier(series.tier);
    let warnings = counters.trigger_warnings(series.tier, now).len();
    series.gauge(
        "trigger_warnings",
        "Odd keys in the metadata of triggers that name the tier",
        Some(warnings as f64),
    );
    series.counter("scrapes", "Pages asked for", None, count.scrapes);
    for (cause, failures) in count.scrape_failures {
        series.counter(
            "scrape_failures",
            "Pages that couldn't be had or read",
            Some(("cause", cause)),
            failures,
        );
    }
    series.counter(
        "activator_failures",
        "Readings of the activator that failed",
        None,
        count.activator_failures,
    );
}

fn grpc(registry: &mut Registry, counters: &Counters) {
    let grpc = counters.grpc();
    registry.register(
        "grpc_handled",
        "Calls by KEDA that have ended, streams included",
        grpc.handled.clone(),
    );
    registry.register("grpc_handling_seconds", "Time to answer a unary call", grpc.handling_seconds.clone());
    registry.register("grpc_streams_open", "Streams that KEDA holds open", grpc.streams_open.clone());
}

fn seconds(at: DateTime<Utc>) -> f64 {
    at.timestamp_millis() as f64 / 1000.0
}

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}
