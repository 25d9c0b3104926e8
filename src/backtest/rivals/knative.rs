//! Knative's pod autoscaler (KPA) on concurrency, with its panic mode. Pure.
//!
//! Source: knative/serving, `pkg/autoscaler/scaling/autoscaler.go`; defaults of `config-autoscaler`: stable window 60 s,
//! panic window 10 % of it, panic from twice the ready pods on, 70 % of the container's concurrency, at most a thousandfold
//! up and half down a tick, a tick every 2 s (once a slot where slots are longer). Its proxies count requests in flight, so
//! its data are fresh; it writes replica counts.
//!
//! What it divides by are ready pods: a panic holds the most it has seen until the load has been below its threshold for
//! a whole stable window, and a start longer than that ends it too soon.

use std::time::Duration;

use super::window::{Every, Window};
use crate::backtest::rival::{Rival, Seen, Wish};
use crate::simulate::Moment;
use crate::simulate::autoscaler::AutoscalerSettings;

/// `tick-interval`.
const TICK: Duration = Duration::from_secs(2);
/// `stable-window`.
const STABLE: Duration = Duration::from_secs(60);
/// `panic-window-percentage` of the stable window.
const PANIC: Duration = Duration::from_secs(6);
/// `panic-threshold-percentage`.
const PANIC_THRESHOLD: f64 = 2.0;
/// `container-concurrency-target-percentage`.
const TARGET_SHARE: f64 = 0.7;
/// `max-scale-up-rate`.
const UP_RATE: f64 = 1000.0;
/// `max-scale-down-rate`.
const DOWN_RATE: f64 = 2.0;

/// The autoscaler of one revision.
pub(super) struct Knative {
    /// Requests in flight that a pod should have.
    target: f64,
    ticks: Every,
    stable: Window,
    panic: Window,
    /// Since when it panics, renewed while it is over the threshold.
    panicking: Option<Moment>,
    /// The most that was wanted in this panic.
    most: f64,
    has_begun: bool,
}

impl Knative {
    /// For a container that takes so many requests at once.
    pub(super) fn new(concurrency: f64) -> Self {
        Self {
            target: TARGET_SHARE * concurrency,
            ticks: Every::new(TICK),
            stable: Window::new(STABLE),
            panic: Window::new(PANIC),
            panicking: None,
            most: 0.0,
            has_begun: false,
        }
    }

    fn desired(&mut self, now: Moment, ready: f64) -> Option<f64> {
        let (stable, panic) = (self.stable.mean()?, self.panic.mean()?);
        let (stable, panic) = ((stable / self.target).ceil(), (panic / self.target).ceil());
        let bounded = |pods: f64| pods.max((ready / DOWN_RATE).floor()).min((UP_RATE * ready).ceil());
        let is_over = panic / ready >= PANIC_THRESHOLD;
        if is_over {
            self.panicking = Some(now);
        } else if self.panicking.is_some_and(|since| since.plus(STABLE) < now) {
            self.panicking = None;
            self.most = 0.0;
        }
        if self.panicking.is_none() {
            return Some(bounded(stable));
        }
        self.most = self.most.max(bounded(stable)).max(bounded(panic));
        Some(self.most)
    }
}

impl Rival for Knative {
    fn metric_age(&self) -> Duration {
        Duration::ZERO
    }

    fn chain(&self, _: u32, _: u32) -> Option<AutoscalerSettings> {
        None
    }

    fn wish(&mut self, now: Moment, seen: &Seen) -> Wish {
        let Some(running) = seen.running() else { return Wish::Keep };
        if !self.ticks.is_due(now) {
            return Wish::Keep;
        }
        let in_flight = running + seen.waiting();
        self.stable.push(now, in_flight);
        self.panic.push(now, in_flight);
        let ready = seen.ready.len();
        if !self.has_begun {
            self.has_begun = true;
            // It begins in panic where it finds several pods, so that its own restart gives nothing back.
            if ready > 1 {
                self.panicking = Some(now);
                self.most = ready as f64;
            }
        }
        match self.desired(now, ready.max(1) as f64) {
            Some(pods) => Wish::Replicas(pods as u32),
            None => Wish::Keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, play, uniform};
    use super::*;
    use crate::backtest::rival::SeenReplica;

    /// So many requests in flight on a fleet that starts at once.
    fn in_flight(at: f64, spec: u32, requests: f64) -> Seen {
        let running = Some(requests / f64::from(spec.max(1)));
        uniform(at, spec, SeenReplica { running, ..SeenReplica::default() })
    }

    #[test]
    fn a_panic_takes_the_short_mean_and_holds_for_the_stable_window() {
        // Ten a pod: 1 pod with 7 in flight, then 70 for 20 s, then 7 again.
        let specs = play(Box::new(Knative::new(10.0)), (1, 50), 60, |at, spec| {
            in_flight(at, spec, if (60.0..80.0).contains(&at) { 70.0 } else { 7.0 })
        });
        let went = changes(&specs);
        // The mean of the last two slots is 38.5: 6 pods; then 70: 10.
        assert_eq!(went[..2], [(60, 6), (65, 10)]);
        // Over the threshold last at 60 s, where 1 was ready: nothing falls until a minute after that.
        assert_eq!(went[2].0, 125, "{went:?}");
        assert!(went[2].1 < 10);
    }

    #[test]
    fn it_begins_in_panic_where_it_finds_several_pods() {
        let specs = play(Box::new(Knative::new(10.0)), (8, 50), 40, |at, spec| in_flight(at, spec, 7.0));
        let went = changes(&specs);
        assert_eq!(went[0], (70, 4), "a minute of panic, then half a tick: {went:?}");
        assert_eq!(specs.last(), Some(&1));
    }

    #[test]
    fn without_concurrency_nothing_is_wished() {
        let nothing = uniform(0.0, 3, SeenReplica::default());
        assert_eq!(Knative::new(10.0).wish(Moment::START, &nothing), Wish::Keep);
    }
}
