//! The tiers of the made-up snapshots.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use keda_vllm_scaler::decision::explanation::{Capacity, Known, Reason};
use keda_vllm_scaler::decision::observation::{ActivatorObservation, CountedTotals, ReplicaLoad, TierLoad};
use keda_vllm_scaler::decision::policy::{Floor, Ramp, TokenRates};
use keda_vllm_scaler::decision::{
    Answer, Ask, Bound, BoundKind, ColdStart, Decision, Observation, PathStarts, Policy, ReplicaObservation,
    ReplicaState, SignalKind, StageTime, StartPath, TierId,
};
use keda_vllm_scaler::history::HistoryPoint;
use keda_vllm_scaler::quantile::Quantile;
use keda_vllm_scaler::schedule::Window;
use keda_vllm_scaler::snapshot::{FloorAhead, TierStatus};
use keda_vllm_scaler::supply::{Stage, Start};

use super::morning;

fn policy(id: TierId) -> Policy {
    let rates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };
    let mut policy = Policy::with_defaults(id, 40, rates);
    policy.control_delay = Duration::from_secs(50);
    policy.drain = Duration::from_mins(2);
    policy.signals.batch.max_running = Some(256.0);
    policy
}

fn ask(signal: SignalKind, replicas: Option<f64>, because: &str) -> Ask {
    Ask {
        signal,
        replicas,
        if_unknown_is_full: replicas,
        weight: 1.0,
        saturated: false,
        kept: false,
        because: because.to_owned(),
    }
}

fn bound(kind: BoundKind, replicas: u32, because: &str) -> Bound {
    Bound { kind, replicas, because: because.to_owned() }
}

fn reason(kind: BoundKind, because: &str) -> Reason {
    Reason { kind, because: because.to_owned() }
}

fn replica(number: u32, state: ReplicaState, age: TimeDelta) -> ReplicaObservation {
    let serving = matches!(state, ReplicaState::Ready | ReplicaState::Terminating);
    let share = f64::from(number % 5) / 5.0;
    ReplicaObservation {
        id: format!("10.4.{number}.7:8000"),
        name: format!(
            "chat-h100-7c9d5b8f6-{}",
            ["x2k9p", "m4qzt", "8vwls", "c7rnd", "qq5hj", "t9bxg", "zz81f", "hk3p2", "w0s7d"]
                [number as usize % 9]
        ),
        state,
        since: Some(morning() - age),
        load: serving.then(|| ReplicaLoad {
            running: Some(f64::from(18 + number * 3)),
            waiting: Some(f64::from(number % 3)),
            kv_usage: Some(0.52 + share * 0.4),
            kv_tokens: Some(462_000.0),
            input_tokens_per_second: Some(9_800.0),
            uncached_input_tokens_per_second: Some(4_210.0 + share * 1000.0),
            output_tokens_per_second: Some(388.4 + share * 100.0),
            ..ReplicaLoad::default()
        }),
        page_age: serving.then(|| Duration::from_millis(2100 + u64::from(number) * 310)),
        error: None,
        start: None,
    }
}

/// Six hours of points, a point a minute: a flat night, a ramp, twenty minutes that nobody saw.
fn recent() -> Vec<HistoryPoint> {
    let last = morning().timestamp() / 60 - 1;
    (0..360)
        .filter(|n| !(150..170).contains(n))
        .map(|n| {
            let ramp = 1.0 / (1.0 + (-(n as f32 - 312.0) / 9.0).exp());
            let wave = (n as f32 / 23.0).sin() * 0.25 + (n as f32 / 5.1).sin() * 0.12;
            let demand = 1.3 + wave + ramp * 5.1;
            let required = if n >= 303 { 8.0 } else { (demand + 0.35).ceil() };
            let ready = if n >= 342 {
                6.0
            } else if n >= 322 {
                4.0
            } else {
                2.0
            };
            let unknown = (205..212).contains(&n);
            HistoryPoint {
                minute: last - 359 + n,
                requests: demand * 40.0,
                uncached_input_tokens: demand * 240_000.0,
                output_tokens: demand * 21_000.0,
                rejected: 0.0,
                kv_tokens: demand * 210_000.0,
                running: demand * 20.0,
                waiting: 0.0,
                ready,
                demand: if unknown { f32::NAN } else { demand },
                required,
            }
        })
        .collect()
}

/// Learned from twelve starts on new nodes.
fn cold_start() -> ColdStart {
    let span = Duration::from_secs;
    let stage = |stage, p50, p90| StageTime { stage, p50: span(p50), p90: span(p90) };
    ColdStart {
        in_effect: span(180),
        learned: true,
        because: "learned: p90 of 12 starts (new node, image pulled, 1 not seen to their end)".to_owned(),
        path: Some(StartPath::NewNodeImagePulled),
        paths: Arc::new(vec![PathStarts {
            path: StartPath::NewNodeImagePulled,
            starts: 12,
            censored: 1,
            p50: span(150),
            p90: span(180),
            stages: vec![
                stage(Stage::Gated, 0, 0),
                stage(Stage::Unscheduled, 48, 61),
                stage(Stage::Pulling, 64, 70),
                stage(Stage::Init, 0, 0),
                stage(Stage::Loading, 38, 52),
            ],
        }]),
    }
}

fn busy_observation() -> Observation {
    let mut replicas: Vec<_> = (0..6)
        .map(|n| replica(n, ReplicaState::Ready, TimeDelta::minutes(i64::from(40 + 300 * n))))
        .collect();
    replicas.push(ReplicaObservation {
        start: Some(Start {
            created: morning() - TimeDelta::seconds(95),
            scheduled: Some(morning() - TimeDelta::seconds(47)),
            initialised: None,
            init_seconds: 0.0,
            container_started: None,
            ready: None,
            stage: Some(Stage::Pulling),
            blocked: None,
            restarts: 0,
        }),
        ..replica(6, ReplicaState::Starting, TimeDelta::seconds(95))
    });
    replicas.push(ReplicaObservation {
        error: Some("connect: connection refused (10.4.7.7:8000)".to_owned()),
        page_age: Some(Duration::from_secs(74)),
        ..replica(7, ReplicaState::Silent, TimeDelta::seconds(59))
    });
    Observation {
        replicas,
        replicas_unknown: None,
        authoritative: true,
        current: Some(8),
        scale: None,
        load: TierLoad {
            waiting_growth_per_second: Some(0.4),
            rates_over: Some(Duration::from_secs(60)),
            mean_input_tokens: Some(2140.0),
            mean_uncached_input_tokens: Some(1010.0),
            mean_output_tokens: Some(312.0),
            queue_time_p95_seconds: Some(Quantile::in_the_first_bucket(0.28, 0.3)),
            time_to_first_token_p50_seconds: Some(Quantile::between(0.21)),
            time_to_first_token_p95_seconds: Some(Quantile::between(1.62)),
            inter_token_p50_seconds: Some(Quantile::between(0.024)),
            inter_token_p95_seconds: Some(Quantile::between(0.051)),
        },
        activator: Some(ActivatorObservation {
            queued: Some(3.0),
            age: Some(Duration::from_secs(4)),
            error: None,
        }),
        totals: CountedTotals {
            input_tokens: 9.1e6,
            uncached_input_tokens: 4.3e6,
            output_tokens: 1.3e6,
            requests: 4262.0,
            rejected: 0.0,
            queue_times: None,
        },
    }
}

/// A tier of a floor of 8, with 6 ready.
pub(crate) fn busy() -> TierStatus {
    let id = TierId::new("serving", "chat-h100");
    let mut policy = policy(id.clone());
    policy.max_ramp = Some(Ramp { factor: 2.0, within: Duration::from_mins(2) });
    policy.floors = vec![
        Floor {
            name: "working day".to_owned(),
            window: Window::parse("Europe/Berlin", "0 9 * * 1-5", "0 18 * * 1-5").expect("window"),
            replicas: 8,
        },
        Floor {
            name: "evening news".to_owned(),
            window: Window::parse("Europe/Berlin", "45 19 * * *", "0 21 * * *").expect("window"),
            replicas: 10,
        },
    ];
    let observation = busy_observation();
    let mut asks = vec![
        ask(
            SignalKind::KvCache,
            Some(5.34),
            "4.27 replicas' KV cache in use of 6 known, at the target of 80 %",
        ),
        ask(
            SignalKind::Tokens,
            Some(6.41),
            "(28.3k uncached input/s at 8.0k + 2.6k output/s at 700) offered, at the target of 80 %",
        ),
        ask(
            SignalKind::Waiting,
            Some(6.52),
            "9 waiting requests of 1.3k tokens drained in 1m, on top of the tokens",
        ),
        ask(SignalKind::Batch, Some(3.1), "198 running or waiting at 64 a replica (KV tokens bind)"),
        ask(SignalKind::Latency, None, "no target is given"),
    ];
    asks[2].saturated = true;
    asks[3].weight = 0.0;
    asks[4].weight = 0.0;
    let decision = Decision {
        tier: id,
        at: morning(),
        answer: Answer::Required(8),
        asks,
        demand: Some(6.52),
        ahead: Some(7.86),
        forecast: None,
        bounds: vec![
            bound(BoundKind::Demand, 7, "the largest ask, waiting, needs 6.52"),
            bound(BoundKind::WarmPool, 8, "2x in 2m against a lead of 3m50s, 5 s may queue: 7.86"),
            bound(BoundKind::Floor, 8, "working day promises 8 until Mon 18:00 Europe/Berlin"),
            bound(BoundKind::Min, 1, "replicas.min"),
            bound(BoundKind::Max, 40, "replicas.max"),
        ],
        winner: reason(BoundKind::Floor, "working day promises 8 until Mon 18:00 Europe/Berlin"),
        held: None,
        capacity: Capacity {
            rates: TokenRates { input_tokens_per_second: 7_840.0, output_tokens_per_second: 721.0 },
            source: "learned".to_owned(),
            fit: "1,204 steps of 6 replicas, condition 14, error 6 %".to_owned(),
        },
        known: Known { expected: 7, known: 6 },
        lead: Duration::from_secs(230),
        cold_start: cold_start(),
        blocked: Vec::new(),
        notes: vec!["1 replica is silent: counted as idle for growth and as full for giving back".to_owned()],
    };
    TierStatus {
        policy: Arc::new(policy),
        decision,
        observation,
        recent: Arc::new(recent()),
        floors_ahead: vec![
            FloorAhead {
                name: "working day".to_owned(),
                replicas: 8,
                timezone: chrono_tz::Europe::Berlin,
                opens_at: "2026-11-30T08:00:00Z".parse().expect("time"),
                answered_from: "2026-11-30T07:56:10Z".parse().expect("time"),
                closes_at: Some("2026-11-30T17:00:00Z".parse().expect("time")),
            },
            FloorAhead {
                name: "evening news".to_owned(),
                replicas: 10,
                timezone: chrono_tz::Europe::Berlin,
                opens_at: "2026-11-30T18:45:00Z".parse().expect("time"),
                answered_from: "2026-11-30T18:41:10Z".parse().expect("time"),
                closes_at: Some("2026-11-30T20:00:00Z".parse().expect("time")),
            },
        ],
        declared_by_metadata: false,
        warnings: vec!["the ScaledObject's metadata has the key `desiredReplica`, which is unknown: did you mean desiredReplicas?".to_owned()],
        asked: keda_vllm_scaler::telemetry::Asked::default(),
        unasked: false,
        history_minutes: 19_930,
        learned: Arc::default(),
        forecast: None,
    }
}

/// A tier whose replicas nobody can see.
pub(crate) fn unknown() -> TierStatus {
    let mut status = busy();
    let id = TierId::new("serving", "code-a100");
    status.policy = Arc::new(policy(id.clone()));
    status.observation = Observation {
        current: Some(4),
        scale: None,
        ..Observation::unknown("code-a100.serving.svc.cluster.local: NXDOMAIN for 11m20s")
    };
    status.decision = Decision {
        tier: id,
        answer: Answer::Unknown {
            why: "no replica is known since 11m20s, longer than holdUnknown (10m)".to_owned(),
        },
        asks: SignalKind::ALL.iter().map(|signal| ask(*signal, None, "no replica is known")).collect(),
        demand: None,
        ahead: None,
        bounds: vec![bound(BoundKind::TooFewKnown, 4, "0 of 4 replicas are known")],
        winner: reason(BoundKind::TooFewKnown, "0 of 4 replicas are known"),
        known: Known { expected: 4, known: 0 },
        notes: Vec::new(),
        ..status.decision
    };
    status.warnings = Vec::new();
    status.floors_ahead = Vec::new();
    status.recent = Arc::new(Vec::new());
    status.history_minutes = 0;
    status
}

/// A tier at its minimum that gives back slowly.
pub(crate) fn quiet() -> TierStatus {
    let mut status = busy();
    let id = TierId::new("serving", "vision-l4");
    status.policy = Arc::new(policy(id.clone()));
    status.observation.replicas.retain(|replica| replica.state == ReplicaState::Ready);
    status.observation.replicas.truncate(2);
    status.observation.current = Some(2);
    status.decision.tier = id;
    status.decision.answer = Answer::Required(2);
    status.decision.demand = Some(0.62);
    status.decision.ahead = None;
    for (ask, replicas) in
        status.decision.asks.iter_mut().zip([Some(0.62), Some(0.41), Some(0.0), None, None])
    {
        ask.replicas = replicas;
        ask.saturated = false;
    }
    status.decision.bounds = vec![
        bound(BoundKind::Demand, 1, "the largest ask, kvCache, needs 0.62"),
        bound(BoundKind::Hold, 2, "2 was needed 1m40s ago; lower numbers must hold for 5m"),
        bound(BoundKind::Min, 1, "replicas.min"),
        bound(BoundKind::Max, 40, "replicas.max"),
    ];
    status.decision.winner = reason(BoundKind::Demand, "the largest ask, kvCache, needs 0.62: 1 replica");
    status.decision.held =
        Some(reason(BoundKind::Hold, "2 was needed 1m40s ago; lower numbers must hold for 5m"));
    status.decision.known = Known { expected: 2, known: 2 };
    status.decision.notes = Vec::new();
    status.warnings = Vec::new();
    status.floors_ahead = Vec::new();
    status
}

/// A tier that a ScaledObject's metadata declares.
pub(crate) fn declared() -> TierStatus {
    let mut status = quiet();
    let id = TierId::new("research", "notebook");
    status.policy = Arc::new(Policy { floors_only: true, ..policy(id.clone()) });
    status.observation = Observation::unknown("a tier declared by metadata has no source of load");
    status.decision.tier = id;
    status.decision.answer = Answer::Required(1);
    status.decision.asks = Vec::new();
    status.decision.demand = None;
    status.decision.bounds = vec![bound(BoundKind::Min, 1, "replicas.min")];
    status.decision.winner = reason(BoundKind::Min, "no floor is open: replicas.min");
    status.decision.held = None;
    status.decision.known = Known { expected: 0, known: 0 };
    status.declared_by_metadata = true;
    status.recent = Arc::new(Vec::new());
    status
}
