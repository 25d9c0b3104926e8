//! The scaler in the fluid model, as timelines.

use std::sync::atomic::AtomicU64;

use super::*;
use crate::backtest::fleet::play;
use crate::backtest::score::Tally;
use crate::backtest::trace::{Arrivals, Trace};
use crate::backtest::work::Size;
use crate::decision::fixtures::{at, policy};
use crate::decision::policy::{DeadBand, ForecastPolicy, ScaleDown, Step};
use crate::simulate::autoscaler::AutoscalerSettings;

const TERMS: Terms = Terms { cold_start_slots: 36, acceptable_seconds: 5.0, initial: 5 };

/// Replicas' worth of work, slot by slot; half of it input.
fn work(replicas: &[f64], peak: u32) -> Work {
    let slot = |replicas: &f64| Arrivals {
        requests: replicas * 5.0,
        input_tokens: replicas * 5.0 * 4000.0,
        output_tokens: replicas * 5.0 * 350.0,
    };
    let trace =
        Trace { slots: replicas.iter().map(slot).collect(), bin_seconds: SLOT_SECONDS, ..Trace::default() };
    Work::of(&trace, policy().capacity.prior, Size::Peak(peak), 5.0).unwrap()
}

fn contender() -> Contender {
    let defaults = policy();
    let policy = Policy {
        dead_band: DeadBand { tolerance: 0.0, ..defaults.dead_band },
        scale_down: ScaleDown { max_step: Step::Share(1.0), ..defaults.scale_down },
        ..defaults
    };
    let chain = AutoscalerSettings::recommended(policy.min, policy.max);
    Contender { name: "ours".to_owned(), policy, chain }
}

fn world(work: &Work, terms: Terms) -> World<'_> {
    let cold_start = Duration::from_secs(180);
    World { work, terms, rates: policy().capacity.prior, begins: at("00:00"), cold_start }
}

/// The scaler, with the sizes of its fleet slot by slot.
struct Watched<'a> {
    scaler: Scaler<'a>,
    sizes: Vec<(u32, u32)>,
}

impl Controller for Watched<'_> {
    fn replicas(&mut self, slot: usize, fleet: &Fleet) -> u32 {
        let size = self.scaler.replicas(slot, fleet);
        self.sizes.push((size, fleet.ready()));
        size
    }

    fn served(&mut self, slot: usize, ended: Ended) {
        self.scaler.served(slot, ended);
    }
}

/// Paid and ready replicas, slot by slot.
fn sizes(load: &[f64]) -> Vec<(u32, u32)> {
    let (contender, work) = (contender(), work(load, 8));
    let scaler = Scaler::new(&world(&work, TERMS), &contender, Insight::default());
    let mut watched = Watched { scaler, sizes: Vec::new() };
    play(&work, &TERMS, &mut watched, Tally::new(5.0), &AtomicU64::new(0));
    watched.sizes
}

#[test]
fn a_step_is_answered_within_a_sync_or_two_and_ready_one_cold_start_later() {
    let mut load = vec![4.0; 240];
    load.extend(vec![8.0; 240]);
    let sizes = sizes(&load);
    assert_eq!(sizes[230], (5, 5), "4 / 0.8");
    let enough = sizes.iter().position(|(paid, _)| *paid >= 10).unwrap();
    assert!((241..=255).contains(&enough), "{enough}");
    assert!(sizes[enough + 35].1 < 10, "still starting");
    assert!(sizes[enough + 36].1 >= 10);
}

#[test]
fn what_is_not_needed_any_more_is_given_back_after_the_hold() {
    let mut load = vec![8.0; 120];
    load.extend(vec![4.0; 300]);
    let sizes = sizes(&load);
    let last = |least: u32| sizes.iter().rposition(|(paid, _)| *paid >= least).unwrap();
    assert!(last(10) >= 120 + 42, "the hold is 210 s");
    assert_eq!(sizes.last(), Some(&(5, 5)));
}

#[test]
fn what_the_model_doesn_t_have_is_absent_and_not_zero() {
    let (contender, work) = (contender(), work(&[4.0; 20], 4));
    let too_few = Terms { initial: 3, ..TERMS };
    let mut scaler = Scaler::new(&world(&work, too_few), &contender, Insight::default());
    play(&work, &too_few, &mut scaler, Tally::new(5.0), &AtomicU64::new(0));
    let seen = &scaler.seen;
    assert_eq!((seen.current, seen.authoritative), (Some(seen.replicas.len() as u32), true));
    let load = seen.replicas[0].load.as_ref().unwrap();
    assert_eq!(
        (load.kv_usage, load.running, load.rejected_per_second, &load.steps),
        (None, None, None, &None)
    );
    assert_eq!((seen.load.queue_time_p95_seconds, &seen.activator), (None, &None));
    // Full, and half of it is input.
    let input = load.uncached_input_tokens_per_second.unwrap();
    assert!((input - 8000.0 / 2.0).abs() < 1.0, "{input}: full replicas serve what they can");
    assert!(seen.load.waiting_growth_per_second.unwrap() > 0.0);
    assert!(load.waiting.unwrap() > 0.0);
}

#[test]
fn shown_what_arrives_it_needs_what_will_arrive() {
    let mut load = vec![4.0; 120];
    load.extend(vec![8.0; 120]);
    let (contender, work) = (contender(), work(&load, 8));
    let insight = Insight { at_once: true, arriving: Some(36) };
    let mut scaler = Scaler::new(&world(&work, TERMS), &contender, insight);
    let mut fleet = Fleet::new(&TERMS);
    let mut needs = Vec::new();
    for slot in 0..150 {
        fleet.begin(slot);
        let replicas = scaler.replicas(slot, &fleet);
        fleet.scale(replicas, slot);
        needs.push(scaler.needed());
        let ended = Ended { served: 0, queued: 0, ready: fleet.ready() };
        scaler.served(slot, ended);
    }
    assert_eq!(needs[70], 5, "4 / 0.8");
    assert_eq!(needs[85], 10, "one cold start before the step");
}

#[test]
fn the_reasons_of_its_answers_are_kept_where_they_are_wanted() {
    let mut load = vec![4.0; 240];
    load.extend(vec![8.0; 240]);
    let (contender, work) = (contender(), work(&load, 8));
    let changes = Changes::new(work.len(), 12);
    let mut scaler = Scaler::new(&world(&work, TERMS), &contender, Insight::default()).telling(changes);
    play(&work, &TERMS, &mut scaler, Tally::new(5.0), &AtomicU64::new(0));
    let changes = scaler.into_changes().unwrap();
    let up = changes.all().iter().find(|change| change.to >= Some(10)).unwrap();
    assert!(
        (240..=255).contains(&up.slot) && up.because.contains(" asks ") && up.because.contains(": "),
        "{up:?}"
    );
}

#[test]
fn a_priced_forecast_costs_less_than_headroom_for_everybody_and_is_late_for_hardly_a_minute() {
    // A day and ten hours of a wave of three hours, which no floor knows, with some noise.
    let load: Vec<f64> = (0..34 * 720_u32)
        .map(|slot| {
            let noise =
                (u64::from(slot).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f64 / f64::from(1 << 24);
            5.5 - 2.0 * (f64::from(slot) / 2160.0 * std::f64::consts::TAU).cos() + 0.6 * (noise - 0.5)
        })
        .collect();
    let work = work(&load, 8);
    let play_with = |forecast| {
        let mut contender = contender();
        contender.policy.forecast = forecast;
        let mut scaler = Scaler::new(&world(&work, TERMS), &contender, Insight::default());
        // On its first day the forecast stands beside the headroom.
        let tally = Tally::new(5.0).from(24 * 720, TERMS.initial);
        play(&work, &TERMS, &mut scaler, tally, &AtomicU64::new(0))
    };
    let plain = play_with(None);
    let priced = play_with(Some(ForecastPolicy::default()));
    let share = priced.gpu_hours / plain.gpu_hours;
    assert!(share < 0.95, "{share}");
    // A week has 10,080 minutes, ten hours 600 of them.
    let late_minutes = priced.late_minutes_a_week / 16.8;
    assert!(late_minutes < 6.5, "{late_minutes}");
}
