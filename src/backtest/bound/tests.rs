//! The bound against trying every schedule, against the level decomposition, and on cases whose answer is plain.

use super::*;
use crate::backtest::SLOT_SECONDS;
use crate::backtest::trace::{Arrivals, Trace};
use crate::backtest::work::Size;
use crate::decision::policy::TokenRates;

const RATES: TokenRates = TokenRates { input_tokens_per_second: 1.0, output_tokens_per_second: 1.0 };

/// The clairvoyant by trying every schedule.
struct ByTryingAll<'a> {
    work: &'a Work,
    terms: &'a Terms,
    question: Question,
    minute_slots: usize,
}

impl ByTryingAll<'_> {
    fn least(&self) -> f64 {
        self.rest(self.question.from, None, 0, false)
    }

    fn rest(&self, slot: usize, before: Option<u32>, queued: u64, late_already: bool) -> f64 {
        let Some(arriving) = self.work.slots().get(slot) else { return 0.0 };
        let late_already = late_already && !slot.is_multiple_of(self.minute_slots);
        let mut least = f64::INFINITY;
        for x in 1..=self.question.most {
            let there = queued + u64::from(arriving.units);
            let left = there.saturating_sub(u64::from(x * self.work.units_per_slot));
            let allowed = self.terms.acceptable_seconds * f64::from(x) + 1e-9;
            let is_late = left as f64 * self.work.unit_seconds() > allowed;
            let fine = match (is_late, late_already, self.question.late_minute) {
                (false, ..) | (true, true, Some(_)) => 0.0,
                (true, false, Some(price)) => f64::from(price),
                (true, _, None) => continue,
            };
            let starts = before.map_or(0, |before| x.saturating_sub(before));
            let start = f64::from(start_slots(self.terms, slot, self.question.from));
            let price = f64::from(x) + start * f64::from(starts) + fine;
            least = least.min(price + self.rest(slot + 1, Some(x), left, late_already || is_late));
        }
        least
    }
}

fn work(input_tokens: &[f64], peak: u32) -> Option<Work> {
    let slot = |tokens: &f64| Arrivals { requests: 1.0, input_tokens: *tokens, output_tokens: 0.0 };
    let trace =
        Trace { slots: input_tokens.iter().map(slot).collect(), bin_seconds: 5.0, ..Trace::default() };
    Work::of(&trace, RATES, Size::Peak(peak), 5.0)
}

fn exact(work: &Work, terms: &Terms, most: u32) -> f64 {
    replica_slots(work, terms, Question { most, from: 0, late_minute: None }, &AtomicU64::new(0))
}

/// With so many columns for queues.
fn with_columns(all: &ByTryingAll<'_>, columns: Option<usize>) -> f64 {
    let mut shape = Shape::new(all.work, all.terms, all.question);
    shape.columns = columns.unwrap_or(shape.columns);
    shape.solve(all.work, all.terms, all.question, all.minute_slots, &AtomicU64::new(0))
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]

    #[test]
    fn the_bound_is_what_trying_every_schedule_finds(
        tokens in proptest::collection::vec(0.0_f64..10.0, 2..7),
        cold_start_slots in 0_u32..5,
        acceptable in 0_u32..4,
        most in 1_u32..5,
    ) {
        let terms = Terms { cold_start_slots, acceptable_seconds: f64::from(acceptable) * 3.0, initial: 1 };
        let Some(work) = work(&tokens, 2) else { return Ok(()) };
        for from in [0, 1] {
            let question = Question { most, from, late_minute: None };
            let all = ByTryingAll { work: &work, terms: &terms, question, minute_slots: 2 };
            proptest::prop_assert_eq!(with_columns(&all, None), all.least());
        }
    }

    #[test]
    fn a_price_of_late_minutes_is_what_trying_every_schedule_finds(
        tokens in proptest::collection::vec(0.0_f64..10.0, 2..7),
        cold_start_slots in 0_u32..5,
        acceptable in 0_u32..3,
        most in 1_u32..4,
        price in 0_u8..12,
        minute_slots in 1_usize..4,
    ) {
        let terms = Terms { cold_start_slots, acceptable_seconds: f64::from(acceptable) * 3.0, initial: 1 };
        let Some(work) = work(&tokens, 2) else { return Ok(()) };
        let question = Question { most, from: 0, late_minute: Some(f32::from(price)) };
        let all = ByTryingAll { work: &work, terms: &terms, question, minute_slots };
        let tried = all.least();
        let room = work.total() as usize + work.allowance(most, terms.acceptable_seconds) as usize + 1;
        proptest::prop_assert_eq!(with_columns(&all, Some(room)), tried);
        proptest::prop_assert!(with_columns(&all, None) <= tried, "a table that ends early is a lower bound");
    }

    #[test]
    fn without_a_queue_the_bound_is_that_of_the_levels(
        replicas in proptest::collection::vec(0_u32..5, 2..60),
        cold_start_slots in 0_u32..9,
    ) {
        let tokens: Vec<f64> = replicas.iter().map(|n| f64::from(*n)).collect();
        let Some(work) = work(&tokens, 4) else { return Ok(()) };
        let terms = Terms { cold_start_slots, acceptable_seconds: 0.0, initial: 1 };
        proptest::prop_assert_eq!(exact(&work, &terms, 30), by_levels(&work, &terms));
    }
}

/// Replica by replica, the last in first out: each is needed in some slots, and kept through a gap that is no longer than
/// a start (Lu and Chen, arXiv 1112.0442).
fn by_levels(work: &Work, terms: &Terms) -> f64 {
    let needed: Vec<u32> =
        work.slots().iter().map(|slot| slot.units.div_ceil(work.units_per_slot).max(1)).collect();
    let level = |level: u32| {
        let (mut paid, mut gap, mut ever) = (0, 0, false);
        for needed in &needed {
            if *needed >= level {
                paid += 1 + gap.min(terms.cold_start_slots);
                (gap, ever) = (0, true);
            } else {
                gap += 1;
            }
        }
        if ever { paid } else { 0 }
    };
    (1..=needed.iter().copied().max().unwrap_or(1)).map(|k| f64::from(level(k))).sum()
}

#[test]
fn a_gap_shorter_than_a_cold_start_is_bridged_and_a_longer_one_is_not() {
    let terms = Terms { cold_start_slots: 6, acceptable_seconds: 0.0, initial: 1 };
    let with_gap = |slots: usize| {
        let mut tokens = vec![10.0; 12];
        tokens.extend(vec![5.0; slots]);
        tokens.extend(vec![10.0; 12]);
        let work = work(&tokens, 2).unwrap();
        exact(&work, &terms, 3)
    };
    assert_eq!(with_gap(5), 2.0 * 29.0, "kept");
    assert_eq!(with_gap(7), 2.0 * 24.0 + 7.0 + 6.0, "given back, and started again");
}

#[test]
fn what_may_queue_is_not_bought() {
    let tokens = [[5.0; 12], [6.0; 12]].concat();
    let work = work(&tokens, 2).unwrap();
    let terms = |acceptable_seconds| Terms { cold_start_slots: 36, acceptable_seconds, initial: 1 };
    let strict = exact(&work, &terms(0.0), 4);
    let lenient = exact(&work, &terms(60.0), 4);
    assert!(lenient < strict, "{lenient} {strict}");
}

#[test]
fn values_stay_exact_over_long_traces() {
    // 40 days of one replica: a sum beyond what single precision counts.
    let slots = 40 * 17_280;
    let work = work(&vec![5.0; slots], 1).unwrap();
    let terms = Terms { cold_start_slots: 36, acceptable_seconds: 0.0, initial: 1 };
    assert_eq!(exact(&work, &terms, 40), slots as f64);
    assert!(slots as f64 * SLOT_SECONDS > 3e6);
}

#[test]
fn a_late_minute_is_bought_when_it_is_cheaper_than_a_start() {
    // An hour of one replica, in the middle of it a slot of two; at the end the minute that says what is the peak.
    let mut tokens = vec![5.0; 720];
    tokens[360] = 10.0;
    let work = work(&[tokens, vec![5.0; 12], vec![10.0; 12]].concat(), 2).unwrap();
    let terms = Terms { cold_start_slots: 36, acceptable_seconds: 0.0, initial: 1 };
    let priced = |price| {
        let question = Question { most: 3, from: 0, late_minute: Some(price) };
        replica_slots(&work, &terms, question, &AtomicU64::new(0))
    };
    let strict = exact(&work, &terms, 3);
    assert_eq!(priced(1e4), strict, "dear enough, and no minute is late");
    assert!(priced(3.0) < strict);
    assert!(priced(1.0) <= priced(3.0));
}
