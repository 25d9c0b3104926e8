//! What one scaler takes from another.

use super::*;
use crate::decision::fixtures::{at, observation, policy, replica};
use crate::decision::observation::{ReplicaState, StepSample};
use crate::decision::{Observation, Policy, ReplicaLoad};

/// A replica whose steps follow a law, with another load each round.
fn teaching(round: u32) -> Observation {
    let x = f64::from(round % 10) / 10.0;
    let y = f64::from(round * 7 % 13) / 13.0;
    let (prefill, decode) = (400.0 * x, 10.0 + 40.0 * y);
    let mut seen = replica("a", ReplicaState::Ready);
    seen.load = Some(ReplicaLoad {
        steps: Some(StepSample {
            steps: 400.0,
            inter_token_count: 8_000.0,
            inter_token_mean_seconds: 0.010 + 50e-6 * prefill + 100e-6 * decode,
            prefill_tokens_per_step: prefill,
            decode_tokens_per_step: decode,
        }),
        ..ReplicaLoad::default()
    });
    observation(vec![seen])
}

fn taught(rounds: u32) -> Memory {
    // A forecast is taken apart from the rest.
    let policy = Policy { forecast: None, ..policy() };
    let mut memory = Memory::default();
    for round in 0..rounds {
        let now = at("10:00") + chrono::TimeDelta::seconds(5 * i64::from(round));
        memory.learn(&policy, &teaching(round), now);
    }
    memory
}

#[test]
fn the_cost_of_a_step_is_taken_by_one_who_knows_none_and_kept_by_one_who_knows_more() {
    let holder = taught(400);
    assert!(holder.fit.accepted().is_some());
    let mut new = Memory::started(at("12:00"));
    new.take_learned(&holder.learned());
    assert_eq!(new.fit.accepted(), holder.fit.accepted());
    assert_eq!(new.learned(), holder.learned(), "its age goes with it, whatever the clocks have counted");

    let mut experienced = taught(1_000);
    let before = experienced.learned();
    experienced.take_learned(&holder.learned());
    assert_eq!(experienced.learned(), before);
}

#[test]
fn what_can_t_be_true_is_not_taken() {
    let mut broken = taught(400).learned();
    let mut written = serde_json::to_value(&broken).unwrap();
    written["fit"]["accepted"]["beta"] = serde_json::json!(f64::NAN.to_bits());
    broken = serde_json::from_value(written).unwrap();
    broken.shape = Some(RequestShape { input: f64::INFINITY, uncached_input: 1.0, output: 1.0 });
    let mut memory = Memory::default();
    memory.take_learned(&broken);
    assert_eq!(memory.learned(), Learned::default());
}

#[test]
fn lengths_of_requests_are_taken_where_none_are_known() {
    let shape = |input: f64| Some(RequestShape { input, uncached_input: input, output: 100.0 });
    let other = Learned { shape: shape(500.0), ..Learned::default() };
    let mut memory = Memory::default();
    memory.take_learned(&other);
    assert_eq!(memory.shape, shape(500.0));
    memory.shape = shape(800.0);
    memory.take_learned(&other);
    assert_eq!(memory.shape, shape(800.0));
}
