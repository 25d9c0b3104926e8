//! What the scaler knows that has served some days of a load before a lesson begins: they are played as a fluid, which is
//! quick, and the lesson goes on with the memory.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::stage::Stage;
use crate::backtest::fleet::{Terms, play};
use crate::backtest::ours::{Insight, Scaler, World};
use crate::backtest::score::Tally;
use crate::backtest::trace::Trace;
use crate::backtest::work::{Size, Work};
use crate::backtest::{Contender, SLOT_SECONDS};
use crate::decision::{Memory, Policy};
use crate::simulate::autoscaler::AutoscalerSettings;

/// What may queue, seconds.
const ACCEPTABLE_SECONDS: f64 = 5.0;

/// After so many days of this load up to the lesson's begin; `replicas` gives it by seconds since the first of them began.
/// A new process takes the memory up, as after an update.
pub(super) fn after(stage: &Stage, policy: &Policy, days: u32, replicas: impl Fn(f64) -> f64) -> Memory {
    let span = Duration::from_hours(24) * days;
    // Other days than the lesson's have other requests.
    let slots = stage.with_seed(stage.seed ^ 0xDA15).slots(span, replicas);
    let trace = Trace { slots, bin_seconds: SLOT_SECONDS, ..Trace::default() };
    let rates = stage.capacity.rates;
    let nothing = || Memory::started(stage.begins);
    let Some(work) = Work::of(&trace, rates, Size::Scale(1.0), ACCEPTABLE_SECONDS) else { return nothing() };
    let begins = stage.begins - span;
    let world_terms = Terms {
        cold_start_slots: (policy.cold_start.as_secs_f64() / SLOT_SECONDS).ceil() as u32,
        acceptable_seconds: ACCEPTABLE_SECONDS,
        initial: policy.min.max(1),
    };
    let world = World { work: &work, terms: world_terms, rates, begins, cold_start: policy.cold_start };
    let chain = AutoscalerSettings::recommended(policy.min, policy.max);
    let contender = Contender { name: String::new(), policy: policy.clone(), chain };
    let mut scaler = Scaler::new(&world, &contender, Insight::default());
    play(&work, &world_terms, &mut scaler, Tally::new(ACCEPTABLE_SECONDS), &AtomicU64::new(0));
    scaler.into_memory().resumed(stage.begins)
}
