//! The dial against tiers that are late as it lets them.

use super::*;
use crate::forecast::SLOTS_A_BIN;

const WEEK: i64 = 7 * BINS_A_DAY as i64;

fn terms() -> Terms {
    Terms::new(205.0, 210.0, 5.0, 30.0)
}

fn bin(number: i64) -> Bin {
    Bin { number, slots: [20.0; SLOTS_A_BIN], seen: true }
}

/// Ten requests, this share of them late.
fn told(late: f64) -> Queued {
    Queued { requests: 10.0, late: 10.0 * late, by: LateCount::QueueTimes }
}

/// Between 0 and 1, the same in every run.
fn chance(bin: i64) -> f64 {
    ((bin as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f64 / f64::from(1 << 24)
}

/// A tier in which jumps of two minutes come at random, the fewer of them late the higher the dial. Gives the share of
/// the work that was late in the weeks two to four.
fn late_share(budget: f64, late_at: impl Fn(f64) -> f64) -> (f64, Budget) {
    let mut dial = Budget::new(4, 0, budget);
    let (mut late, mut until) = (0, 0);
    for number in 0..4 * WEEK {
        if chance(number) < late_at(dial.safety) / 8.0 {
            until = number + 8;
        }
        let is_late = number < until;
        dial.serve(&bin(number), Some(told(f64::from(u8::from(is_late)))), 4.0, budget, &terms());
        late += i64::from(is_late && number >= WEEK);
    }
    (late as f64 / (3 * WEEK) as f64, dial)
}

#[test]
fn what_is_late_in_the_weeks_two_to_four_is_the_budget_within_a_fifth() {
    for budget in [0.001, 0.003, 0.01] {
        for worth in [0.0002, 0.001, 0.008] {
            let (share, dial) = late_share(budget, |safety| worth / safety);
            assert!((0.8..1.2).contains(&(share / budget)), "{budget} {worth}: {share} {}", dial.safety);
        }
    }
}

#[test]
fn a_budget_that_no_spare_keeps_ends_at_the_end_of_the_dial_and_says_so() {
    let (_, dial) = late_share(0.001, |_| 0.02);
    let used = dial.used(0.001);
    assert_eq!(used.at_end, Some(DialEnd::Most), "{used:?}");
    assert!(used.used > 10.0 && (used.late_share - 0.02).abs() < 0.005, "{used:?}");
}

#[test]
fn without_late_work_the_dial_falls_by_the_gain_in_a_week_and_no_further_than_to_its_end() {
    let mut dial = Budget::new(4, 0, 0.001);
    (0..WEEK / 4).for_each(|number| dial.serve(&bin(number), Some(told(0.0)), 4.0, 0.001, &terms()));
    assert!((dial.safety - FIRST * (-GAIN / 4.0).exp()).abs() < 1e-6, "{}", dial.safety);
    (WEEK / 4..WEEK).for_each(|number| dial.serve(&bin(number), Some(told(0.0)), 4.0, 0.001, &terms()));
    assert!((dial.safety - 0.15).abs() < 1e-9, "{}", dial.safety);
    assert_eq!(dial.used(0.001).at_end, Some(DialEnd::Least));
    // Five times the budget begins at a fifth, and ends at a fifth.
    let mut dial = Budget::new(4, 0, 0.005);
    (0..WEEK).for_each(|number| dial.serve(&bin(number), Some(told(0.0)), 4.0, 0.005, &terms()));
    assert!((dial.safety - 0.03).abs() < 1e-9, "{}", dial.safety);
}

#[test]
fn late_work_is_the_tiers_own_where_it_tells_and_else_that_of_the_virtual_fleet() {
    let mut dial = Budget::new(1, 0, 0.001);
    dial.serve(&bin(0), Some(told(0.5)), 4.0, 0.001, &terms());
    let used = dial.used(0.001);
    assert!(
        used.counted == LateCount::QueueTimes
            && (used.late_share - 0.5).abs() < 1e-6
            && used.late_minutes == 1.0
    );
    // One replica for a load of four: all of it is late after a while.
    let mut dial = Budget::new(1, 0, 0.001);
    (0..40).for_each(|number| dial.serve(&bin(number), None, 4.0, 0.001, &terms()));
    let used = dial.used(0.001);
    assert!(
        used.counted == LateCount::VirtualFleet && used.late_share > 0.9 && used.late_minutes == 10.0,
        "{used:?}"
    );
}

#[test]
fn late_requests_that_are_told_after_the_burst_weigh_as_requests_and_not_as_the_quiet_bin() {
    let mut dial = Budget::new(4, 0, 0.001);
    let mut serve = |number, load, requests, late| {
        let told = Queued { requests, late, by: LateCount::QueueTimes };
        let bin = Bin { number, slots: [load; SLOTS_A_BIN], seen: true };
        dial.serve(&bin, Some(told), 4.0, 0.001, &terms());
    };
    // Every tenth bin a burst of half of all work arrives, whose requests finish in the bin after it: half of them late.
    for number in 0..240 {
        match number % 10 {
            0 => serve(number, 90.0, 10.0, 0.0),
            1 => serve(number, 10.0, 100.0, 45.0),
            _ => serve(number, 10.0, 10.0, 0.0),
        }
    }
    let share = dial.used(0.001).late_share;
    assert!((share - 45.0 / 190.0).abs() < 0.005, "45 of 190 requests: {share}");
}

#[test]
fn what_was_late_a_week_ago_is_no_longer_used() {
    let mut dial = Budget::new(4, 0, 0.01);
    dial.serve(&bin(0), Some(told(1.0)), 4.0, 0.01, &terms());
    (1..WEEK - 240).for_each(|number| dial.serve(&bin(number), Some(told(0.0)), 4.0, 0.01, &terms()));
    assert!(dial.used(0.01).late_share > 0.0);
    (WEEK - 240..WEEK + 240)
        .for_each(|number| dial.serve(&bin(number), Some(told(0.0)), 4.0, 0.01, &terms()));
    assert!(dial.used(0.01).late_share < 1e-9, "{:?}", dial.used(0.01));
}

#[test]
fn an_incident_of_an_hour_is_bounded_and_a_gap_of_days_leaves_the_account_empty() {
    let mut dial = Budget::new(4, 0, 0.0001);
    let before = dial.safety;
    (0..240).for_each(|number| dial.serve(&bin(number), Some(told(1.0)), 4.0, 0.0001, &terms()));
    assert!(dial.safety <= before * (1.1 * MOST_RISE_A_DAY).exp(), "{before} {}", dial.safety);
    dial.serve(&bin(30 * WEEK), Some(told(0.0)), 4.0, 0.0001, &terms());
    assert!(dial.used(0.0001).late_share < 1e-9);
}

#[test]
fn rounds_that_do_not_all_tell_tell_nothing() {
    let mut rounds = Told::default();
    assert_eq!(rounds.take(), None, "nobody ever tells");
    rounds.add(Some(Queued { requests: 4.0, late: 1.0, ..Queued::default() }));
    rounds.add(Some(Queued { requests: 6.0, late: 0.0, ..Queued::default() }));
    assert_eq!(rounds.take(), Some(Queued { requests: 10.0, late: 1.0, ..Queued::default() }));
    rounds.add(Some(Queued { requests: 4.0, late: 1.0, ..Queued::default() }));
    rounds.add(None);
    assert_eq!(rounds.take(), None);
}
