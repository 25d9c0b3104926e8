//! The HPA, and what it makes of an external metric of type `AverageValue`; [`super::signal`] has the other types. Pure.
//!
//! Source: Kubernetes' `replica_calculator.go` (`GetExternalPerPodMetricReplicas`) and `horizontal.go`
//! (`reconcileAutoscaler`, `stabilizeRecommendation`, `convertDesiredReplicasWithRules`).

use std::time::Duration;

use super::behavior::{Behavior, BehaviorState, recorded_max};
use super::signal::{PodCount, Signal};
use crate::simulate::moment::Moment;

/// Which comparison with the tolerance the HPA makes. At exactly +10 % of 10, 20, 30 ... replicas the two differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Kubernetes up to 1.32: `|1 - ratio| <= tolerance`, which in doubles excludes a ratio of exactly 1.1.
    Until132,
    /// Kubernetes 1.33 and later: `1 - down <= ratio <= 1 + up`, both ends included.
    Since133,
}

/// `behavior.scaleUp.tolerance` and `behavior.scaleDown.tolerance`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerances {
    /// Upward.
    pub up: f64,
    /// Downward. Kubernetes up to 1.32 has one for both: this one is not read there.
    pub down: f64,
}

impl Tolerances {
    /// `--horizontal-pod-autoscaler-tolerance` unless set.
    pub const DEFAULT: Self = Self { up: 0.1, down: 0.1 };
}

/// A metric as the HPA gets it, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The sum over all values.
    pub value_milli: i64,
    /// The target of one replica.
    pub target_milli: i64,
}

/// How many replicas one metric asks for: `ceil(value / target)`, or what there is when that is within the tolerance.
///
/// `status` is `status.replicas`: pods that were created, ready or not.
#[must_use]
pub fn proposal(metric: Metric, status: u32, tolerances: Tolerances, generation: Generation) -> u32 {
    let (value, target) = (metric.value_milli as f64, metric.target_milli as f64);
    if metric.value_milli < 0 && generation == Generation::Since133 {
        // A negative sum is taken for an overflow.
        return i32::MAX as u32;
    }
    let ratio = value / (target * f64::from(status));
    if is_within(ratio, tolerances, generation) {
        return status;
    }
    (value / target).ceil().min(f64::from(i32::MAX)) as u32
}

/// Is a ratio of value to target too close to 1 to do anything?
pub(super) fn is_within(ratio: f64, tolerances: Tolerances, generation: Generation) -> bool {
    match generation {
        Generation::Since133 => (1.0 - tolerances.down) <= ratio && ratio <= (1.0 + tolerances.up),
        Generation::Until132 => (1.0 - ratio).abs() <= tolerances.up,
    }
}

/// Several metrics: the largest proposal; None (hold) when all failed, or when some failed and the rest would scale down.
#[must_use]
pub fn combine(proposals: &[Option<u32>], spec: u32) -> Option<u32> {
    let largest = proposals.iter().flatten().copied().max()?;
    let some_failed = proposals.iter().any(Option::is_none);
    (!some_failed || largest >= spec).then_some(largest)
}

/// How an HPA is set.
#[derive(Clone, Debug, PartialEq)]
pub struct HpaSettings {
    /// `minReplicas`, at least 1.
    pub min: u32,
    /// `maxReplicas`.
    pub max: u32,
    /// See [`Tolerances`].
    pub tolerances: Tolerances,
    /// See [`Behavior`].
    pub behavior: Option<Behavior>,
    /// See [`Generation`].
    pub generation: Generation,
    /// `--horizontal-pod-autoscaler-downscale-stabilization`.
    pub downscale_stabilization: Duration,
}

impl Default for HpaSettings {
    fn default() -> Self {
        Self {
            min: 1,
            max: 10,
            tolerances: Tolerances::DEFAULT,
            behavior: None,
            generation: Generation::Since133,
            downscale_stabilization: Duration::from_secs(300),
        }
    }
}

/// The state of one HPA.
#[derive(Clone, Debug)]
pub struct Hpa {
    settings: HpaSettings,
    state: BehaviorState,
}

impl Hpa {
    /// One that has not synced yet.
    #[must_use]
    pub fn new(settings: HpaSettings) -> Self {
        Self { settings, state: BehaviorState::default() }
    }

    /// Edits it; what it remembers stays.
    pub fn set_settings(&mut self, settings: HpaSettings) {
        self.settings = settings;
    }

    /// One sync with one external `AverageValue`. The new `spec.replicas`, if it changes; without a metric nothing does.
    pub fn sync(&mut self, now: Moment, spec: u32, status: u32, metric: Option<Metric>) -> Option<u32> {
        let pods = PodCount { spec, status, ready: status };
        self.sync_signals(now, pods, &[metric.map(Signal::AverageValue)])
    }

    /// One sync with metrics of any type, None for those that could not be had. The largest proposal counts; see
    /// [`combine`]. The new `spec.replicas`, if it changes.
    pub fn sync_signals(&mut self, now: Moment, pods: PodCount, signals: &[Option<Signal>]) -> Option<u32> {
        let spec = pods.spec;
        // The first recommendation of a controller is what there is, so that a restart doesn't scale down at once.
        if self.state.recommendations.is_empty() {
            self.state.recommendations.push_back((now, spec));
        }
        let desired = if spec == 0 {
            return None;
        } else if spec > self.settings.max {
            self.settings.max
        } else if spec < self.settings.min {
            self.settings.min
        } else {
            let (tolerances, generation) = (self.settings.tolerances, self.settings.generation);
            let proposed = |signal: &Option<Signal>| {
                signal.as_ref().and_then(|signal| signal.proposal(pods, tolerances, generation))
            };
            let proposals: Vec<_> = signals.iter().map(proposed).collect();
            self.limited(now, spec, combine(&proposals, spec)?)
        };
        if desired == spec {
            return None;
        }
        self.state.record_change(now, spec, desired);
        Some(desired)
    }

    fn limited(&mut self, now: Moment, spec: u32, wanted: u32) -> u32 {
        let window = self.settings.downscale_stabilization;
        let (min, max) = (self.settings.min, self.settings.max);
        if let Some(behavior) = &self.settings.behavior {
            let stable = self.state.stabilized(now, spec, wanted, behavior, window);
            return self.state.rate_limited(now, spec, stable, behavior, min, max);
        }
        let stable = recorded_max(&self.state.recommendations, now, window, wanted);
        self.state.record_recommendation(now, wanted, window);
        // Without a behavior an HPA at most doubles per sync, and may always reach 4.
        stable.clamp(min, max.min((2 * spec).max(4)).max(min))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replicas(value: f64) -> Metric {
        Metric { value_milli: (value * 1000.0).round() as i64, target_milli: 1000 }
    }

    #[test]
    fn the_tolerance_swallows_small_changes_in_both_generations() {
        // status, value, 1.33 and later, up to 1.32
        for (status, value, since_133, until_132) in [
            (9, 10.0, 10, 10),
            (10, 11.0, 10, 11),
            (10, 9.0, 10, 10),
            (11, 12.0, 11, 11),
            (20, 21.0, 20, 20),
            (20, 22.0, 20, 22),
            (20, 23.0, 23, 23),
            (20, 19.0, 20, 20),
            (20, 18.0, 20, 20),
            (20, 17.0, 17, 17),
            (100, 110.0, 100, 110),
            (100, 111.0, 111, 111),
            (100, 90.0, 100, 100),
            (100, 89.0, 89, 89),
            (0, 5.0, 5, 5),
            (0, 0.0, 0, 0),
            (10, 20.4, 21, 21),
            (10, 20.001, 21, 21),
        ] {
            let by = |generation| proposal(replicas(value), status, Tolerances::DEFAULT, generation);
            assert_eq!(by(Generation::Since133), since_133, "{status} -> {value} since 1.33");
            assert_eq!(by(Generation::Until132), until_132, "{status} -> {value} until 1.32");
        }
    }

    #[test]
    fn tolerance_zero_always_goes_to_the_number() {
        let exact = Tolerances { up: 0.0, down: 0.0 };
        for (status, value) in [(20, 21), (20, 20), (20, 19), (100, 101)] {
            let metric = replicas(f64::from(value));
            assert_eq!(proposal(metric, status, exact, Generation::Since133), value, "{status}");
        }
    }

    #[test]
    fn the_smallest_number_that_moves_the_hpa_is_just_above_the_band() {
        for (status, moves) in [(20, 23), (10, 12), (30, 34), (100, 111)] {
            let by = |value: u32| {
                proposal(replicas(f64::from(value)), status, Tolerances::DEFAULT, Generation::Since133)
            };
            assert_eq!(by(moves), moves);
            assert_eq!(by(moves - 1), status);
        }
    }

    #[test]
    fn a_negative_sum_scales_to_the_most_since_133() {
        assert_eq!(proposal(replicas(-1.0), 5, Tolerances::DEFAULT, Generation::Since133), i32::MAX as u32);
    }

    #[test]
    fn a_failed_metric_blocks_scaling_down_only() {
        assert_eq!(combine(&[None], 5), None);
        assert_eq!(combine(&[None, Some(3)], 5), None);
        assert_eq!(combine(&[None, Some(8)], 5), Some(8));
        assert_eq!(combine(&[Some(2), Some(3)], 5), Some(3));
    }

    /// Syncs every 15 s with the value 100 until the spec stays there; the specs on the way.
    fn ramp(behavior: Option<Behavior>) -> Vec<u32> {
        let mut hpa = Hpa::new(HpaSettings { max: 100, behavior, ..HpaSettings::default() });
        let (mut spec, mut path) = (1, Vec::new());
        for sync in 0..12 {
            let now = Moment::from_seconds(f64::from(sync) * 15.0);
            if let Some(next) = hpa.sync(now, spec, spec, Some(replicas(100.0))) {
                spec = next;
                path.push(next);
            }
        }
        path
    }

    #[test]
    fn the_ramp_from_one_to_a_hundred_follows_the_rate_limits() {
        use super::super::behavior::{Policy, PolicyKind};
        let period = Duration::from_secs(15);
        assert_eq!(ramp(None), [4, 8, 16, 32, 64, 100]);
        assert_eq!(ramp(Some(Behavior::default())), [5, 10, 20, 40, 80, 100]);
        let mut behavior = Behavior::default();
        behavior.scale_up.policies = vec![Policy { kind: PolicyKind::Percent, value: 900, period }];
        assert_eq!(ramp(Some(behavior.clone())), [10, 100]);
        behavior.scale_up.policies = vec![Policy { kind: PolicyKind::Pods, value: 1000, period }];
        assert_eq!(ramp(Some(behavior)), [100]);
    }

    #[test]
    fn a_lower_number_is_taken_only_after_the_downscale_window() {
        for behavior in [None, Some(Behavior::default())] {
            let mut hpa = Hpa::new(HpaSettings { max: 100, behavior, ..HpaSettings::default() });
            let at = Moment::from_seconds;
            assert_eq!(hpa.sync(at(0.0), 10, 10, Some(replicas(10.0))), None);
            for sync in 1..=19 {
                let now = at(f64::from(sync) * 15.0);
                assert_eq!(hpa.sync(now, 10, 10, Some(replicas(4.0))), None, "at {} s", now.seconds());
            }
            assert_eq!(hpa.sync(at(315.0), 10, 10, Some(replicas(4.0))), Some(4));
        }
    }

    #[test]
    fn an_error_holds_and_a_scale_target_at_zero_is_left_alone() {
        let mut hpa = Hpa::new(HpaSettings::default());
        assert_eq!(hpa.sync(Moment::START, 5, 5, None), None);
        assert_eq!(hpa.sync(Moment::START, 0, 0, Some(replicas(5.0))), None);
    }

    #[test]
    fn bounds_come_before_metrics() {
        let mut hpa = Hpa::new(HpaSettings { min: 3, max: 6, ..HpaSettings::default() });
        assert_eq!(hpa.sync(Moment::START, 9, 9, None), Some(6));
        assert_eq!(hpa.sync(Moment::START, 1, 1, None), Some(3));
    }
}
