//! Values for unit tests.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};

use super::observation::{
    CountedTotals, Observation, ReplicaLoad, ReplicaObservation, ReplicaState, TierLoad,
};
use super::policy::{
    BatchSignal, CapacityPolicy, Combine, DeadBand, Floor, Hold, InsideBand, LatencySignal, Policy,
    QueueAllowance, ScaleDown, Signals, Step, TargetSignal, TierId, TokenRates, WaitingSignal,
};
use crate::schedule::Window;

/// A Tuesday.
pub(crate) fn at(time: &str) -> DateTime<Utc> {
    let time = if time.len() == 5 { format!("{time}:00") } else { time.to_owned() };
    let time: NaiveTime = time.parse().unwrap();
    NaiveDate::from_ymd_opt(2026, 12, 1).unwrap().and_time(time).and_utc()
}

pub(crate) fn floor(start: &str, end: &str, replicas: u32) -> Floor {
    Floor { name: format!("{start}-{end}"), window: Window::parse("UTC", start, end).unwrap(), replicas }
}

/// One lead is 3m30s, one hold too.
pub(crate) fn policy() -> Policy {
    Policy {
        tier: TierId::new("serving", "chat"),
        min: 1,
        max: 40,
        cold_start: Duration::from_mins(3),
        learn_cold_start: true,
        control_delay: Duration::from_secs(30),
        drain: Duration::from_secs(30),
        acceptable_queue: QueueAllowance::Seconds(5.0),
        signals: Signals {
            kv_cache: TargetSignal { weight: 1.0, target: 0.8 },
            tokens: TargetSignal { weight: 1.0, target: 0.8 },
            waiting: WaitingSignal { weight: 1.0, drain: Duration::from_mins(1) },
            batch: BatchSignal { weight: 0.0, inter_token_latency: None, max_running: None },
            latency: LatencySignal { weight: 0.0, queue_time_p95: None, time_to_first_token_p95: None },
        },
        combine: Combine::Max,
        capacity: CapacityPolicy {
            prior: TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 },
            prior_source: "configured".into(),
            learn: true,
            kv_tokens: None,
        },
        floors: vec![],
        max_ramp: None,
        scale_down: ScaleDown { hold: Hold::Auto, max_step: Step::Share(0.5) },
        hold_unknown: Duration::from_mins(10),
        dead_band: DeadBand { tolerance: 0.1, inside: InsideBand::Exceed },
        floors_only: false,
    }
}

pub(crate) fn replica(name: &str, state: ReplicaState) -> ReplicaObservation {
    let serves = matches!(state, ReplicaState::Ready);
    ReplicaObservation {
        id: name.into(),
        name: name.into(),
        state,
        since: None,
        load: serves.then(ReplicaLoad::default),
        page_age: serves.then_some(Duration::ZERO),
        error: None,
        start: None,
    }
}

pub(crate) fn observation(replicas: Vec<ReplicaObservation>) -> Observation {
    Observation {
        replicas,
        replicas_unknown: None,
        authoritative: true,
        current: None,
        scale: None,
        load: TierLoad::default(),
        activator: None,
        totals: CountedTotals::default(),
    }
}
