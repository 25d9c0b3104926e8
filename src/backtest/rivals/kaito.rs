//! keda-kaito-scaler on waiting requests: twice or half by a formula, held to one replica in five minutes. Pure.
//!
//! Source: kaito-project/keda-kaito-scaler, `pkg/scaledobject/provisioner.go` and `pkg/scaler/metric_cache.go`; thresholds
//! from its README and examples: more than 10 waiting a replica is up, fewer than 2 is down. It scrapes every 15 s by
//! itself. The ScaledObject that it writes: `scalingModifiers` give 2.0, 0.5 or 1.0 against a target of 1 of type `Value`;
//! tolerance 10 %; one pod in 300 s both ways; windows of 60 s upward and 300 s downward. Up only when every replica is
//! ready.

use std::time::Duration;

use super::SCRAPE_AGE;
use crate::backtest::rival::{Rival, Seen, Wish};
use crate::simulate::Moment;
use crate::simulate::autoscaler::behavior::{Behavior, Policy, PolicyKind, Rules, Select};
use crate::simulate::autoscaler::{AutoscalerSettings, Metric, Signal};

/// `scaledobject.kaito.sh/threshold`, of a replica's waiting requests.
const UP: f64 = 10.0;
/// The lower threshold.
const DOWN: f64 = 2.0;

/// The scaler of one InferenceSet.
pub(super) struct Kaito;

impl Rival for Kaito {
    fn metric_age(&self) -> Duration {
        SCRAPE_AGE
    }

    fn chain(&self, min: u32, max: u32) -> Option<AutoscalerSettings> {
        let one = Policy { kind: PolicyKind::Pods, value: 1, period: Duration::from_secs(300) };
        let rules = |window| Rules {
            stabilization: Some(Duration::from_secs(window)),
            policies: vec![one],
            select: Select::Max,
        };
        let behavior = Some(Behavior { scale_up: rules(60), scale_down: rules(300) });
        Some(AutoscalerSettings { behavior, ..AutoscalerSettings::defaults(min, max) })
    }

    fn wish(&mut self, _: Moment, seen: &Seen) -> Wish {
        if seen.ready.is_empty() {
            // Nobody to scrape: an error, and the HPA holds.
            return Wish::Metrics(vec![None]);
        }
        let waiting = seen.waiting() / seen.ready.len() as f64;
        let all_ready = seen.ready.len() as u32 == seen.spec;
        let factor_milli = match waiting {
            waiting if waiting > UP && all_ready => 2000,
            waiting if waiting < DOWN => 500,
            _ => 1000,
        };
        let metric = Metric { value_milli: factor_milli, target_milli: 1000 };
        Wish::Metrics(vec![Some(Signal::Value(metric))])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, kv, play, seen, uniform};
    use super::*;

    #[test]
    fn it_goes_up_by_one_in_five_minutes_however_long_the_queue_is() {
        let specs = play(Box::new(Kaito), (4, 20), 200, |at, spec| uniform(at, spec, kv(1.0, 500.0)));
        let went = changes(&specs);
        assert_eq!(went.iter().map(|(_, spec)| *spec).collect::<Vec<_>>(), [5, 6, 7, 8], "{went:?}");
        assert!(went.windows(2).all(|pair| pair[1].0 - pair[0].0 == 300), "{went:?}");
    }

    #[test]
    fn it_waits_for_every_start() {
        let specs = play(Box::new(Kaito), (4, 20), 400, |at, spec| {
            let ready = spec.min(4) as usize;
            seen(at, spec, &vec![kv(1.0, 500.0); ready])
        });
        assert_eq!(changes(&specs).len(), 1, "the fifth never gets ready: {:?}", changes(&specs));
    }

    #[test]
    fn it_goes_down_by_one_in_five_minutes() {
        let specs = play(Box::new(Kaito), (8, 20), 200, |at, spec| uniform(at, spec, kv(0.9, 0.0)));
        let went = changes(&specs);
        assert_eq!(went.iter().map(|(_, spec)| *spec).collect::<Vec<_>>(), [7, 6, 5], "{went:?}");
        assert!(went.windows(2).all(|pair| pair[1].0 - pair[0].0 == 300), "{went:?}");
    }
}
