//! A trace request by request under several policies: every one gets the same requests. Pure; one thread a policy.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::arrivals::{SlotArrivals, TraceShape};
use super::{
    Capacity, Constant, RequestScore, RequestSettings, RivalSizer, ScalerSizer, Sight, Sizer, play_watched,
};
use crate::backtest::SLOT_SECONDS;
use crate::backtest::rival::{Rival, Seen, Wish};
use crate::backtest::trace::{Arrivals, Trace};
use crate::decision::Policy;
use crate::simulate::autoscaler::{AutoscalerSettings, Metric};
use crate::simulate::{EngineSettings, Moment};

/// The utilisation that most HPAs aim at, and at which every fleet begins.
const USUAL_TARGET: f64 = 0.8;

/// Prometheus' usual scrape interval in Kubernetes set-ups: metrics are so old when they are read.
const SCRAPE_AGE: Duration = Duration::from_secs(15);

/// Slots of [`WorkTarget`]'s mean: 30 s.
const WORK_SLOTS: usize = 6;

/// Slots of the minute by which the first fleet is sized.
const FIRST_MINUTE: usize = 12;

/// What to play.
#[derive(Clone, Debug)]
pub struct TraceSettings {
    /// The tier's policy, as the server would have it.
    pub policy: Policy,
    /// Its capacity is the one that is found here, as if `calibrate` had told it; else the policy's own.
    pub calibrated: bool,
    /// The HPA behind it.
    pub chain: AutoscalerSettings,
    /// Every replica's engine.
    pub engine: EngineSettings,
    /// The busiest minute is the work of so many replicas; None where `scale` is given instead.
    pub peak_replicas: f64,
    /// By what the trace's numbers are multiplied, whatever that makes of its peak.
    pub scale: Option<f64>,
    /// From creation to ready.
    pub cold_start: Duration,
    /// Work that queues longer is late.
    pub acceptable_queue: Duration,
    /// The wall-clock time of the beginning.
    pub begins: DateTime<Utc>,
    /// Chooses the requests and the luck.
    pub seed: u64,
}

/// Policies side by side on one trace.
#[derive(Debug)]
pub struct SideBySide<'a> {
    slots: &'a [Arrivals],
    shape: TraceShape,
    scale: f64,
    seed: u64,
    capacity: Capacity,
    settings: RequestSettings,
    policy: Policy,
    chain: AutoscalerSettings,
    /// Replicas of the constant fleet.
    constant: u32,
    /// Seconds played so far, over all rows.
    done: AtomicU64,
}

/// One policy's row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlayedRow {
    /// Whose.
    pub policy: String,
    /// What it came to.
    #[serde(flatten)]
    pub score: RequestScore,
}

/// The policies.
#[derive(Clone, Copy, Debug)]
enum Row {
    Ours,
    Work,
    Kv,
    Constant,
}

impl Row {
    const ALL: [Self; 4] = [Self::Ours, Self::Work, Self::Kv, Self::Constant];
}

impl<'a> SideBySide<'a> {
    /// Finds what a replica carries and scales the trace. None where nothing arrives.
    #[must_use]
    pub fn new(trace: &'a Trace, settings: TraceSettings) -> Option<Self> {
        let TraceSettings { mut policy, calibrated, mut chain, engine, acceptable_queue, seed, .. } =
            settings;
        let slots = &trace.slots[..];
        let shape = TraceShape::of(slots.iter().copied());
        let lengths = shape.lengths(engine.max_model_len);
        let capacity = Capacity::find(engine, &lengths, 0.0, acceptable_queue, seed);
        let fitting = shape.scale(slots.iter().copied(), capacity.rates, settings.peak_replicas)?;
        let scale = settings.scale.unwrap_or(fitting);
        let peak = (settings.peak_replicas * scale / fitting).ceil().max(1.0) as u32;
        if calibrated {
            policy.capacity.prior = capacity.rates;
        }
        policy.max = policy.max.max(policy.min).max(1);
        (chain.min, chain.max) = (policy.min, policy.max);
        let mut request_settings =
            RequestSettings::plain(engine, &capacity, settings.cold_start, settings.begins);
        request_settings.acceptable_queue = acceptable_queue;
        request_settings.seed = seed;
        request_settings.span = Duration::from_secs_f64(slots.len() as f64 * SLOT_SECONDS);
        let first = &slots[..slots.len().min(FIRST_MINUTE)];
        let first_work = settings.peak_replicas
            * scale
            * TraceShape::of(first.iter().copied())
                .scale(first.iter().copied(), capacity.rates, settings.peak_replicas)
                .map_or(0.0, |alone| 1.0 / alone);
        request_settings.initial =
            ((first_work / USUAL_TARGET).ceil() as u32).clamp(policy.min.max(1), policy.max);
        Some(Self {
            slots,
            shape,
            scale,
            seed,
            capacity,
            settings: request_settings,
            policy,
            chain,
            constant: peak,
            done: AtomicU64::new(0),
        })
    }

    /// What one replica carries.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// By what the trace's numbers are multiplied.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Share of the work that is done, 0 to 1.
    pub fn progress(&self) -> f64 {
        let all = self.settings.span.as_secs_f64() * Row::ALL.len() as f64;
        (self.done.load(Ordering::Relaxed) as f64 / all).min(1.0)
    }

    /// The requests of the trace.
    pub fn arrivals(&self) -> impl Iterator<Item = super::ArrivingRequest> + '_ {
        let longest = self.settings.engine.max_model_len;
        SlotArrivals::new(self.slots.iter().copied(), &self.shape, longest, self.scale, self.seed)
    }

    /// Plays every row, over so many threads.
    #[must_use]
    pub fn run(&self, threads: usize) -> Vec<PlayedRow> {
        let next = AtomicUsize::new(0);
        let played = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, Row::ALL.len()) {
                scope.spawn(|| {
                    loop {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        let Some(row) = Row::ALL.get(place) else { return };
                        let row = self.play(*row);
                        played.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((place, row));
                    }
                });
            }
        });
        let mut played = played.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        played.sort_by_key(|(place, _)| *place);
        played.into_iter().map(|(_, row)| row).collect()
    }

    fn play(&self, row: Row) -> PlayedRow {
        let (policy, begins, seed) = (&self.policy, self.settings.begins, self.settings.seed);
        let (min, max) = (policy.min.max(1), policy.max);
        match row {
            Row::Ours => {
                let mut scaler = ScalerSizer::new(policy, self.chain.clone(), Sight::default(), begins, seed);
                self.row("keda-vllm-scaler".to_owned(), &self.settings, &mut scaler)
            }
            Row::Work => {
                let mut rival = WorkTarget(Vec::new());
                let mut sizer = RivalSizer::new(&mut rival, min, max, seed);
                self.row("HPA, work at 80 %".to_owned(), &self.settings, &mut sizer)
            }
            Row::Kv => {
                let mut rival = KvTarget;
                let mut sizer = RivalSizer::new(&mut rival, min, max, seed);
                self.row("HPA, KV usage at 80 %".to_owned(), &self.settings, &mut sizer)
            }
            Row::Constant => {
                let settings = RequestSettings { initial: self.constant, ..self.settings.clone() };
                self.row(format!("constant, {} replicas", self.constant), &settings, &mut Constant)
            }
        }
    }

    fn row(&self, policy: String, settings: &RequestSettings, sizer: &mut dyn Sizer) -> PlayedRow {
        let mut told = 0;
        let mut progress = |now: Moment| {
            let seconds = now.seconds() as u64;
            self.done.fetch_add(seconds - told, Ordering::Relaxed);
            told = seconds;
        };
        PlayedRow { policy, score: play_watched(settings, sizer, self.arrivals(), &mut progress) }
    }
}

/// As a table for a terminal.
#[must_use]
pub fn table(rows: &[PlayedRow]) -> String {
    let mut text = String::new();
    let heads = ["policy", "GPU-hours", "late work", "late min", "starts", "queue p95", "p99 s", "TTFT p50"];
    // Writing to a String can't fail.
    let mut written = writeln!(
        text,
        "{:<28}{:>10}{:>11}{:>9}{:>7}{:>10}{:>8}{:>9}{:>8}{:>8}{:>7}",
        heads[0],
        heads[1],
        heads[2],
        heads[3],
        heads[4],
        heads[5],
        heads[6],
        heads[7],
        "p95 s",
        "p99 s",
        "lost"
    );
    for PlayedRow { policy, score } in rows {
        let (queue, first) = (score.queue_seconds, score.first_token_seconds);
        written = written.and(writeln!(
            text,
            "{policy:<28}{:>10.1}{:>9.3} %{:>9}{:>7}{:>10.1}{:>8.1}{:>9.2}{:>8.2}{:>8.2}{:>7}",
            score.gpu_hours,
            score.late_work * 100.0,
            score.late_minutes,
            score.starts,
            queue.p95,
            queue.p99,
            first.p50,
            first.p95,
            first.p99,
            score.lost()
        ));
    }
    debug_assert!(written.is_ok());
    text
}

/// An HPA on the work that arrives at the router, mean over 30 s: the best that such an HPA can be.
struct WorkTarget(Vec<f64>);

impl Rival for WorkTarget {
    fn metric_age(&self) -> Duration {
        SCRAPE_AGE
    }

    fn chain(&self, min: u32, max: u32) -> Option<AutoscalerSettings> {
        Some(AutoscalerSettings::defaults(min, max))
    }

    fn wish(&mut self, _: Moment, seen: &Seen) -> Wish {
        if self.0.len() == WORK_SLOTS {
            self.0.remove(0);
        }
        self.0.push(seen.offered.replicas);
        target(self.0.iter().sum::<f64>() / self.0.len() as f64)
    }
}

/// KEDA's Prometheus trigger on `sum(vllm:kv_cache_usage_perc)` with a target of 0.80 a replica.
struct KvTarget;

impl Rival for KvTarget {
    fn metric_age(&self) -> Duration {
        SCRAPE_AGE
    }

    fn chain(&self, min: u32, max: u32) -> Option<AutoscalerSettings> {
        Some(AutoscalerSettings::defaults(min, max))
    }

    fn wish(&mut self, _: Moment, seen: &Seen) -> Wish {
        seen.kv_usage().map_or(Wish::Metrics(vec![None]), target)
    }
}

fn target(replicas: f64) -> Wish {
    let metric =
        Metric { value_milli: (replicas * 1e3).round() as i64, target_milli: (USUAL_TARGET * 1e3) as i64 };
    Wish::Metrics(vec![Some(metric)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::TierId;
    use crate::decision::policy::TokenRates;

    fn settings() -> TraceSettings {
        let rates = TokenRates { input_tokens_per_second: 1.0, output_tokens_per_second: 1.0 };
        TraceSettings {
            policy: Policy::with_defaults(TierId::new("backtest", "trace"), 6, rates),
            calibrated: true,
            chain: AutoscalerSettings::recommended(1, 6),
            engine: EngineSettings::rtx4090_8b(),
            peak_replicas: 2.0,
            scale: None,
            cold_start: Duration::from_secs(60),
            acceptable_queue: Duration::from_secs(5),
            begins: DateTime::UNIX_EPOCH,
            seed: 1,
        }
    }

    fn trace(level: impl Fn(usize) -> f64) -> Trace {
        let slots = (0..480).map(|n| Arrivals { requests: level(n), ..Arrivals::default() }).collect();
        Trace { slots, bin_seconds: 5.0 }
    }

    #[test]
    fn every_policy_gets_the_same_requests_whatever_the_threads() {
        let trace = trace(|slot| if (240..360).contains(&slot) { 3.0 } else { 1.0 });
        let side_by_side = SideBySide::new(&trace, settings()).unwrap();
        let rows = side_by_side.run(1);
        assert!((side_by_side.progress() - 1.0).abs() < 1e-9);
        assert_eq!(rows, SideBySide::new(&trace, settings()).unwrap().run(3));
        let requests: Vec<u64> = rows.iter().map(|row| row.score.requests).collect();
        assert!(requests[0] > 3_000 && requests.iter().all(|count| *count == requests[0]), "{requests:?}");
        assert!(rows[0].score.gpu_hours < rows[3].score.gpu_hours * 1.2, "{}", table(&rows));
        assert_eq!(table(&rows).lines().count(), 5);
    }

    #[test]
    fn the_scale_can_be_given_and_the_constant_fleet_follows_it() {
        let trace = trace(|_| 1.0);
        let fitted = SideBySide::new(&trace, settings()).unwrap();
        assert_eq!(fitted.constant, 2);
        let doubled =
            SideBySide::new(&trace, TraceSettings { scale: Some(fitted.scale() * 2.0), ..settings() })
                .unwrap();
        assert_eq!(doubled.constant, 4);
        assert!(doubled.arrivals().count() > 2 * fitted.arrivals().count() - 10);
    }

    #[test]
    fn a_trace_in_which_nothing_arrives_is_not_played() {
        assert!(SideBySide::new(&trace(|_| 0.0), settings()).is_none());
    }
}
