//! What every request asks of every replica, side by side in memory. Pure.
//!
//! Tens of millions of requests look at tens of replicas each: who is listed, who has the fewest in flight. A replica is
//! kilobytes; of each only this is looked at. An engine is run when somebody may have left it by now, or somebody comes, and
//! not for every request that goes elsewhere: so it makes runs of steps, and not single ones.

use super::Cluster;
use crate::simulate::engine_model::EngineModel;
use crate::simulate::moment::Moment;
use crate::simulate::replica::{Life, Replica};

/// A replica as a router sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::simulate) struct Lane {
    /// Until then its engine need not be run: nothing that a router asks of it changes.
    due: Moment,
    /// Until then the router sends to it.
    listed_until: Moment,
    /// Requests that it has, running or waiting.
    pub(in crate::simulate) outstanding: usize,
}

impl Lane {
    fn of(replica: &Replica) -> Self {
        let listed_until = match replica.life() {
            Life::Ready => Moment::END,
            // What has drained is gone, whenever that is noticed.
            Life::Terminating { .. } if replica.drained_at().is_none() => replica.listed_until(),
            _ => Moment::START,
        };
        // Of one that nothing is sent to nobody asks before all are brought up to date.
        let may_be_listed = matches!(replica.life(), Life::Ready | Life::Terminating { .. });
        let engine = replica.engine().filter(|_| may_be_listed);
        Self {
            due: engine.and_then(EngineModel::unchanged_until).unwrap_or(Moment::END),
            listed_until,
            outstanding: replica.outstanding(),
        }
    }

    /// Does the router send to it?
    pub(in crate::simulate) fn is_listed(&self, at: Moment) -> bool {
        at < self.listed_until
    }
}

/// The lanes, in the order of the replicas.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// Something happened to a replica since.
    stale: bool,
}

impl Lanes {
    pub(super) fn as_slice(&self) -> &[Lane] {
        &self.lanes
    }
}

impl Cluster {
    /// Has to be called by whoever changes replicas other than through [`Cluster::run_lanes`] and [`Cluster::note_lane`].
    pub(super) fn lanes_are_stale(&mut self) {
        self.lanes.stale = true;
    }

    /// Brings every engine that requests may be sent to up to `at`.
    pub(super) fn run_lanes(&mut self, at: Moment) {
        let Lanes { lanes, stale } = &mut self.lanes;
        if std::mem::take(stale) {
            lanes.clear();
            lanes.extend(self.replicas.iter().map(Lane::of));
        }
        for (lane, replica) in lanes.iter_mut().zip(&mut self.replicas) {
            if lane.due <= at {
                if let Some(engine) = replica.engine_mut() {
                    engine.advance(at);
                }
                *lane = Lane::of(replica);
            }
        }
    }

    /// A request was sent to this replica.
    pub(super) fn note_lane(&mut self, index: usize) {
        self.lanes.lanes[index] = Lane::of(&self.replicas[index]);
    }
}
