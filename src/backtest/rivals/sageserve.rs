//! SageServe's reactive baseline on memory utilisation: one replica more or less, then busy. Pure.
//!
//! Source: the simulator of SageServe (arXiv 2502.14617), `arbiter.py` and its configs: one more above a mean of 0.5, one
//! less below 0.25, and nothing else while an instance spins up, 155 s. It writes replica counts.

use std::time::Duration;

use crate::backtest::rival::{Rival, Seen, Wish};
use crate::simulate::Moment;
use crate::simulate::autoscaler::AutoscalerSettings;

/// One more above this mean.
const UP: f64 = 0.5;
/// One less below this one.
const DOWN: f64 = 0.25;
/// Nothing happens for so long after a change.
const BUSY: Duration = Duration::from_secs(155);

/// The arbiter of one model.
#[derive(Default)]
pub(super) struct Reactive {
    changed: Option<Moment>,
}

impl Rival for Reactive {
    fn metric_age(&self) -> Duration {
        Duration::ZERO
    }

    fn chain(&self, _: u32, _: u32) -> Option<AutoscalerSettings> {
        None
    }

    fn wish(&mut self, now: Moment, seen: &Seen) -> Wish {
        let Some(usage) = seen.kv_usage().filter(|_| !seen.ready.is_empty()) else { return Wish::Keep };
        if self.changed.is_some_and(|at| now.since(at) < BUSY) {
            return Wish::Keep;
        }
        let mean = usage / seen.ready.len() as f64;
        let wanted = match mean {
            mean if mean > UP => seen.spec + 1,
            mean if mean < DOWN => seen.spec.saturating_sub(1).max(1),
            _ => return Wish::Keep,
        };
        self.changed = Some(now);
        Wish::Replicas(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, kv, play, uniform};
    use super::*;

    #[test]
    fn it_moves_by_one_and_is_busy_for_155_s() {
        let up = play(Box::<Reactive>::default(), (2, 20), 80, |at, spec| uniform(at, spec, kv(0.9, 50.0)));
        assert_eq!(changes(&up), [(5, 3), (160, 4), (315, 5)]);
        let down = play(Box::<Reactive>::default(), (3, 20), 80, |at, spec| uniform(at, spec, kv(0.1, 0.0)));
        assert_eq!(changes(&down)[..2], [(5, 2), (160, 1)]);
        let between =
            play(Box::<Reactive>::default(), (3, 20), 80, |at, spec| uniform(at, spec, kv(0.4, 0.0)));
        assert_eq!(changes(&between), []);
    }
}
