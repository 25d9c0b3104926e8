//! The fleet request by request: what a tier would have cost and who would have waited, with real schedulers, KV caches,
//! routing and starts, and with the scaler fed what production would feed it. Pure, seeded, one thread.
//!
//! ```text
//! arrivals  a trace's slots, or requests by name -> requests in the order of time
//! drawn     those of a trace, once for all rows
//! capacity  the largest steady load of one replica: what "N replicas' worth" means
//! fleet     the simulated cluster, what its router counts, and what became of each request   score  what that came to
//! scaler    scrape -> TierWindow -> learn, decide, record -> KEDA and the HPA -> the cluster
//! sample    an engine as its page tells it, with and without the page
//! rival     the same for a policy from elsewhere             side_by_side  all on one trace, report  beside the bound
//! retries   clients that try again after a refusal          pools         several fleets under one clock
//! ```
//!
//! Whoever sizes the fleet is a [`Sizer`]. It acts at instants that it names itself; between them the cluster runs by
//! events. The same settings, sizer and arrivals give the same score to the last bit. Memory doesn't grow with the number
//! of requests, but for those that are in the fleet; with time only [`RequestScore::minutes`] does.

use std::iter::Peekable;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::decision::policy::TokenRates;
use crate::simulate::EngineSettings;
use crate::simulate::cluster::{QueueLimit, Removal};
use crate::simulate::router::Routing;
use crate::simulate::start::{StartStages, StartTrouble};
use crate::simulate::{ClusterSettings, Moment};

pub mod arrivals;
pub mod capacity;
mod drawn;
pub mod fleet;
pub mod pools;
mod report;
pub mod retries;
pub mod rival;
pub mod sample;
pub mod scaler;
pub mod score;
pub mod side_by_side;

pub use arrivals::{ArrivingRequest, Lengths, SlotArrivals, TraceShape};
pub use capacity::Capacity;
pub use fleet::Fleet;
pub use pools::{Pool, PoolsSizer, play_pools};
pub use retries::{Backoff, Clients};
pub use rival::RivalSizer;
pub use scaler::{Pages, ScalerSizer, Sight};
pub use score::{Minute, RequestScore};
pub use side_by_side::{PlayedRow, SideBySide, TraceSettings};

/// How often the fleet is looked at for the minutes of the score.
const LOOK: Duration = Duration::from_secs(5);

/// A fleet, and how it is scored.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestSettings {
    /// Every replica's engine.
    pub engine: EngineSettings,
    /// What one replica carries, in tokens a second of each kind if it had no other: the measure of work and of the
    /// fleet's size. See [`Capacity::rates`].
    pub rates: TokenRates,
    /// Medians of the parts of a start; their sum is the cold start.
    pub stages: StartStages,
    /// Sigma of the logarithm of a pod's cold start; 0 makes all equal.
    pub cold_start_spread: f64,
    /// What goes wrong with starts.
    pub trouble: StartTrouble,
    /// How long a replica that goes may finish its requests before it is killed.
    pub drain: Duration,
    /// Which replica goes, and whether the router stops first.
    pub removal: Removal,
    /// How long the router still sends to a replica that was told to go.
    pub unlisting: Duration,
    /// What an engine refuses; None: nothing.
    pub queue_limit: Option<QueueLimit>,
    /// Who tries again; None: nobody, and what is refused or cut off is lost.
    pub clients: Option<Clients>,
    /// From when to when no request reaches the fleet. All that is in it then is cut off as it begins.
    pub outage: Option<(Moment, Moment)>,
    /// How requests find a replica.
    pub routing: Routing,
    /// Share of each prompt that the prefix cache has, 0 to 1, of requests that say nothing of their prefix.
    pub hit_rate: f64,
    /// Prompt tokens of a block in the hashes of prefixes: 512 in the Mooncake traces.
    pub prefix_block_tokens: u32,
    /// Replicas that are ready at the beginning.
    pub initial: u32,
    /// Work that queues longer is late.
    pub acceptable_queue: Duration,
    /// How long it is played; what arrives later is left out.
    pub span: Duration,
    /// The minute from which on it is scored; what arrives before is played.
    pub scored_from_minute: u64,
    /// The wall-clock time of its beginning.
    pub begins: DateTime<Utc>,
    /// For starts and phases; arrivals have their own.
    pub seed: u64,
}

impl RequestSettings {
    /// A fleet without troubles before a router that takes the least outstanding.
    #[must_use]
    pub fn plain(
        engine: EngineSettings,
        capacity: &Capacity,
        cold_start: Duration,
        begins: DateTime<Utc>,
    ) -> Self {
        Self {
            engine,
            rates: capacity.rates,
            stages: StartStages::new_node(cold_start),
            cold_start_spread: 0.0,
            trouble: StartTrouble::default(),
            drain: Duration::from_secs(60),
            removal: Removal::default(),
            unlisting: Duration::ZERO,
            queue_limit: None,
            clients: None,
            outage: None,
            routing: Routing::default(),
            hit_rate: 0.0,
            prefix_block_tokens: 512,
            initial: 1,
            acceptable_queue: Duration::from_secs(5),
            span: Duration::from_hours(24),
            scored_from_minute: 0,
            begins,
            seed: 0,
        }
    }

    fn cluster(&self) -> ClusterSettings {
        ClusterSettings {
            stages: self.stages,
            cold_start_spread: self.cold_start_spread,
            trouble: self.trouble.clone(),
            routing: self.routing,
            prefix_block_tokens: self.prefix_block_tokens,
            drain: self.drain,
            removal: self.removal,
            unlisting: self.unlisting,
            queue_limit: self.queue_limit,
            seed: self.seed,
            ..ClusterSettings::plain(self.engine, Duration::ZERO)
        }
    }
}

/// Whoever sizes a fleet.
pub trait Sizer {
    /// When it wants to act next; never before it acted last. None: never again.
    fn next(&self) -> Option<Moment>;

    /// It is that time, and the fleet is as it is then.
    fn act(&mut self, now: Moment, fleet: &mut Fleet);
}

/// As many replicas as there were.
#[derive(Clone, Copy, Debug, Default)]
pub struct Constant;

impl Sizer for Constant {
    fn next(&self) -> Option<Moment> {
        None
    }

    fn act(&mut self, _: Moment, _: &mut Fleet) {}
}

/// Plays all of it. `arrivals` are in the order of time.
///
/// Requests that are still queued at the end count with what they have waited by then.
pub fn play(
    settings: &RequestSettings,
    sizer: &mut dyn Sizer,
    arrivals: impl Iterator<Item = ArrivingRequest>,
) -> RequestScore {
    play_watched(settings, sizer, arrivals, &mut |_| ())
}

/// The same, telling after each look of 5 s how far it is.
pub fn play_watched(
    settings: &RequestSettings,
    sizer: &mut dyn Sizer,
    arrivals: impl Iterator<Item = ArrivingRequest>,
    progress: &mut dyn FnMut(Moment),
) -> RequestScore {
    let end = Moment::from_duration(settings.span);
    let mut playing = Playing::new(settings, arrivals, end);
    let mut look = Moment::START;
    loop {
        let acts = sizer.next().filter(|at| *at < end);
        let now = acts.unwrap_or(end).min(look);
        playing.bring_to(now);
        if now == look {
            playing.fleet.look();
            progress(now);
            if now == end {
                return playing.fleet.into_score();
            }
            look = look.plus(LOOK).min(end);
        }
        if acts.is_some_and(|at| at <= now) {
            sizer.act(now, &mut playing.fleet);
        }
    }
}

/// A fleet and what still arrives at it.
struct Playing<I: Iterator<Item = ArrivingRequest>> {
    fleet: Fleet,
    arrivals: Peekable<I>,
    end: Moment,
}

impl<I: Iterator<Item = ArrivingRequest>> Playing<I> {
    fn new(settings: &RequestSettings, arrivals: I, end: Moment) -> Self {
        Self { fleet: Fleet::new(settings), arrivals: arrivals.peekable(), end }
    }

    fn bring_to(&mut self, now: Moment) {
        let end = self.end;
        while let Some(arriving) = self.arrivals.next_if(|arriving| arriving.at <= now && arriving.at < end) {
            self.fleet.reach(arriving.at);
            self.fleet.submit(arriving);
        }
        self.fleet.reach(now);
        self.fleet.settle(now);
    }
}

#[cfg(test)]
mod tests;
