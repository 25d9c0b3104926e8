//! Values for unit tests.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};

use super::observation::{Observation, ReplicaLoad, ReplicaObservation, ReplicaState};
use super::policy::{Floor, Policy, TierId, TokenRates};
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
    let rates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };
    let defaults = Policy::with_defaults(TierId::new("serving", "chat"), 40, rates);
    Policy { control_delay: Duration::from_secs(30), ..defaults }
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
    Observation::listed(replicas)
}
