//! The router before the replicas: chooses one for each request, and holds requests while none serves. What it holds is
//! the demo's activator. Pure.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::cluster::Lane;
use super::engine_model::Request;
use super::moment::Moment;
use super::prefix::PrefixHashes;
use super::replica::Replica;

/// The gauge that the router exposes.
pub const QUEUE_METRIC: &str = "simulated_router_queued_requests";

/// Requests that a router holds at most; gateways have a limit, most a far lower one. More are refused.
pub const MOST_HELD: usize = 200_000;

/// Outstanding requests of a replica above which the router refuses instead of adding to them.
pub const MOST_OUTSTANDING: usize = 50_000;

/// By what the router chooses among the replicas that serve.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Routing {
    /// The one with the fewest requests in flight; equals take turns.
    #[default]
    LeastOutstanding,
    /// One after the other.
    RoundRobin,
    /// The same replica for the same beginning of a prompt, as long as it serves (rendezvous hashing over the first
    /// block). Requests without hashes go to the least outstanding.
    PrefixHash,
    /// The largest sum of the share of the prompt that its prefix cache has, times this weight, and of its idleness: 1 for
    /// the replica with the fewest requests in flight, 0 for the one with the most. The form of the scorers in the Gateway
    /// API inference extension's endpoint picker (`prefix-cache-scorer`, `queue-scorer`), whose weights are the user's.
    Scored {
        /// Of the prefix, against 1 for idleness.
        prefix_weight: f64,
    },
}

/// A request with what its router may look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routed {
    /// The request; what the replica's prefix cache has of it is filled in when it is sent.
    pub request: Request,
    /// Hashes of its prompt's blocks, where they are known.
    pub prefix: Option<PrefixHashes>,
}

/// The router of one tier.
#[derive(Clone, Debug, Default)]
pub struct Router {
    routing: Routing,
    held: VecDeque<Routed>,
    turn: usize,
}

impl Router {
    /// One that holds nothing.
    #[must_use]
    pub fn new(routing: Routing) -> Self {
        Self { routing, ..Self::default() }
    }

    /// Requests that wait for a replica to serve them.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Those requests.
    pub fn held_requests(&self) -> impl Iterator<Item = &Request> + '_ {
        self.held.iter().map(|routed| &routed.request)
    }

    /// Arrival times of those.
    pub fn held_since(&self) -> impl Iterator<Item = Moment> + '_ {
        self.held_requests().map(|request| request.arrived)
    }

    /// Keeps a request until a replica serves; false where there is no room.
    pub(super) fn hold(&mut self, routed: Routed) -> bool {
        let room = self.held.len() < MOST_HELD;
        if room {
            self.held.push_back(routed);
        }
        room
    }

    /// The request that has been held longest.
    pub(super) fn release(&mut self) -> Option<Routed> {
        self.held.pop_front()
    }

    /// Which replica gets a request. Only those that the router lists count: when a pod that has drained is noticed to be
    /// gone must not matter.
    pub(super) fn choose(
        &mut self,
        replicas: &[Replica],
        lanes: &[Lane],
        prefix: Option<&[u64]>,
        at: Moment,
    ) -> Option<usize> {
        let listed = || (0..lanes.len()).filter(|index| lanes[*index].is_listed(at));
        let first = prefix.and_then(|hashes| hashes.first().copied());
        match (self.routing, prefix, first) {
            (Routing::RoundRobin, ..) => self.next_in_turn(listed()),
            (Routing::PrefixHash, _, Some(hash)) => rendezvous(replicas, listed(), hash),
            (Routing::Scored { prefix_weight }, Some(hashes), Some(_)) => {
                self.best_scored((replicas, lanes), &listed().collect::<Vec<_>>(), hashes, prefix_weight)
            }
            _ => self.least_outstanding(lanes, listed()),
        }
    }

    fn next_in_turn(&mut self, mut listed: impl Iterator<Item = usize> + Clone) -> Option<usize> {
        self.turn = (self.turn + 1) % listed.clone().count().max(1);
        listed.nth(self.turn)
    }

    fn least_outstanding(
        &mut self,
        lanes: &[Lane],
        listed: impl Iterator<Item = usize> + Clone,
    ) -> Option<usize> {
        let count = listed.clone().count();
        self.turn = (self.turn + 1) % count.max(1);
        // Equals take turns: the first at or after the turn wins.
        let order = |place: usize| (place < self.turn, place);
        let placed = listed.enumerate();
        placed.min_by_key(|(place, index)| (lanes[*index].outstanding, order(*place))).map(|(_, index)| index)
    }

    fn best_scored(
        &mut self,
        (replicas, lanes): (&[Replica], &[Lane]),
        listed: &[usize],
        hashes: &[u64],
        prefix_weight: f64,
    ) -> Option<usize> {
        let load = |index: usize| lanes[index].outstanding as f64;
        let least = listed.iter().map(|index| load(*index)).fold(f64::INFINITY, f64::min);
        let most = listed.iter().map(|index| load(*index)).fold(0.0, f64::max);
        self.turn = (self.turn + 1) % listed.len().max(1);
        let score = |index: usize| {
            let hit = replicas[index].prefixes().hits(hashes) as f64 / hashes.len() as f64;
            let idle = if most > least { (most - load(index)) / (most - least) } else { 1.0 };
            prefix_weight * hit + idle
        };
        let mut best: Option<(f64, usize)> = None;
        for index in listed.iter().copied().cycle().skip(self.turn).take(listed.len()) {
            let score = score(index);
            if best.is_none_or(|(best, _)| score > best) {
                best = Some((score, index));
            }
        }
        best.map(|(_, index)| index)
    }

    /// The router's own metrics page.
    #[must_use]
    pub fn page(&self, model: &str) -> String {
        let mut page = String::new();
        let text = "Requests that wait because no replica serves.";
        // Writing to a String can't fail.
        let written = write!(
            page,
            "# HELP {QUEUE_METRIC} {text}\n# TYPE {QUEUE_METRIC} gauge\n{QUEUE_METRIC}{{model=\"{model}\"}} {}\n",
            self.held.len()
        );
        debug_assert!(written.is_ok());
        page
    }
}

/// Highest random weight: a replica that comes or goes moves its own share of the prefixes alone.
fn rendezvous(replicas: &[Replica], listed: impl Iterator<Item = usize>, hash: u64) -> Option<usize> {
    listed.max_by_key(|index| mixed(hash ^ mixed(replicas[*index].number())))
}

/// A finaliser that spreads every bit (`SplitMix64`, Steele, Lea and Flood 2014).
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
