//! A rival in charge of a fleet of fluid replicas. Pure.
//!
//! A fluid fills of [`Seen`]: the counts, the queue (spread evenly), what arrived, what was served, and how busy the
//! replicas were. It has no batch, no KV cache and no latencies: those are None.

use super::actuation::Actuated;
use super::moment;
use crate::backtest::SLOT_SECONDS;
use crate::backtest::fleet::{Controller, Ended, Fleet};
use crate::backtest::queue::{Queue, Tokens};
use crate::backtest::rival::{Rates, Rival, Seen, SeenReplica};
use crate::backtest::work::Work;
use crate::decision::policy::TokenRates;
use crate::simulate::autoscaler::PodCount;

/// A rival behind its actuation chain, and what it is shown.
pub(in crate::backtest) struct Chained<'a> {
    actuated: Actuated,
    work: &'a Work,
    queue: Queue<'a>,
    /// The count of this slot.
    size: u32,
}

impl<'a> Chained<'a> {
    pub(in crate::backtest) fn new(
        rival: Box<dyn Rival + Send>,
        work: &'a Work,
        rates: TokenRates,
        (min, max): (u32, u32),
    ) -> Self {
        let actuated = Actuated::new(rival, min, max);
        Self { actuated, work, queue: Queue::new(work, rates), size: 0 }
    }
}

impl Controller for Chained<'_> {
    fn replicas(&mut self, slot: usize, fleet: &Fleet) -> u32 {
        let size = fleet.size();
        let pods = PodCount { spec: size, status: size, ready: fleet.ready() };
        self.size = self.actuated.replicas(moment(slot), pods);
        self.size
    }

    fn served(&mut self, slot: usize, ended: Ended) {
        let arrived = self.queue.arrive(slot);
        let served = self.queue.serve(ended.served);
        let (waiting, ready) = (self.queue.waiting(), f64::from(ended.ready.max(1)));
        let units = |units: f64| units / f64::from(self.work.units_per_slot);
        let replica = SeenReplica {
            waiting: waiting.requests / ready,
            running: None,
            kv_usage: None,
            kv_tokens: None,
            waiting_prompt_tokens: waiting.input / ready,
            busy: units(ended.served as f64) / ready,
        };
        self.actuated.note(Seen {
            at: moment(slot + 1),
            spec: self.size,
            status: self.size,
            ready: vec![replica; ended.ready as usize],
            offered: rates(arrived, units(f64::from(self.work.slots()[slot].units))),
            served: rates(served, units(ended.served as f64)),
            first_token_p95_seconds: None,
            inter_token_seconds: None,
        });
    }
}

/// Of a slot.
fn rates(tokens: Tokens, replicas: f64) -> Rates {
    Rates {
        requests: tokens.requests / SLOT_SECONDS,
        input_tokens: tokens.input / SLOT_SECONDS,
        output_tokens: tokens.output / SLOT_SECONDS,
        replicas,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::super::testing::{RATES, work};
    use super::*;
    use crate::backtest::fleet::{Terms, play};
    use crate::backtest::rival::Wish;
    use crate::backtest::score::Tally;
    use crate::simulate::Moment;
    use crate::simulate::autoscaler::AutoscalerSettings;

    /// Writes down what it sees.
    struct Witness(Arc<Mutex<Vec<Seen>>>);

    impl Rival for Witness {
        fn metric_age(&self) -> Duration {
            Duration::ZERO
        }

        fn chain(&self, _: u32, _: u32) -> Option<AutoscalerSettings> {
            None
        }

        fn wish(&mut self, now: Moment, seen: &Seen) -> Wish {
            assert_eq!(now, seen.at);
            self.0.lock().unwrap().push(seen.clone());
            if now == moment(10) { Wish::Replicas(6) } else { Wish::Keep }
        }
    }

    #[test]
    fn a_rival_sees_the_fluid_as_its_metrics_would_tell_it() {
        let work = work(&[4.0; 60], 4);
        let terms = Terms { cold_start_slots: 12, acceptable_seconds: 5.0, initial: 2 };
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut chained = Chained::new(Box::new(Witness(Arc::clone(&seen))), &work, RATES, (1, 20));
        play(&work, &terms, &mut chained, Tally::new(5.0), &AtomicU64::new(0));
        let seen = seen.lock().unwrap();
        let first = &seen[0];
        assert_eq!((first.at, first.spec, first.ready.len()), (moment(1), 2, 2));
        // Half of it is served, the other half waits: 2 of 4 replicas' work of 5 s.
        assert!((first.offered.replicas - 4.0).abs() < 1e-9 && (first.served.replicas - 2.0).abs() < 1e-9);
        assert!((first.offered.input_tokens - 16_000.0).abs() < 1e-6);
        assert!((first.served.output_tokens - 700.0).abs() < 1e-6);
        assert!((first.waiting() - work.slots()[0].requests / 2.0).abs() < 1e-9);
        assert!((first.ready[0].waiting_prompt_tokens - 20_000.0).abs() < 1e-6);
        assert!((first.busy() - 2.0).abs() < 1e-9);
        assert_eq!((first.running(), first.kv_usage(), first.inter_token_seconds), (None, None, None));
        // Ordered at slot 10, ready at 22.
        assert_eq!((seen[10].spec, seen[10].ready.len()), (6, 2));
        assert_eq!((seen[21].spec, seen[21].ready.len()), (6, 2));
        assert_eq!((seen[22].spec, seen[22].ready.len()), (6, 6));
    }
}
