//! The HPA by itself: on the arriving work, on KV cache usage, on CPU and on GPU utilisation. Pure.
//!
//! Source: Kubernetes' `replica_calculator.go`; everything at its defaults (tolerance 10 %, at most a doubling a sync, five
//! minutes of stabilisation).

use std::time::Duration;

use super::window::Window;
use super::{SCRAPE_AGE, USUAL_TARGET, external, milli};
use crate::backtest::rival::{Rival, Seen, SeenReplica, Wish};
use crate::simulate::Moment;
use crate::simulate::autoscaler::{AutoscalerSettings, PodsMetric, Signal};

/// An HPA on the work that arrives, as an external metric: mean over 30 s, 15 s old, target 0.8 a replica.
///
/// It is the best that such an HPA can be: it sees what arrives, not what is served, so saturation doesn't hide demand. No
/// real metric tells it.
pub(super) struct ArrivingWork {
    work: Window,
}

impl ArrivingWork {
    pub(super) fn new() -> Self {
        Self { work: Window::new(Duration::from_secs(30)) }
    }
}

impl Rival for ArrivingWork {
    fn metric_age(&self) -> Duration {
        SCRAPE_AGE
    }

    fn chain(&self, min: u32, max: u32) -> Option<AutoscalerSettings> {
        Some(AutoscalerSettings::defaults(min, max))
    }

    fn wish(&mut self, _: Moment, seen: &Seen) -> Wish {
        self.work.push(seen.at, seen.offered.replicas);
        Wish::Metrics(vec![self.work.mean().map(|work| external(work, USUAL_TARGET))])
    }
}

/// The mean of a gauge that each pod has, type `Pods`.
pub(super) struct MeanOfPods {
    read: fn(&Seen, &SeenReplica) -> Option<f64>,
    target: f64,
    /// A pod that isn't ready is left out downward as well, as a pending one; else it is missing.
    starting_are_pending: bool,
}

/// Target of the mean of `vllm:kv_cache_usage_perc` in guides for vLLM (0.7 to 0.8).
const KV_TARGET: f64 = 0.8;

/// Target of the mean GPU utilisation.
const GPU_TARGET: f64 = 0.8;

/// Target of the mean CPU utilisation: that of the walkthrough in Kubernetes' documentation.
const CPU_TARGET: f64 = 0.5;

/// CPU of a replica at rest over what its pod requests: the engine's loop and the API server of one that requests 4 cores.
const CPU_AT_REST: f64 = 0.25;

/// CPU seconds of a request over what a pod requests: a core-second for tokenising, streaming and scheduling it, of 4.
const CPU_SECONDS_OF_A_REQUEST: f64 = 0.25;

impl MeanOfPods {
    /// KV cache usage, mean 0.8. At most 1.25 times as many a sync; a new replica, empty, drags the mean down.
    pub(super) fn kv_usage() -> Self {
        Self { read: |_, replica| replica.kv_usage, target: KV_TARGET, starting_are_pending: false }
    }

    /// GPU utilisation as DCGM tells it, the share of time in which a step runs; mean 0.8. A batch of one is as busy as a
    /// full one.
    pub(super) fn gpu() -> Self {
        Self { read: |_, replica| Some(replica.busy), target: GPU_TARGET, starting_are_pending: false }
    }

    /// CPU utilisation by a linear law: 25 % of the request at rest, and 25 % for each request a second; mean 50 %. It
    /// counts requests, whatever their length: where they are long it never reaches its target, where they are short it
    /// buys too much. The CPU that a start burns is not in it.
    pub(super) fn cpu() -> Self {
        Self { read: |seen, _| Some(cpu_of(seen)), target: CPU_TARGET, starting_are_pending: true }
    }
}

/// CPU utilisation of each replica: routers spread requests evenly.
fn cpu_of(seen: &Seen) -> f64 {
    CPU_AT_REST + CPU_SECONDS_OF_A_REQUEST * seen.served.requests / seen.ready.len().max(1) as f64
}

impl Rival for MeanOfPods {
    fn metric_age(&self) -> Duration {
        SCRAPE_AGE
    }

    fn chain(&self, min: u32, max: u32) -> Option<AutoscalerSettings> {
        Some(AutoscalerSettings::defaults(min, max))
    }

    fn wish(&mut self, _: Moment, seen: &Seen) -> Wish {
        let values = seen.ready.iter().filter_map(|replica| (self.read)(seen, replica));
        let (sum, telling) = values.fold((0, 0), |(sum, count), value| (sum + milli(value), count + 1));
        let silent = seen.status.saturating_sub(telling);
        let (missing, pending) = if self.starting_are_pending { (0, silent) } else { (silent, 0) };
        let target_milli = milli(self.target);
        let metric = PodsMetric { sum_milli: sum, telling, missing, pending, target_milli };
        Wish::Metrics(vec![Some(Signal::Pods(metric))])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, kv, play, seen, uniform};
    use super::*;
    use crate::backtest::rival::Rates;

    fn busy(busy: f64) -> SeenReplica {
        SeenReplica { busy, ..SeenReplica::default() }
    }

    #[test]
    fn arriving_work_keeps_to_the_tolerance_and_the_stabilisation() {
        let specs = play(Box::new(ArrivingWork::new()), (10, 20), 480, |at, spec| {
            let replicas = match at as u32 {
                0..=60 => 8.0,
                61..=600 => 4.0,
                601..=1200 => 4.2,
                _ => 2.0,
            };
            Seen { offered: Rates { replicas, ..Rates::default() }, ..uniform(at, spec, busy(0.5)) }
        });
        // 4.2 / 0.8 = 5.25 is within 10 % of 5; down is stabilised over five minutes.
        assert_eq!(changes(&specs), [(390, 8), (405, 5), (1530, 4), (1545, 3)]);
    }

    #[test]
    fn a_mean_of_kv_usage_grows_by_a_quarter_and_waits_for_what_starts() {
        let all_full =
            play(Box::new(MeanOfPods::kv_usage()), (8, 100), 28, |at, spec| uniform(at, spec, kv(1.0, 50.0)));
        assert_eq!(changes(&all_full), [(30, 10), (60, 13), (90, 17), (120, 22)]);
        let never_ready = play(Box::new(MeanOfPods::kv_usage()), (8, 100), 18, |at, spec| {
            seen(at, spec, &[kv(1.0, 50.0); 8])
        });
        assert_eq!(changes(&never_ready), [(30, 10)], "those that start count as empty");
    }

    #[test]
    fn gpu_utilisation_is_blind_above_one() {
        let specs = play(Box::new(MeanOfPods::gpu()), (4, 100), 14, |at, spec| uniform(at, spec, busy(1.0)));
        assert_eq!(changes(&specs), [(30, 5), (60, 7)]);
    }

    #[test]
    fn cpu_follows_requests_and_not_their_length() {
        let cpu = |requests: f64| {
            let served = Rates { requests, ..Rates::default() };
            cpu_of(&Seen { served, ..uniform(0.0, 4, busy(1.0)) })
        };
        assert!((cpu(0.0) - 0.25).abs() < 1e-9);
        assert!((cpu(8.0) - 0.75).abs() < 1e-9);
        // Long requests: the engines are full at a fifth of a request a second, and CPU says that five of eight are enough.
        let specs = play(Box::new(MeanOfPods::cpu()), (8, 20), 80, |at, spec| {
            let served = Rates { requests: 0.2 * f64::from(spec), ..Rates::default() };
            Seen { served, ..uniform(at, spec, busy(1.0)) }
        });
        assert_eq!(changes(&specs).first(), Some(&(315, 5)));
    }
}
