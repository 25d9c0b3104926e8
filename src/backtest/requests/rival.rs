//! A policy from elsewhere before the simulated fleet: it sees the fleet as it was one metric's age ago, and what it
//! wishes goes through its own HPA or straight to the cluster. Pure.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::Sizer;
use super::fleet::{Fleet, Offered};
use crate::backtest::SLOT_SECONDS;
use crate::backtest::rival::{Rates, Rival, Seen, SeenReplica};
use crate::backtest::rivals::Actuated;
use crate::decision::policy::TokenRates;
use crate::simulate::autoscaler::PodCount;
use crate::simulate::engine_model::EngineModel;
use crate::simulate::profile::BLOCK_TOKENS;
use crate::simulate::replica::Replica;
use crate::simulate::{Cluster, Moment};

/// Latencies are over the last minute.
pub(super) const LATENCY_WINDOW: Duration = Duration::from_secs(60);

/// Slots of that minute.
const LATENCY_SLOTS: usize = 12;

/// A rival with what carries its wishes out.
pub struct RivalSizer {
    actuated: Actuated,
    slot: Moment,
    watcher: Watcher,
}

impl std::fmt::Debug for RivalSizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RivalSizer").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl RivalSizer {
    /// At the beginning of a run.
    #[must_use]
    pub fn new(rival: Box<dyn Rival + Send>, min: u32, max: u32) -> Self {
        Self { actuated: Actuated::new(rival, min, max), slot: Moment::START, watcher: Watcher::default() }
    }
}

impl Sizer for RivalSizer {
    fn next(&self) -> Option<Moment> {
        Some(self.slot)
    }

    fn act(&mut self, now: Moment, fleet: &mut Fleet) {
        self.slot = now.plus(Duration::from_secs_f64(SLOT_SECONDS));
        if self.actuated.goes_by_first_tokens() {
            fleet.keep_first_tokens();
        }
        let seen = self.watcher.see(now, fleet);
        if now > Moment::START {
            self.actuated.note(seen);
        }
        let cluster = fleet.cluster();
        let pods = PodCount { spec: cluster.spec(), status: cluster.status(), ready: cluster.supply().ready };
        let replicas = self.actuated.replicas(now, pods);
        if replicas != pods.spec {
            fleet.scale(replicas);
        }
    }
}

/// Counters as a slot began, to make rates of.
#[derive(Debug, Default)]
struct Watcher {
    offered: Offered,
    /// By the number of the replica.
    replicas: HashMap<u64, Counted>,
    at: Moment,
    /// Count and picoseconds of the times between tokens, slot by slot.
    inter_token: VecDeque<(u64, u128)>,
}

/// Counters of one replica.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    busy: Duration,
    finished: u64,
    input_tokens: u64,
    output_tokens: u64,
    inter_token: (u64, u128),
}

impl Counted {
    fn of(engine: &EngineModel) -> Self {
        let metrics = engine.metrics();
        Self {
            busy: engine.busy(),
            finished: metrics.finished,
            input_tokens: metrics.prompt_tokens,
            output_tokens: metrics.generation_tokens,
            inter_token: (metrics.inter_token.count(), metrics.inter_token.sum()),
        }
    }

    fn minus(self, before: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(before.busy),
            finished: self.finished - before.finished,
            input_tokens: self.input_tokens - before.input_tokens,
            output_tokens: self.output_tokens - before.output_tokens,
            inter_token: (
                self.inter_token.0 - before.inter_token.0,
                self.inter_token.1 - before.inter_token.1,
            ),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            busy: self.busy + other.busy,
            finished: self.finished + other.finished,
            input_tokens: self.input_tokens + other.input_tokens,
            output_tokens: self.output_tokens + other.output_tokens,
            inter_token: (self.inter_token.0 + other.inter_token.0, self.inter_token.1 + other.inter_token.1),
        }
    }
}

impl Watcher {
    fn see(&mut self, now: Moment, fleet: &Fleet) -> Seen {
        let seconds = now.seconds_since(self.at).max(f64::MIN_POSITIVE);
        let (mut ready, mut served, mut counted) = (Vec::new(), Counted::default(), HashMap::new());
        let cluster: &Cluster = fleet.cluster();
        for replica in cluster.replicas() {
            let Some(engine) = replica.engine() else { continue };
            let now = Counted::of(engine);
            counted.insert(replica.number(), now);
            let of_slot = now.minus(self.replicas.get(&replica.number()).copied().unwrap_or_default());
            served = served.plus(of_slot);
            if replica.serves() {
                ready.push(seen_replica(replica, engine, of_slot.busy.as_secs_f64() / seconds));
            }
        }
        self.replicas = counted;
        self.inter_token.push_back(served.inter_token);
        if self.inter_token.len() > LATENCY_SLOTS {
            self.inter_token.pop_front();
        }
        let offered = fleet.offered();
        let before = std::mem::replace(&mut self.offered, offered);
        let per_second = |now: u64, before: u64| (now - before) as f64 / seconds;
        let rates = fleet.rates();
        let offered = with_replicas(
            rates,
            Rates {
                requests: per_second(offered.requests, before.requests),
                input_tokens: per_second(offered.input_tokens, before.input_tokens),
                output_tokens: per_second(offered.output_tokens, before.output_tokens),
                replicas: 0.0,
            },
        );
        let served = with_replicas(
            rates,
            Rates {
                requests: per_second(served.finished, 0),
                input_tokens: per_second(served.input_tokens, 0),
                output_tokens: per_second(served.output_tokens, 0),
                replicas: 0.0,
            },
        );
        self.at = now;
        Seen {
            at: now,
            spec: cluster.spec(),
            status: cluster.status(),
            ready,
            offered,
            served,
            first_token_p95_seconds: fleet.first_token_p95(),
            inter_token_seconds: self.inter_token_mean(),
        }
    }

    fn inter_token_mean(&self) -> Option<f64> {
        let (count, picos) =
            self.inter_token.iter().fold((0, 0), |(count, picos), slot| (count + slot.0, picos + slot.1));
        (count > 0).then(|| picos as f64 / 1e12 / count as f64)
    }
}

fn seen_replica(replica: &Replica, engine: &EngineModel, busy: f64) -> SeenReplica {
    debug_assert!(replica.serves());
    let gauges = engine.metrics().gauges;
    let usable = f64::from(engine.settings().usable_blocks().max(1));
    SeenReplica {
        waiting: f64::from(gauges.waiting),
        running: Some(f64::from(gauges.running)),
        kv_usage: Some(f64::from(gauges.used_blocks) / usable),
        kv_tokens: Some(f64::from(engine.settings().kv_blocks * BLOCK_TOKENS)),
        waiting_prompt_tokens: engine.waiting_prompt_tokens() as f64,
        busy: busy.min(1.0),
    }
}

fn with_replicas(of_one: TokenRates, rates: Rates) -> Rates {
    let replicas = rates.input_tokens / of_one.input_tokens_per_second
        + rates.output_tokens / of_one.output_tokens_per_second;
    Rates { replicas, ..rates }
}
