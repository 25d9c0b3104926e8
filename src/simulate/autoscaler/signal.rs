//! The metrics that an HPA takes, by the type of their target, and what each proposes. Pure.
//!
//! Source: Kubernetes' `replica_calculator.go` (`GetExternalPerPodMetricReplicas`, `GetExternalMetricReplicas`,
//! `getUsageRatioReplicaCount`, `calcPlainMetricReplicas`, `groupPods`). An external `AverageValue` is compared with
//! `status.replicas`, the two others with `spec.replicas`.

use super::hpa::{Generation, Metric, Tolerances, is_within, proposal};

/// A metric as the HPA gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// External, target type `AverageValue`: `ceil(value / target)`. Pods that start are in the count already.
    AverageValue(Metric),
    /// External, target type `Value`: `ceil(value / target * ready pods)`.
    Value(Metric),
    /// One value a pod: type `Pods`, and `Resource` in absolute terms.
    Pods(PodsMetric),
}

/// A metric of which each pod has its own value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodsMetric {
    /// The sum over the pods that tell a value, thousandths.
    pub sum_milli: i64,
    /// How many those are.
    pub telling: u32,
    /// Pods that run and tell nothing: taken for 0 upward and for the target downward.
    pub missing: u32,
    /// Pods that are pending, and for CPU all that aren't ready: taken for 0 upward and left out downward.
    pub pending: u32,
    /// The target of the mean, thousandths.
    pub target_milli: i64,
}

/// How many pods there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodCount {
    /// `spec.replicas`.
    pub spec: u32,
    /// `status.replicas`: pods that were created, ready or not.
    pub status: u32,
    /// Those that are ready.
    pub ready: u32,
}

impl Signal {
    /// The replicas that it asks for; None where it can't tell, which the HPA takes for a failed metric.
    #[must_use]
    pub fn proposal(&self, pods: PodCount, tolerances: Tolerances, generation: Generation) -> Option<u32> {
        match self {
            Self::AverageValue(metric) => Some(proposal(*metric, pods.status, tolerances, generation)),
            Self::Value(metric) => {
                let ratio = metric.value_milli as f64 / metric.target_milli as f64;
                if is_within(ratio, tolerances, generation) {
                    return Some(pods.spec);
                }
                Some(whole(ratio * f64::from(pods.ready)))
            }
            Self::Pods(metric) => metric.proposal(pods.spec, tolerances, generation),
        }
    }
}

impl PodsMetric {
    fn proposal(&self, spec: u32, tolerances: Tolerances, generation: Generation) -> Option<u32> {
        let ratio = self.ratio(self.sum_milli, self.telling)?;
        let counts_pending = self.pending > 0 && ratio > 1.0;
        if self.missing == 0 && !counts_pending {
            let within = is_within(ratio, tolerances, generation);
            return Some(if within { spec } else { whole(ratio * f64::from(self.telling)) });
        }
        let filled = if ratio < 1.0 { i64::from(self.missing) * self.target_milli } else { 0 };
        let pods = self.telling + self.missing + if counts_pending { self.pending } else { 0 };
        let corrected = self.ratio(self.sum_milli + filled, pods)?;
        let turned = (ratio < 1.0 && corrected > 1.0) || (ratio > 1.0 && corrected < 1.0);
        if turned || is_within(corrected, tolerances, generation) {
            return Some(spec);
        }
        let wanted = whole(corrected * f64::from(pods));
        let against = (corrected < 1.0 && wanted > spec) || (corrected > 1.0 && wanted < spec);
        Some(if against { spec } else { wanted })
    }

    /// The mean over the target; the mean is a whole number of thousandths there. None without a pod.
    fn ratio(&self, sum_milli: i64, pods: u32) -> Option<f64> {
        let mean = sum_milli.checked_div(i64::from(pods))?;
        Some(mean as f64 / self.target_milli as f64)
    }
}

fn whole(replicas: f64) -> u32 {
    replicas.ceil().clamp(0.0, f64::from(i32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposed(signal: Signal, spec: u32, ready: u32) -> Option<u32> {
        let pods = PodCount { spec, status: spec, ready };
        signal.proposal(pods, Tolerances::DEFAULT, Generation::Since133)
    }

    fn value(ratio: f64) -> Signal {
        Signal::Value(Metric { value_milli: (ratio * 1000.0) as i64, target_milli: 1000 })
    }

    /// Pods at a mean usage in thousandths, target 800.
    fn pods(mean: i64, telling: u32, missing: u32, pending: u32) -> Signal {
        let sum_milli = mean * i64::from(telling);
        Signal::Pods(PodsMetric { sum_milli, telling, missing, pending, target_milli: 800 })
    }

    #[test]
    fn a_value_multiplies_the_ready_pods_only() {
        assert_eq!(proposed(value(2.0), 4, 4), Some(8));
        assert_eq!(proposed(value(2.0), 8, 4), Some(8), "those that start aren't multiplied");
        assert_eq!(proposed(value(0.5), 5, 5), Some(3));
        assert_eq!(proposed(value(1.1), 5, 5), Some(5), "within the tolerance");
        assert_eq!(proposed(value(2.0), 3, 0), Some(0), "and it collapses when nothing is ready");
    }

    #[test]
    fn pods_that_all_tell_are_a_plain_ratio() {
        assert_eq!(proposed(pods(1000, 8, 0, 0), 8, 8), Some(10));
        assert_eq!(proposed(pods(400, 8, 0, 0), 8, 8), Some(4));
        assert_eq!(proposed(pods(860, 8, 0, 0), 8, 8), Some(8), "within the tolerance");
        assert_eq!(proposed(pods(0, 0, 3, 0), 3, 0), None, "no pod tells anything");
    }

    #[test]
    fn a_missing_pod_counts_as_idle_upward_and_at_the_target_downward() {
        // 8 at 1.0 and 2 that start: 8 / 10 is the target exactly.
        assert_eq!(proposed(pods(1000, 8, 2, 0), 10, 8), Some(10));
        // 8 at 1.0 and 4 that start: below the target, but never down on what was a wish to go up.
        assert_eq!(proposed(pods(1000, 8, 4, 0), 12, 8), Some(12));
        // 8 at 0.4 and 2 taken for 0.8: 0.48, 6 of 10.
        assert_eq!(proposed(pods(400, 8, 2, 0), 10, 8), Some(6));
    }

    #[test]
    fn a_pending_pod_counts_as_idle_upward_and_not_at_all_downward() {
        assert_eq!(proposed(pods(1000, 8, 0, 2), 10, 8), Some(10));
        assert_eq!(proposed(pods(1000, 8, 0, 1), 9, 8), Some(10), "8 / 9 is 1.11 of the target");
        assert_eq!(proposed(pods(400, 8, 0, 2), 10, 8), Some(4));
    }

    #[test]
    fn a_correction_never_turns_the_direction() {
        // 3 at 0.72 is 0.9 of the target; with 7 at the target it is within the tolerance.
        assert_eq!(proposed(pods(720, 3, 7, 0), 10, 3), Some(10));
        // More pods were counted than the spec has: going up by fewer than it has is no way up.
        assert_eq!(proposed(pods(1000, 4, 0, 0), 6, 4), Some(5), "the plain ratio has no such rule");
        assert_eq!(proposed(pods(2000, 2, 1, 0), 9, 2), Some(9));
    }
}
