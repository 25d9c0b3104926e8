//! Between a rival and a fleet: metrics that are old, and an HPA that carries its wish out. Pure.
//!
//! Both models of the fleet use this: [`Actuated::note`] at the end of every slot, [`Actuated::replicas`] at the beginning
//! of the next. Nothing in here knows what a slot is or how the fleet serves.
//!
//! - The rival gets the newest state that is at least as old as its [`Rival::metric_age`]. Until there is one it isn't
//!   asked, and an HPA without a metric holds.
//! - Metrics stay what they were until the rival tells new ones: it may have a slower beat than the HPA's sync.
//! - Bounds hold for everybody, written replica counts included. KEDA's way to zero has no part in it: the least is one.

use std::collections::VecDeque;
use std::time::Duration;

use super::window::Every;
use crate::backtest::rival::{Rival, Seen, Wish};
use crate::simulate::Moment;
use crate::simulate::autoscaler::{Autoscaler, PodCount, Signal};

/// A rival that is in charge of a fleet.
pub struct Actuated {
    rival: Box<dyn Rival + Send>,
    age: Duration,
    min: u32,
    max: u32,
    chain: Option<Chain>,
    /// States, the oldest first; the first is as old as the rival's metrics, or on its way to be.
    remembered: VecDeque<Seen>,
}

/// The HPA behind a rival.
struct Chain {
    autoscaler: Autoscaler,
    syncs: Every,
    /// What the next sync is told.
    signals: Vec<Option<Signal>>,
}

impl Actuated {
    /// At the beginning of time, for a fleet with these bounds; a `min` of 0 is played as 1.
    #[must_use]
    pub fn new(rival: Box<dyn Rival + Send>, min: u32, max: u32) -> Self {
        let min = min.max(1);
        let max = max.max(min);
        let chain = rival.chain(min, max).map(|settings| Chain {
            syncs: Every::new(settings.sync_period),
            autoscaler: Autoscaler::new(settings, Moment::START),
            signals: Vec::new(),
        });
        Self { age: rival.metric_age(), rival, min, max, chain, remembered: VecDeque::new() }
    }

    /// See [`Rival::goes_by_first_tokens`].
    #[must_use]
    pub fn goes_by_first_tokens(&self) -> bool {
        self.rival.goes_by_first_tokens()
    }

    /// A slot has ended. States come in the order of their times.
    pub fn note(&mut self, seen: Seen) {
        self.remembered.push_back(seen);
    }

    /// Once at the beginning of each slot: the `spec.replicas` to have from now on.
    pub fn replicas(&mut self, now: Moment, pods: PodCount) -> u32 {
        let wish = self.wish(now);
        let Some(chain) = &mut self.chain else {
            return match wish {
                Wish::Replicas(replicas) => replicas.clamp(self.min, self.max),
                Wish::Keep | Wish::Metrics(_) => pods.spec,
            };
        };
        match wish {
            Wish::Metrics(signals) => chain.signals = signals,
            // One that has an HPA and writes past it: the HPA finds the new count at its next sync.
            Wish::Replicas(replicas) => return replicas.clamp(self.min, self.max),
            Wish::Keep => {}
        }
        if !chain.syncs.is_due(now) {
            return pods.spec;
        }
        chain.autoscaler.hpa_sync_signals(now, pods, &chain.signals).unwrap_or(pods.spec)
    }

    fn wish(&mut self, now: Moment) -> Wish {
        let age = self.age;
        let is_old_enough = |seen: &Seen| seen.at.plus(age) <= now;
        while self.remembered.get(1).is_some_and(is_old_enough) {
            self.remembered.pop_front();
        }
        match self.remembered.front().filter(|seen| is_old_enough(seen)) {
            Some(seen) => self.rival.wish(now, seen),
            None => Wish::Keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{seconds, seen};
    use super::*;
    use crate::simulate::autoscaler::{AutoscalerSettings, Metric};

    /// Tells the HPA when what it saw was, in seconds a replica; or writes it.
    struct Clock {
        age: u64,
        writes: bool,
    }

    impl Rival for Clock {
        fn metric_age(&self) -> Duration {
            Duration::from_secs(self.age)
        }

        fn chain(&self, min: u32, max: u32) -> Option<AutoscalerSettings> {
            (!self.writes).then(|| AutoscalerSettings::recommended(min, max))
        }

        fn wish(&mut self, _: Moment, seen: &Seen) -> Wish {
            let told = seen.at.seconds() as i64;
            if self.writes {
                return Wish::Replicas(told as u32);
            }
            let metric = Metric { value_milli: told * 1000, target_milli: 1000 };
            Wish::Metrics(vec![Some(Signal::AverageValue(metric))])
        }
    }

    /// The spec at the beginning of each slot of 5 s.
    fn specs(rival: Clock, slots: u32, max: u32) -> Vec<u32> {
        let mut actuated = Actuated::new(Box::new(rival), 0, max);
        let mut spec = 1;
        let mut all = Vec::new();
        for slot in 0..slots {
            let now = seconds(f64::from(slot) * 5.0);
            spec = actuated.replicas(now, PodCount { spec, status: spec, ready: spec });
            all.push(spec);
            actuated.note(seen(f64::from(slot + 1) * 5.0, spec, &[]));
        }
        all
    }

    #[test]
    fn a_rival_sees_the_state_of_its_metric_age_ago_and_its_hpa_syncs_every_15_s() {
        let told = specs(Clock { age: 15, writes: false }, 12, 100);
        // At 0 and 15 s nothing is 15 s old but the beginning; at 30 s the state of 15 s is.
        assert_eq!(told, [1, 1, 1, 1, 1, 1, 15, 15, 15, 30, 30, 30]);
    }

    #[test]
    fn what_is_written_past_the_hpa_counts_at_once_and_within_bounds() {
        assert_eq!(specs(Clock { age: 0, writes: true }, 5, 12), [1, 5, 10, 12, 12]);
        assert_eq!(specs(Clock { age: 10, writes: true }, 5, 12), [1, 1, 1, 5, 10]);
    }
}
