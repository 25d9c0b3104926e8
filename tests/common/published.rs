//! Hand-made snapshots, published the way the control loop does it.

#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, reason = "what can't be set up fails the test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use keda_vllm_scaler::clock::Clock;
use keda_vllm_scaler::decision::explanation::{Capacity, Known, Reason};
use keda_vllm_scaler::decision::policy::TokenRates;
use keda_vllm_scaler::decision::{Answer, BoundKind, ColdStart, Decision, Observation, Policy, TierId};
use keda_vllm_scaler::snapshot::{
    ConfigStatus, Declare, Published, RecordStatus, Snapshot, StoreStatus, TierStatus,
};
use tokio::sync::{mpsc, watch};

/// The publishing half: what a control loop would hold.
pub(crate) struct Publisher {
    pub(crate) clock: Clock,
    pub(crate) declared: mpsc::Receiver<Declare>,
    snapshot: watch::Sender<Arc<Snapshot>>,
    next: Snapshot,
}

/// A publisher whose first snapshot knows nothing.
pub(crate) fn publisher() -> (Publisher, Published) {
    let clock = Clock::system();
    let first = Snapshot {
        at: clock.now(),
        started_at: clock.now(),
        refused: Vec::new(),
        tiers: BTreeMap::new(),
        waiting: Vec::new(),
        config: ConfigStatus::default(),
        store: StoreStatus::default(),
        record: RecordStatus::default(),
        ready: false,
    };
    let (snapshot, receiver) = watch::channel(Arc::new(first.clone()));
    let (declare, declared) = mpsc::channel(4);
    (Publisher { clock, declared, snapshot, next: first }, Published { snapshot: receiver, declare })
}

impl Publisher {
    /// Changes the snapshot and publishes it.
    pub(crate) fn publish(&mut self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.next);
        self.next.at = self.clock.now();
        self.snapshot.send_replace(Arc::new(self.next.clone()));
    }

    /// Publishes an answer for a tier.
    pub(crate) fn answer(&mut self, tier: &TierId, answer: Answer) {
        let status = status(policy(tier), answer, self.clock.now());
        self.publish(|snapshot| {
            snapshot.ready = true;
            snapshot.waiting.retain(|waiting| waiting != tier);
            snapshot.tiers.insert(tier.clone(), Arc::new(status));
        });
    }

    pub(crate) fn required(&mut self, tier: &TierId, replicas: u32) {
        self.answer(tier, Answer::Required(replicas));
    }

    pub(crate) fn unknown(&mut self, tier: &TierId, why: &str) {
        self.answer(tier, Answer::Unknown { why: why.to_owned() });
    }

    /// Takes one declaration and publishes its answer, as the control loop does.
    pub(crate) async fn take_declaration(&mut self, answer: Answer) {
        let declare = self.declared.recv().await.expect("servers hold the sender");
        let mut status = status(declare.policy, answer, self.clock.now());
        status.declared_by_metadata = true;
        status.warnings = declare.warnings;
        let tier = status.policy.tier.clone();
        self.publish(|snapshot| {
            snapshot.tiers.insert(tier, Arc::new(status));
        });
        declare.done.send(()).ok();
    }
}

pub(crate) fn tier(name: &str) -> TierId {
    TierId::new("serving", name)
}

pub(crate) fn status(policy: Policy, answer: Answer, at: DateTime<Utc>) -> TierStatus {
    let decision = Decision {
        tier: policy.tier.clone(),
        at,
        answer,
        asks: Vec::new(),
        demand: None,
        ahead: None,
        forecast: None,
        bounds: Vec::new(),
        winner: Reason { kind: BoundKind::Demand, because: "by hand".into() },
        held: None,
        capacity: Capacity { rates: policy.capacity.prior, source: "configured".into(), fit: String::new() },
        known: Known { expected: 0, known: 0 },
        lead: policy.lead(),
        cold_start: ColdStart::configured(policy.cold_start),
        blocked: Vec::new(),
        notes: Vec::new(),
    };
    TierStatus {
        policy: Arc::new(policy),
        decision,
        observation: Observation::unknown("by hand"),
        recent: Arc::default(),
        floors_ahead: Vec::new(),
        declared_by_metadata: false,
        warnings: Vec::new(),
        asked: keda_vllm_scaler::telemetry::Asked::default(),
        unasked: false,
        history_minutes: 0,
        learned: Arc::default(),
        forecast: None,
    }
}

pub(crate) fn policy(tier: &TierId) -> Policy {
    let rates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };
    let control_delay = Duration::from_secs(30);
    Policy { min: 0, control_delay, ..Policy::with_defaults(tier.clone(), 40, rates) }
}
