//! How replicas go: which one, whether the router leaves it first, and what becomes of its requests. Pure.

use std::time::Duration;

use super::Cluster;
use crate::simulate::moment::Moment;
use crate::simulate::replica::{Life, Replica};

/// Which replica goes, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Removal {
    /// The one that a `ReplicaSet` deletes by itself: one that isn't ready before one that is, the youngest first. It is
    /// told to go at once (SIGTERM).
    #[default]
    Youngest,
    /// The one that wastes least: one that isn't ready before one that is, then the one with the fewest requests in
    /// flight, as `controller.kubernetes.io/pod-deletion-cost` can say. The router leaves it first (a label that the
    /// router filters by); it is told to go when it has nothing left to do, or after so long. Until then it is taken back
    /// where more replicas are wanted again.
    Steered(Duration),
}

/// What those that went came to, from the lower number to their end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gone {
    /// Replicas that served and are gone.
    pub count: u64,
    /// GPU time between the lower number and their end, replica-seconds.
    pub held_seconds: f64,
    /// Replicas that the router had left and that were taken back.
    pub taken_back: u64,
}

impl Cluster {
    /// Those that served and went.
    #[must_use]
    pub fn gone(&self) -> Gone {
        self.gone
    }

    /// One of those that were to go stays: the one with the most to do.
    pub(super) fn take_back(&mut self) -> bool {
        let leaving =
            self.replicas.iter_mut().filter(|replica| matches!(replica.life(), Life::Leaving { .. }));
        let Some(replica) = leaving.max_by_key(|replica| (replica.outstanding(), replica.number())) else {
            return false;
        };
        replica.stay(self.now);
        self.gone.taken_back += 1;
        true
    }

    /// One replica goes.
    pub(super) fn remove_one(&mut self) {
        let Some(index) = self.victim() else { return };
        if !self.replicas[index].serves() {
            let replica = self.replicas.remove(index);
            self.bury(replica, self.now);
            return;
        }
        match self.settings.removal {
            Removal::Youngest => {
                self.replicas[index].terminate(self.now, self.settings.drain, self.settings.unlisting);
            }
            Removal::Steered(longest) => self.replicas[index].leave(self.now, longest),
        }
    }

    fn victim(&self) -> Option<usize> {
        let candidates = (0..self.replicas.len()).filter_map(|index| {
            let replica = &self.replicas[index];
            let rank = match replica.life() {
                Life::Pending { .. } => 2,
                Life::Starting { .. } => 1,
                Life::Ready => 0,
                Life::Leaving { .. } | Life::Terminating { .. } => return None,
            };
            let idleness = match self.settings.removal {
                Removal::Steered(_) if rank == 0 => usize::MAX - replica.outstanding(),
                _ => 0,
            };
            Some(((rank, idleness, replica.created_at(), index), index))
        });
        candidates.max().map(|(_, index)| index)
    }

    /// Those whose time to go is over go now.
    pub(super) fn end_the_overdue(&mut self, at: Moment) {
        for index in (0..self.replicas.len()).rev() {
            let replica = &mut self.replicas[index];
            let killed = match replica.life() {
                Life::Terminating { deadline } if deadline <= at => true,
                Life::Leaving { deadline } if deadline <= at => false,
                _ => continue,
            };
            if let Some(engine) = replica.engine_mut() {
                engine.advance(at);
            }
            let drained = replica.drained_at();
            if drained.is_none() && !killed {
                replica.terminate(at, self.settings.drain, self.settings.unlisting);
                continue;
            }
            let mut replica = self.replicas.remove(index);
            if let Some(engine) = replica.engine_mut() {
                engine.abort(at);
            }
            self.bury(replica, drained.unwrap_or(at));
        }
    }

    /// A drained pod goes the moment its last request is done, however late that is noticed.
    pub(super) fn bury_the_drained(&mut self) {
        for index in (0..self.replicas.len()).rev() {
            if let Some(at) = self.replicas[index].drained_at() {
                let replica = self.replicas.remove(index);
                self.bury(replica, at);
                self.note_next_change();
            }
        }
    }

    fn bury(&mut self, mut replica: Replica, at: Moment) {
        self.replica_seconds += at.seconds_since(replica.created_at());
        if let Some(since) = replica.leaves_since() {
            self.gone.count += 1;
            self.gone.held_seconds += at.seconds_since(since);
        }
        if let Some(engine) = replica.engine_mut() {
            self.events.extend(engine.drain_events());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::cluster::{ClusterSettings, QueueLimit};
    use crate::simulate::engine_model::{EngineEvent, EventKind, Request};
    use crate::simulate::profile::EngineSettings;
    use crate::simulate::router::Routed;

    fn at(seconds: f64) -> Moment {
        Moment::from_seconds(seconds)
    }

    fn settings() -> ClusterSettings {
        ClusterSettings::plain(EngineSettings::rtx4090_8b(), Duration::from_secs(60))
    }

    fn request(id: u64, seconds: f64, output: u32) -> Request {
        Request { id, arrived: at(seconds), input: 100, cached: 0, output }
    }

    fn kinds(cluster: &mut Cluster, wanted: EventKind) -> Vec<u64> {
        let mut events: Vec<EngineEvent> = Vec::new();
        cluster.drain_events(&mut events);
        events.iter().filter(|event| event.kind == wanted).map(|event| event.request.id).collect()
    }

    #[test]
    fn a_steered_replica_gets_nothing_new_and_goes_when_it_is_idle() {
        let removal = Removal::Steered(Duration::from_secs(300));
        let mut cluster = Cluster::new(ClusterSettings { removal, ..settings() }, 2);
        // A long answer on one, a longer one on the other.
        cluster.submit(request(0, 0.0, 500));
        cluster.submit(request(1, 0.0, 1000));
        cluster.submit(request(2, 0.1, 1000));
        let busier = cluster.replicas().iter().max_by_key(|replica| replica.outstanding()).unwrap().number();
        cluster.scale(at(1.0), 1);
        assert_eq!((cluster.status(), cluster.supply().terminating), (1, 1));
        for id in 10..14 {
            cluster.submit(request(id, 2.0, 5));
        }
        cluster.advance(at(100.0));
        assert_eq!(cluster.replicas().len(), 1);
        assert_eq!(cluster.replicas()[0].number(), busier, "the one with the least to do went");
        let gone = cluster.gone();
        assert_eq!((gone.count, gone.taken_back), (1, 0));
        assert!((5.0..30.0).contains(&gone.held_seconds), "{gone:?}");
        assert_eq!(kinds(&mut cluster, EventKind::Finished).len(), 7);
    }

    #[test]
    fn a_steered_replica_is_taken_back_before_a_new_one_is_made() {
        let removal = Removal::Steered(Duration::from_secs(300));
        let mut cluster = Cluster::new(ClusterSettings { removal, ..settings() }, 2);
        cluster.submit(request(0, 0.0, 900));
        cluster.submit(request(1, 0.0, 900));
        cluster.scale(at(1.0), 1);
        cluster.scale(at(2.0), 2);
        assert_eq!((cluster.supply().ready, cluster.starts(), cluster.gone().taken_back), (2, 0, 1));
        assert_eq!(cluster.gone().count, 0);
    }

    #[test]
    fn a_steered_replica_that_is_never_idle_is_told_to_go_in_the_end() {
        let removal = Removal::Steered(Duration::from_secs(10));
        let drain = Duration::from_secs(5);
        let mut cluster = Cluster::new(ClusterSettings { drain, removal, ..settings() }, 2);
        cluster.submit(request(0, 0.0, 3000));
        cluster.submit(request(1, 0.0, 3000));
        cluster.scale(at(1.0), 1);
        cluster.advance(at(15.9));
        assert_eq!(cluster.replicas().len(), 2);
        cluster.advance(at(16.0));
        assert_eq!(cluster.replicas().len(), 1);
        assert_eq!(kinds(&mut cluster, EventKind::Aborted).len(), 1);
    }

    #[test]
    fn a_draining_replica_aborts_what_a_late_router_still_sends_it() {
        let lost = |unlisting: u64| {
            let unlisting = Duration::from_secs(unlisting);
            let mut cluster = Cluster::new(ClusterSettings { unlisting, ..settings() }, 2);
            cluster.submit(request(0, 0.0, 900));
            cluster.submit(request(1, 0.0, 900));
            cluster.scale(at(1.0), 1);
            for n in 0..40 {
                cluster.submit(request(10 + n, 1.0 + n as f64 / 4.0, 2));
            }
            cluster.advance(at(60.0));
            kinds(&mut cluster, EventKind::Aborted)
        };
        assert!(lost(0).is_empty());
        let late = lost(5);
        // Half of those of five seconds, and none later.
        assert!((5..=20).contains(&late.len()) && late.iter().all(|id| *id < 30), "{late:?}");
    }

    #[test]
    fn a_full_queue_refuses_and_the_refusal_takes_time() {
        let refusal = Duration::from_millis(100);
        let queue_limit = Some(QueueLimit { most: 3, refusal });
        let engine = EngineSettings { max_num_seqs: 1, ..EngineSettings::rtx4090_8b() };
        let cold_start = Duration::from_secs(60);
        let settings = ClusterSettings { queue_limit, ..ClusterSettings::plain(engine, cold_start) };
        let finished_at = |refused: u64| {
            let mut cluster = Cluster::new(settings.clone(), 1);
            let routed = |id| Routed { request: request(id, 0.0, 10), prefix: None };
            for id in 0..4 {
                assert!(cluster.submit_routed(routed(id), at(0.0)));
            }
            for id in 4..4 + refused {
                assert!(!cluster.submit_routed(routed(id), at(0.0)), "three wait");
            }
            cluster.advance(at(60.0));
            let metrics = cluster.replicas()[0].engine().unwrap().metrics();
            assert_eq!((metrics.finished, metrics.refused), (4, refused));
            let mut events = Vec::new();
            cluster.drain_events(&mut events);
            events.iter().map(|event| event.at).max().unwrap()
        };
        assert_eq!(finished_at(5), finished_at(0).plus(refusal * 5));
    }
}
