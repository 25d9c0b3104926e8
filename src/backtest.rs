//! Policies side by side on one trace: what each would have cost, who would have waited, and what a clairvoyant would
//! have paid. The policies under test are the server's own [`crate::decision`], never a copy.
//!
//! ```text
//! trace  a file's rows -> arrivals in slots
//! work   arrivals -> quantised work, scaled so that its peak needs so many replicas
//! fleet  replicas that are ordered, start, serve a queue and are given back       score   what that came to
//! ours   the same learn, decide and record as the server, fed by the fluid model  series  what it looked like over time
//! rivals policies from elsewhere, each by its published rule                      changes its answers with their reasons
//! bound  the clairvoyant's price                                                  split   the price of each ignorance
//! lessons ready scenarios that teach something, each with its picture
//! report all of it as a table, JSON, CSV or a page; warnings what its numbers can't tell
//! ```
//!
//! The fluid model: time runs in slots of [`SLOT_SECONDS`], work is a fluid that waits in one queue, and a ready replica
//! does one replica-second of it a second. Everything here is pure: bytes and spans are passed in, no clock is read, and
//! the same input gives the same report, however many threads work on it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::decision::Policy;
use crate::decision::policy::TokenRates;
use crate::simulate::autoscaler::AutoscalerSettings;

mod against;
mod bound;
pub mod calibrate;
pub mod changes;
mod fleet;
pub mod frontier;
mod job;
pub mod lessons;
mod ours;
mod queue;
pub mod replay;
pub mod report;
pub mod requests;
pub mod rival;
pub mod rivals;
pub mod score;
pub mod series;
pub mod split;
pub mod trace;
mod warnings;
pub mod work;

pub use report::{Fidelity, Report, Row};
pub use trace::{Trace, TraceError};

use bound::Question;
use changes::Changes;
use fleet::{Controller, Terms, play};
use job::Job;
use ours::{Insight, Scaler, World};
use report::{Findings, Record};
use rivals::{Chained, Entry, FixedTarget};
use score::{Score, Tally};
use series::Watched;
use split::Steps;
use work::{Size, Work};

/// Length of a slot: the server's default scrape interval, so that it decides once in each.
pub const SLOT_SECONDS: f64 = 5.0;

/// The most replicas that a policy may have at all times: each is looked at in every slot. Twice the largest peak.
pub const MOST_REPLICAS: u32 = 1_000;

/// Slots from one HPA sync to the next: `--horizontal-pod-autoscaler-sync-period` is 15 s by default.
const SYNC_SLOTS: usize = 3;

/// Slots after which arrivals show in a metric that Prometheus scrapes every 15 s.
const METRIC_AGE_SLOTS: usize = 3;

/// Replicas beyond the smallest constant fleet that the clairvoyant may use. On the traces that were tried four more
/// change nothing; a schedule that needs more for a moment is not looked for.
const BEYOND_STATIC: u32 = 4;

/// Most states of the clairvoyant's table, replicas times units of queue: a week with so many takes minutes.
const MOST_STATES: u64 = 4_000_000;

/// What to play.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The policies under test, each as the server would have it. The rivals keep to the bounds of the first.
    pub policies: Vec<Contender>,
    /// What a replica of the fleet truly serves, whatever the policies believe.
    pub rates: TokenRates,
    /// What they are played against; see [`rivals::chosen`].
    pub rivals: Vec<&'static Entry>,
    /// How large the load is made.
    pub size: Size,
    /// From an order until the replica is ready, in the fleet; rounded up to whole slots.
    pub cold_start: Duration,
    /// Work that queues longer is late.
    pub acceptable_queue: Duration,
    /// The wall-clock time of the first slot: floors have times of day.
    pub begins: DateTime<Utc>,
    /// Only what comes later is scored, rounded up to whole minutes: what is before it is for learning.
    pub score_from: Duration,
    /// Of whatever is drawn at random. The fluid model draws nothing.
    pub seed: u64,
    /// Keep what a page shows: runs over time, answers with their reasons, the clairvoyant with a budget.
    pub details: bool,
    /// Split each policy's excess into the prices of its ignorances.
    pub split: bool,
}

/// A policy under test.
#[derive(Clone, Debug)]
pub struct Contender {
    /// In the report.
    pub name: String,
    /// As the server would have it.
    pub policy: Policy,
    /// The HPA behind it.
    pub chain: AutoscalerSettings,
}

/// Why a backtest can't be played.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unplayable {
    /// There is no policy to test.
    #[error("there is no policy to play")]
    NoPolicy,
    /// All rows are zero.
    #[error("nothing arrives in this trace")]
    NoWork,
    /// Everything would be left out of the score.
    #[error("the trace ends before anything is scored: it has {seconds} s")]
    NothingScored {
        /// Its length.
        seconds: u64,
    },
    /// The clairvoyant's table would not end in minutes.
    #[error(
        "a queue of so many seconds at so many replicas is too much for the exact bound: {0} states a slot, the most is {MOST_STATES}"
    )]
    TooLarge(u64),
}

/// A backtest that is ready to be played.
pub struct Backtest {
    settings: Settings,
    work: Work,
    terms: Terms,
    /// The smallest constant fleet without a late slot.
    constant: u32,
    /// The first slot that is scored.
    from: usize,
    rows_read: u64,
    warnings: Vec<String>,
    jobs: Vec<Job>,
    /// Slots played so far, over all jobs.
    done: AtomicU64,
}

/// What a job came to.
enum Played {
    /// Replica-slots of the clairvoyant.
    Bound(f64),
    Priced(f32, f64),
    Ours(usize, Box<Ran>),
    Split(usize, Box<Steps>),
    Rival(&'static Entry, Box<Ran>),
    Fixed(FixedTarget, Score),
}

/// A policy that was played.
struct Ran {
    score: Score,
    /// Where details are wanted.
    record: Option<Record>,
}

impl Backtest {
    /// Scales and quantises a trace.
    ///
    /// # Errors
    /// When there is no policy, nothing arrives or is scored, or the bound would take too long.
    pub fn new(trace: &Trace, mut settings: Settings) -> Result<Self, Unplayable> {
        let acceptable = settings.acceptable_queue.as_secs_f64();
        let work = Work::of(trace, settings.rates, settings.size, acceptable).ok_or(Unplayable::NoWork)?;
        let warnings = warnings::of(&settings, &work);
        for Contender { policy, chain, .. } in &mut settings.policies {
            // The fluid model has no door at which work could wait for a first replica.
            policy.min = policy.min.max(1);
            policy.max = policy.max.max(policy.min);
            chain.min = chain.min.max(1);
            chain.max = chain.max.max(chain.min);
        }
        let from = (settings.score_from.as_secs_f64() / 60.0).ceil() as usize * score::MINUTE_SLOTS;
        if from >= work.len() {
            return Err(Unplayable::NothingScored { seconds: (work.len() as f64 * SLOT_SECONDS) as u64 });
        }
        let first = settings.policies.first().ok_or(Unplayable::NoPolicy)?;
        let cold_start_slots = (settings.cold_start.as_secs_f64() / SLOT_SECONDS).ceil() as u32;
        let terms = Terms { cold_start_slots, acceptable_seconds: acceptable, initial: 1 };
        let terms = Terms { initial: initial(&work, &first.policy), ..terms };
        let constant = rivals::smallest_constant(&work, &terms);
        let states = bound::states(&work, &terms, constant + BEYOND_STATIC);
        if states > MOST_STATES {
            return Err(Unplayable::TooLarge(states));
        }
        let rows_read = trace.rows;
        let jobs = job::all(&settings, states, constant);
        let done = AtomicU64::new(0);
        Ok(Self { settings, work, terms, constant, from, rows_read, warnings, jobs, done })
    }

    /// What the numbers can't tell, for whoever runs this.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Share of the work that is done, 0 to 1.
    pub fn progress(&self) -> f64 {
        let plays: u64 = self.jobs.iter().map(|job| job.plays()).sum();
        let all = plays as f64 * self.work.len() as f64;
        (self.done.load(Ordering::Relaxed) as f64 / all).min(1.0)
    }

    /// Plays every policy, over so many threads.
    #[must_use]
    pub fn run(&self, threads: usize) -> Report {
        let next = AtomicUsize::new(0);
        let played = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, self.jobs.len()) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(job) = self.jobs.get(at) else { break };
                        let result = self.play(*job);
                        // A thread that panics takes the scope with it: nobody would read half a list.
                        played.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((at, result));
                    }
                });
            }
        });
        let mut played = played.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        // In the order of the jobs, whoever was done first.
        played.sort_by_key(|(at, _)| *at);
        self.report(played.into_iter().map(|(_, result)| result).collect())
    }

    /// The clairvoyant alone, without the policies.
    pub fn bound_gpu_hours(&self) -> f64 {
        self.clairvoyant(None) * SLOT_SECONDS / 3600.0
    }

    /// The first policy alone.
    pub fn score_of_first(&self) -> Option<Score> {
        match self.play(Job::Ours(0)) {
            Played::Ours(_, ran) => Some(ran.score),
            _ => None,
        }
    }

    fn play(&self, job: Job) -> Played {
        let (work, terms) = (&self.work, &self.terms);
        let (min, max) = self.bounds();
        match job {
            Job::Bound => Played::Bound(self.clairvoyant(None)),
            Job::Priced(price) => Played::Priced(price, self.clairvoyant(Some(price))),
            Job::Ours(at) => {
                let contender = &self.settings.policies[at];
                let terms = Terms { initial: initial(work, &contender.policy), ..*terms };
                let mut scaler = Scaler::new(&self.world(terms), contender, Insight::default());
                if self.settings.details {
                    let changes = Changes::new(work.len(), series::slots_a_bucket(work.len()));
                    scaler = scaler.telling(changes);
                }
                let (mut ran, scaler) = self.watch(&terms, scaler);
                if let Some(record) = &mut ran.record {
                    record.changes = scaler.into_changes();
                }
                Played::Ours(at, ran)
            }
            Job::Split(at) => {
                let contender = &self.settings.policies[at];
                let terms = Terms { initial: initial(work, &contender.policy), ..*terms };
                let steps = split::steps(&self.world(terms), contender, self.from, &self.done);
                Played::Split(at, Box::new(steps))
            }
            Job::Rival(entry) => {
                let (rival, bounds, initial) = self.rival(entry);
                let terms = Terms { initial, ..*terms };
                let chained = Chained::new(rival, work, self.settings.rates, bounds);
                Played::Rival(entry, self.watch(&terms, chained).0)
            }
            Job::Fixed(target) => {
                let mut fixed = target.controller(work, min, max);
                let tally = Tally::new(terms.acceptable_seconds).from(self.from, terms.initial);
                Played::Fixed(target, play(work, terms, &mut fixed, tally, &self.done))
            }
        }
    }

    /// The bounds that rivals keep to.
    fn bounds(&self) -> (u32, u32) {
        self.settings.policies.first().map_or((1, 1), |first| (first.policy.min, first.policy.max))
    }

    fn world(&self, terms: Terms) -> World<'_> {
        let Settings { rates, begins, cold_start, .. } = self.settings;
        World { work: &self.work, terms, rates, begins, cold_start }
    }

    fn clairvoyant(&self, late_minute: Option<f32>) -> f64 {
        let question = Question { most: self.constant + BEYOND_STATIC, from: self.from, late_minute };
        bound::replica_slots(&self.work, &self.terms, question, &self.done)
    }

    /// Plays a controller, and keeps what it looked like where details are wanted.
    fn watch<C: Controller>(&self, terms: &Terms, controller: C) -> (Box<Ran>, C) {
        let acceptable = terms.acceptable_seconds;
        let mut watched = Watched::new(controller, &self.work, acceptable, self.settings.details);
        let tally = Tally::new(acceptable).from(self.from, terms.initial);
        let score = play(&self.work, terms, &mut watched, tally, &self.done);
        let (controller, series) = watched.into_parts();
        let record = series.map(|series| Record { series, changes: None });
        (Box::new(Ran { score, record }), controller)
    }

    fn report(&self, played: Vec<Played>) -> Report {
        let mut found = Findings { warnings: self.warnings.clone(), ..Findings::default() };
        let (mut played_rivals, mut fixed, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        for result in played {
            match result {
                Played::Bound(replica_slots) => found.bound_replica_slots = replica_slots,
                Played::Priced(price, least) => found.priced.push((price, least)),
                Played::Ours(at, ran) => {
                    found.rows.push((self.settings.policies[at].name.clone(), ran.score, ran.record));
                }
                Played::Split(at, of) => steps.push((at, of)),
                Played::Fixed(target, score) => fixed.push((target, score)),
                Played::Rival(entry, ran) => {
                    let title = rivals::title(entry, self.constant);
                    played_rivals.push((against::place(entry.name), title, ran.score, ran.record));
                }
            }
        }
        // The policies under test are the first rows, in their order.
        let of_row = |(at, steps): (usize, Box<Steps>)| {
            let (name, score, _) = found.rows.get(at)?;
            Some((name.clone(), *score, steps))
        };
        found.steps = steps.into_iter().filter_map(of_row).collect();
        if let Some((target, score, any_good)) = rivals::best_in_hindsight(fixed) {
            let (min, max) = self.bounds();
            // Only the best of them is looked at again.
            let again = self.settings.details.then(|| target.controller(&self.work, min, max));
            let record = again.and_then(|fixed| self.watch(&self.terms, fixed).0.record);
            let mark = if any_good { "" } else { ", fewest late minutes" };
            played_rivals.push((against::place("best-fixed"), format!("{target}{mark}"), score, record));
        }
        played_rivals.sort_by_key(|(place, ..)| *place);
        found.rows.extend(played_rivals.into_iter().map(|(_, name, score, record)| (name, score, record)));
        Report::new(&self.settings, &self.terms, &self.work, (self.rows_read, self.from), found)
    }
}

/// The replicas that the first minute needs at the usual target.
fn initial(work: &Work, policy: &Policy) -> u32 {
    let first = (work.first_minute() / rivals::USUAL_TARGET).ceil() as u32;
    first.clamp(policy.min, policy.max)
}
