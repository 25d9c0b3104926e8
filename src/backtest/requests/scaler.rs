//! The scaler itself before the simulated fleet: scraped as the server scrapes, aggregated, learned, decided and recorded
//! by the server's own code, and acted on by the stand-in for KEDA and the HPA. Pure.
//!
//! - A round begins every scrape interval; the pages of its replicas are read over the first half of it, each at a fixed
//!   place, and the decision comes when the last one is read. So a decision's data are up to half an interval old, and
//!   gauges are those of each engine's last step.
//! - The HPA syncs every 15 s and KEDA polls every 30 s, each at a phase of the run's seed: what they get is the last
//!   decision. An answer of none is an error, which holds.
//! - An answer that becomes active is pushed at once. At zero the router's queue is looked at every second.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::fleet::Fleet;
use super::{Sizer, sample};
use crate::aggregate::{TierWindow, WindowSettings};
use crate::decision::{Decision, Memory, Policy, decide};
use crate::simulate::Moment;
use crate::simulate::autoscaler::{Activity, Autoscaler, AutoscalerSettings, Metric};
use crate::simulate::replica::Replica;

/// The part of an interval over which the pages of a round are read, as the server's.
const SPREAD: f64 = 0.5;

/// Between two looks at the router's queue while nobody serves.
const ACTIVATOR_LOOK: Duration = Duration::from_secs(1);

/// Over how long latencies are judged, as the server's.
const SHAPE_WINDOW: Duration = Duration::from_secs(120);

/// How a replica is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// Straight from the engine's numbers.
    #[default]
    Direct,
    /// Through the text of its metrics page and the server's reader.
    Rendered,
}

/// How the scaler sees the fleet; the defaults are those of the server's `scrape`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Between two rounds.
    pub interval: Duration,
    /// Over which counters become rates.
    pub rate_window: Duration,
    /// A page older than this is no longer known.
    pub stale_after: Duration,
    /// How a replica is read.
    pub pages: Pages,
}

impl Default for Sight {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            rate_window: Duration::from_secs(30),
            stale_after: Duration::from_secs(15),
            pages: Pages::Direct,
        }
    }
}

/// Whoever wants to hear of decisions.
type Told<'a> = Box<dyn FnMut(Moment, &Decision) + 'a>;

/// A tier of the server, and the ScaledObject behind it.
pub struct ScalerSizer<'a> {
    policy: &'a Policy,
    sight: Sight,
    begins: DateTime<Utc>,
    window: TierWindow,
    memory: Memory,
    /// The last decision's answer; None where it was none.
    answer: Option<u32>,
    autoscaler: Autoscaler,
    round: Moment,
    /// What is still to be read in this round, the next one last.
    reads: Vec<(Moment, String)>,
    decides: Option<Moment>,
    sync: Moment,
    poll: Moment,
    /// The next look at the router's queue between rounds.
    activator: Moment,
    serving: bool,
    told: Told<'a>,
}

impl std::fmt::Debug for ScalerSizer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScalerSizer").field("answer", &self.answer).finish_non_exhaustive()
    }
}

impl<'a> ScalerSizer<'a> {
    /// A scaler that has just begun, at the beginning of the run; `seed` chooses the phases of KEDA and the HPA.
    #[must_use]
    pub fn new(
        policy: &'a Policy,
        chain: AutoscalerSettings,
        sight: Sight,
        begins: DateTime<Utc>,
        seed: u64,
    ) -> Self {
        let window = TierWindow::new(WindowSettings {
            rate_window: sight.rate_window,
            stale_after: sight.stale_after,
            shape_window: SHAPE_WINDOW,
            hold_unknown: policy.hold_unknown,
            acceptable_queue: policy.acceptable_queue_time(),
        });
        let (sync, poll) = phases(&chain, seed);
        Self {
            policy,
            sight,
            begins,
            window,
            memory: Memory::started(begins),
            answer: None,
            autoscaler: Autoscaler::new(chain, Moment::START),
            round: Moment::START,
            reads: Vec::new(),
            decides: None,
            sync,
            poll,
            activator: Moment::START,
            serving: true,
            told: Box::new(|_, _| ()),
        }
    }

    /// Tells every decision.
    #[must_use]
    pub fn telling(mut self, told: impl FnMut(Moment, &Decision) + 'a) -> Self {
        self.told = Box::new(told);
        self
    }

    /// With what another run learned.
    #[must_use]
    pub fn with_memory(mut self, memory: Memory) -> Self {
        self.memory = memory;
        self
    }

    fn wall(&self, at: Moment) -> DateTime<Utc> {
        at.wall(self.begins)
    }

    fn list(&mut self, now: Moment, fleet: &Fleet) {
        self.window.discovered(&fleet.cluster().discovered(self.begins), self.wall(now));
        self.serving = fleet.cluster().replicas().iter().any(Replica::serves);
    }

    fn look_at_the_queue(&mut self, now: Moment, fleet: &Fleet) {
        // A tier that never goes to zero needs no activator, and is configured without one.
        if self.policy.min == 0 {
            self.window.activator(self.wall(now), Ok(fleet.cluster().router().held() as f64));
        }
        self.activator = now.plus(ACTIVATOR_LOOK);
    }

    fn begin_round(&mut self, now: Moment, fleet: &Fleet) {
        self.list(now, fleet);
        self.look_at_the_queue(now, fleet);
        let spread = self.sight.interval.mul_f64(SPREAD);
        let replicas = fleet.cluster().replicas().iter();
        self.reads.clear();
        self.reads.extend(
            replicas.map(|replica| (now.plus(spread.mul_f64(place(replica.number()))), replica.id.clone())),
        );
        // The next one last; equals in the order of the pods.
        self.reads.sort_by(|one, other| other.cmp(one));
        self.decides = Some(now.plus(spread));
        self.round = now.plus(self.sight.interval);
    }

    fn read(&mut self, now: Moment, fleet: &Fleet) {
        while let Some((_, id)) = self.reads.pop_if(|(at, _)| *at <= now) {
            // Gone since the round began.
            let Some(replica) = fleet.cluster().replicas().iter().find(|replica| replica.id == id) else {
                continue;
            };
            let model = &fleet.cluster().settings().model;
            let page = match self.sight.pages {
                Pages::Direct => sample::direct(replica, model, self.begins),
                Pages::Rendered => sample::by_page(replica, model, self.begins),
            };
            self.window.page(&id, self.wall(now), page);
        }
    }

    fn decide(&mut self, now: Moment, fleet: &mut Fleet) {
        self.list(now, fleet);
        let at = self.wall(now);
        let seen = self.window.observe(at);
        self.memory.learn(self.policy, &seen, at);
        let decision = decide(self.policy, &seen, &self.memory, at);
        self.memory.record(&decision);
        (self.told)(now, &decision);
        let was_active = self.activity() == Activity::Active;
        self.answer = decision.required();
        if !was_active && self.activity() == Activity::Active {
            self.tell_keda(now, fleet);
        }
    }

    /// Active is at least one replica, as the server answers it.
    fn activity(&self) -> Activity {
        match self.answer {
            Some(0) => Activity::Inactive,
            Some(_) => Activity::Active,
            None => Activity::Unknown,
        }
    }

    fn tell_keda(&mut self, now: Moment, fleet: &mut Fleet) {
        let spec = fleet.cluster().spec();
        if let Some(replicas) = self.autoscaler.activity(now, spec, self.activity()) {
            fleet.scale(replicas);
        }
    }

    fn sync_the_hpa(&mut self, now: Moment, fleet: &mut Fleet) {
        let (spec, status) = (fleet.cluster().spec(), fleet.cluster().status());
        let metric = self
            .answer
            .map(|replicas| Metric { value_milli: i64::from(replicas) * 1000, target_milli: 1000 });
        // At zero the HPA is disabled.
        if spec > 0
            && let Some(replicas) = self.autoscaler.hpa_sync(now, spec, status, metric)
        {
            fleet.scale(replicas);
        }
    }
}

impl Sizer for ScalerSizer<'_> {
    fn next(&self) -> Option<Moment> {
        let mut next = self.round.min(self.sync);
        if let Some((read, _)) = self.reads.last() {
            next = next.min(*read);
        }
        if let Some(decides) = self.decides {
            next = next.min(decides);
        }
        if self.autoscaler.polls() {
            next = next.min(self.poll);
        }
        if !self.serving {
            next = next.min(self.activator);
        }
        Some(next)
    }

    fn act(&mut self, now: Moment, fleet: &mut Fleet) {
        self.read(now, fleet);
        if self.decides.take_if(|decides| *decides <= now).is_some() {
            self.decide(now, fleet);
        }
        if self.round <= now {
            self.begin_round(now, fleet);
            self.read(now, fleet);
        }
        if !self.serving && self.activator <= now {
            let held_before = self.answer == Some(0);
            self.look_at_the_queue(now, fleet);
            if held_before && fleet.cluster().router().held() > 0 {
                self.decide(now, fleet);
            }
        }
        if self.sync <= now {
            self.sync = now.plus(self.autoscaler.settings().sync_period);
            self.sync_the_hpa(now, fleet);
        }
        if self.autoscaler.polls() && self.poll <= now {
            self.poll = now.plus(self.autoscaler.settings().polling_interval);
            self.tell_keda(now, fleet);
        }
    }
}

/// Where in a round a replica is read, 0 to 1: the same in every round (golden-ratio steps, which spread evenly).
fn place(number: u64) -> f64 {
    (number as f64 * 0.618_033_988_749_895).fract()
}

/// The first sync of the HPA and the first poll of KEDA: somewhere in their periods.
pub(super) fn phases(chain: &AutoscalerSettings, seed: u64) -> (Moment, Moment) {
    let mixed = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let part = |shift: u32, period: Duration| {
        Moment::from_duration(period.mul_f64(f64::from((mixed >> shift) as u16) / 65_536.0))
    };
    (part(16, chain.sync_period), part(40, chain.polling_interval))
}
