//! Up and down, floors, the lead time, the dead band and clocks. Each test name is a rule.

#[path = "common/timeline.rs"]
mod timeline;

use std::time::Duration;

use chrono::TimeDelta;
use keda_vllm_scaler::decision::Policy;
use keda_vllm_scaler::decision::policy::{Combine, DeadBand, Hold, InsideBand, QueueAllowance, Step};
use timeline::{Timeline, doubles_in, floor, policy};

fn tier() -> Timeline {
    Timeline::new(policy())
}

// ---- up and down

#[test]
fn up_at_once_and_to_the_full_number() {
    let mut tier = tier();
    tier.at("10:00").ready(2).kv(0.3).expect(1);
    tier.at("10:01").kv(0.9).waiting(2000.0).work(1.0).expect(23).because("waiting asks 22.5");
}

#[test]
fn down_only_after_the_lower_number_was_enough_for_one_hold() {
    let mut tier = tier();
    tier.at("10:00").ready(4).kv(0.7).expect(4).because("kvCache asks 3.5");
    tier.at("10:10").kv(0.3).expect(4).because("hold: 4 were needed within the hold of 3m30s");
    tier.at("10:13:25").expect(4);
    tier.at("10:13:35").expect(2).because("kvCache asks 1.5");
}

#[test]
fn a_short_dip_gives_nothing_back() {
    let mut tier = tier();
    tier.at("10:00").ready(4).kv(0.7).expect(4);
    tier.at("10:10").kv(0.1).expect(4);
    tier.at("10:13").kv(0.7).expect(4).because("demand");
    tier.at("10:14").kv(0.1).expect(4);
    tier.at("10:17").expect(4).because("hold");
}

#[test]
fn an_answer_falls_by_no_more_than_one_step_in_a_hold() {
    let mut policy = policy();
    policy.scale_down.max_step = Step::Share(0.5);
    let mut tier = Timeline::new(policy);
    tier.at("10:00").ready(20).kv(0.8).expect(20);
    tier.at("10:10").kv(0.04).expect(20);
    tier.at("10:14").expect(10).because("maxStep: not below 10: a step down from 20 is at most 10");
    tier.at("10:16:55").expect(10);
    tier.at("10:17:05").expect(5);
    tier.at("10:20:40").expect(3);
    tier.at("10:24:15").expect(2);
    tier.at("10:40").expect(1);
}

#[test]
fn a_step_may_be_a_number_of_replicas() {
    let mut policy = policy();
    policy.scale_down.max_step = Step::Replicas(2);
    let mut tier = Timeline::new(policy);
    tier.at("10:00").ready(8).kv(0.8).expect(8);
    tier.at("10:10").kv(0.0).expect(8);
    tier.at("10:14").expect(6);
    tier.at("10:18").expect(4);
}

#[test]
fn the_load_must_fit_into_fewer_replicas_by_every_signal_not_by_the_mean() {
    let mut tier = Timeline::new(Policy { combine: Combine::Weighted, ..policy() });
    // kvCache 5, tokens 1, waiting 1: the mean is 2.33.
    tier.at("10:00").ready(5).kv(0.8).work(0.16).expect(3).because("weighted mean of the asks is 2.33");
    tier.at("10:10").kv(0.96).work(0.8).expect(6).because("saturated");
    tier.at("10:20").kv(0.8).work(0.16).expect(6);
    tier.at("10:40")
        .expect(5)
        .because("nMinusOne: spread over fewer than 5, kvCache would be above its target");
}

#[test]
fn a_saturated_signal_can_t_be_averaged_away() {
    let mut tier = Timeline::new(Policy { combine: Combine::Weighted, ..policy() });
    tier.at("10:00").ready(4).kv(0.94).work(0.2).expect(3);
    tier.at("10:01")
        .kv(0.96)
        .expect(5)
        .because("kvCache is saturated and asks 4.80")
        .notes("saturated: kvCache");
}

#[test]
fn waiting_over_three_scrapes_saturates_and_two_don_t() {
    let mut policy = Policy { combine: Combine::Weighted, ..policy() };
    policy.signals.waiting.weight = 0.1;
    let mut tier = Timeline::new(policy);
    tier.at("10:00").ready(2).kv(0.4).work(0.4).expect(1);
    tier.at("10:00:05").waiting(300.0).expect(2);
    tier.at("10:00:10").expect(2);
    tier.at("10:00:15").expect(4).because("waiting is saturated and asks 4.00");
    tier.at("10:00:20").waiting(0.0).expect(4).because("hold");
}

#[test]
fn a_signal_with_weight_0_is_off() {
    let mut policy = policy();
    policy.signals.kv_cache.weight = 0.0;
    let mut tier = Timeline::new(policy);
    tier.at("10:00").ready(4).kv(0.99).work(0.4).expect(2).because("tokens asks 2.00");
}

#[test]
fn the_maximum_closes_and_says_what_would_be_needed() {
    let mut tier = Timeline::new(Policy { max: 6, ..policy() });
    tier.at("10:00").ready(6).kv(0.9).waiting(500.0).work(0.8).expect(6).because("closed by max 6");
    tier.notes("closed by max 6: would need 21");
}

#[test]
fn a_maximum_that_is_lowered_counts_at_once_and_what_was_held_is_not_called_a_need() {
    let mut tier = tier();
    tier.at("10:00").ready(20).kv(0.8).expect(20);
    tier.at("10:01").policy.max = 8;
    tier.kv(0.2).expect(8).because("hold: 20 were needed within the hold");
}

// ---- floors

#[test]
fn a_floor_is_ordered_one_lead_early_and_ends_on_time() {
    let floors = vec![floor("workday", "0 9 * * *", "0 18 * * *", 6)];
    let mut tier = Timeline::new(Policy { floors, ..policy() });
    tier.at("08:50").ready(2).kv(0.6).expect(2).because("demand");
    tier.at("08:56:25").expect(2);
    tier.at("08:56:30")
        .expect(6)
        .because("floor workday of 6 from 09:00 UTC: ordered one lead (3m30s) before");
    tier.at("09:00").ready(6).kv(0.2).expect(6).because("floor workday of 6, open until Tue 18:00 UTC");
    tier.at("17:59:55").expect(6);
    // The hold of the load has been watched meanwhile.
    tier.at("18:00").expect(2).because("kvCache asks 1.50");
}

#[test]
fn a_floor_s_end_leaves_what_the_load_needed_within_the_hold() {
    let floors = vec![floor("workday", "0 9 * * *", "0 18 * * *", 6)];
    let mut tier = Timeline::new(Policy { floors, ..policy() });
    tier.at("17:50").ready(6).kv(0.6).expect(6);
    tier.at("17:58").kv(0.2).expect(6).because("floor");
    tier.at("18:00").expect(5).because("hold: 5 were needed within the hold");
    tier.at("18:02").expect(2);
}

#[test]
fn floors_that_meet_leave_no_dip() {
    let floors = vec![
        floor("morning", "0 8 * * *", "0 12 * * *", 4),
        floor("afternoon", "0 12 * * *", "0 18 * * *", 4),
    ];
    let mut tier = Timeline::new(Policy { floors, ..policy() });
    tier.at("11:50").ready(4).expect(4);
    for time in ["11:59:55", "12:00", "12:00:05"] {
        tier.at(time).expect(4);
    }
}

#[test]
fn a_floor_is_never_above_the_maximum() {
    let floors = vec![floor("workday", "0 9 * * *", "0 18 * * *", 60)];
    let mut tier = Timeline::new(Policy { floors, ..policy() });
    tier.at("12:00").ready(4).expect(40).because("closed by max 40");
}

#[test]
fn a_tier_without_a_source_of_load_answers_its_floors() {
    let floors = vec![floor("workday", "0 9 * * *", "0 18 * * *", 6)];
    let mut tier = Timeline::new(Policy { floors, floors_only: true, min: 0, ..policy() });
    tier.at("08:00").replicas_unknown("no source").expect(0);
    tier.at("08:57").expect(6).because("floor workday");
    tier.at("18:00").expect(0);
}

// ---- one cold start ahead

#[test]
fn a_declared_ramp_is_covered_over_one_lead_and_never_added_to_a_floor() {
    let floors = vec![floor("launch", "0 12 * * *", "0 13 * * *", 9)];
    let mut tier = Timeline::new(Policy { max_ramp: Some(doubles_in(120)), floors, ..policy() });
    // 4 now; a lead of 210 s and 5 s of queue: 11.6.
    tier.at("10:00").ready(8).kv(0.4).expect(12).because("warmPool: 4.00 now may grow 2-fold in 2m");
    tier.at("12:00").expect(12).because("warmPool");
    tier.at("12:30").kv(0.1).expect(12);
    tier.at("12:40").expect(9).because("floor launch");
}

#[test]
fn the_queue_allowance_may_be_requests_or_tokens() {
    let answer = |acceptable_queue| {
        let mut tier =
            Timeline::new(Policy { max_ramp: Some(doubles_in(120)), acceptable_queue, max: 100, ..policy() });
        tier.at("10:00").ready(16).kv(0.4).round().required()
    };
    let seconds = answer(QueueAllowance::Seconds(5.0));
    // 5 s of a demand of 8 are 40 x 0.8 = 32 replica-seconds of work; a request costs 0.3 of them and has 940 tokens.
    assert_eq!(answer(QueueAllowance::Requests(32.0 / 0.3)), seconds);
    assert_eq!(answer(QueueAllowance::Tokens(32.0 / 0.3 * 940.0)), seconds);
    assert!(answer(QueueAllowance::Requests(0.0)) > seconds);
}

// ---- the HPA's dead band

fn with_dead_band() -> Timeline {
    let dead_band = DeadBand { tolerance: 0.1, inside: InsideBand::Exceed };
    Timeline::new(Policy { dead_band, max: 100, ..policy() })
}

#[test]
fn inside_the_band_the_answer_is_the_smallest_that_moves_the_hpa_and_then_stays() {
    let mut tier = with_dead_band();
    tier.at("10:00").ready(20).current(20).kv(0.8).expect(20);
    // 20 x 0.84 / 0.8 = 21.
    tier.at("10:01").kv(0.84).expect(23).because("deadBand: 21 is within the HPA's 10 % tolerance of 20: 23");
    tier.at("10:01:15")
        .current(23)
        .expect(21)
        .notes("the HPA keeps 23: 21 is within its 10 % tolerance, 2 surplus");
    tier.at("10:30").expect(21);
    // The band is no need: it isn't held.
    tier.at("10:31").kv(0.76).expect(21).because("hold");
    tier.at("10:40").expect(19).because("kvCache asks 19.00");
}

#[test]
fn a_tier_that_stays_in_the_band_says_what_it_is_short() {
    let mut policy = with_dead_band().policy;
    policy.dead_band.inside = InsideBand::Stay;
    let mut tier = Timeline::new(policy);
    tier.at("10:00")
        .ready(20)
        .current(20)
        .kv(0.84)
        .expect(21)
        .notes("the HPA keeps 20: 21 is within its 10 %");
}

// ---- clocks

#[test]
fn a_clock_that_jumps_forward_ends_no_hold() {
    let mut tier = tier();
    tier.at("10:00").ready(4).kv(0.7).expect(4);
    tier.at("10:01").kv(0.1).expect(4);
    tier.clock_jumps_by(TimeDelta::days(30)).expect(4).because("hold");
    tier.clock_jumps_by(TimeDelta::seconds(60)).expect(4);
    tier.clock_jumps_by(TimeDelta::seconds(60)).expect(4);
    tier.clock_jumps_by(TimeDelta::seconds(60)).expect(1);
}

#[test]
fn a_clock_that_is_set_back_wedges_no_hold_and_drops_no_answer() {
    let mut tier = tier();
    tier.at("10:00").ready(4).kv(0.7).expect(4);
    tier.at("10:01").kv(0.1).expect(4);
    tier.clock_jumps_by(TimeDelta::days(-30)).expect(4).because("hold");
    for _ in 0..5 {
        tier.clock_jumps_by(TimeDelta::seconds(60)).round();
    }
    tier.expect(1);
}

#[test]
fn a_gap_in_which_nobody_looked_is_no_hold() {
    let mut tier = tier();
    tier.at("10:00").ready(4).kv(0.7).expect(4);
    tier.kv(0.1).clock_jumps_by(TimeDelta::minutes(20)).expect(4).because("hold");
}

#[test]
fn a_hold_may_be_configured() {
    let mut policy = policy();
    policy.scale_down.hold = Hold::Fixed(Duration::from_mins(10));
    let mut tier = Timeline::new(policy);
    tier.at("10:00").ready(4).kv(0.7).expect(4);
    tier.at("10:10").kv(0.1).expect(4);
    tier.at("10:19:55").expect(4);
    tier.at("10:20:05").expect(1);
}
