//! A sweep of fixed targets of utilisation, of which the best is chosen by looking at the whole trace. Pure.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::backtest::fleet::{Controller, Ended, Fleet};
use crate::backtest::score::Score;
use crate::backtest::work::Work;
use crate::backtest::{METRIC_AGE_SLOTS, SLOT_SECONDS, SYNC_SLOTS};

/// Targets of the sweep, in hundredths: 0.30 to 1.10 in steps of 0.05.
const TARGETS: std::ops::RangeInclusive<u32> = 30..=110;
/// See [`TARGETS`].
const TARGET_STEP: usize = 5;
/// Holds of the sweep, seconds.
const HOLDS: [u32; 8] = [60, 120, 180, 300, 600, 900, 1200, 1800];
/// Windows of the load, seconds.
const WINDOWS: [u32; 2] = [15, 60];
/// In how long a fixed target works off its backlog, seconds.
const DRAIN_SECONDS: f64 = 60.0;
/// Late minutes a week that the best fixed target may have; where none is so good, the one with the fewest is taken.
const MOST_LATE_MINUTES: f64 = 10.0;

/// A fixed target of utilisation: `mean work / target + backlog / drain`, raised at once, lowered to the most of the hold.
/// It orders by itself, without an HPA's tolerance and limits, every 15 s on data that are 15 s old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backtest) struct FixedTarget {
    /// Hundredths.
    target: u32,
    hold: Duration,
    window: Duration,
}

impl fmt::Display for FixedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, hold, window } = self;
        let (hold, window) = (hold.as_secs(), window.as_secs());
        write!(
            f,
            "best fixed target in hindsight: {}.{:02}, hold {hold} s, mean of {window} s",
            target / 100,
            target % 100
        )
    }
}

impl FixedTarget {
    /// The sweep.
    pub(in crate::backtest) fn grid() -> impl Iterator<Item = Self> {
        let seconds = |n| Duration::from_secs(u64::from(n));
        TARGETS.step_by(TARGET_STEP).flat_map(move |target| {
            HOLDS.into_iter().flat_map(move |hold| {
                WINDOWS.map(|window| Self { target, hold: seconds(hold), window: seconds(window) })
            })
        })
    }

    pub(in crate::backtest) fn controller(
        self,
        work: &Work,
        min: u32,
        max: u32,
    ) -> FixedTargetController<'_> {
        let slots = |span: Duration| (span.as_secs_f64() / SLOT_SECONDS).round() as usize;
        FixedTargetController {
            work,
            target: f64::from(self.target) / 100.0,
            hold: slots(self.hold),
            window: slots(self.window),
            bounds: (min, max),
            wishes: VecDeque::new(),
            queued: [0; METRIC_AGE_SLOTS + 1],
        }
    }
}

/// One fixed target at work.
pub(in crate::backtest) struct FixedTargetController<'a> {
    work: &'a Work,
    target: f64,
    hold: usize,
    window: usize,
    bounds: (u32, u32),
    /// Slots and wishes of the hold, falling: the first is the largest.
    wishes: VecDeque<(usize, u32)>,
    /// Units queued at the ends of the last slots, by slot.
    queued: [u64; METRIC_AGE_SLOTS + 1],
}

impl Controller for FixedTargetController<'_> {
    fn replicas(&mut self, slot: usize, fleet: &Fleet) -> u32 {
        if !slot.is_multiple_of(SYNC_SLOTS) || slot < METRIC_AGE_SLOTS + 1 {
            return fleet.size();
        }
        let until = slot - METRIC_AGE_SLOTS;
        let mean = self.work.mean(until.saturating_sub(self.window), until);
        let backlog = self.queued[(until - 1) % self.queued.len()] as f64 * self.work.unit_seconds();
        let (min, max) = self.bounds;
        let wish = (mean / self.target + backlog / DRAIN_SECONDS - 1e-9).ceil().max(0.0) as u32;
        let wish = wish.clamp(min, max);
        while self.wishes.back().is_some_and(|(_, lower)| *lower <= wish) {
            self.wishes.pop_back();
        }
        self.wishes.push_back((slot, wish));
        while self.wishes.front().is_some_and(|(at, _)| at + self.hold < slot) {
            self.wishes.pop_front();
        }
        self.wishes.front().map_or(wish, |(_, most)| *most)
    }

    fn served(&mut self, slot: usize, ended: Ended) {
        let at = slot % self.queued.len();
        self.queued[at] = ended.queued;
    }
}

/// The cheapest that is late in no more than [`MOST_LATE_MINUTES`]; else the one that is late least. Of equals the first of
/// the grid.
pub(in crate::backtest) fn best_in_hindsight(
    mut played: Vec<(FixedTarget, Score)>,
) -> Option<(FixedTarget, Score, bool)> {
    played.sort_by_key(|(target, _)| (target.target, target.hold, target.window));
    let good = |score: &Score| score.late_minutes_a_week <= MOST_LATE_MINUTES;
    let any_good = played.iter().any(|(_, score)| good(score));
    let price = |score: &Score| {
        if any_good {
            (score.gpu_hours, score.late_work)
        } else {
            (score.late_minutes_a_week, score.gpu_hours)
        }
    };
    let best = played
        .into_iter()
        .filter(|(_, score)| !any_good || good(score))
        .min_by(|(_, a), (_, b)| price(a).partial_cmp(&price(b)).unwrap_or(std::cmp::Ordering::Equal));
    best.map(|(target, score)| (target, score, any_good))
}

#[cfg(test)]
mod tests {
    use super::super::testing::work;
    use super::*;
    use crate::backtest::fleet::Terms;

    const TERMS: Terms = Terms { cold_start_slots: 36, acceptable_seconds: 5.0, initial: 5 };

    #[test]
    fn a_fixed_target_goes_up_at_once_and_down_after_its_hold() {
        let mut load = vec![4.0; 40];
        load.extend(vec![8.0; 20]);
        load.extend(vec![4.0; 140]);
        let work = work(&load, 8);
        let target =
            FixedTarget { target: 80, hold: Duration::from_secs(120), window: Duration::from_secs(15) };
        let mut fixed = target.controller(&work, 1, 20);
        let fleet = Fleet::new(&TERMS);
        let mut at = |slot| fixed.replicas(slot, &fleet);
        let sizes: Vec<u32> = (0..work.len()).map(|slot| if slot % 3 == 0 { at(slot) } else { 0 }).collect();
        assert_eq!((sizes[42], sizes[48], sizes[63]), (5, 10, 10));
        assert_eq!((sizes[84], sizes[90]), (10, 5), "the last wish for 10 is 120 s old");
    }

    #[test]
    fn the_best_in_hindsight_is_the_cheapest_that_is_seldom_late() {
        let target = |target| FixedTarget { target, hold: Duration::ZERO, window: Duration::ZERO };
        let score = |gpu_hours, late_minutes_a_week| Score {
            gpu_hours,
            late_work: 0.0,
            late_minutes_a_week,
            ..Score::default()
        };
        let best = |played: &[(u32, f64, f64)]| {
            let scores = played.iter().map(|(t, hours, late)| (target(*t), score(*hours, *late)));
            best_in_hindsight(scores.collect()).map(|(best, _, any_good)| (best.target, any_good))
        };
        assert_eq!(best(&[(80, 100.0, 11.0), (60, 130.0, 2.0), (50, 150.0, 0.0)]), Some((60, true)));
        assert_eq!(best(&[(80, 100.0, 90.0), (60, 130.0, 20.0)]), Some((60, false)), "none is good");
        assert_eq!(best(&[]), None);
    }
}
