//! What an operator should know and the number alone doesn't say.

use super::asks::{Considered, replicas};
use super::load::Load;
use super::observation::{Observation, ReplicaState};
use super::sight::Sight;

pub(super) fn of(
    observation: &Observation,
    sight: &Sight,
    load: &Load,
    considered: &[Considered],
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
    let blocked = observation.count(ReplicaState::Blocked);
    if blocked > 0 {
        notes.push(format!("capacity blocked: {} can't start", replicas(blocked)));
    }
    let silent = observation.count(ReplicaState::Silent);
    if silent > 0 && *sight == Sight::Known {
        notes.push(format!(
            "{} without a fresh page: idle where the answer would rise, full where it would fall",
            replicas(silent)
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
