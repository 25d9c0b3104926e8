//! KEDA with a Prometheus trigger on the sum of an engine's gauge, alone or beside a cron trigger. Pure.
//!
//! Source: KEDA 2.21, `pkg/scalers/prometheus_scaler.go` and `cron_scaler.go`; thresholds from the tutorials named below.
//! All are external metrics with a target of type `AverageValue`, behind an HPA with everything at its defaults: tolerance
//! 10 %, at most a doubling a sync, five minutes of stabilisation. Prometheus scrapes every 15 s.

use std::time::Duration;

use chrono::{DateTime, Datelike as _, Timelike as _, Utc, Weekday};

use super::{SCRAPE_AGE, external};
use crate::backtest::rival::{Rival, Seen, Wish};
use crate::simulate::Moment;
use crate::simulate::autoscaler::AutoscalerSettings;

/// `threshold` of the tutorials for `vllm:num_requests_waiting` (vLLM production stack, tutorial 20).
const WAITING_THRESHOLD: f64 = 5.0;

/// Target of the sum of `vllm:kv_cache_usage_perc`: a replica with 80 % in use is full.
const KV_THRESHOLD: f64 = 0.8;

/// The sum of something over the replicas, and what one replica should have of it.
pub(super) struct Sum {
    read: fn(&Seen) -> Option<f64>,
    threshold: f64,
}

impl Sum {
    /// Waiting requests, 5 a replica.
    ///
    /// It asks for nothing as soon as the queue is empty, however full the batches are; and for everything while a queue
    /// waits for pods that are starting already.
    pub(super) fn waiting() -> Self {
        Self { read: |seen| Some(seen.waiting()), threshold: WAITING_THRESHOLD }
    }

    /// KV cache usage, 0.8 a replica. It can't tell how much too full a full fleet is: at most 1.25 times as many a sync.
    pub(super) fn kv_usage() -> Self {
        Self { read: Seen::kv_usage, threshold: KV_THRESHOLD }
    }

    /// Requests in flight, running and waiting; the target is tuned to the engine, as guides on concurrency say (GKE's
    /// and Ray Serve's alike).
    pub(super) fn in_flight(target: f64) -> Self {
        Self { read: |seen| seen.running().map(|running| running + seen.waiting()), threshold: target }
    }
}

impl Rival for Sum {
    fn metric_age(&self) -> Duration {
        SCRAPE_AGE
    }

    fn chain(&self, min: u32, max: u32) -> Option<AutoscalerSettings> {
        Some(AutoscalerSettings::defaults(min, max))
    }

    fn wish(&mut self, _: Moment, seen: &Seen) -> Wish {
        Wish::Metrics(vec![(self.read)(seen).map(|sum| external(sum, self.threshold))])
    }
}

/// A floor in working hours, Monday to Friday, 8 to 20 UTC, beside waiting requests; the larger counts.
///
/// The floor is a metric like any other: its pods are ordered when the window opens, not before, and the HPA's tolerance
/// swallows it where the fleet is within 10 % of it.
pub(super) struct CronAndWaiting {
    begins: DateTime<Utc>,
    /// `desiredReplicas` in the window.
    floor: u32,
}

/// First hour of the window.
const OPENS: u32 = 8;
/// First hour after it.
const CLOSES: u32 = 20;
/// What KEDA's cron trigger answers outside its window.
const OUTSIDE: u32 = 1;

impl CronAndWaiting {
    /// In a world that began at this wall-clock time. The floor is half the peak, as somebody would set it who knows the
    /// peak and no more.
    pub(super) fn new(begins: DateTime<Utc>, peak_replicas: u32) -> Self {
        Self { begins, floor: peak_replicas.div_ceil(2) }
    }

    fn floor(&self, now: Moment) -> u32 {
        let wall = now.wall(self.begins);
        let is_weekend = matches!(wall.weekday(), Weekday::Sat | Weekday::Sun);
        let is_open = !is_weekend && (OPENS..CLOSES).contains(&wall.hour());
        if is_open { self.floor } else { OUTSIDE }
    }
}

impl Rival for CronAndWaiting {
    fn metric_age(&self) -> Duration {
        SCRAPE_AGE
    }

    fn chain(&self, min: u32, max: u32) -> Option<AutoscalerSettings> {
        Some(AutoscalerSettings::defaults(min, max))
    }

    fn wish(&mut self, now: Moment, seen: &Seen) -> Wish {
        // KEDA's own clock, not a scraped one.
        let floor = external(f64::from(self.floor(now)), 1.0);
        Wish::Metrics(vec![Some(floor), Some(external(seen.waiting(), WAITING_THRESHOLD))])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, kv, play, seen, uniform};
    use super::*;
    use crate::backtest::rival::SeenReplica;

    #[test]
    fn waiting_requests_ask_for_nothing_when_a_full_fleet_has_no_queue() {
        // Ten full replicas without a queue: the five minutes of stabilisation are all that keeps them.
        let specs = play(Box::new(Sum::waiting()), (10, 20), 80, |at, spec| uniform(at, spec, kv(0.95, 0.0)));
        assert_eq!(changes(&specs), [(315, 1)]);
    }

    #[test]
    fn waiting_requests_ask_for_everything_while_pods_start() {
        // 200 wait, 3 serve, and what is ordered never gets ready: the same queue is ordered for again and again.
        let specs = play(Box::new(Sum::waiting()), (3, 30), 30, |at, spec| {
            seen(at, spec, &[kv(0.95, 70.0), kv(0.95, 70.0), kv(0.95, 60.0)])
        });
        assert_eq!(changes(&specs), [(30, 6), (45, 12), (60, 24), (75, 30)]);
    }

    #[test]
    fn a_kv_target_grows_a_full_fleet_by_a_quarter_a_sync() {
        let specs =
            play(Box::new(Sum::kv_usage()), (8, 100), 28, |at, spec| uniform(at, spec, kv(1.0, 50.0)));
        // Every other sync sees what the last one ordered: the metric is 15 s old.
        assert_eq!(changes(&specs), [(30, 10), (60, 13), (90, 17), (120, 22)]);
    }

    #[test]
    fn requests_in_flight_count_running_and_waiting_and_fail_where_nobody_tells_them() {
        let wish = |each| Sum::in_flight(20.0).wish(Moment::START, &uniform(0.0, 4, each));
        assert_eq!(wish(kv(0.5, 5.0)), Wish::Metrics(vec![Some(external(60.0, 20.0))]));
        assert_eq!(wish(SeenReplica::default()), Wish::Metrics(vec![None]));
    }

    #[test]
    fn the_tolerance_swallows_a_floor_and_its_pods_are_ordered_when_it_opens() {
        // Monday 7:59.
        let begins = "2024-01-01T07:59:00Z".parse().unwrap();
        let floor_of = |peak, initial| {
            let cron = CronAndWaiting::new(begins, peak);
            changes(&play(Box::new(cron), (initial, 50), 60, |at, spec| uniform(at, spec, kv(0.5, 0.0))))
        };
        assert_eq!(floor_of(20, 5), [(60, 10)], "at 8:00, when it should be ready");
        assert_eq!(floor_of(22, 10), [], "11 is within 10 % of 10");
        assert_eq!(floor_of(24, 10), [(60, 12)]);
    }

    #[test]
    fn the_window_is_open_in_working_hours_only() {
        let open = |at: &str| CronAndWaiting::new(at.parse().unwrap(), 20).floor(Moment::START) > 1;
        assert!(open("2024-01-05T19:59:59Z"), "a Friday");
        assert!(!open("2024-01-05T20:00:00Z"));
        assert!(!open("2024-01-05T07:59:59Z"));
        assert!(!open("2024-01-06T12:00:00Z"), "a Saturday");
    }
}
