//! Rules that lessons need and that the list of rivals doesn't have. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use crate::backtest::requests::{Fleet, PoolsSizer, Sizer};
use crate::backtest::rival::{Rival, Seen, Wish};
use crate::simulate::Moment;
use crate::simulate::autoscaler::{Autoscaler, AutoscalerSettings, Metric, PodCount, Signal};

/// How old a metric is that Prometheus reads every 15 s.
const SCRAPE_AGE: Duration = Duration::from_secs(15);

/// Thousandths, as Kubernetes passes metrics on.
fn milli(value: f64) -> i64 {
    (value * 1e3).round() as i64
}

/// An HPA on the 95th percentile of the time to first token of the last minute, target type `Value`: so many times as many
/// replicas as it is too long (`GetExternalMetricReplicas` of Kubernetes' `replica_calculator.go`). While nothing gets a
/// first token there is no percentile, and an HPA without a metric holds.
pub(super) struct LatencyP95 {
    /// Seconds.
    target: f64,
}

impl LatencyP95 {
    pub(super) fn new(target: Duration) -> Self {
        Self { target: target.as_secs_f64() }
    }
}

impl Rival for LatencyP95 {
    fn metric_age(&self) -> Duration {
        SCRAPE_AGE
    }

    fn chain(&self, min: u32, max: u32) -> Option<AutoscalerSettings> {
        Some(AutoscalerSettings::defaults(min, max))
    }

    fn goes_by_first_tokens(&self) -> bool {
        true
    }

    fn wish(&mut self, _: Moment, seen: &Seen) -> Wish {
        let metric =
            |p95| Signal::Value(Metric { value_milli: milli(p95), target_milli: milli(self.target) });
        Wish::Metrics(vec![seen.first_token_p95_seconds.map(metric)])
    }
}

/// Changes at times that are known before.
pub(super) struct Planned {
    /// The next one last.
    changes: Vec<(Duration, u32)>,
}

impl Planned {
    /// In the order of time.
    pub(super) fn new(mut changes: Vec<(Duration, u32)>) -> Self {
        changes.reverse();
        Self { changes }
    }
}

impl Sizer for Planned {
    fn next(&self) -> Option<Moment> {
        self.changes.last().map(|(at, _)| Moment::from_duration(*at))
    }

    fn act(&mut self, _: Moment, fleet: &mut Fleet) {
        if let Some((_, replicas)) = self.changes.pop() {
            fleet.scale(replicas);
        }
    }
}

/// One number for several pools: the mean utilisation of all their replicas, target 80 %, type `Value`, and each pool's HPA
/// goes by it. Utilisation is the work that arrives over what the ready replicas carry, mean over 5 min (`rate(...[5m])`)
/// and 15 s old: no real metric is as good.
pub(super) struct FleetAverage {
    autoscalers: Vec<Autoscaler>,
    sync: Moment,
    period: Duration,
    /// Work that had arrived at all pools, replica-seconds, and the mean utilisation, sync by sync.
    work: VecDeque<f64>,
    /// The mean of one sync ago.
    utilisation: Option<f64>,
}

/// Its target.
const FLEET_TARGET: f64 = 0.8;

/// Syncs that its mean is over.
const MEAN_SYNCS: usize = 20;

impl FleetAverage {
    /// Over so many pools with the same bounds.
    pub(super) fn new(pools: usize, min: u32, max: u32) -> Self {
        let settings = AutoscalerSettings::defaults(min, max);
        let period = settings.sync_period;
        let autoscalers = (0..pools).map(|_| Autoscaler::new(settings.clone(), Moment::START)).collect();
        Self { autoscalers, sync: Moment::START, period, work: VecDeque::new(), utilisation: None }
    }

    /// The mean utilisation as it is now; None while the window isn't full.
    fn measure(&mut self, fleets: &[&mut Fleet]) -> Option<f64> {
        let arrived = fleets.iter().map(|fleet| fleet.offered().work_seconds(fleet.rates())).sum();
        self.work.push_back(arrived);
        if self.work.len() <= MEAN_SYNCS {
            return None;
        }
        let before = self.work.pop_front()?;
        let replicas: u32 = fleets.iter().map(|fleet| fleet.cluster().supply().ready).sum();
        let span = self.period.as_secs_f64() * MEAN_SYNCS as f64;
        (replicas > 0).then(|| (arrived - before) / span / f64::from(replicas))
    }
}

impl PoolsSizer for FleetAverage {
    fn next(&self) -> Option<Moment> {
        Some(self.sync)
    }

    fn act(&mut self, now: Moment, fleets: &mut [&mut Fleet]) {
        self.sync = now.plus(self.period);
        let measured = self.measure(fleets);
        let told = std::mem::replace(&mut self.utilisation, measured);
        let signal = told.map(|utilisation| {
            Signal::Value(Metric { value_milli: milli(utilisation), target_milli: milli(FLEET_TARGET) })
        });
        for (autoscaler, fleet) in self.autoscalers.iter_mut().zip(fleets) {
            let cluster = fleet.cluster();
            let pods =
                PodCount { spec: cluster.spec(), status: cluster.status(), ready: cluster.supply().ready };
            if let Some(replicas) = autoscaler.hpa_sync_signals(now, pods, &[signal]) {
                fleet.scale(replicas);
            }
        }
    }
}
