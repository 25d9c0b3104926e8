//! The router before the replicas: sends a request to the replica with the fewest requests in flight, and holds requests
//! while no replica serves. What it holds is the demo's activator. Pure.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::engine_model::Request;
use super::moment::Moment;
use super::replica::Replica;

/// The gauge that the router exposes.
pub const QUEUE_METRIC: &str = "simulated_router_queued_requests";

/// The router of one tier.
#[derive(Clone, Debug, Default)]
pub struct Router {
    held: VecDeque<Request>,
    turn: usize,
}

impl Router {
    /// Requests that wait for a replica to serve them.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Arrival times of those.
    pub fn held_since(&self) -> impl Iterator<Item = Moment> + '_ {
        self.held.iter().map(|request| request.arrived)
    }

    /// Keeps a request until a replica serves.
    pub(super) fn hold(&mut self, request: Request) {
        self.held.push_back(request);
    }

    /// The request that has been held longest.
    pub(super) fn release(&mut self) -> Option<Request> {
        self.held.pop_front()
    }

    /// The replica with the fewest requests in flight; equals take turns. Only those that serve count: when a pod that
    /// has drained is noticed to be gone must not matter.
    pub(super) fn choose(&mut self, replicas: &[Replica]) -> Option<usize> {
        let serving: Vec<usize> = (0..replicas.len()).filter(|index| replicas[*index].serves()).collect();
        let count = serving.len();
        self.turn = (self.turn + 1) % count.max(1);
        (0..count).map(|offset| serving[(self.turn + offset) % count]).min_by_key(|index| {
            replicas[*index].engine().map_or(usize::MAX, super::engine_model::EngineModel::in_flight)
        })
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
