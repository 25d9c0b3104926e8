//! Quantiles of a tier from the growth of its engines' histograms. Pure.
//!
//! Growth over engines and replicas is summed where the bounds are equal. Engines with other bounds (two versions in
//! one tier, `--custom-histogram-buckets`) form their own group, and the quantile is read from the mixture of the groups:
//! each observation keeps the bucket that it was counted in, and nothing is rounded into foreign buckets.

use crate::engines::Histogram;
use crate::quantile::Quantile;

/// Different bucket lists that one tier may have at a time. A rolling update has two; beyond eight the pages can't be
/// one tier's, and the quantile is unknown instead of partial.
const MAX_BOUND_SETS: usize = 8;

/// The growth of histograms over a span of time, summed over engines and replicas.
#[derive(Clone, Debug, Default)]
pub(super) struct Growth {
    groups: Vec<Group>,
    /// There were more bucket lists than [`MAX_BOUND_SETS`]: what is here isn't all.
    incomplete: bool,
}

/// The growth of those histograms that share their bounds.
#[derive(Clone, Debug)]
struct Group {
    bounds: Vec<f64>,
    /// Observations at or below each bound.
    cumulative: Vec<f64>,
    /// All observations, those above the last bound included.
    count: f64,
}

impl Growth {
    /// Adds what `now` has beyond `before`: two readings of one engine, `before` absent where the series was not there
    /// yet. The caller has seen that it is the same process; other bounds than before are another histogram, and add
    /// nothing until it is read again.
    pub(super) fn add(&mut self, before: Option<&Histogram>, now: &Histogram) {
        if !is_sound(now) || before.is_some_and(|before| before.bounds != now.bounds || !is_sound(before)) {
            return;
        }
        let earlier_count = before.map_or(0.0, |before| before.count);
        if now.count <= earlier_count {
            return;
        }
        let Some(group) = self.group(&now.bounds) else {
            self.incomplete = true;
            return;
        };
        group.count += now.count - earlier_count;
        for (index, sum) in group.cumulative.iter_mut().enumerate() {
            let earlier = before.and_then(|before| before.cumulative.get(index)).copied().unwrap_or(0.0);
            *sum += (now.cumulative[index] - earlier).max(0.0);
        }
    }

    /// Adds another span's growth.
    pub(super) fn merge(&mut self, other: &Self) {
        self.incomplete |= other.incomplete;
        for from in &other.groups {
            let Some(group) = self.group(&from.bounds) else {
                self.incomplete = true;
                continue;
            };
            group.count += from.count;
            for (sum, more) in group.cumulative.iter_mut().zip(&from.cumulative) {
                *sum += more;
            }
        }
    }

    /// The quantile `q` (0 to 1) of the observations; None without any, or where the groups are not all.
    ///
    /// As Prometheus' `histogram_quantile`: linear inside a bucket, the first bucket begins at 0, and what lies above
    /// the last bound is answered with that bound, so that the answer is never invented (promql/quantile.go). The first
    /// bucket and what lies above the last bound are told as such. With several groups the cumulative count is the sum of theirs, each linear between its own bounds.
    pub(super) fn quantile(&self, q: f64) -> Option<Quantile> {
        if self.incomplete {
            return None;
        }
        let total: f64 = self.groups.iter().map(|group| group.count).sum();
        let mut bounds: Vec<f64> =
            self.groups.iter().flat_map(|group| group.bounds.iter().copied()).collect();
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        let (Some(first), Some(last)) = (bounds.first().copied(), bounds.last().copied()) else {
            return None;
        };
        if total <= 0.0 {
            return None;
        }
        let rank = q.clamp(0.0, 1.0) * total;
        let (mut below, mut below_count) = (first.min(0.0), 0.0);
        for bound in bounds {
            let count: f64 = self.groups.iter().map(|group| group.at_or_below(bound)).sum();
            if count >= rank && count > 0.0 {
                let inside = count - below_count;
                let share = if inside > 0.0 { ((rank - below_count) / inside).clamp(0.0, 1.0) } else { 1.0 };
                let value = below + (bound - below) * share;
                return Some(if bound <= first {
                    Quantile::in_the_first_bucket(value, bound)
                } else {
                    Quantile::between(value)
                });
            }
            (below, below_count) = (bound, count.max(below_count));
        }
        Some(Quantile::above(last))
    }

    fn group(&mut self, bounds: &[f64]) -> Option<&mut Group> {
        if let Some(index) = self.groups.iter().position(|group| group.bounds == bounds) {
            return self.groups.get_mut(index);
        }
        if self.groups.len() == MAX_BOUND_SETS {
            return None;
        }
        self.groups.push(Group { bounds: bounds.to_vec(), cumulative: vec![0.0; bounds.len()], count: 0.0 });
        self.groups.last_mut()
    }
}

impl Group {
    fn at_or_below(&self, value: f64) -> f64 {
        at_or_below(&self.bounds, &self.cumulative, value)
    }
}

/// Observations at or below `value`, linear inside a bucket. What lies above the last bound is never below anything.
fn at_or_below(bounds: &[f64], cumulative: &[f64], value: f64) -> f64 {
    let index = bounds.partition_point(|bound| *bound < value);
    let (Some(upper), Some(count)) = (bounds.get(index), cumulative.get(index)) else {
        return cumulative.last().copied().unwrap_or(0.0);
    };
    let (lower, lower_count) = match index.checked_sub(1) {
        Some(previous) => (bounds[previous], cumulative[previous]),
        None => (upper.min(0.0), 0.0),
    };
    if *upper <= lower {
        return if value >= *upper { *count } else { lower_count };
    }
    let share = ((value - lower) / (upper - lower)).clamp(0.0, 1.0);
    lower_count + (count - lower_count) * share
}

/// By how many observations a histogram grew, and how many of them lie above `limit`, linear inside a bucket. What lies
/// above the last bound counts as above any limit. None where the two can't be compared.
pub(super) fn grown_above(before: Option<&Histogram>, now: &Histogram, limit: f64) -> Option<(f64, f64)> {
    if !is_sound(now) || before.is_some_and(|before| before.bounds != now.bounds || !is_sound(before)) {
        return None;
    }
    let above = |histogram: &Histogram| {
        histogram.count - at_or_below(&histogram.bounds, &histogram.cumulative, limit)
    };
    let grown = now.count - before.map_or(0.0, |before| before.count);
    let late = above(now) - before.map_or(0.0, above);
    (grown >= 0.0).then(|| (grown, late.clamp(0.0, grown)))
}

/// A histogram that can be read: one count a bound, bounds ascending, every number finite.
pub(super) fn is_sound(histogram: &Histogram) -> bool {
    histogram.bounds.len() == histogram.cumulative.len()
        && histogram.count.is_finite()
        && histogram.sum.is_finite()
        && histogram.bounds.iter().all(|bound| bound.is_finite())
        && histogram.cumulative.iter().all(|count| count.is_finite())
        && histogram.bounds.windows(2).all(|pair| pair[0] < pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram(bounds: &[f64], cumulative: &[f64], count: f64) -> Histogram {
        Histogram { bounds: bounds.to_vec(), cumulative: cumulative.to_vec(), count, sum: 0.0 }
    }

    fn growth(histograms: &[Histogram]) -> Growth {
        let mut growth = Growth::default();
        for histogram in histograms {
            growth.add(None, histogram);
        }
        growth
    }

    fn assert_near(found: Option<Quantile>, expected: f64) {
        let found = found.unwrap().value;
        assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
    }

    #[test]
    fn a_quantile_is_linear_inside_its_bucket_as_prometheus_has_it() {
        let growth = growth(&[histogram(&[1.0, 2.0, 4.0], &[10.0, 30.0, 40.0], 40.0)]);
        assert_near(growth.quantile(0.125), 0.5); // half of the first bucket, which begins at 0
        assert_near(growth.quantile(0.5), 1.5);
        assert_near(growth.quantile(0.95), 3.6);
    }

    #[test]
    fn what_lies_above_the_last_bound_is_answered_with_that_bound() {
        let growth = growth(&[histogram(&[1.0, 2.0], &[1.0, 2.0], 100.0)]);
        assert_eq!(growth.quantile(0.95), Some(Quantile::above(2.0)));
    }

    #[test]
    fn in_the_first_bucket_all_that_is_known_is_its_bound() {
        // Nobody queued: all of them are in the first bucket, wherever in it.
        let idle = growth(&[histogram(&[0.3, 0.5], &[40.0, 40.0], 40.0)]);
        assert_eq!(idle.quantile(0.5), Some(Quantile::in_the_first_bucket(0.15, 0.3)));
        let busy = growth(&[histogram(&[0.3, 0.5], &[10.0, 40.0], 40.0)]);
        assert_eq!(busy.quantile(0.5).and_then(|quantile| quantile.at_most), None);
    }

    #[test]
    fn no_observations_have_no_quantile() {
        assert_eq!(Growth::default().quantile(0.5), None);
        assert_eq!(growth(&[histogram(&[1.0], &[0.0], 0.0)]).quantile(0.5), None);
        assert_eq!(growth(&[histogram(&[], &[], 3.0)]).quantile(0.5), None);
    }

    #[test]
    fn engines_with_other_bounds_are_mixed_without_rounding_into_foreign_buckets() {
        let coarse = histogram(&[10.0], &[100.0], 100.0);
        let fine = histogram(&[1.0, 2.0], &[100.0, 100.0], 100.0);
        let growth = growth(&[coarse, fine]);
        // At 1 lie all 100 of the fine ones and a tenth of the coarse ones.
        assert_near(growth.quantile(110.0 / 200.0), 1.0);
        assert_near(growth.quantile(1.0), 10.0);
    }

    #[test]
    fn more_bucket_lists_than_a_tier_can_have_make_the_quantile_unknown() {
        let many: Vec<Histogram> = (1..=9).map(|bound| histogram(&[f64::from(bound)], &[5.0], 5.0)).collect();
        assert!(growth(&many[..8]).quantile(0.5).is_some());
        assert_eq!(growth(&many).quantile(0.5), None);
    }

    #[test]
    fn what_queued_for_longer_than_a_limit_is_counted_from_its_bucket() {
        let before = histogram(&[1.0, 5.0, 10.0], &[10.0, 20.0, 20.0], 20.0);
        let now = histogram(&[1.0, 5.0, 10.0], &[10.0, 26.0, 30.0], 31.0);
        assert_eq!(grown_above(Some(&before), &now, 5.0), Some((11.0, 5.0)));
        assert_eq!(grown_above(None, &now, 5.0), Some((31.0, 5.0)));
        // A half of what lies between 5 and 10 s.
        assert_eq!(grown_above(Some(&before), &now, 7.5), Some((11.0, 3.0)));
        assert_eq!(grown_above(Some(&before), &now, 60.0), Some((11.0, 1.0)), "nobody knows how far above");
        assert_eq!(grown_above(Some(&histogram(&[1.0], &[1.0], 1.0)), &now, 5.0), None, "other bounds");
        assert_eq!(grown_above(Some(&now), &before, 5.0), None, "it fell");
    }

    #[test]
    fn changed_bounds_are_another_histogram_and_add_nothing_at_first() {
        let mut growth = Growth::default();
        let before = histogram(&[1.0], &[5.0], 5.0);
        growth.add(Some(&before), &histogram(&[2.0], &[50.0], 50.0));
        assert_eq!(growth.quantile(0.5), None);
    }

    #[test]
    fn a_broken_histogram_adds_nothing() {
        let mut growth = Growth::default();
        for broken in [
            histogram(&[1.0, 2.0], &[1.0], 1.0),
            histogram(&[2.0, 1.0], &[1.0, 1.0], 1.0),
            histogram(&[f64::NAN], &[1.0], 1.0),
            histogram(&[1.0], &[f64::INFINITY], 1.0),
        ] {
            growth.add(None, &broken);
        }
        assert_eq!(growth.quantile(0.5), None);
    }

    proptest! {
        #[test]
        fn quantiles_rise_with_q_and_stay_inside_the_bounds(
            counts in prop::collection::vec(0_u32..1000, 4..6),
            others in prop::collection::vec(0_u32..1000, 3),
        ) {
            let bounds = [0.3, 0.5, 0.8, 1.0, 5.0];
            let cumulative = |counts: &[u32]| -> Vec<f64> {
                counts.iter().scan(0.0, |sum, n| { *sum += f64::from(*n); Some(*sum) }).collect()
            };
            let first = cumulative(&counts);
            let second = cumulative(&others);
            let above = first[first.len() - 1] + 3.0;
            let growth = growth(&[
                histogram(&bounds[..first.len()], &first, above),
                histogram(&[0.1, 0.6, 2.0], &second, second[2]),
            ]);
            let mut last = 0.0;
            for step in 0..=100 {
                let quantile = growth.quantile(f64::from(step) / 100.0).unwrap().value;
                prop_assert!(quantile.is_finite() && quantile >= last - 1e-9 && quantile <= 5.0);
                last = quantile;
            }
        }

        #[test]
        fn a_sum_over_replicas_is_the_same_in_any_order(
            counts in prop::collection::vec((0_u32..100, 0_u32..100), 1..20), q in 0.01_f64..1.0,
        ) {
            let all: Vec<Histogram> = counts
                .iter()
                .map(|(low, high)| {
                    let (low, all) = (f64::from(*low), f64::from(low + high));
                    histogram(&[0.5, 1.0], &[low, all], all)
                })
                .collect();
            let reversed: Vec<Histogram> = all.iter().rev().cloned().collect();
            prop_assert_eq!(growth(&all).quantile(q), growth(&reversed).quantile(q));
        }
    }
}
