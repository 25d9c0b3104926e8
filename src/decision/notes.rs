//! What an operator should know and the number alone doesn't say.

use super::asks::{Considered, replicas};
use super::blocked::{BlockedCapacity, BlockedReason};
use super::coming::Coming;
use super::load::Load;
use super::observation::{Observation, ReplicaState};
use super::policy::Policy;
use super::sight::Sight;

mod scale_target;

pub(super) fn of(
    observation: &Observation,
    sight: &Sight,
    load: &Load,
    considered: &[Considered],
    coming: &Coming,
    lengths_known: bool,
) -> Vec<String> {
    let mut notes = Vec::new();
    for signal in considered.iter().filter(|c| c.weight > 0.0) {
        let Some(asked) = &signal.asked else { continue };
        if asked.saturated {
            notes.push(format!("saturated: {}", signal.signal.name()));
        }
        if signal.kept.is_some() {
            notes.push(format!("{} is {}", signal.signal.name(), asked.because));
        }
    }
    notes.extend(coming.note());
    let silent = observation.count(ReplicaState::Silent);
    if silent > 0 && *sight == Sight::Known {
        notes.push(format!(
            "{} without a fresh page: idle where the answer would rise, full where it would fall",
            replicas(silent)
        ));
    }
    if load.cut_off > 0 {
        notes.push(format!(
            "{} not ready for Kubernetes any more: traffic doesn't get there, full where the answer would fall",
            replicas(load.cut_off)
        ));
    }
    let asleep = observation.count(ReplicaState::Asleep);
    if asleep > 0 {
        notes.push(format!("{} asleep: no load, no capacity", replicas(asleep)));
    }
    if let Some(activator) = observation.activator.as_ref().filter(|activator| activator.queued.is_none()) {
        let why = activator.error.as_deref().unwrap_or("not read yet");
        notes.push(format!("the activator can't be read: {why}"));
    }
    if !lengths_known && load.waiting.low > 0.0 {
        notes.push(
            "request lengths aren't known yet: 1155 input and 211 output tokens are assumed".to_owned(),
        );
    }
    notes
}

/// What Kubernetes holds back, or would make of the answer. It counts with and without a source of load.
pub(super) fn of_the_cluster(
    policy: &Policy,
    observation: &Observation,
    blocked: &[BlockedCapacity],
) -> Vec<String> {
    let mut notes: Vec<String> = blocked.iter().map(of_blocked).collect();
    if let Some(scale) = &observation.scale {
        notes.extend(scale_target::of(policy, scale));
    }
    notes
}

fn of_blocked(group: &BlockedCapacity) -> String {
    let what = match group.reason {
        BlockedReason::CreateRefused => "can't be created",
        _ => "can't start",
    };
    let because = if group.because.is_empty() { String::new() } else { format!(": {}", group.because) };
    format!("capacity blocked: {} {what}{because}", replicas(group.replicas))
}
