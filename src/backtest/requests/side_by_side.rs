//! A trace request by request under several policies: every one gets the same requests. Pure; one thread a policy.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::arrivals::{SlotArrivals, TraceShape};
use super::drawn::Drawn;
use super::{
    ArrivingRequest, Capacity, Constant, RequestScore, RequestSettings, RivalSizer, ScalerSizer, Sight,
    Sizer, play_watched,
};
use crate::backtest::changes::Changes;
use crate::backtest::fleet::Terms;
use crate::backtest::rivals::{self, EngineFacts, Entry, Facts};
use crate::backtest::series::slots_a_bucket;
use crate::backtest::trace::{Arrivals, Trace};
use crate::backtest::work::{Size, Work};
use crate::backtest::{Contender, SLOT_SECONDS};
use crate::simulate::{EngineSettings, Moment};

/// The utilisation that most HPAs aim at, and at which every fleet begins.
const USUAL_TARGET: f64 = 0.8;

/// Slots of the minute by which the first fleet is sized.
const FIRST_MINUTE: usize = 12;

/// What to play.
#[derive(Clone, Debug)]
pub struct TraceSettings {
    /// The policies under test, each as the server would have it. The rivals keep to the bounds of the first.
    pub policies: Vec<Contender>,
    /// Their capacity is the one that is found here, as if `calibrate` had told it; else their own.
    pub calibrated: bool,
    /// What they are played against; see [`rivals::chosen`].
    pub rivals: Vec<&'static Entry>,
    /// Every replica's engine.
    pub engine: EngineSettings,
    /// How large the load is made.
    pub size: Size,
    /// From creation to ready.
    pub cold_start: Duration,
    /// Work that queues longer is late.
    pub acceptable_queue: Duration,
    /// What comes before is played and not scored, in whole minutes, rounded up.
    pub score_from: Duration,
    /// The wall-clock time of the beginning.
    pub begins: DateTime<Utc>,
    /// Chooses the requests and the luck.
    pub seed: u64,
}

/// Policies side by side on one trace.
#[derive(Debug)]
pub struct SideBySide<'a> {
    trace: &'a Trace,
    slots: &'a [Arrivals],
    shape: TraceShape,
    scale: f64,
    seed: u64,
    capacity: Capacity,
    settings: RequestSettings,
    policies: Vec<Contender>,
    rows: Vec<Row>,
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
    /// Its answers with their reasons, of those that give any.
    #[serde(skip)]
    pub changes: Option<Changes>,
}

/// Whom a row is about.
#[derive(Clone, Copy, Debug)]
enum Row {
    /// The policy under test at this place.
    Ours(usize),
    Rival(&'static Entry),
}

impl<'a> SideBySide<'a> {
    /// Finds what a replica carries and scales the trace. None where nothing arrives.
    #[must_use]
    pub fn new(trace: &'a Trace, settings: TraceSettings) -> Option<Self> {
        let TraceSettings { mut policies, calibrated, engine, acceptable_queue, seed, .. } = settings;
        let slots = &trace.slots[..];
        let shape = TraceShape::of(slots.iter().copied());
        let lengths = shape.lengths(engine.max_model_len);
        let capacity = Capacity::find(engine, &lengths, 0.0, acceptable_queue, seed);
        // What a scale of 1 would make of the busiest minute.
        let busiest = 1.0 / shape.scale(slots.iter().copied(), capacity.rates, 1.0)?;
        let (scale, peak) = settings.size.of(busiest);
        for Contender { policy, chain, .. } in &mut policies {
            if calibrated {
                policy.capacity.prior = capacity.rates;
            }
            policy.max = policy.max.max(policy.min).max(1);
            (chain.min, chain.max) = (policy.min, policy.max);
        }
        let mut request_settings =
            RequestSettings::plain(engine, &capacity, settings.cold_start, settings.begins);
        request_settings.acceptable_queue = acceptable_queue;
        request_settings.seed = seed;
        request_settings.scored_from_minute = (settings.score_from.as_secs_f64() / 60.0).ceil() as u64;
        request_settings.span = Duration::from_secs_f64(slots.len() as f64 * SLOT_SECONDS);
        let first = &slots[..slots.len().min(FIRST_MINUTE)];
        let first_work = TraceShape::of(first.iter().copied())
            .scale(first.iter().copied(), capacity.rates, 1.0)
            .map_or(0.0, |alone| scale / alone);
        // Each policy's fleet begins within its bounds.
        request_settings.initial = ((first_work / USUAL_TARGET).ceil() as u32).max(1);
        let rows = (0..policies.len()).map(Row::Ours);
        let rows = rows.chain(settings.rivals.iter().map(|entry| Row::Rival(entry))).collect();
        Some(Self {
            trace,
            slots,
            shape,
            scale,
            seed,
            capacity,
            settings: request_settings,
            policies,
            rows,
            constant: peak.ceil().max(1.0) as u32,
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
        let all = self.settings.span.as_secs_f64() * self.rows.len() as f64;
        (self.done.load(Ordering::Relaxed) as f64 / all).min(1.0)
    }

    /// The requests of the trace.
    pub fn arrivals(&self) -> impl Iterator<Item = ArrivingRequest> + Clone + '_ {
        let longest = self.settings.engine.max_model_len;
        SlotArrivals::new(self.slots.iter().copied(), &self.shape, longest, self.scale, self.seed)
    }

    /// Plays every row, over so many threads.
    #[must_use]
    pub fn run(&self, threads: usize) -> Vec<PlayedRow> {
        let requests = Drawn::ahead(self.arrivals());
        let next = AtomicUsize::new(0);
        let played = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, self.rows.len()) {
                scope.spawn(|| {
                    loop {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        let Some(row) = self.rows.get(place) else { return };
                        let row = self.play(*row, requests.iter());
                        played.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((place, row));
                    }
                });
            }
        });
        let mut played = played.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        played.sort_by_key(|(place, _)| *place);
        played.into_iter().map(|(_, row)| row).collect()
    }

    fn play(&self, row: Row, requests: impl Iterator<Item = ArrivingRequest>) -> PlayedRow {
        let (begins, seed) = (self.settings.begins, self.settings.seed);
        match row {
            Row::Ours(at) => {
                let Contender { name, policy, chain } = &self.policies[at];
                let settings = self.beginning_within(policy.min, policy.max);
                let slots = self.slots.len();
                let mut changes = Changes::new(slots, slots_a_bucket(slots));
                let mut scaler = ScalerSizer::new(policy, chain.clone(), Sight::default(), begins, seed)
                    .telling(|now, decision| changes.note((now.seconds() / SLOT_SECONDS) as usize, decision));
                let row = self.row(name.clone(), &settings, &mut scaler, requests);
                drop(scaler);
                PlayedRow { changes: Some(changes), ..row }
            }
            Row::Rival(entry) => {
                let (min, max) = self.bounds();
                let settings = self.beginning_within(min, max);
                let title = rivals::title(entry, self.constant);
                match entry.played() {
                    rivals::Played::Rule(rule) => {
                        let mut sizer = RivalSizer::new(rule(&self.facts()), min, max);
                        self.row(title, &settings, &mut sizer, requests)
                    }
                    rivals::Played::Oracle => {
                        let oracle = Box::new(rivals::Oracle::new(self.foreseen(max)));
                        self.row(title, &settings, &mut RivalSizer::new(oracle, min, max), requests)
                    }
                    rivals::Played::StaticPeak | rivals::Played::BestFixed => {
                        let settings = RequestSettings { initial: self.constant, ..settings };
                        self.row(title, &settings, &mut Constant, requests)
                    }
                }
            }
        }
    }

    /// The bounds that rivals keep to.
    fn bounds(&self) -> (u32, u32) {
        let first = self.policies.first();
        first.map_or((1, u32::MAX), |first| (first.policy.min.max(1), first.policy.max))
    }

    fn beginning_within(&self, min: u32, max: u32) -> RequestSettings {
        let initial = self.settings.initial.clamp(min.max(1).min(max), max);
        RequestSettings { initial, ..self.settings.clone() }
    }

    fn facts(&self) -> Facts {
        let engine = self.settings.engine;
        Facts {
            rates: self.capacity.rates,
            requests_per_second: self.capacity.requests_per_second,
            engine: EngineFacts {
                max_num_seqs: engine.max_num_seqs,
                max_batched_tokens: engine.token_budget,
                ..EngineFacts::default()
            },
            peak_replicas: self.constant,
            max: self.bounds().1,
            begins: self.settings.begins,
        }
    }

    /// The oracle's schedule: of the same load as a fluid.
    fn foreseen(&self, max: u32) -> Arc<[u32]> {
        let acceptable_seconds = self.settings.acceptable_queue.as_secs_f64();
        let work = Work::of(self.trace, self.capacity.rates, Size::Scale(self.scale), acceptable_seconds);
        let cold_start = self.settings.stages.total().as_secs_f64();
        let terms = Terms {
            cold_start_slots: (cold_start / SLOT_SECONDS).ceil() as u32,
            acceptable_seconds,
            initial: self.settings.initial,
        };
        work.map_or_else(|| Arc::from([]), |work| rivals::foresee(&work, &terms, max))
    }

    fn row(
        &self,
        policy: String,
        settings: &RequestSettings,
        sizer: &mut dyn Sizer,
        requests: impl Iterator<Item = ArrivingRequest>,
    ) -> PlayedRow {
        let mut told = 0;
        let mut progress = |now: Moment| {
            let seconds = now.seconds() as u64;
            self.done.fetch_add(seconds - told, Ordering::Relaxed);
            told = seconds;
        };
        let score = play_watched(settings, sizer, requests, &mut progress);
        PlayedRow { policy, score, changes: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::policy::TokenRates;
    use crate::decision::{Policy, TierId};
    use crate::simulate::autoscaler::AutoscalerSettings;

    fn settings() -> TraceSettings {
        let rates = TokenRates { input_tokens_per_second: 1.0, output_tokens_per_second: 1.0 };
        TraceSettings {
            policies: vec![Contender {
                name: "ours".to_owned(),
                policy: Policy::with_defaults(TierId::new("backtest", "trace"), 6, rates),
                chain: AutoscalerSettings::recommended(1, 6),
            }],
            calibrated: true,
            rivals: rivals::played_with(rivals::REQUESTS_FILL),
            engine: EngineSettings::rtx4090_8b(),
            size: Size::Peak(2),
            cold_start: Duration::from_secs(60),
            acceptable_queue: Duration::from_secs(5),
            score_from: Duration::ZERO,
            begins: DateTime::UNIX_EPOCH,
            seed: 1,
        }
    }

    fn trace(level: impl Fn(usize) -> f64) -> Trace {
        let slots = (0..480).map(|n| Arrivals { requests: level(n), ..Arrivals::default() }).collect();
        Trace { slots, bin_seconds: 5.0, ..Trace::default() }
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
        let named = |name: &str| rows.iter().find(|row| row.policy.starts_with(name)).unwrap();
        let constant = &named("static peak").score;
        assert!(rows[0].score.gpu_hours < constant.gpu_hours * 1.2, "{:?}", rows[0].score);
        assert!(rows.len() > 20, "{}", rows.len());
        let oracle = &named("oracle").score;
        assert!(oracle.late_work < 0.1 && oracle.gpu_hours < constant.gpu_hours, "{oracle:?}");
    }

    #[test]
    fn the_first_minutes_are_played_and_not_scored() {
        let trace = trace(|slot| if slot < 240 { 3.0 } else { 1.0 });
        let rivals = rivals::chosen("static-peak", rivals::REQUESTS_FILL).unwrap();
        let of = |score_from| {
            let settings = TraceSettings { rivals: rivals.clone(), score_from, ..settings() };
            SideBySide::new(&trace, settings).unwrap().run(2)
        };
        let (whole, second_half) = (of(Duration::ZERO), of(Duration::from_secs(19 * 60 + 1)));
        for (whole, half) in whole.iter().zip(&second_half) {
            assert!(half.score.requests * 3 < whole.score.requests, "three times as many before");
            assert!(half.score.gpu_hours < whole.score.gpu_hours && half.score.starts <= whole.score.starts);
            assert_eq!(
                (&half.score.minutes, &half.changes),
                (&whole.score.minutes, &whole.changes),
                "the same run"
            );
        }
        let constant = &second_half[1].score;
        assert!(
            (constant.gpu_hours - 2.0 / 3.0).abs() < 1e-9,
            "two replicas for 20 of 40 minutes: {constant:?}"
        );
    }

    #[test]
    fn the_scaler_s_answers_come_with_their_reasons_and_a_rival_s_don_t() {
        let trace = trace(|slot| if (240..360).contains(&slot) { 3.0 } else { 1.0 });
        let rivals = rivals::chosen("hpa-80", rivals::REQUESTS_FILL).unwrap();
        let rows = SideBySide::new(&trace, TraceSettings { rivals, ..settings() }).unwrap().run(1);
        let changes = rows[0].changes.as_ref().unwrap().all();
        assert!(changes.len() > 2 && changes.iter().all(|change| !change.because.is_empty()), "{changes:?}");
        assert!(changes.is_sorted_by_key(|change| change.slot));
        assert_eq!(rows[1].changes, None);
    }

    #[test]
    fn the_scale_can_be_given_and_the_constant_fleet_follows_it() {
        let trace = trace(|_| 1.0);
        let fitted = SideBySide::new(&trace, settings()).unwrap();
        assert_eq!(fitted.constant, 2);
        let doubled =
            SideBySide::new(&trace, TraceSettings { size: Size::Scale(fitted.scale() * 2.0), ..settings() })
                .unwrap();
        assert_eq!(doubled.constant, 4);
        assert!(doubled.arrivals().count() > 2 * fitted.arrivals().count() - 10);
    }

    #[test]
    fn a_trace_in_which_nothing_arrives_is_not_played() {
        assert!(SideBySide::new(&trace(|_| 0.0), settings()).is_none());
    }
}
