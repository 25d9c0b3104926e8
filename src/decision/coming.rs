//! Replicas that are coming: what they are credited with, so that nothing is ordered twice.
//!
//! A backlog goes on growing while the replicas that were ordered for it start, and a ratio stays above its target as
//! long. Both would ask for more at each look. So what is under way is taken off them, upward only: the high view, on
//! which capacity is given back, and what says that a tier is in use, don't know of it. (llm-d's autoscaler credits
//! scale-up only for the same reason: it could otherwise shed replicas in the middle of a start.)
//!
//! A replica that can't start, or that is beyond its deadline, is credited with nothing.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::asks::replicas;
use super::cold_start::Horizon;
use super::memory::Memory;
use super::memory::watched::Watched;
use super::observation::{Observation, ReplicaState};
use crate::units::format_span;

/// How long a replica keeps its credit after it got ready. Rates and the growth of the backlog are means over a window of
/// some ten seconds, and the requests that wait do so at the others: what is seen in the first minute is still the tier
/// without it.
const SETTLES: Duration = Duration::from_mins(1);

/// A backlog that grows by no more than this share of what the ready replicas do stands: a few requests come and go.
const STANDS: f64 = 0.05;

/// How long after its arrival what was ordered may be what shrinks the backlog. The backlog grew for one cold start; the
/// surplus of a whole order takes about as long to work it off, one that is rounded up by little takes longer; then the
/// means over the window must settle. Bounded, for clients that give up shrink it as well.
pub(super) fn digests_for(cold_start: Duration) -> Duration {
    cold_start * 2 + SETTLES
}

/// What is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Coming {
    /// Replicas that start, within their deadline.
    pub(super) replicas: u32,
    /// Replicas that are beyond it.
    overdue: u32,
    /// Replica-seconds that the coming ones will have served before one that is ordered now could serve.
    work: f64,
    /// Seconds until one that is ordered now could serve.
    cold_start: f64,
    deadline: Duration,
    /// Replicas are coming, or came a little while ago: what was ordered is being digested. See [`digests_for`].
    digesting: bool,
}

impl Coming {
    pub(super) fn of(
        observation: &Observation,
        memory: &Memory,
        horizon: &Horizon,
        now: DateTime<Utc>,
        at: Watched,
    ) -> Self {
        let mut coming = Self {
            cold_start: horizon.cold_start.as_secs_f64(),
            deadline: horizon.deadline,
            ..Self::default()
        };
        for replica in observation.replicas.iter().filter(|r| r.state == ReplicaState::Starting) {
            let Some(age) = memory.cold_starts.age(replica, now, at) else { continue };
            if age > horizon.deadline {
                coming.overdue += 1;
            } else {
                coming.replicas += 1;
                // Ready so much sooner than one that is ordered now.
                coming.work += age.as_secs_f64().min(coming.cold_start);
            }
        }
        coming.digesting = coming.replicas > 0;
        for ready_for in memory.cold_starts.arrivals(at) {
            coming.digesting |= ready_for < digests_for(horizon.cold_start);
            if ready_for < SETTLES {
                coming.work += coming.cold_start;
            }
        }
        coming
    }

    /// Of these waiting requests, the ones that will be left for a replica that is ordered now: without those that the
    /// coming replicas will have served by then, and those that a backlog which shrinks will have lost. `cost` is that
    /// of a request in replica-seconds, `growth` in requests a second.
    ///
    /// While replicas start, the credit grows by a replica-second a second for each, and the backlog by what the tier
    /// lacks: an order that covers the arrivals is not raised by the wait for it.
    pub(super) fn leaves(&self, waiting: f64, cost: f64, growth: Option<f64>) -> f64 {
        let served = self.work / cost.max(f64::MIN_POSITIVE);
        (waiting - served - self.shrinks(growth) * self.cold_start).max(0.0)
    }

    /// By how many requests a second the backlog shrinks because what was ordered works it off; `growth` in requests a
    /// second. 0 where nothing was ordered lately: clients that give up shrink a backlog too, and are still demand.
    pub(super) fn shrinks(&self, growth: Option<f64>) -> f64 {
        let growth = growth.filter(|growth| growth.is_finite() && self.digesting);
        growth.map_or(0.0, |growth| (-growth).max(0.0))
    }

    /// Is anything taken off that will be there again?
    pub(super) fn credits(&self) -> bool {
        self.digesting
    }

    /// An ask that is a multiple of what is ready, with what is coming taken off, but never below what is provisioned.
    /// (The guard of llm-d's queue signals.) `growth` of the backlog in replica-seconds a second.
    ///
    /// Latency tells of the past: while what was ordered comes and after it, of requests that waited for it. Unless the
    /// backlog goes on growing, that order is the answer to it, all the more where a part of it has stopped the growth.
    pub(super) fn guard(&self, ask: f64, ready: u32, growth: Option<f64>) -> f64 {
        let coming = f64::from(self.replicas);
        let provisioned = f64::from(ready) + coming;
        if ask <= provisioned {
            return ask;
        }
        let stands = growth.is_some_and(|growth| growth <= STANDS * f64::from(ready));
        if self.digesting && stands { provisioned } else { (ask - coming).max(provisioned) }
    }

    /// What an operator should know of it.
    pub(super) fn note(&self) -> Option<String> {
        (self.overdue > 0).then(|| {
            format!(
                "{} starting for longer than {}: not counted on any more",
                replicas(self.overdue),
                format_span(self.deadline)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coming(replicas: u32, work: f64) -> Coming {
        Coming { replicas, work, cold_start: 180.0, digesting: replicas > 0, ..Coming::default() }
    }

    #[test]
    fn what_is_coming_is_taken_off_the_backlog_but_never_below_zero() {
        assert!((coming(3, 90.0).leaves(400.0, 0.3, None) - 100.0).abs() < 1e-9);
        assert!(coming(3, 540.0).leaves(400.0, 0.3, None).abs() < 1e-9);
    }

    #[test]
    fn a_backlog_that_an_order_shrinks_will_have_shrunk_further() {
        assert!((coming(1, 0.0).leaves(400.0, 0.3, Some(-1.0)) - 220.0).abs() < 1e-9);
        assert!((coming(1, 0.0).leaves(400.0, 0.3, Some(1.0)) - 400.0).abs() < 1e-9);
        assert!((coming(1, 0.0).leaves(400.0, 0.3, Some(f64::NAN)) - 400.0).abs() < 1e-9);
        assert!((coming(0, 0.0).leaves(400.0, 0.3, Some(-1.0)) - 400.0).abs() < 1e-9, "clients gave up");
    }

    #[test]
    fn a_ratio_asks_for_nothing_that_is_under_way_already() {
        assert!((coming(0, 0.0).guard(6.0, 3, None) - 6.0).abs() < 1e-9, "nothing is coming");
        assert!((coming(3, 0.0).guard(6.0, 3, None) - 6.0).abs() < 1e-9, "all of it is coming");
        assert!((coming(1, 0.0).guard(6.0, 3, None) - 5.0).abs() < 1e-9);
        assert!((coming(5, 0.0).guard(9.0, 3, None) - 8.0).abs() < 1e-9, "never below what is provisioned");
    }

    #[test]
    fn the_latency_of_requests_that_waited_for_an_order_makes_no_other() {
        let arrived = Coming { replicas: 0, ..coming(3, 0.0) };
        assert!((arrived.guard(8.0, 5, Some(-1.0)) - 5.0).abs() < 1e-9, "the backlog shrinks");
        assert!(
            (coming(1, 0.0).guard(8.0, 4, Some(-1.0)) - 5.0).abs() < 1e-9,
            "it does before the last has come"
        );
        assert!((coming(1, 0.0).guard(8.0, 4, Some(0.5)) - 7.0).abs() < 1e-9, "it grows, and one is coming");
        assert!((arrived.guard(8.0, 5, Some(0.2)) - 5.0).abs() < 1e-9, "a few come and go");
        assert!((arrived.guard(8.0, 5, Some(0.5)) - 8.0).abs() < 1e-9, "it grows: the order was too small");
        assert!((arrived.guard(8.0, 5, None) - 8.0).abs() < 1e-9, "nobody knows");
        assert!((coming(0, 0.0).guard(8.0, 5, Some(-1.0)) - 8.0).abs() < 1e-9, "nothing was ordered");
    }
}
