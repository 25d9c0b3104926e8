//! The parts of the excess.

use std::time::Duration;

use super::*;
use crate::backtest::fleet::Terms;
use crate::backtest::trace::{Arrivals, Trace};
use crate::backtest::work::{Size, Work};
use crate::decision::fixtures::{at, policy};
use crate::simulate::autoscaler::AutoscalerSettings;

#[test]
fn a_replica_is_kept_through_a_gap_no_longer_than_a_start() {
    let kept = |needs: &[u32]| kept_through_gaps(needs, 3);
    assert_eq!(kept(&[2, 1, 1, 1, 2]), [2, 2, 2, 2, 2]);
    assert_eq!(kept(&[2, 1, 1, 1, 1, 2]), [2, 1, 1, 1, 1, 2]);
    assert_eq!(kept(&[3, 1, 2, 1, 3]), [3, 3, 3, 3, 3], "each level by itself");
    assert_eq!(kept(&[3, 1, 1, 2, 2, 3]), [3, 2, 2, 2, 2, 3]);
    assert_eq!(kept(&[1, 1, 2, 2]), [1, 1, 2, 2], "never there before");
    assert_eq!(kept(&[2, 2, 1, 1]), [2, 2, 1, 1], "never needed again");
    assert_eq!(kept(&[]), Vec::<u32>::new());
}

#[test]
fn what_is_ordered_ahead_is_held_until_its_load_has_been_there() {
    assert_eq!(held(&[1, 4, 1, 1, 1, 2], 2), [1, 4, 4, 4, 1, 2]);
    assert_eq!(held(&[3, 1], 0), [3, 1]);
}

#[test]
fn the_parts_add_up_to_the_excess() {
    let score = |gpu_hours| Score { gpu_hours, ..Score::default() };
    let steps = Steps {
        no_loop: score(130.0),
        release: score(125.0),
        half_lead: score(126.0),
        whole_lead: score(110.0),
    };
    let split = steps.parts("ours".to_owned(), &score(140.0), 100.0);
    let parts: Vec<f64> = split.parts.iter().map(|part| part.gpu_hours).collect();
    assert_eq!(parts, [10.0, 5.0, -1.0, 16.0, 10.0]);
    assert_eq!(parts.iter().sum::<f64>(), split.excess_gpu_hours);
}

#[test]
fn who_knows_what_arrives_is_late_less_than_who_does_not() {
    let load: Vec<f64> =
        (0..2_000).map(|slot| if usize::is_multiple_of(slot / 200, 2) { 3.0 } else { 9.0 }).collect();
    let slot = |replicas: &f64| Arrivals {
        requests: replicas * 5.0,
        input_tokens: replicas * 5.0 * 4000.0,
        output_tokens: replicas * 5.0 * 350.0,
    };
    let trace = Trace { slots: load.iter().map(slot).collect(), bin_seconds: 5.0, ..Trace::default() };
    let rates = policy().capacity.prior;
    let work = Work::of(&trace, rates, Size::Peak(9), 5.0).unwrap();
    let terms = Terms { cold_start_slots: 36, acceptable_seconds: 5.0, initial: 4 };
    let cold_start = Duration::from_secs(180);
    let world = World { work: &work, terms, rates, begins: at("00:00"), cold_start };
    let policy = policy();
    let chain = AutoscalerSettings::recommended(policy.min, policy.max);
    let contender = Contender { name: "ours".to_owned(), policy, chain };
    let steps = steps(&world, &contender, 0, &AtomicU64::new(0));
    assert!(steps.no_loop.late_minutes_a_week > 0.0, "a step that nobody knew of");
    assert_eq!(steps.whole_lead.late_minutes_a_week, 0.0);
    assert!(steps.half_lead.late_minutes_a_week <= steps.no_loop.late_minutes_a_week);
    assert!(steps.release.gpu_hours > 0.0);
}
