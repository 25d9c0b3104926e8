//! How pods go from one part of their lives to the next, by the clock alone. Pure.

use super::Cluster;
use crate::simulate::moment::Moment;
use crate::simulate::replica::{Life, Replica};
use crate::simulate::start::NODE_RETRY;

impl Cluster {
    /// Pods change their lives in the order of time: a router that holds requests sends them the moment one is ready.
    pub(super) fn advance_lives(&mut self, to: Moment) {
        while let Some(at) = self.next_change.filter(|at| *at <= to) {
            self.now = self.now.max(at);
            self.lanes_are_stale();
            self.end_the_overdue(at);
            self.step_lives(at);
            self.note_next_change();
            while self.replicas.iter().any(Replica::serves) {
                let Some(routed) = self.router.release() else { break };
                let request = routed.request;
                if !self.route(routed, at) {
                    self.turn_away(request, at);
                }
            }
        }
        self.now = self.now.max(to);
    }

    /// Those whose part of life ends now begin the next one, the oldest pod first: it has the first claim on a node.
    fn step_lives(&mut self, at: Moment) {
        let (seed, engine) = (self.settings.seed, self.settings.engine);
        for index in 0..self.replicas.len() {
            let due = self.replicas[index].next_change().is_some_and(|change| change <= at);
            if !due {
                continue;
            }
            if matches!(self.replicas[index].life(), Life::Pending { .. }) {
                match self.no_node(at) {
                    Some((why, again)) => self.replicas[index].refuse(why, again),
                    None => self.replicas[index].bind(at),
                }
                continue;
            }
            let replica = &mut self.replicas[index];
            let crashes = self.settings.trouble.fails(seed, replica.number(), replica.restarts());
            replica.go_on(at, engine, crashes);
        }
    }

    /// Why no node can be had now, and when to try again.
    fn no_node(&self, at: Moment) -> Option<(&'static str, Moment)> {
        let trouble = &self.settings.trouble;
        if let Some(until) = trouble.stock_out(at) {
            return Some(("the cloud has no such node in stock", until));
        }
        let quota = trouble.quota?;
        let held = self.replicas.iter().filter(|replica| replica.has_node()).count();
        (held >= quota as usize).then(|| ("the GPU quota is used up", at.plus(NODE_RETRY)))
    }
}
