//! A load, a fleet and whoever sizes it, as a run; many runs over threads. Pure and seeded.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::signal::Planned;
use crate::backtest::SLOT_SECONDS;
use crate::backtest::requests::{
    ArrivingRequest, Capacity, Constant, Fleet, Lengths, RequestScore, RequestSettings, RivalSizer,
    ScalerSizer, Sight, Sizer, SlotArrivals, TraceShape, play,
};
use crate::backtest::rival::Rival;
use crate::backtest::rivals::{self, EngineFacts, Facts};
use crate::backtest::trace::Arrivals;
use crate::decision::policy::Floor;
use crate::decision::{Memory, Policy, TierId};
use crate::schedule::Window;
use crate::simulate::autoscaler::AutoscalerSettings;
use crate::simulate::cluster::Gone;
use crate::simulate::{EngineSettings, Moment};

/// Between two looks at a fleet, unless a lesson looks closer.
const LOOK: Duration = Duration::from_secs(5);

/// A kind of replica and the requests it serves.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub(super) engine: EngineSettings,
    pub(super) lengths: Lengths,
    pub(super) capacity: Capacity,
    pub(super) begins: DateTime<Utc>,
    pub(super) seed: u64,
}

impl Stage {
    /// Finds what a replica carries of such requests.
    pub(super) fn new(
        engine: EngineSettings,
        (mean_input, mean_output): (f64, f64),
        begins: DateTime<Utc>,
        seed: u64,
    ) -> Self {
        let lengths = Lengths { mean_input, mean_output, longest: engine.max_model_len };
        // Every seed has the same replicas: it chooses the requests alone.
        let capacity = Capacity::find(engine, &lengths, 0.0, Duration::from_secs(5), 0);
        Self { engine, lengths, capacity, begins, seed }
    }

    /// A fleet of such replicas, played for so long.
    pub(super) fn fleet(&self, cold_start: Duration, initial: u32, span: Duration) -> RequestSettings {
        RequestSettings {
            initial,
            span,
            seed: self.seed,
            ..RequestSettings::plain(self.engine, &self.capacity, cold_start, self.begins)
        }
    }

    /// The server's defaults for these replicas, as if `calibrate` had told the capacity, with an HPA at tolerance 0.
    pub(super) fn policy(&self, min: u32, max: u32, cold_start: Duration) -> Policy {
        let mut policy = Policy::with_defaults(TierId::new("backtest", "lesson"), max, self.capacity.rates);
        policy.min = min;
        policy.cold_start = cold_start;
        policy.dead_band.tolerance = 0.0;
        policy
    }

    /// A rule of the list of rivals, set up for these replicas.
    pub(super) fn rival(&self, name: &str, max: u32) -> Option<Box<dyn Rival + Send>> {
        let facts = Facts {
            rates: self.capacity.rates,
            requests_per_second: self.capacity.requests_per_second,
            engine: EngineFacts {
                max_num_seqs: self.engine.max_num_seqs,
                max_batched_tokens: self.engine.token_budget,
                ..EngineFacts::default()
            },
            peak_replicas: max,
            max,
            begins: self.begins,
        };
        rivals::ALL.iter().find(|entry| entry.name == name)?.rival(&facts)
    }

    /// The same with other requests.
    pub(super) fn with_seed(&self, seed: u64) -> Self {
        Self { seed, ..self.clone() }
    }

    /// Requests of a Poisson process whose rate is so many replicas' worth, by seconds since the beginning.
    pub(super) fn load(&self, span: Duration, replicas: impl Fn(f64) -> f64) -> Load {
        let slots = self.slots(span, replicas);
        let shape = TraceShape::of(slots.iter().copied());
        SlotArrivals::new(slots.into_iter(), &shape, self.lengths.longest, 1.0, self.seed).collect()
    }

    /// The same, slot by slot.
    pub(super) fn slots(&self, span: Duration, replicas: impl Fn(f64) -> f64) -> Vec<Arrivals> {
        let count = (span.as_secs_f64() / SLOT_SECONDS).ceil() as u64;
        (0..count)
            .map(|slot| {
                let middle = (slot as f64 + 0.5) * SLOT_SECONDS;
                let mean = replicas(middle) * self.capacity.requests_per_second * SLOT_SECONDS;
                let requests = f64::from(poisson(mean, self.seed, slot));
                Arrivals {
                    requests,
                    input_tokens: requests * self.lengths.mean_input,
                    output_tokens: requests * self.lengths.mean_output,
                }
            })
            .collect()
    }
}

/// A promise of so many replicas in office hours, Monday to Friday, 9 to 18 UTC.
pub(super) fn office_hours(replicas: u32) -> Option<Floor> {
    let window = Window::parse("UTC", "0 9 * * 1-5", "0 18 * * 1-5").ok()?;
    Some(Floor { name: "office hours".to_owned(), window, replicas })
}

/// Requests in the order of time.
pub(super) type Load = Arc<[ArrivingRequest]>;

/// The number of arrivals of a Poisson process with this mean.
fn poisson(mean: f64, seed: u64, slot: u64) -> u32 {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x1E55_0125 ^ slot.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let (mut count, mut left) = (0, mean);
    loop {
        let uniform: f64 = rng.random();
        left += (1.0 - uniform).ln();
        if left < 0.0 {
            return count;
        }
        count += 1;
    }
}

/// Who sizes a fleet.
pub(super) enum By {
    /// The server's decision, its ScaledObject as the documentation has it.
    Ours(Box<Policy>),
    /// The same by one who has served days before: see [`super::days_before`].
    Experienced(Box<Policy>, Box<Memory>),
    /// A rule from elsewhere between these bounds.
    Rule(Box<dyn Rival + Send>, u32, u32),
    /// Nobody: it stays as it is, but for these changes, in the order of time.
    Plan(Vec<(Duration, u32)>),
}

/// A row that isn't played yet.
pub(super) struct Part {
    pub(super) name: String,
    pub(super) fleet: RequestSettings,
    pub(super) load: Load,
    pub(super) by: By,
    /// Between two looks.
    pub(super) look: Duration,
}

/// A row that was played.
#[derive(Clone, Debug)]
pub(super) struct Played {
    pub(super) name: String,
    pub(super) score: RequestScore,
    /// Look by look.
    pub(super) looks: Vec<Look>,
    /// Share of the prompt tokens that prefix caches had, over replicas that are there at the end.
    pub(super) hit_rate: f64,
    /// Replicas that went.
    pub(super) gone: Gone,
}

/// A fleet at an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) at: Moment,
    /// `spec.replicas`.
    pub(super) spec: u32,
    pub(super) ready: u32,
    /// Pods that exist.
    pub(super) paid: u32,
    /// Requests that haven't run yet.
    pub(super) waiting: u64,
    /// Tries so far.
    pub(super) tries: u64,
    /// Tries so far that were refused.
    pub(super) turned_away: u64,
}

impl Played {
    /// The most requests that had not run yet at a look.
    pub(super) fn most_waiting(&self) -> u64 {
        self.looks.iter().map(|look| look.waiting).max().unwrap_or(0)
    }

    /// The most replicas that were ordered at a time.
    pub(super) fn most_ordered(&self) -> u32 {
        self.looks.iter().map(|look| look.spec).max().unwrap_or(0)
    }
}

impl Part {
    pub(super) fn new(name: impl Into<String>, fleet: RequestSettings, load: &Load, by: By) -> Self {
        Self { name: name.into(), fleet, load: Arc::clone(load), by, look: LOOK }
    }

    pub(super) fn play(self) -> Played {
        let Self { name, fleet, load, by, look } = self;
        let arrivals = load.iter().cloned();
        let begins = fleet.begins;
        let (score, watch) = match by {
            By::Ours(policy) => by_ours(&policy, Memory::started(begins), &fleet, look, arrivals),
            By::Experienced(policy, memory) => by_ours(&policy, *memory, &fleet, look, arrivals),
            By::Rule(rival, min, max) => {
                let mut watched = Watched::new(RivalSizer::new(rival, min, max), look);
                (play(&fleet, &mut watched, arrivals), watched.watch)
            }
            By::Plan(changes) if changes.is_empty() => {
                let mut watched = Watched::new(Constant, look);
                (play(&fleet, &mut watched, arrivals), watched.watch)
            }
            By::Plan(changes) => {
                let mut watched = Watched::new(Planned::new(changes), look);
                (play(&fleet, &mut watched, arrivals), watched.watch)
            }
        };
        Played { name, score, looks: watch.looks, hit_rate: watch.hit_rate, gone: watch.gone }
    }
}

fn by_ours(
    policy: &Policy,
    memory: Memory,
    fleet: &RequestSettings,
    look: Duration,
    arrivals: impl Iterator<Item = ArrivingRequest>,
) -> (RequestScore, Watch) {
    let chain = AutoscalerSettings::recommended(policy.min, policy.max);
    let scaler =
        ScalerSizer::new(policy, chain, Sight::default(), fleet.begins, fleet.seed).with_memory(memory);
    let mut watched = Watched::new(scaler, look);
    (play(fleet, &mut watched, arrivals), watched.watch)
}

/// What was seen of a fleet besides its score.
#[derive(Clone, Debug, Default)]
struct Watch {
    looks: Vec<Look>,
    hit_rate: f64,
    gone: Gone,
}

impl Watch {
    fn look(&mut self, at: Moment, fleet: &Fleet) {
        let cluster = fleet.cluster();
        let engines = cluster.replicas().iter().filter_map(|replica| replica.engine());
        let (asked, hit) = engines.fold((0, 0), |(asked, hit), engine| {
            (asked + engine.metrics().prefix_queries, hit + engine.metrics().prefix_hits)
        });
        self.hit_rate = hit as f64 / (asked as f64).max(1.0);
        self.gone = cluster.gone();
        let supply = cluster.supply();
        self.looks.push(Look {
            at,
            spec: cluster.spec(),
            ready: supply.ready,
            paid: supply.ready + supply.starting + supply.terminating,
            waiting: fleet.waiting(),
            tries: fleet.offered().requests,
            turned_away: fleet.turned_away(),
        });
    }
}

/// A sizer that is watched.
struct Watched<S> {
    sizer: S,
    every: Duration,
    next: Moment,
    watch: Watch,
}

impl<S> Watched<S> {
    fn new(sizer: S, every: Duration) -> Self {
        Self { sizer, every, next: Moment::START, watch: Watch::default() }
    }
}

impl<S: Sizer> Sizer for Watched<S> {
    fn next(&self) -> Option<Moment> {
        Some(self.sizer.next().map_or(self.next, |next| next.min(self.next)))
    }

    fn act(&mut self, now: Moment, fleet: &mut Fleet) {
        if self.next <= now {
            self.watch.look(now, fleet);
            self.next = now.plus(self.every);
        }
        if self.sizer.next().is_some_and(|next| next <= now) {
            self.sizer.act(now, fleet);
        }
    }
}

/// Something that gives one row or more.
pub(super) type Job = Box<dyn FnOnce() -> Vec<Played> + Send>;

/// Plays them all; the answers are in the order of the parts, whatever the threads.
pub(super) fn play_all(parts: Vec<Part>, threads: usize) -> Vec<Played> {
    let job = |part: Part| -> Job { Box::new(|| vec![part.play()]) };
    play_jobs(parts.into_iter().map(job).collect(), threads)
}

/// The same of jobs.
pub(super) fn play_jobs(jobs: Vec<Job>, threads: usize) -> Vec<Played> {
    let count = jobs.len();
    let todo = Mutex::new(jobs.into_iter().enumerate().rev().collect::<Vec<_>>());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    let next = todo.lock().unwrap_or_else(PoisonError::into_inner).pop();
                    let Some((place, job)) = next else { return };
                    let played = job();
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((place, played));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().flat_map(|(_, played)| played).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poisson_number_has_its_mean_and_nothing_comes_of_nothing() {
        let sum: u32 = (0..4000).map(|slot| poisson(3.0, 1, slot)).sum();
        assert!((f64::from(sum) / 12_000.0 - 1.0).abs() < 0.03, "{sum}");
        assert_eq!((0..100).map(|slot| poisson(0.0, 1, slot)).sum::<u32>(), 0);
    }
}
