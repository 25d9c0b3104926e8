//! What was offered to the tier from one round to the next, for the forecast.

use serde::{Deserialize, Serialize};

use super::Memory;
use crate::decision::ahead::forecast::{clocks, terms};
use crate::decision::capacity::ReplicaCapacity;
use crate::decision::cold_start::Horizon;
use crate::decision::load::{MOST_REFUSED_PER_FINISHED, backlog};
use crate::decision::observation::{CountedTotals, Observation, ReplicaState};
use crate::decision::policy::{Policy, TokenRates};
use crate::decision::shape::{RequestShape, sane};
use crate::forecast::{LateCount, Queued, Unit};
use chrono::{DateTime, Utc};

/// Requests that a replica's batch can hold at most, where its bound isn't known: twice vLLM's largest default of
/// `--max-num-seqs`. A page that tells more tells nonsense.
const MOST_RUNNING: f64 = 2048.0;

/// Work beyond so many times what the tier may ever have is no more reason for it, and a page that tells nonsense is not to
/// fill the forecast with it for days.
const MOST_LOAD: f64 = 4.0;

/// The counters, the backlog and the batches of a round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::decision) struct Offered {
    totals: CountedTotals,
    waiting: f64,
    /// None where not all replicas tell it.
    #[serde(default)]
    running: Option<f64>,
}

impl Offered {
    /// None where not all of it is known: what one replica doesn't tell for a while would come as a lump.
    fn of(observation: &Observation, full_batch: Option<f64>) -> Option<Self> {
        if observation.replicas_unknown.is_some() {
            return None;
        }
        let (mut waiting, mut running) = (0.0, Some(0.0));
        let most = full_batch.unwrap_or(MOST_RUNNING).min(MOST_RUNNING);
        let mut runs =
            |told: Option<f64>| running = running.zip(sane(told)).map(|(sum, more)| sum + more.min(most));
        for replica in &observation.replicas {
            match (replica.state, &replica.load) {
                (ReplicaState::Ready, Some(load)) => {
                    waiting += backlog(load)?;
                    runs(load.running);
                }
                (ReplicaState::Ready | ReplicaState::Silent, _) => return None,
                (ReplicaState::Terminating, Some(load)) => {
                    waiting += backlog(load).unwrap_or(0.0);
                    runs(load.running);
                }
                _ => {}
            }
        }
        if let Some(activator) = &observation.activator {
            waiting += sane(activator.queued)?;
        }
        Some(Self { totals: observation.totals, waiting, running })
    }

    /// Replica-seconds of work that came since: what was served, by how much the backlog and the batches grew, and what
    /// was refused. Without the batches a jump would be seen late by half of the time that a request runs.
    fn since(&self, before: &Self, shape: &RequestShape, rates: TokenRates) -> Option<f64> {
        let (now, then) = (self.totals, before.totals);
        let grew = |of: fn(&CountedTotals) -> f64| sane(Some(of(&now) - of(&then)));
        let input = grew(|totals| totals.uncached_input_tokens)?;
        let output = grew(|totals| totals.output_tokens)?;
        let finished = grew(|totals| totals.requests)?;
        let refused = grew(|totals| totals.rejected)?.min(finished * MOST_REFUSED_PER_FINISHED);
        let served = input / rates.input_tokens_per_second + output / rates.output_tokens_per_second;
        let came = self.waiting - before.waiting + refused;
        // A batch shrinks by what finishes. What is gone beyond that went with its replica, and was offered nevertheless.
        let begun = self.running.zip(before.running).map_or(0.0, |(now, then)| (now - then).max(-finished));
        Some((served + came * shape.cost(rates) + begun * shape.left_while_running(rates)).max(0.0))
    }
}

/// How long requests queued from one round to the next. One that was refused was never served: it is late.
fn queued(before: &CountedTotals, now: &CountedTotals) -> Option<Queued> {
    let (was, is) = (before.queue_times?, now.queue_times?);
    let refused = sane(Some(now.rejected - before.rejected))?;
    let requests = sane(Some(is.requests - was.requests))?;
    let late = sane(Some(is.late - was.late))?.min(requests);
    let by = LateCount::QueueTimes;
    Some(Queued { requests: requests + refused, late: late + refused, by })
}

/// Where pages don't tell how long requests queued: a round is late while more waits than is acceptable.
fn waits(offered: &Offered, ready: u32, cost: f64, acceptable_seconds: f64) -> Queued {
    let late = offered.waiting * cost > acceptable_seconds * f64::from(ready);
    Queued { requests: 1.0, late: f64::from(u8::from(late)), by: LateCount::Waiting }
}

impl Memory {
    /// Takes what was offered since the last round into the forecast, where one is wanted.
    pub(super) fn learn_forecast(
        &mut self,
        policy: &Policy,
        observation: &Observation,
        horizon: &Horizon,
        now: DateTime<Utc>,
    ) {
        let Some(wanted) = &policy.forecast else {
            // What was learned is kept for a while, should it be wanted again; what comes meanwhile nobody watches.
            self.forecast.take_if(|forecast| forecast.is_outdated(now.timestamp_millis()));
            self.forecast.iter_mut().for_each(|forecast| forecast.resume());
            self.offered = None;
            return;
        };
        let shape = self.shape.unwrap_or(RequestShape::ASSUMED);
        let capacity = ReplicaCapacity::of(policy, observation, self, &shape);
        let rates = capacity.rates;
        let offered = Offered::of(observation, capacity.batch.map(|bound| bound.size));
        let both = offered.zip(self.offered);
        let passed =
            self.forecast.as_deref().and_then(|forecast| forecast.seconds_since(now.timestamp_millis()));
        let most = MOST_LOAD * f64::from(policy.max.max(1)) * passed.unwrap_or(0.0);
        let work =
            both.and_then(|(now, before)| now.since(&before, &shape, rates)).map(|work| work.min(most));
        let queued = both.and_then(|(now, before)| queued(&before.totals, &now.totals));
        self.offered = offered;
        let listed = observation.count(ReplicaState::Ready) + observation.count(ReplicaState::Starting);
        let replicas = observation.current.unwrap_or(listed);
        let forecast = self.forecast.get_or_insert_default();
        let lately = forecast.outlook().map_or(1.0, |outlook| outlook.lately);
        let terms = terms(policy, wanted, horizon, lately, &shape, rates).with_clocks(clocks(wanted, now));
        let ready = observation.count(ReplicaState::Ready);
        let waits = |seen: Offered| waits(&seen, ready, shape.cost(rates), terms.acceptable_seconds());
        let unit = Unit {
            input_token: 1.0 / rates.input_tokens_per_second,
            output_token: 1.0 / rates.output_tokens_per_second,
        };
        forecast.reprice(unit, shape.uncached_input, shape.output);
        forecast.tell(queued.or_else(|| offered.map(waits)));
        forecast.learn(now.timestamp_millis(), work, replicas, &terms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::fixtures::{observation, replica};
    use crate::decision::observation::{QueueTimes, ReplicaLoad};

    fn totals(requests: f64, late: f64, rejected: f64) -> CountedTotals {
        let queue_times = Some(QueueTimes { requests, late });
        CountedTotals { rejected, queue_times, ..CountedTotals::default() }
    }

    #[test]
    fn what_queued_too_long_since_the_last_round_is_late_and_so_is_what_was_refused() {
        let told = queued(&totals(100.0, 4.0, 1.0), &totals(140.0, 9.0, 3.0));
        assert_eq!(told, Some(Queued { requests: 42.0, late: 7.0, by: LateCount::QueueTimes }));
    }

    /// A request is 800 input and 700 output tokens here: 0.1 and 1 replica-seconds.
    fn came(running: [Option<f64>; 2], finished: f64, output_tokens: f64) -> f64 {
        let shape = RequestShape { input: 800.0, uncached_input: 800.0, output: 700.0 };
        let rates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };
        let totals = CountedTotals { requests: finished, output_tokens, ..CountedTotals::default() };
        let before = Offered { totals: CountedTotals::default(), waiting: 0.0, running: running[0] };
        Offered { totals, waiting: 0.0, running: running[1] }.since(&before, &shape, rates).unwrap()
    }

    #[test]
    fn a_batch_that_grows_is_work_that_came_and_one_that_finishes_was_counted_then() {
        let nothing_new = came([Some(10.0), Some(10.0)], 0.0, 1400.0);
        assert!((nothing_new - 2.0).abs() < 1e-9, "what is served of it: {nothing_new}");
        let grows = came([Some(10.0), Some(14.0)], 0.0, 1400.0);
        assert!((grows - 4.0).abs() < 1e-9, "four requests more have half of a second left each: {grows}");
        let finishes = came([Some(10.0), Some(8.0)], 2.0, 1400.0);
        assert!((finishes - 1.0).abs() < 1e-9, "{finishes}");
    }

    #[test]
    fn what_a_batch_loses_with_its_replica_was_offered_nevertheless() {
        let gone = came([Some(40.0), Some(20.0)], 2.0, 2100.0);
        assert!((gone - 2.0).abs() < 1e-9, "only two of them have finished: {gone}");
        let silent = came([Some(40.0), None], 2.0, 2100.0);
        assert!(
            (silent - 3.0).abs() < 1e-9,
            "who doesn't tell its batch is taken at what it served: {silent}"
        );
    }

    #[test]
    fn a_batch_larger_than_any_engine_has_is_not_believed() {
        let told = |running: f64| {
            let mut seen = replica("a", ReplicaState::Ready);
            let load = ReplicaLoad { running: Some(running), waiting: Some(0.0), ..ReplicaLoad::default() };
            seen.load = Some(load);
            Offered::of(&observation(vec![seen]), Some(200.0)).unwrap().running
        };
        assert_eq!(told(150.0), Some(150.0));
        assert_eq!(told(1e12), Some(200.0));
    }

    #[test]
    fn where_nobody_tells_queue_times_a_round_is_late_while_too_much_waits() {
        let offered = |waiting| Offered { totals: CountedTotals::default(), waiting, running: None };
        // A request costs 0.3 replica-seconds; four replicas may have 20 of them waiting.
        assert!(waits(&offered(66.0), 4, 0.3, 5.0).late < 0.5);
        assert!(waits(&offered(67.0), 4, 0.3, 5.0).late > 0.5);
        assert!(waits(&offered(1.0), 0, 0.3, 5.0).late > 0.5, "nobody serves it");
        assert!(waits(&offered(0.0), 0, 0.3, 5.0).late < 0.5);
    }

    #[test]
    fn pages_that_do_not_tell_and_sums_that_begin_anew_say_nothing() {
        let silent = CountedTotals::default();
        assert_eq!(queued(&silent, &totals(1.0, 0.0, 0.0)), None);
        assert_eq!(queued(&totals(1.0, 0.0, 0.0), &silent), None);
        assert_eq!(queued(&totals(100.0, 4.0, 0.0), &totals(2.0, 0.0, 0.0)), None);
    }
}
