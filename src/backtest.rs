//! Policies side by side on one trace: what each would have cost, who would have waited, and what a clairvoyant would
//! have paid. The policy under test is the server's own [`crate::decision`], never a copy.
//!
//! ```text
//! trace  a file's rows -> arrivals in slots
//! work   arrivals -> quantised work, scaled so that its peak needs so many replicas
//! fleet  replicas that are ordered, start, serve a queue and are given back       score  what that came to
//! ours   the same learn, decide and record as the server, fed by the fluid model
//! rivals HPA, fixed targets, static peak                                          bound  the clairvoyant's price
//! report all of it as a table or JSON
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
use crate::simulate::autoscaler::AutoscalerSettings;

mod bound;
mod fleet;
mod ours;
pub mod report;
pub mod requests;
pub mod rival;
mod rivals;
pub mod score;
pub mod trace;
pub mod work;

pub use report::{Report, Row};
pub use trace::{Trace, TraceError};

use fleet::{Terms, play};
use rivals::{ConstantFleet, FixedTarget, WorkTargetHpa};
use score::{Score, Tally};
use work::Work;

/// Length of a slot: the server's default scrape interval, so that it decides once in each.
pub const SLOT_SECONDS: f64 = 5.0;

/// Slots from one HPA sync to the next: `--horizontal-pod-autoscaler-sync-period` is 15 s by default.
const SYNC_SLOTS: usize = 3;

/// Slots after which arrivals show in a metric that Prometheus scrapes every 15 s.
const METRIC_AGE_SLOTS: usize = 3;

/// Replicas beyond the smallest constant fleet that the clairvoyant may use. On the traces that were tried four more
/// change nothing; a schedule that needs more for a moment is not looked for.
const BEYOND_STATIC: u32 = 4;

/// Most states of the clairvoyant's table, replicas times units of queue: a week with so many takes minutes.
const MOST_STATES: u64 = 2_000_000;

/// What to play.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The tier's policy, as the server would have it.
    pub policy: Policy,
    /// The HPA behind it.
    pub chain: AutoscalerSettings,
    /// The trace is scaled so that its busiest minute needs so many replicas at full load.
    pub peak_replicas: u32,
    /// From an order until the replica is ready, in the fleet; rounded up to whole slots.
    pub cold_start: Duration,
    /// Work that queues longer is late.
    pub acceptable_queue: Duration,
    /// The wall-clock time of the first slot: floors have times of day.
    pub begins: DateTime<Utc>,
}

/// Why a backtest can't be played.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unplayable {
    /// All rows are zero.
    #[error("nothing arrives in this trace")]
    NoWork,
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
    jobs: Vec<Job>,
    /// Slots played so far, over all jobs.
    done: AtomicU64,
}

/// One thing to compute; jobs don't depend on each other.
#[derive(Clone, Copy, Debug)]
enum Job {
    Bound,
    Ours,
    Hpa,
    Constant,
    Fixed(FixedTarget),
}

/// What a job came to.
enum Played {
    /// Replica-seconds of the clairvoyant.
    Bound(f64),
    Ours(Score),
    Hpa(Score),
    Constant(Score),
    Fixed(FixedTarget, Score),
}

impl Backtest {
    /// Scales and quantises a trace.
    ///
    /// # Errors
    /// When nothing arrives, or the bound would take too long.
    pub fn new(trace: &Trace, mut settings: Settings) -> Result<Self, Unplayable> {
        // The fluid model has no door at which work could wait for a first replica.
        settings.policy.min = settings.policy.min.max(1);
        settings.policy.max = settings.policy.max.max(settings.policy.min);
        settings.chain.min = settings.chain.min.max(1);
        settings.chain.max = settings.chain.max.max(settings.chain.min);
        let acceptable = settings.acceptable_queue.as_secs_f64();
        let rates = settings.policy.capacity.prior;
        let work = Work::of(trace, rates, settings.peak_replicas, acceptable).ok_or(Unplayable::NoWork)?;
        let first = (work.first_minute() / rivals::USUAL_TARGET).ceil() as u32;
        let terms = Terms {
            cold_start_slots: (settings.cold_start.as_secs_f64() / SLOT_SECONDS).ceil() as u32,
            acceptable_seconds: acceptable,
            initial: first.clamp(settings.policy.min, settings.policy.max),
        };
        let constant = rivals::smallest_constant(&work, &terms);
        let states = bound::states(&work, &terms, constant + BEYOND_STATIC);
        if states > MOST_STATES {
            return Err(Unplayable::TooLarge(states));
        }
        // The long ones first, so that no thread is left alone with them.
        let mut jobs = vec![Job::Bound, Job::Ours, Job::Hpa, Job::Constant];
        jobs.extend(FixedTarget::grid().map(Job::Fixed));
        Ok(Self { settings, work, terms, constant, jobs, done: AtomicU64::new(0) })
    }

    /// Share of the work that is done, 0 to 1.
    pub fn progress(&self) -> f64 {
        let all = (self.jobs.len() * self.work.len()) as f64;
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
                    while let Some(job) = self.jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let result = self.play(*job);
                        // A thread that panics takes the scope with it: nobody would read half a list.
                        played.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(result);
                    }
                });
            }
        });
        self.report(played.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn play(&self, job: Job) -> Played {
        let (work, terms, policy) = (&self.work, &self.terms, &self.settings.policy);
        let tally = || Tally::new(terms.acceptable_seconds);
        match job {
            Job::Bound => {
                Played::Bound(bound::replica_seconds(work, terms, self.constant + BEYOND_STATIC, &self.done))
            }
            Job::Ours => {
                let mut scaler = ours::Scaler::new(&self.settings, work);
                Played::Ours(play(work, terms, &mut scaler, tally(), &self.done))
            }
            Job::Hpa => {
                let mut hpa = WorkTargetHpa::new(work, policy.min, policy.max);
                Played::Hpa(play(work, terms, &mut hpa, tally(), &self.done))
            }
            Job::Constant => {
                let terms = Terms { initial: self.constant, ..*terms };
                let mut fleet = ConstantFleet { replicas: self.constant };
                Played::Constant(play(work, &terms, &mut fleet, tally(), &self.done))
            }
            Job::Fixed(target) => {
                let mut fixed = target.controller(work, policy.min, policy.max);
                Played::Fixed(target, play(work, terms, &mut fixed, tally(), &self.done))
            }
        }
    }

    fn report(&self, played: Vec<Played>) -> Report {
        let (mut bound, mut rows, mut fixed) = (0.0, Vec::new(), Vec::new());
        for result in played {
            match result {
                Played::Bound(replica_seconds) => bound = replica_seconds,
                Played::Ours(score) => rows.push((0, "keda-vllm-scaler".to_owned(), score)),
                Played::Fixed(target, score) => fixed.push((target, score)),
                Played::Hpa(score) => rows.push((2, "HPA, work at 80 %".to_owned(), score)),
                Played::Constant(score) => {
                    rows.push((3, format!("static peak, {} replicas", self.constant), score));
                }
            }
        }
        if let Some((target, score)) = rivals::best_in_hindsight(fixed) {
            rows.push((1, target.to_string(), score));
        }
        rows.sort_by_key(|(place, ..)| *place);
        let scored = rows.into_iter().map(|(_, policy, score)| (policy, score)).collect();
        Report::new(&self.settings, &self.terms, &self.work, bound, scored)
    }
}
