//! The scaler's own metrics page, read strictly.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside their functions")]
#![allow(clippy::float_cmp, reason = "what was written is read back, without arithmetic between")]

#[path = "common/forecasted.rs"]
mod forecasted;
#[path = "common/grpc.rs"]
mod grpc;
#[path = "common/published.rs"]
mod published;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;

use grpc::{asker, metrics_of, start};
use keda_vllm_scaler::decision::explanation::{Known, Reason};
use keda_vllm_scaler::decision::{
    Answer, Ask, BlockedCapacity, BlockedReason, Bound, BoundKind, ColdStart, PathStarts, ReplicaObservation,
    ReplicaState, SignalKind, StageTime, StartPath, TierId,
};
use keda_vllm_scaler::forecast::DialEnd;
use keda_vllm_scaler::serve::metrics::render;
use keda_vllm_scaler::snapshot::{Snapshot, TierStatus};
use keda_vllm_scaler::supply::Stage;
use keda_vllm_scaler::telemetry::{Counters, Rpc};
use published::{policy, publisher, status, tier};

/// What a strict reader of OpenMetrics text makes of a page: the samples by name and labels.
///
/// Refuses a sample without its family's TYPE before it, a family in two pieces, a sample twice, a suffix that the type
/// doesn't have, a name without the prefix, a value that isn't a finite number, and anything after `# EOF`.
fn read(page: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut families = BTreeSet::new();
    let mut family: Option<(String, String)> = None;
    let body = page.strip_suffix("# EOF\n").expect("ends with # EOF");
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(families.insert(name.to_owned()), "{name} in two pieces");
            family = Some((name.to_owned(), kind.to_owned()));
            continue;
        }
        if let Some(rest) = line.strip_prefix("# HELP ") {
            assert!(rest.split_once(' ').is_some_and(|(_, help)| !help.is_empty()), "{line}");
            continue;
        }
        assert!(!line.starts_with('#') && !line.trim().is_empty(), "{line:?}");
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split_once('{').map_or(series, |(name, _)| name);
        let (of, kind) = family.as_ref().expect("a TYPE before the first sample");
        let suffix = name.strip_prefix(of.as_str()).unwrap_or_else(|| panic!("{name} within {of}"));
        let suffixes: &[&str] = match kind.as_str() {
            "gauge" => &[""],
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            other => panic!("{other}"),
        };
        assert!(suffixes.contains(&suffix), "{name} as a {kind}");
        assert!(name.starts_with("vllm_scaler_"), "{name}");
        let value: f64 = value.parse().unwrap();
        assert!(value.is_finite(), "{line}");
        assert_eq!(samples.insert(series.to_owned(), value), None, "{series} twice");
    }
    samples
}

/// Rewrites a tier's status, hand-made or not.
fn tier_with(change: impl FnOnce(&mut TierStatus)) -> Snapshot {
    let (control_loop, published) = publisher();
    let mut changed = status(policy(&tier("chat")), Answer::Required(6), control_loop.clock.now());
    change(&mut changed);
    let mut snapshot = (*published.now()).clone();
    snapshot.tiers.insert(tier("chat"), Arc::new(changed));
    snapshot
}

fn replica(state: ReplicaState, page_age: Option<u64>) -> ReplicaObservation {
    ReplicaObservation {
        id: "10.0.0.1:8000".into(),
        name: "10.0.0.1:8000".into(),
        state,
        since: None,
        load: None,
        page_age: page_age.map(Duration::from_secs),
        error: None,
        start: None,
    }
}

const CHAT: &str = "namespace=\"serving\",tier=\"chat\"";

#[test]
fn a_known_tier_has_its_numbers_and_its_reasons() {
    let snapshot = tier_with(|chat| {
        chat.decision.demand = Some(4.25);
        chat.decision.ahead = Some(5.5);
        chat.decision.asks = vec![Ask {
            signal: SignalKind::KvCache,
            replicas: Some(4.25),
            if_unknown_is_full: Some(4.25),
            weight: 1.0,
            saturated: true,
            kept: false,
            because: "by hand".into(),
        }];
        chat.decision.bounds = [(BoundKind::Floor, 3), (BoundKind::Floor, 6), (BoundKind::Max, 40)]
            .map(|(kind, replicas)| Bound { kind, replicas, because: "by hand".into() })
            .to_vec();
        chat.decision.winner = Reason { kind: BoundKind::Floor, because: "weekday".into() };
        chat.decision.held = Some(Reason { kind: BoundKind::Hold, because: "4m left".into() });
        chat.decision.known = Known { expected: 5, known: 4 };
        chat.observation.replicas_unknown = None;
        chat.observation.replicas = vec![
            replica(ReplicaState::Ready, Some(4)),
            replica(ReplicaState::Ready, Some(7)),
            replica(ReplicaState::Silent, Some(95)),
            replica(ReplicaState::Starting, None),
        ];
    });
    let samples = read(&render(&snapshot, &Counters::default()));
    for (series, value) in [
        (format!("required_replicas{{{CHAT}}}"), 6.0),
        (format!("answer_unknown{{{CHAT}}}"), 0.0),
        (format!("demand_replicas{{{CHAT}}}"), 4.25),
        (format!("ahead_replicas{{{CHAT}}}"), 5.5),
        (format!("ask_replicas{{{CHAT},signal=\"kvCache\"}}"), 4.25),
        (format!("ask_saturated{{{CHAT},signal=\"kvCache\"}}"), 1.0),
        (format!("bound_replicas{{{CHAT},kind=\"floor\"}}"), 6.0),
        (format!("bound_replicas{{{CHAT},kind=\"max\"}}"), 40.0),
        (format!("floor_replicas{{{CHAT}}}"), 6.0),
        (format!("binding{{{CHAT},kind=\"hold\"}}"), 1.0),
        (format!("held{{{CHAT},kind=\"hold\"}}"), 1.0),
        (format!("expected_replicas{{{CHAT}}}"), 5.0),
        (format!("known_replicas{{{CHAT}}}"), 4.0),
        (format!("supply_replicas{{{CHAT},state=\"ready\"}}"), 2.0),
        (format!("supply_replicas{{{CHAT},state=\"silent\"}}"), 1.0),
        (format!("supply_replicas{{{CHAT},state=\"asleep\"}}"), 0.0),
        (format!("page_age_max_seconds{{{CHAT}}}"), 95.0),
        (format!("cold_start_prior_seconds{{{CHAT}}}"), 180.0),
        (format!("lead_seconds{{{CHAT}}}"), 210.0),
        (format!("cold_start_in_effect_seconds{{{CHAT}}}"), 180.0),
        (format!("capacity_blocked{{{CHAT},reason=\"imagePull\"}}"), 0.0),
        (format!("capacity_output_tokens_per_second{{{CHAT}}}"), 700.0),
    ] {
        assert_eq!(samples.get(&format!("vllm_scaler_{series}")), Some(&value), "{series}");
    }
}

#[test]
fn what_is_unknown_has_no_sample() {
    let snapshot = tier_with(|chat| {
        chat.decision.answer = Answer::Unknown { why: "all silent".into() };
        chat.decision.demand = Some(f64::NAN);
        chat.decision.ahead = Some(f64::INFINITY);
    });
    let samples = read(&render(&snapshot, &Counters::default()));
    assert_eq!(samples[&format!("vllm_scaler_answer_unknown{{{CHAT}}}")], 1.0);
    assert_eq!(samples[&format!("vllm_scaler_replicas_unknown{{{CHAT}}}")], 1.0);
    for absent in [
        "required_replicas",
        "demand_replicas",
        "ahead_replicas",
        "supply_replicas",
        "page_age_max",
        "current_replicas",
        "cold_start_seconds",
        "cold_start_samples",
    ] {
        let found = samples.keys().find(|series| series.starts_with(&format!("vllm_scaler_{absent}")));
        assert_eq!(found, None);
    }
}

#[test]
fn starts_are_told_by_stage_and_blocked_capacity_by_reason() {
    let span = Duration::from_secs;
    let snapshot = tier_with(|chat| {
        chat.decision.cold_start = ColdStart {
            in_effect: span(170),
            learned: true,
            because: "by hand".into(),
            path: Some(StartPath::NewNodeImagePulled),
            paths: Arc::new(vec![PathStarts {
                path: StartPath::NewNodeImagePulled,
                starts: 12,
                censored: 2,
                p50: span(120),
                p90: span(170),
                stages: vec![StageTime { stage: Stage::Pulling, p50: span(60), p90: span(75) }],
            }]),
        };
        chat.decision.blocked = vec![BlockedCapacity {
            reason: BlockedReason::ImagePull,
            replicas: 2,
            because: "ErrImagePull".into(),
        }];
    });
    let samples = read(&render(&snapshot, &Counters::default()));
    for (series, value) in [
        (format!("cold_start_in_effect_seconds{{{CHAT}}}"), 170.0),
        (format!("cold_start_seconds{{{CHAT},stage=\"total\",quantile=\"0.5\"}}"), 120.0),
        (format!("cold_start_seconds{{{CHAT},stage=\"total\",quantile=\"0.9\"}}"), 170.0),
        (format!("cold_start_seconds{{{CHAT},stage=\"pulling\",quantile=\"0.9\"}}"), 75.0),
        (format!("cold_start_samples{{{CHAT},end=\"ready\"}}"), 12.0),
        (format!("cold_start_samples{{{CHAT},end=\"censored\"}}"), 2.0),
        (format!("capacity_blocked{{{CHAT},reason=\"imagePull\"}}"), 2.0),
        (format!("capacity_blocked{{{CHAT},reason=\"quota\"}}"), 0.0),
    ] {
        assert_eq!(samples.get(&format!("vllm_scaler_{series}")), Some(&value), "{series}");
    }
}

#[test]
fn a_tiers_series_go_with_it() {
    let mut snapshot = tier_with(|_| {});
    let counters = Counters::default();
    counters.scraped(&tier("chat"));
    counters.scrape_failed(&tier("chat"), "timeout");
    counters.scrape_failed(&tier("chat"), "timeout");
    counters.scrape_failed(&tier("chat"), "refused");
    counters.activator_failed(&tier("chat"));
    let samples = read(&render(&snapshot, &counters));
    assert_eq!(samples[&format!("vllm_scaler_scrapes_total{{{CHAT}}}")], 1.0);
    assert_eq!(samples[&format!("vllm_scaler_scrape_failures_total{{{CHAT},cause=\"timeout\"}}")], 2.0);
    assert_eq!(samples[&format!("vllm_scaler_scrape_failures_total{{{CHAT},cause=\"refused\"}}")], 1.0);
    assert_eq!(samples[&format!("vllm_scaler_activator_failures_total{{{CHAT}}}")], 1.0);

    snapshot.tiers.clear();
    let samples = read(&render(&snapshot, &counters));
    assert_eq!(samples.keys().find(|series| series.contains("tier=")), None);
}

#[test]
fn when_each_call_was_last_made_is_told_and_one_never_made_has_no_time() {
    let snapshot = tier_with(|chat| {
        chat.asked.note(Rpc::GetMetrics, "chat", DateTime::from_timestamp(1_000, 0).unwrap());
        chat.asked.note(Rpc::GetMetrics, "beside", DateTime::from_timestamp(1_015, 0).unwrap());
        chat.unasked = true;
    });
    let samples = read(&render(&snapshot, &Counters::default()));
    let last = |method: &str| {
        samples.get(&format!("vllm_scaler_last_asked_timestamp_seconds{{{CHAT},method=\"{method}\"}}"))
    };
    assert_eq!(last("GetMetrics"), Some(&1_015.0));
    assert_eq!(last("IsActive"), None);
    assert_eq!(samples[&format!("vllm_scaler_not_asked{{{CHAT}}}")], 1.0);
}

#[test]
fn many_tiers_are_written_family_by_family() {
    let (mut control_loop, published) = publisher();
    for n in 0..50 {
        control_loop.required(&TierId::new(format!("team-{}", n % 5), format!("tier-{n}")), n);
    }
    let samples = read(&render(&published.now(), &Counters::default()));
    let required =
        samples.keys().filter(|series| series.starts_with("vllm_scaler_required_replicas")).count();
    assert_eq!(required, 50);
}

#[test]
fn a_name_that_needs_escaping_doesnt_break_the_page() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&TierId::new("serving", "a\"b\\c\nd"), 1);
    let page = render(&published.now(), &Counters::default());
    assert!(page.contains(r#"tier="a\"b\\c\nd""#), "{page}");
}

#[test]
fn the_configuration_and_the_store_are_told() {
    let (mut control_loop, published) = publisher();
    let counters = Counters::default();
    let now = control_loop.clock.now();
    counters.config_loaded(now);
    counters.config_rejected(now);
    control_loop.publish(|snapshot| {
        snapshot.ready = true;
        snapshot.waiting.push(tier("embed"));
        snapshot.config.loaded_at = Some(now);
        snapshot.config.rejected = Some("tiers[0].max: below min".into());
        snapshot.store.path = Some("/var/lib/keda-vllm-scaler".into());
        snapshot.store.size_bytes = 4096;
        snapshot.store.alarm = Some("disk full".into());
    });
    let samples = read(&render(&published.now(), &counters));
    for (series, value) in [
        ("ready", 1.0),
        ("waiting_tiers", 1.0),
        ("config_rejected", 1.0),
        ("config_reloads_total{result=\"success\"}", 1.0),
        ("config_reloads_total{result=\"rejected\"}", 1.0),
        ("store_alarm", 1.0),
        ("store_size_bytes", 4096.0),
    ] {
        assert_eq!(samples.get(&format!("vllm_scaler_{series}")), Some(&value), "{series}");
    }
    for timestamp in ["config_loaded", "config_rejected", "start", "snapshot"] {
        let told = samples[&format!("vllm_scaler_{timestamp}_timestamp_seconds")];
        assert!((told - now.timestamp() as f64).abs() < 60.0, "{timestamp}: {told}");
    }
}

#[tokio::test]
async fn calls_are_counted_by_method_and_code_and_timed() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 6);
    let server = start(&published).await;
    let mut client = server.client().await;
    let chat = asker(&[("tier", "chat")]);
    for _ in 0..3 {
        client.get_metrics(metrics_of(chat.clone())).await.unwrap();
    }
    client.get_metrics(metrics_of(asker(&[("tier", "nobody")]))).await.unwrap_err();
    let mut pushes = client.stream_is_active(chat).await.unwrap().into_inner();
    pushes.message().await.unwrap();
    let samples = read(&render(&published.now(), &server.counters));
    for (series, value) in [
        ("grpc_handled_total{method=\"GetMetrics\",code=\"OK\"}", 3.0),
        ("grpc_handled_total{method=\"GetMetrics\",code=\"NotFound\"}", 1.0),
        ("grpc_handling_seconds_count{method=\"GetMetrics\"}", 4.0),
        ("grpc_handling_seconds_bucket{le=\"+Inf\",method=\"GetMetrics\"}", 4.0),
        ("grpc_streams_open{method=\"StreamIsActive\"}", 1.0),
    ] {
        assert_eq!(samples.get(&format!("vllm_scaler_{series}")), Some(&value), "{series} in {samples:#?}");
    }
}

#[test]
fn a_forecast_tells_its_budget_and_what_other_terms_would_save() {
    let mut shown = forecasted::forecasted();
    if let Some(budget) = &mut shown.budget {
        budget.at_end = Some(DialEnd::Most);
    }
    let samples =
        read(&render(&tier_with(|chat| chat.decision.forecast = Some(shown)), &Counters::default()));
    for (family, value) in [
        ("replicas", 16.0),
        ("late_minutes_a_week", 8.0),
        ("halving_replica_hours_a_day", 1.4),
        ("more_queue_saves_replica_hours_a_day", 6.2),
        ("short_start_saves_replica_hours_a_day", 3.1),
        ("safety", 1.3),
        ("safety_at_end", 1.0),
        ("late_budget_ratio", 0.001),
        ("late_work_ratio", 0.00062),
        ("late_budget_used_ratio", 0.62),
        ("late_minutes", 7.0),
    ] {
        let series = format!("vllm_scaler_forecast_{family}{{namespace=\"serving\",tier=\"chat\"}}");
        assert_eq!(samples.get(&series), Some(&value), "{series} in {samples:#?}");
    }
}

/// Every family is in the table of the documentation, and nothing else is.
#[test]
fn the_documentation_lists_every_family() {
    let table = include_str!("../docs/metrics.md");
    let documented: BTreeSet<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `vllm_scaler_")?.split_once('`').map(|(name, _)| name))
        // The table of alerts begins its lines with expressions.
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
        .collect();
    let mut sources = String::new();
    for source in [
        include_str!("../src/serve/metrics.rs"),
        include_str!("../src/serve/metrics/cold_start.rs"),
        include_str!("../src/serve/metrics/families.rs"),
        include_str!("../src/serve/metrics/forecast.rs"),
    ] {
        sources.push_str(source);
    }
    for name in &documented {
        let family = name.strip_suffix("_total").unwrap_or(name);
        assert!(sources.contains(&format!("\"{family}\"")), "{family} is documented and not made");
    }
    let full = tier_with(|chat| {
        chat.decision.forecast = Some(forecasted::forecasted());
        chat.observation.current = Some(5);
        chat.observation.replicas_unknown = None;
        chat.observation.replicas = vec![replica(ReplicaState::Ready, Some(1))];
    });
    for series in read(&render(&full, &Counters::default())).keys() {
        let name = series.split_once('{').map_or(series.as_str(), |(name, _)| name);
        let name = name.strip_prefix("vllm_scaler_").unwrap();
        assert!(documented.contains(name), "{name} is made and not documented");
    }
}
