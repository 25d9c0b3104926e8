//! llm-d's Workload Variant Autoscaler, saturation V1 and V2, for one variant. Pure.
//!
//! Source: llm-d WVA, `internal/saturation/analyzer.go` (V1), `internal/engines/analyzers/saturation_v2/analyzer.go` and
//! `internal/engines/pipeline/cost_aware_optimizer.go` (V2), `internal/collector/registration/saturation.go`. Defaults: a
//! loop every 60 s over per-pod maxima of the last minute; saturated at 0.80 of the KV cache or 5 waiting; spare triggers
//! 0.10 and 3; V2 aims between 0.70 and 0.85 of its capacity.
//!
//! It writes a gauge, `wva_desired_replicas`, which Prometheus scrapes and an HPA reads as an `AverageValue` of 1: so the
//! HPA's tolerance counts on top. Its sample HPA removes at most 10 pods in 150 s; upward the shortest window that it is
//! published with, none, is taken.
//!
//! V1 goes by one replica, and does nothing while the count isn't the wanted one: a step that the tolerance swallows (any,
//! from 10 replicas on) stops it for good.

use std::collections::VecDeque;
use std::time::Duration;

use super::window::{Every, Window};
use super::{EngineFacts, SCRAPE_AGE, external};
use crate::backtest::rival::{Rival, Seen, SeenReplica, Wish};
use crate::simulate::Moment;
use crate::simulate::autoscaler::AutoscalerSettings;
use crate::simulate::autoscaler::behavior::{Behavior, Policy, PolicyKind};

/// `GLOBAL_OPT_INTERVAL`.
const LOOP: Duration = Duration::from_secs(60);
/// Per-pod gauges are maxima over this.
const PEAK_OF: Duration = Duration::from_secs(60);
/// Mean lengths are over this.
const LENGTHS_OF: Duration = Duration::from_secs(300);
/// Share of the KV cache from which a replica is saturated.
const KV_THRESHOLD: f64 = 0.80;
/// Waiting requests from which a replica is saturated.
const QUEUE_THRESHOLD: f64 = 5.0;
/// Less spare KV than this is too little.
const KV_SPARE: f64 = 0.10;
/// Less spare queue than this is too little.
const QUEUE_SPARE: f64 = 3.0;
/// V2 goes up above this share of its capacity.
const UP_SHARE: f64 = 0.85;
/// V2 goes down below this one.
const DOWN_SHARE: f64 = 0.70;
/// Observations that V2's measured capacity is a mean over.
const CAPACITY_SAMPLES: usize = 10;
/// Bounds between V2's classes of output lengths, tokens.
const OUTPUT_CLASSES: [f64; 2] = [100.0, 500.0];

/// The peaks of each replica's gauges. Replicas are told apart by their place: the oldest comes first.
#[derive(Default)]
struct Peaks {
    each: Vec<(Window, Window)>,
}

impl Peaks {
    /// KV usage and waiting requests of each, as maxima; None where KV usage isn't told.
    fn of(&mut self, seen: &Seen) -> Option<Vec<(f64, f64)>> {
        self.each.resize_with(seen.ready.len(), || (Window::new(PEAK_OF), Window::new(PEAK_OF)));
        let mut peaks = Vec::with_capacity(seen.ready.len());
        for ((kv, queue), replica) in self.each.iter_mut().zip(&seen.ready) {
            kv.push(seen.at, replica.kv_usage?);
            queue.push(seen.at, replica.waiting);
            peaks.push((kv.max()?, queue.max()?));
        }
        Some(peaks)
    }
}

/// The gauge on its way to the HPA: a scrape later.
#[derive(Default)]
struct Gauge {
    written: VecDeque<(Moment, u32)>,
}

impl Gauge {
    fn write(&mut self, now: Moment, replicas: u32) {
        self.written.push_back((now, replicas));
    }

    /// What has been scraped since the last time.
    fn scraped(&mut self, now: Moment) -> Wish {
        let mut wish = Wish::Keep;
        while let Some((_, replicas)) = self.written.pop_front_if(|(at, _)| at.plus(SCRAPE_AGE) <= now) {
            wish = Wish::Metrics(vec![Some(external(f64::from(replicas), 1.0))]);
        }
        wish
    }
}

/// The HPA of its samples.
fn chain(min: u32, max: u32) -> AutoscalerSettings {
    let mut behavior = Behavior::at_once_up(max);
    behavior.scale_down.policies =
        vec![Policy { kind: PolicyKind::Pods, value: 10, period: Duration::from_secs(150) }];
    AutoscalerSettings { behavior: Some(behavior), ..AutoscalerSettings::defaults(min, max) }
}

/// V1: one replica more or less a loop.
pub(super) struct SaturationV1 {
    loops: Every,
    peaks: Peaks,
    gauge: Gauge,
    max: u32,
    /// What it wanted last.
    desired: Option<u32>,
}

impl SaturationV1 {
    pub(super) fn new(max: u32) -> Self {
        Self { loops: Every::new(LOOP), peaks: Peaks::default(), gauge: Gauge::default(), max, desired: None }
    }

    fn decide(&mut self, seen: &Seen, peaks: &[(f64, f64)]) -> u32 {
        let current = seen.spec;
        let desired = *self.desired.get_or_insert(current);
        if desired != current || peaks.len() as u32 != current {
            return desired;
        }
        match verdict(peaks) {
            Verdict::Up => (current + 1).min(self.max),
            Verdict::Down => current.saturating_sub(1).max(1),
            Verdict::Stay => current,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Up,
    Down,
    Stay,
}

/// Spare capacity is the mean over replicas that aren't saturated.
fn verdict(peaks: &[(f64, f64)]) -> Verdict {
    let calm = || peaks.iter().filter(|(kv, queue)| *kv < KV_THRESHOLD && *queue < QUEUE_THRESHOLD);
    let count = calm().count() as f64;
    let mean = |sum: f64| if count > 0.0 { sum / count } else { 0.0 };
    let spare_kv = mean(calm().map(|(kv, _)| KV_THRESHOLD - kv).sum());
    let spare_queue = mean(calm().map(|(_, queue)| QUEUE_THRESHOLD - queue).sum());
    if spare_kv < KV_SPARE || spare_queue < QUEUE_SPARE {
        return Verdict::Up;
    }
    // With one replica less, each of the others has so many times its load.
    let more = count / (count - 1.0);
    let without_one = |threshold: f64, spare: f64| threshold - (threshold - spare) * more;
    let is_enough = count >= 2.0
        && without_one(KV_THRESHOLD, spare_kv) >= KV_SPARE
        && without_one(QUEUE_THRESHOLD, spare_queue) >= QUEUE_SPARE;
    if is_enough { Verdict::Down } else { Verdict::Stay }
}

impl Rival for SaturationV1 {
    fn metric_age(&self) -> Duration {
        SCRAPE_AGE
    }

    fn chain(&self, min: u32, max: u32) -> Option<AutoscalerSettings> {
        Some(chain(min, max))
    }

    fn wish(&mut self, now: Moment, seen: &Seen) -> Wish {
        if let Some(peaks) = self.peaks.of(seen).filter(|peaks| !peaks.is_empty())
            && self.loops.is_due(now)
        {
            let desired = self.decide(seen, &peaks);
            self.desired = Some(desired);
            self.gauge.write(now, desired);
        }
        self.gauge.scraped(now)
    }
}

/// V2: tokens that are there against tokens that fit, in steps of any size.
pub(super) struct SaturationV2 {
    loops: Every,
    peaks: Peaks,
    gauge: Gauge,
    engine: EngineFacts,
    requests: Window,
    input: Window,
    output: Window,
    /// Tokens in use of replicas that had a queue, by class of output lengths.
    measured: [VecDeque<f64>; OUTPUT_CLASSES.len() + 1],
}

/// Mean lengths of requests, tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lengths {
    input: f64,
    output: f64,
}

impl SaturationV2 {
    pub(super) fn new(engine: EngineFacts) -> Self {
        Self {
            loops: Every::new(LOOP),
            peaks: Peaks::default(),
            gauge: Gauge::default(),
            engine,
            requests: Window::new(LENGTHS_OF),
            input: Window::new(LENGTHS_OF),
            output: Window::new(LENGTHS_OF),
            measured: Default::default(),
        }
    }

    fn lengths(&self) -> Option<Lengths> {
        let requests = self.requests.mean().filter(|requests| *requests > 0.0)?;
        Some(Lengths { input: self.input.mean()? / requests, output: self.output.mean()? / requests })
    }

    /// Tokens that one replica holds: by memory, and by what was in use when requests waited.
    fn capacity(&mut self, replica: &SeenReplica, (kv, queue): (f64, f64), lengths: Lengths) -> Option<f64> {
        let by_memory = replica.kv_tokens? * KV_THRESHOLD;
        let class = OUTPUT_CLASSES.iter().filter(|bound| lengths.output >= **bound).count();
        let measured = &mut self.measured[class];
        let by_compute = if queue >= QUEUE_THRESHOLD {
            let in_use = kv * replica.kv_tokens?;
            measured.push_back(in_use);
            if measured.len() > CAPACITY_SAMPLES {
                measured.pop_front();
            }
            in_use
        } else if measured.is_empty() {
            self.estimated(lengths).unwrap_or(by_memory)
        } else {
            measured.iter().sum::<f64>() / measured.len() as f64
        };
        Some(by_memory.min(by_compute))
    }

    /// Tokens of the batch that the budget of a step keeps going.
    fn estimated(&self, Lengths { input, output }: Lengths) -> Option<f64> {
        let batch = f64::from(self.engine.max_batched_tokens) * output / (input + output);
        let batch = batch.min(f64::from(self.engine.max_num_seqs));
        let tokens = batch * (input + output / 2.0);
        (tokens > 0.0).then_some(tokens)
    }

    fn decide(&mut self, seen: &Seen, peaks: &[(f64, f64)]) -> Option<u32> {
        let lengths = self.lengths()?;
        let mut capacities = Vec::with_capacity(peaks.len());
        let mut demand = 0.0;
        for (replica, peak) in seen.ready.iter().zip(peaks) {
            capacities.push(self.capacity(replica, *peak, lengths)?);
            demand += peak.0 * replica.kv_tokens? + peak.1 * lengths.input;
        }
        let capacity = median(&mut capacities).filter(|capacity| *capacity > 0.0)?;
        // Those that start are supply already.
        let all = f64::from(seen.status) * capacity;
        let need = demand / UP_SHARE - all;
        if need > 0.0 {
            return Some(seen.spec + (need / capacity).ceil() as u32);
        }
        let spare = seen.ready.len() as f64 * capacity - demand / DOWN_SHARE;
        let removed = (spare.max(0.0) / capacity).floor() as u32;
        Some(seen.spec.saturating_sub(removed).max(1))
    }
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

impl Rival for SaturationV2 {
    fn metric_age(&self) -> Duration {
        SCRAPE_AGE
    }

    fn chain(&self, min: u32, max: u32) -> Option<AutoscalerSettings> {
        Some(chain(min, max))
    }

    fn wish(&mut self, now: Moment, seen: &Seen) -> Wish {
        self.requests.push(seen.at, seen.served.requests);
        self.input.push(seen.at, seen.served.input_tokens);
        self.output.push(seen.at, seen.served.output_tokens);
        if let Some(peaks) = self.peaks.of(seen)
            && self.loops.is_due(now)
            && let Some(desired) = self.decide(seen, &peaks)
        {
            self.gauge.write(now, desired);
        }
        self.gauge.scraped(now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, kv, play, seen, uniform};
    use super::*;
    use crate::backtest::rival::Rates;

    #[test]
    fn v1_judges_by_the_spare_of_those_that_are_not_saturated() {
        assert_eq!(verdict(&[(0.75, 0.0), (0.72, 0.0)]), Verdict::Up, "0.065 of KV is spare");
        assert_eq!(verdict(&[(0.5, 3.0), (0.5, 2.0)]), Verdict::Up, "2.5 of the queue are spare");
        assert_eq!(verdict(&[(0.9, 0.0), (0.2, 9.0)]), Verdict::Up, "all are saturated");
        assert_eq!(verdict(&[(0.5, 0.0), (0.5, 0.0)]), Verdict::Stay, "one alone would be full");
        assert_eq!(verdict(&[(0.3, 0.5), (0.3, 0.5)]), Verdict::Down);
        assert_eq!(verdict(&[(0.1, 0.0)]), Verdict::Stay, "never the last");
    }

    #[test]
    fn v1_goes_up_by_one_a_loop_and_waits_for_each_start() {
        // A full fleet; each replica needs two minutes to start.
        let mut ordered = vec![f64::NEG_INFINITY; 2];
        let specs = play(Box::new(SaturationV1::new(50)), (2, 50), 100, move |at, spec| {
            ordered.resize(spec as usize, at);
            let ready = ordered.iter().filter(|since| at - **since >= 120.0).count();
            seen(at, spec, &vec![kv(0.9, 20.0); ready])
        });
        let counts: Vec<u32> = changes(&specs).into_iter().map(|(_, count)| count).collect();
        assert_eq!(counts, [3, 4, 5], "{:?}", changes(&specs));
    }

    #[test]
    fn v1_stops_for_good_when_the_tolerance_swallows_its_step() {
        let specs =
            play(Box::new(SaturationV1::new(50)), (8, 50), 720, |at, spec| uniform(at, spec, kv(0.9, 20.0)));
        assert_eq!(specs.last(), Some(&10), "11 is within 10 % of 10, for an hour: {:?}", changes(&specs));
    }

    fn served(seen: Seen) -> Seen {
        let requests = seen.ready.len() as f64;
        let (input_tokens, output_tokens) = (1000.0 * requests, 200.0 * requests);
        Seen { served: Rates { requests, input_tokens, output_tokens, replicas: requests }, ..seen }
    }

    fn v2() -> SaturationV2 {
        SaturationV2::new(EngineFacts::default())
    }

    #[test]
    fn v2_goes_to_what_its_tokens_need_at_once_and_credits_what_starts() {
        // 90 000 tokens in use and 20 prompts of 1000 wait, in each of four: 440 000 / 0.85 over 80 000 are 6.5.
        let specs = play(Box::new(v2()), (4, 50), 60, |at, spec| served(seen(at, spec, &[kv(0.9, 20.0); 4])));
        assert_eq!(changes(&specs), [(45, 7)]);
    }

    #[test]
    fn v2_gives_back_what_70_per_cent_leave_over() {
        // 10 000 tokens in use of 80 000, in each of eight: 80 000 / 0.7 are 1.4 replicas.
        let specs = play(Box::new(v2()), (8, 50), 120, |at, spec| {
            let each = 0.8 / f64::from(spec);
            served(uniform(at, spec, kv(each, 0.0)))
        });
        assert_eq!(specs.last(), Some(&2), "{:?}", changes(&specs));
    }

    #[test]
    fn the_gauge_is_seen_a_scrape_later() {
        let mut gauge = Gauge::default();
        let at = |seconds| Moment::from_seconds(seconds);
        gauge.write(at(60.0), 7);
        assert_eq!(gauge.scraped(at(70.0)), Wish::Keep);
        assert_eq!(gauge.scraped(at(75.0)), Wish::Metrics(vec![Some(external(7.0, 1.0))]));
        assert_eq!(gauge.scraped(at(80.0)), Wish::Keep);
    }
}
