//! Observations and decisions made into one point a minute. Pure.

use chrono::{DateTime, Utc};

use super::HistoryPoint;
use crate::decision::{Decision, Observation, ReplicaLoad, ReplicaState};

/// The longest span that one observation speaks for. Observations come every few seconds; a longer silence is a gap, and
/// a gap is unknown.
const LONGEST_SPAN_SECONDS: f64 = 60.0;

/// Adds up what is seen between two full minutes of the wall clock.
///
/// Each observation speaks for the time since the one before it: its rates are means over that past. A gauge becomes
/// the mean over the known part of the minute. A rate becomes a count for the whole minute at the mean of the known part,
/// so that a gap of ten seconds isn't kept as a dip of the load. What was unknown for the whole minute is not-a-number.
#[derive(Clone, Debug, Default)]
pub struct MinuteAccumulator {
    last: Option<DateTime<Utc>>,
    minute: i64,
    means: [Mean; MEANS],
    required: Option<u32>,
}

const MEANS: usize = 9;

/// Seconds in a minute: from a rate to a count.
const MINUTE_SECONDS: f64 = 60.0;

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    weighted: f64,
    seconds: f64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>, seconds: f64) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.weighted += value * seconds;
            self.seconds += seconds;
        }
    }

    fn value(self) -> f64 {
        if self.seconds > 0.0 { self.weighted / self.seconds } else { f64::NAN }
    }
}

impl MinuteAccumulator {
    /// Takes what is known at `now` and returns the minute that it ended, if it did.
    ///
    /// After a jump of the clock the minutes in between have no points; a minute that comes again replaces the first.
    pub fn add(
        &mut self,
        now: DateTime<Utc>,
        observation: &Observation,
        decision: &Decision,
    ) -> Option<HistoryPoint> {
        let minute = now.timestamp().div_euclid(60);
        let values = values(observation, decision);
        let Some(last) = self.last.replace(now) else {
            self.begin(minute);
            self.note_required(decision);
            return None;
        };
        let span = (now - last).as_seconds_f64().clamp(0.0, LONGEST_SPAN_SECONDS);
        if minute == self.minute {
            self.add_span(values, span);
            self.note_required(decision);
            return None;
        }
        let inside = (now.timestamp_millis().rem_euclid(60_000) as f64 / 1000.0).min(span);
        if minute == self.minute + 1 {
            self.add_span(values, span - inside);
        }
        let finished = self.point();
        self.begin(minute);
        self.add_span(values, inside);
        self.note_required(decision);
        Some(finished)
    }

    fn begin(&mut self, minute: i64) {
        self.minute = minute;
        self.means = [Mean::default(); MEANS];
        self.required = None;
    }

    fn add_span(&mut self, values: [Option<f64>; MEANS], seconds: f64) {
        for (mean, value) in self.means.iter_mut().zip(values) {
            mean.add(value, seconds);
        }
    }

    fn note_required(&mut self, decision: &Decision) {
        self.required = self.required.max(decision.required());
    }

    fn point(&self) -> HistoryPoint {
        let [requests, uncached_input, output, rejected, kv_tokens, running, waiting, ready, demand] =
            self.means.map(Mean::value);
        let count = |rate: f64| (rate * MINUTE_SECONDS) as f32;
        HistoryPoint {
            minute: self.minute,
            requests: count(requests),
            uncached_input_tokens: count(uncached_input),
            output_tokens: count(output),
            rejected: count(rejected),
            kv_tokens: kv_tokens as f32,
            running: running as f32,
            waiting: waiting as f32,
            ready: ready as f32,
            demand: demand as f32,
            required: self.required.map_or(f32::NAN, |required| required as f32),
        }
    }
}

/// Rates first, then gauges, in the order of [`HistoryPoint`].
fn values(observation: &Observation, decision: &Decision) -> [Option<f64>; MEANS] {
    let known = observation.replicas_unknown.is_none();
    [
        total(observation, |load| load.requests_per_second),
        total(observation, |load| load.uncached_input_tokens_per_second),
        total(observation, |load| load.output_tokens_per_second),
        total(observation, |load| load.rejected_per_second),
        total(observation, |load| load.kv_tokens.zip(load.kv_usage).map(|(held, usage)| held * usage)),
        total(observation, |load| load.running),
        total(observation, |load| load.waiting),
        known.then(|| f64::from(observation.count(ReplicaState::Ready))),
        decision.demand,
    ]
}

/// The tier's total. Replicas that should serve and don't tell count like the mean of those that do; where fewer than
/// half tell, the total is unknown. No replicas at all, said by a source that can, is a total of 0.
fn total(observation: &Observation, of: impl Fn(&ReplicaLoad) -> Option<f64>) -> Option<f64> {
    let serves = |state| matches!(state, ReplicaState::Ready | ReplicaState::Silent);
    let value = |load: &Option<ReplicaLoad>| load.as_ref().and_then(&of);
    let (mut serving, mut told, mut of_serving, mut of_others) = (0.0, 0.0, 0.0, 0.0);
    for replica in &observation.replicas {
        let value = value(&replica.load);
        if !serves(replica.state) {
            of_others += value.unwrap_or(0.0);
            continue;
        }
        serving += 1.0;
        if let Some(value) = value {
            told += 1.0;
            of_serving += value;
        }
    }
    if serving > 0.0 {
        return (told * 2.0 >= serving).then(|| of_serving * serving / told + of_others);
    }
    // Only starting, leaving or sleeping replicas, or none: what they tell is all there is.
    observation.replicas_unknown.is_none().then_some(of_others)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chrono::TimeDelta;

    use super::*;
    use crate::decision::explanation::{Capacity, Known, Reason};
    use crate::decision::policy::TokenRates;
    use crate::decision::{Answer, BoundKind, ColdStart, ReplicaObservation, TierId};

    fn at(seconds: f64) -> DateTime<Utc> {
        DateTime::from_timestamp(6_000_000, 0).unwrap() + TimeDelta::milliseconds((seconds * 1000.0) as i64)
    }

    fn decision(required: Option<u32>, demand: f64) -> Decision {
        Decision {
            tier: TierId::new("serving", "chat"),
            at: at(0.0),
            answer: required.map_or(Answer::Unknown { why: "unknown".to_owned() }, Answer::Required),
            asks: Vec::new(),
            demand: Some(demand),
            ahead: None,
            forecast: None,
            bounds: Vec::new(),
            winner: Reason { kind: BoundKind::Demand, because: String::new() },
            held: None,
            capacity: Capacity {
                rates: TokenRates { input_tokens_per_second: 1.0, output_tokens_per_second: 1.0 },
                source: String::new(),
                fit: String::new(),
            },
            known: Known { expected: 1, known: 1 },
            lead: Duration::ZERO,
            cold_start: ColdStart::configured(Duration::ZERO),
            blocked: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn replica(state: ReplicaState, load: Option<ReplicaLoad>) -> ReplicaObservation {
        ReplicaObservation {
            id: "a".to_owned(),
            name: "a".to_owned(),
            state,
            since: None,
            load,
            page_age: None,
            error: None,
            start: None,
        }
    }

    fn load(requests: f64, running: f64) -> ReplicaLoad {
        ReplicaLoad {
            requests_per_second: Some(requests),
            running: Some(running),
            kv_tokens: Some(1000.0),
            kv_usage: Some(0.5),
            ..ReplicaLoad::default()
        }
    }

    fn seen(replicas: Vec<ReplicaObservation>) -> Observation {
        Observation::listed(replicas)
    }

    fn one(requests: f64, running: f64) -> Observation {
        seen(vec![replica(ReplicaState::Ready, Some(load(requests, running)))])
    }

    /// Adds an observation every five seconds up to and including the end; what the minute became.
    fn run(
        accumulator: &mut MinuteAccumulator,
        seconds: std::ops::RangeInclusive<u32>,
        of: impl Fn(u32) -> (Observation, Decision),
    ) -> Option<HistoryPoint> {
        let mut finished = None;
        for second in seconds.step_by(5) {
            let (observation, decision) = of(second);
            finished = finished.or(accumulator.add(at(f64::from(second)), &observation, &decision));
        }
        finished
    }

    #[test]
    fn gauges_are_means_rates_are_counts_and_required_is_the_largest() {
        let mut accumulator = MinuteAccumulator::default();
        let point = run(&mut accumulator, 0..=60, |second| {
            let busy = second > 30;
            (
                one(if busy { 3.0 } else { 1.0 }, if busy { 30.0 } else { 10.0 }),
                decision(Some(second / 10), 2.5),
            )
        })
        .unwrap();
        assert_eq!(point.minute, 100_000);
        assert_eq!((point.requests, point.running), (120.0, 20.0));
        assert_eq!((point.kv_tokens, point.ready, point.demand, point.required), (500.0, 1.0, 2.5, 5.0));
        assert!(point.output_tokens.is_nan() && point.waiting.is_nan(), "never told");
    }

    #[test]
    fn an_observation_across_the_full_minute_is_split_at_it() {
        let mut accumulator = MinuteAccumulator::default();
        let (observation, decision) = (one(1.0, 10.0), decision(Some(1), 1.0));
        assert_eq!(accumulator.add(at(50.0), &observation, &decision), None);
        let later = one(1.0, 40.0);
        let point = accumulator.add(at(70.0), &later, &decision).unwrap();
        assert_eq!((point.minute, point.running, point.requests), (100_000, 40.0, 60.0));
        let point = accumulator.add(at(120.0), &observation, &decision).unwrap();
        assert_eq!(point.minute, 100_001);
        assert!((point.running - 15.0).abs() < 1e-4, "10 s at 40 and 50 s at 10: {}", point.running);
    }

    #[test]
    fn a_gap_inside_a_minute_is_not_a_dip() {
        let mut accumulator = MinuteAccumulator::default();
        let point = run(&mut accumulator, 0..=60, |second| {
            let known = !(20..40).contains(&second);
            let observation =
                if known { one(2.0, 10.0) } else { seen(vec![replica(ReplicaState::Silent, None)]) };
            (observation, decision(Some(1), 1.0))
        })
        .unwrap();
        assert_eq!((point.requests, point.running), (120.0, 10.0));
    }

    #[test]
    fn what_is_unknown_the_whole_minute_is_not_a_number() {
        let mut accumulator = MinuteAccumulator::default();
        let unknown = Decision { demand: None, ..decision(None, 0.0) };
        let point =
            run(&mut accumulator, 0..=60, |_| (Observation::unknown("NXDOMAIN"), unknown.clone())).unwrap();
        for field in
            [point.requests, point.running, point.kv_tokens, point.ready, point.demand, point.required]
        {
            assert!(field.is_nan());
        }
    }

    #[test]
    fn silent_replicas_count_like_the_others_as_long_as_half_are_known() {
        let silent = || replica(ReplicaState::Silent, None);
        let ready = || replica(ReplicaState::Ready, Some(load(1.0, 10.0)));
        let running = |replicas| total(&seen(replicas), |load| load.running);
        assert_eq!(running(vec![ready(), silent()]), Some(20.0));
        assert_eq!(running(vec![ready(), silent(), silent()]), None);
        let leaving = replica(ReplicaState::Terminating, Some(load(1.0, 4.0)));
        assert_eq!(running(vec![ready(), leaving, replica(ReplicaState::Starting, None)]), Some(14.0));
        assert_eq!(running(Vec::new()), Some(0.0), "a pod list says zero");
        assert_eq!(total(&Observation::unknown("lost"), |load| load.running), None);
    }

    #[test]
    fn a_clock_that_jumps_makes_no_minute_up() {
        let mut accumulator = MinuteAccumulator::default();
        let (observation, decision) = (one(1.0, 10.0), decision(Some(1), 1.0));
        accumulator.add(at(0.0), &observation, &decision);
        accumulator.add(at(30.0), &observation, &decision);
        let forward = accumulator.add(at(86_400.0), &observation, &decision).unwrap();
        assert_eq!((forward.minute, forward.requests), (100_000, 60.0));
        let back = accumulator.add(at(10.0), &observation, &decision).unwrap();
        assert_eq!(back.minute, 100_000 + 24 * 60);
        let again = run(&mut accumulator, 15..=60, |_| (observation.clone(), decision.clone())).unwrap();
        assert_eq!((again.minute, again.requests), (100_000, 60.0));
    }
}
