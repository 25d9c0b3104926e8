//! SkyServe's request-rate autoscaler: requests a second over a target, after a long enough wait. Pure.
//!
//! Source: SkyPilot, `sky/serve/autoscalers.py` (`RequestRateAutoscaler`): the rate of the last 60 s, a decision every 20 s,
//! a larger count once it was wanted for 300 s and a smaller one for 1200 s without a break. Its balancer counts what
//! arrives, so saturation hides nothing; what a request costs it doesn't know. It writes replica counts.

use std::time::Duration;

use super::window::{Every, Window};
use crate::backtest::rival::{Rival, Seen, Wish};
use crate::simulate::Moment;
use crate::simulate::autoscaler::AutoscalerSettings;

/// Window of the rate.
const RATE_OF: Duration = Duration::from_secs(60);
/// Time between decisions.
const DECIDES: Duration = Duration::from_secs(20);
/// Decisions in a row for more: `upscale_delay_seconds`, 300 s.
const UP_DECISIONS: u32 = 15;
/// Decisions in a row for less: `downscale_delay_seconds`, 1200 s.
const DOWN_DECISIONS: u32 = 60;

/// The autoscaler of one service.
pub(super) struct SkyServe {
    /// `target_qps_per_replica`.
    target: f64,
    decides: Every,
    rate: Window,
    /// Decisions in a row that wanted more, or less.
    more: u32,
    less: u32,
}

impl SkyServe {
    /// So many requests a second a replica.
    pub(super) fn new(target: f64) -> Self {
        let (decides, rate) = (Every::new(DECIDES), Window::new(RATE_OF));
        Self { target, decides, rate, more: 0, less: 0 }
    }

    fn decide(&mut self, current: u32, wanted: u32) -> Wish {
        (self.more, self.less) = match wanted.cmp(&current) {
            std::cmp::Ordering::Greater => (self.more + 1, 0),
            std::cmp::Ordering::Less => (0, self.less + 1),
            std::cmp::Ordering::Equal => (0, 0),
        };
        if self.more < UP_DECISIONS && self.less < DOWN_DECISIONS {
            return Wish::Keep;
        }
        (self.more, self.less) = (0, 0);
        Wish::Replicas(wanted)
    }
}

impl Rival for SkyServe {
    fn metric_age(&self) -> Duration {
        Duration::ZERO
    }

    fn chain(&self, _: u32, _: u32) -> Option<AutoscalerSettings> {
        None
    }

    fn wish(&mut self, now: Moment, seen: &Seen) -> Wish {
        self.rate.push(seen.at, seen.offered.requests);
        if !self.decides.is_due(now) {
            return Wish::Keep;
        }
        let Some(rate) = self.rate.mean() else { return Wish::Keep };
        self.decide(seen.spec, (rate / self.target).ceil().max(1.0) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, play, uniform};
    use super::*;
    use crate::backtest::rival::{Rates, SeenReplica};

    fn offered(at: f64, spec: u32, requests: f64) -> Seen {
        Seen { offered: Rates { requests, ..Rates::default() }, ..uniform(at, spec, SeenReplica::default()) }
    }

    #[test]
    fn more_is_ordered_after_five_minutes_in_a_row_and_one_calm_moment_begins_anew() {
        let ramp = |calm: f64| {
            let specs = play(Box::new(SkyServe::new(2.0)), (4, 20), 140, |at, spec| {
                let is_calm = (calm..calm + 120.0).contains(&at);
                offered(at, spec, if is_calm { 8.0 } else { 15.0 })
            });
            changes(&specs)
        };
        assert_eq!(ramp(9999.0), [(280, 8)]);
        assert_eq!(ramp(200.0)[0].1, 8);
        assert!(ramp(200.0)[0].0 > 500, "{:?}", ramp(200.0));
    }

    #[test]
    fn less_is_taken_after_twenty_minutes() {
        let specs = play(Box::new(SkyServe::new(2.0)), (8, 20), 300, |at, spec| offered(at, spec, 6.0));
        assert_eq!(changes(&specs), [(1180, 3)]);
    }
}
