//! The pods of one tier, the router before them, and its load.

use std::collections::{BTreeMap, VecDeque};

use hdrhistogram::Histogram;
use keda_vllm_scaler::simulate::engine_model::{EngineEvent, EventKind};
use keda_vllm_scaler::simulate::{Moment, Request};
use rand::Rng;
use rand::rngs::StdRng;
use serde::Serialize;

use super::pod_list::Stage;
use super::pods::Pod;

/// Significant digits of queue times.
const DIGITS: u8 = 3;

/// What arrives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Requests a second.
    pub(crate) rate: f64,
    /// Mean tokens; each request has half to one and a half of them.
    pub(crate) input: u32,
    pub(crate) output: u32,
}

/// Counts since the tier was first seen.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Counts {
    sent: u64,
    done: u64,
    /// Sent to a pod that died before they were answered.
    lost: u64,
    refused: u64,
    held: usize,
    in_flight: usize,
    pods: usize,
    ready: usize,
    terminating: usize,
    queue_p50_seconds: f64,
    queue_p95_seconds: f64,
    queue_max_seconds: f64,
    kv_share: f64,
}

/// See the module.
pub(crate) struct Tier {
    pub(crate) pods: BTreeMap<String, Pod>,
    pub(crate) silent: bool,
    load: Load,
    next_arrival: Option<Moment>,
    held: VecDeque<Request>,
    turn: usize,
    next_id: u64,
    counts: Counts,
    queue_millis: Histogram<u64>,
}

impl Tier {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            pods: BTreeMap::new(),
            silent: false,
            load: Load::default(),
            next_arrival: None,
            held: VecDeque::new(),
            turn: 0,
            next_id: 0,
            counts: Counts::default(),
            queue_millis: Histogram::new(DIGITS)?,
        })
    }

    /// Changes the load from now on.
    pub(crate) fn set_load(&mut self, load: Load, now: Moment, random: &mut StdRng) {
        self.load = load;
        self.next_arrival = self.gap_after(now, random);
    }

    /// So many requests at this instant.
    pub(crate) fn burst(&mut self, count: u32, load: Load, now: Moment, random: &mut StdRng) {
        for _ in 0..count {
            self.send(load, now, random);
        }
    }

    /// Sends what has arrived by now, and runs the engines that have work.
    pub(crate) fn turn(&mut self, now: Moment, random: &mut StdRng) {
        self.release(now);
        while let Some(at) = self.next_arrival.filter(|at| *at <= now) {
            self.send(self.load, at, random);
            self.next_arrival = self.gap_after(at, random);
        }
        self.run(now);
    }

    /// Runs the engines up to now, and notes what came out.
    pub(crate) fn run(&mut self, now: Moment) {
        for engine in self.pods.values_mut().filter_map(|pod| pod.engine.as_mut()) {
            if engine.idle_since().is_none() {
                engine.advance(now);
            }
            for event in engine.drain_events() {
                note(&mut self.counts, &mut self.queue_millis, &event);
            }
        }
    }

    /// A pod is gone: what it had is lost.
    pub(crate) fn remove(&mut self, uid: &str, now: Moment) {
        let Some(mut pod) = self.pods.remove(uid) else { return };
        let Some(engine) = pod.engine.as_mut() else { return };
        engine.abort(now);
        for event in engine.drain_events() {
            note(&mut self.counts, &mut self.queue_millis, &event);
        }
    }

    /// Requests that wait because no pod takes any.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn counts(&self) -> Counts {
        let quantile = |share: f64| self.queue_millis.value_at_quantile(share) as f64 / 1000.0;
        let usage = |pod: &Pod| {
            let engine = pod.engine.as_ref()?;
            let used = engine.metrics().gauges.used_blocks;
            Some(f64::from(used) / f64::from(engine.settings().usable_blocks().max(1)))
        };
        let shares: Vec<f64> = self.pods.values().filter_map(usage).collect();
        Counts {
            held: self.held.len(),
            in_flight: self.pods.values().map(Pod::in_flight).sum(),
            pods: self.pods.len(),
            ready: self.pods.values().filter(|pod| self.serves(pod)).count(),
            terminating: self.pods.values().filter(|pod| pod.seen.terminating).count(),
            queue_p50_seconds: quantile(0.5),
            queue_p95_seconds: quantile(0.95),
            queue_max_seconds: self.queue_millis.max() as f64 / 1000.0,
            kv_share: shares.iter().sum::<f64>() / shares.len().max(1) as f64,
            ..self.counts.clone()
        }
    }

    /// A request reaches the router.
    fn send(&mut self, load: Load, at: Moment, random: &mut StdRng) {
        let mut around =
            |mean: u32| (f64::from(mean) * random.random_range(0.5..1.5)).round().max(1.0) as u32;
        let (input, output) = (around(load.input), around(load.output));
        let request = Request { id: self.next_id, arrived: at, input, cached: 0, output };
        self.next_id += 1;
        self.counts.sent += 1;
        self.held.push_back(request);
        self.release(at);
    }

    /// Gives what is held to the ready pods, each to the one with the fewest requests in flight.
    fn release(&mut self, at: Moment) {
        while !self.held.is_empty() {
            let Some(uid) = self.least_loaded() else { return };
            let engine = self.pods.get_mut(&uid).and_then(|pod| pod.engine.as_mut());
            let (Some(engine), Some(request)) = (engine, self.held.pop_front()) else { return };
            engine.arrive(request, at);
        }
    }

    /// Equals take turns.
    fn least_loaded(&mut self) -> Option<String> {
        let serving: Vec<&Pod> = self.pods.values().filter(|pod| self.serves(pod)).collect();
        self.turn = (self.turn + 1) % serving.len().max(1);
        let in_turn = serving[self.turn.min(serving.len())..].iter().chain(&serving[..self.turn]);
        in_turn.min_by_key(|pod| pod.in_flight()).map(|pod| pod.seen.uid.clone())
    }

    /// A pod of a group serves when the whole group is ready.
    fn serves(&self, pod: &Pod) -> bool {
        let whole = pod.seen.group.as_ref().is_none_or(|(group, size)| {
            let of_group = |other: &&Pod| other.seen.group.as_ref().is_some_and(|(g, _)| g == group);
            let ready = |other: &&Pod| other.seen.stage == Stage::Ready && !other.seen.terminating;
            self.pods.values().filter(of_group).filter(ready).count() >= *size
        });
        whole && pod.takes_requests()
    }

    fn gap_after(&self, at: Moment, random: &mut StdRng) -> Option<Moment> {
        if self.load.rate <= 0.0 {
            return None;
        }
        let uniform: f64 = random.random();
        Some(Moment::from_seconds(at.seconds() - (1.0 - uniform).ln() / self.load.rate))
    }
}

fn note(counts: &mut Counts, queue_millis: &mut Histogram<u64>, event: &EngineEvent) {
    match event.kind {
        EventKind::Admitted => {
            let waited = event.at.since(event.request.arrived);
            queue_millis.saturating_record(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
        }
        EventKind::FirstToken => {}
        EventKind::Finished => counts.done += 1,
        EventKind::Refused | EventKind::TurnedAway => counts.refused += 1,
        EventKind::Aborted => counts.lost += 1,
    }
}
