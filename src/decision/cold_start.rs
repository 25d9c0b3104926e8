//! How long a replica takes from its creation until it is ready: learned from the pods' own times.
//!
//! Everything comes from the status of pods, so a scaler that begins anew learns it from one list of them. What holds:
//!
//! - A replica's start counts once, by its identity and its creation, whatever its readiness does later.
//! - A start that was watched counts as it was. One that nobody watched counts only where its container never ran a
//!   second time and its total is plausible: a pod's status keeps the *last* time that it became ready, and after a
//!   readiness that flapped, or a restart, that is hours after its start. Replicas flap together (a node, a network), so
//!   that several agree proves nothing.
//! - A start that goes on, was given up, or was blocked on its way is not left out: it took at least as long as it was
//!   seen ([`survival`]).
//! - Ages run in watched time: no clock that is set ages a start.
//! - Until enough starts by the likely path are known, the configured cold start stands in. A start that takes longer
//!   than all of that raises the horizon while it goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::ReplicaObservation;
use super::coming::digests_for;
use super::memory::watched::{LargestOver, Watched, millis};
use super::observation::{Observation, ReplicaState};
use super::policy::Policy;
use samples::{PathSummary, Sample, identity};
use stages::{Millis, Stages};
use watch::{SLACK, Watch, wall_age};

mod horizon;
mod samples;
mod stages;
mod survival;
mod told;
mod watch;

pub(super) use horizon::Horizon;
pub(super) use samples::Samples;
pub use stages::StartPath;
pub use told::{ColdStart, PathStarts, StageTime};

/// A start that nobody watched, and that took more than so many times what was expected, is none: see above.
const PLAUSIBLE_FACTOR: u32 = 4;

/// Starts that go on and are weighed in, the oldest first: the young ones say nothing yet, and a tier may order thousands.
const MOST_GOING_ON: usize = 50;

/// The paths that one of the last so many starts took may be the next one's.
const RECENT_STARTS: usize = 10;

/// What is learned of starts, and which are watched.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ColdStarts {
    /// What is learned.
    samples: Samples,
    /// By the source's identity of the replica; no more than the observation has.
    watched: BTreeMap<String, Watch>,
    /// When this process was last told who the replicas are.
    listed: Option<Watched>,
    /// The cold start that was in effect lately, in milliseconds: it falls only after one of its own lengths, so that a
    /// floor that opened early for a slow start doesn't close again before its time.
    in_effect: LargestOver,
    /// Replicas that nobody watched and that were looked at. A cache.
    #[serde(skip)]
    looked_at: BTreeSet<u64>,
    /// What the samples come to, made anew when they change. A cache.
    #[serde(skip)]
    known: Known,
}

/// What the starts so far come to.
#[derive(Clone, Debug, Default)]
struct Known {
    paths: Vec<PathSummary>,
    /// The paths that the next replica may take.
    likely: Vec<StartPath>,
    /// The age of the oldest start that goes on and that no later one has overtaken.
    slowest: Option<Millis>,
    /// For the explanation.
    told: Arc<Vec<PathStarts>>,
}

impl ColdStarts {
    /// Takes an observation in.
    pub(super) fn learn(
        &mut self,
        policy: &Policy,
        observation: &Observation,
        now: DateTime<Utc>,
        at: Watched,
    ) {
        let before = self.watched.len();
        let mut changed = false;
        if observation.replicas_unknown.is_none() {
            let plausible = self.plausible(policy);
            for replica in &observation.replicas {
                changed |= match replica.state {
                    ReplicaState::Starting => self.goes_on(replica, plausible, now, at),
                    ReplicaState::Blocked => self.give_up(&replica.id),
                    ReplicaState::Terminating
                        if replica.start.as_ref().is_none_or(|start| start.ready.is_none()) =>
                    {
                        self.give_up(&replica.id)
                    }
                    ReplicaState::Absent => false,
                    _ => self.is_ready(replica, plausible, at),
                };
            }
            changed |= self.drop_those_that_left(observation);
            if self.looked_at.len() > 2 * observation.replicas.len() {
                self.looked_at.clear();
            }
            self.listed = Some(at);
        }
        let counts = millis(digests_for(self.in_effect(policy, at)));
        self.watched
            .retain(|_, watch| watch.arrived.is_none_or(|arrived| at.saturating_sub(arrived) < counts));
        if changed || before > 0 || !self.watched.is_empty() {
            self.summarise(at);
        }
        self.hold_in_effect(policy, at);
    }

    /// A new process takes up the memory: it has watched no start, and has not been told who the replicas are.
    pub(super) fn resume(&mut self, fresh: bool) {
        self.watched.clear();
        self.listed = None;
        if !fresh {
            self.in_effect.clear();
        }
    }

    /// What is not written is made anew.
    pub(super) fn restore(&mut self, at: Watched) {
        self.summarise(at);
    }

    /// What a peer may take.
    pub(super) fn samples(&self) -> &Samples {
        &self.samples
    }

    /// Takes in the starts that a peer knows.
    pub(super) fn merge(&mut self, other: &Samples, at: Watched) {
        self.samples.merge(other);
        self.summarise(at);
    }

    /// The age of a replica that is starting, and None for one that has started before: its readiness flaps.
    pub(super) fn age(
        &self,
        replica: &ReplicaObservation,
        now: DateTime<Utc>,
        at: Watched,
    ) -> Option<Duration> {
        let age = match self.watched.get(&replica.id) {
            Some(watch) if watch.arrived.is_some() => return None,
            Some(watch) => watch.age(at),
            None => {
                let created = replica.start.as_ref().map(|start| start.created).or(replica.since);
                created.map_or(0, |created| wall_age(created, now))
            }
        };
        Some(Duration::from_millis(u64::from(age)))
    }

    /// How long replicas have been ready whose start was watched.
    pub(super) fn arrivals(&self, at: Watched) -> impl Iterator<Item = Duration> {
        let arrived = self.watched.values().filter_map(|watch| watch.arrived);
        arrived.map(move |arrived| Duration::from_millis(at.saturating_sub(arrived)))
    }

    /// True if that changed what is learned.
    fn goes_on(
        &mut self,
        replica: &ReplicaObservation,
        plausible: Millis,
        now: DateTime<Utc>,
        at: Watched,
    ) -> bool {
        if let Some(watch) = self.watched.get_mut(&replica.id) {
            // One that was ready and isn't is no start.
            if watch.arrived.is_none() {
                watch.see(replica.start.as_ref(), at);
            }
            return false;
        }
        let mut age = 0;
        if let Some(start) = &replica.start {
            age = wall_age(start.created, now);
            // One that is older than the last list was on it, and was ready then or blocked.
            let oldest = self.listed.map_or(plausible, |listed| {
                Millis::try_from(at.saturating_sub(listed)).unwrap_or(plausible).saturating_add(SLACK)
            });
            let was_ready =
                || self.samples.of(identity(&replica.id)).is_some_and(|sample| sample.stages.is_finished());
            if start.restarts > 0 || age > oldest || was_ready() {
                return false;
            }
        }
        self.watched.insert(replica.id.clone(), Watch::begin(replica, age, at));
        false
    }

    /// It won't get ready, or not by itself: what is known is how long it was not.
    fn give_up(&mut self, id: &str) -> bool {
        let Some(watch) = self.watched.remove(id).filter(|watch| watch.arrived.is_none()) else {
            return false;
        };
        let Some((created, stages)) = watch.created.zip(watch.stages) else { return false };
        self.samples.insert(Sample { id: identity(id), created, stages, watched: true })
    }

    fn is_ready(&mut self, replica: &ReplicaObservation, plausible: Millis, at: Watched) -> bool {
        let Some(watch) = self.watched.get_mut(&replica.id) else {
            return self.look_at(replica, plausible);
        };
        let newly = watch.arrived.is_none();
        let stages = replica.start.as_ref().filter(|_| newly).and_then(|start| watch.finished(start, at));
        watch.arrived.get_or_insert(at);
        self.looked_at.insert(identity(&replica.id));
        let Some((created, stages)) = watch.created.zip(stages) else { return false };
        self.samples.insert(Sample { id: identity(&replica.id), created, stages, watched: true })
    }

    /// One whose start nobody watched.
    fn look_at(&mut self, replica: &ReplicaObservation, plausible: Millis) -> bool {
        let Some(start) = &replica.start else { return false };
        let id = identity(&replica.id);
        if !self.looked_at.insert(id) || start.restarts > 0 {
            return false;
        }
        let Some(stages) =
            Stages::finished(start, stages::Watching::default()).filter(|stages| stages.total <= plausible)
        else {
            return false;
        };
        let created = start.created.timestamp_millis();
        self.samples.insert(Sample { id, created, stages, watched: false })
    }

    fn drop_those_that_left(&mut self, observation: &Observation) -> bool {
        if self.watched.is_empty() {
            return false;
        }
        let listed: BTreeSet<&str> = observation.replicas.iter().map(|replica| replica.id.as_str()).collect();
        let left: Vec<String> =
            self.watched.keys().filter(|id| !listed.contains(id.as_str())).cloned().collect();
        left.iter().fold(false, |changed, id| changed | self.give_up(id))
    }

    fn plausible(&self, policy: &Policy) -> Millis {
        let usual = self.usual(policy).max(policy.cold_start) * PLAUSIBLE_FACTOR;
        Millis::try_from(usual.as_millis()).unwrap_or(stages::LONGEST_TOLD).min(stages::LONGEST_TOLD)
    }

    fn summarise(&mut self, at: Watched) {
        let mut going_on: Vec<Sample> = self
            .watched
            .iter()
            .filter(|(_, watch)| watch.arrived.is_none())
            .filter_map(|(id, watch)| {
                let (created, stages) = watch.created.zip(watch.stages)?;
                Some(Sample { id: identity(id), created, stages, watched: true })
            })
            .collect();
        going_on.sort_by_key(|sample| (sample.created, sample.id));
        going_on.truncate(MOST_GOING_ON);
        let newest_ready = self.samples.newest_finished();
        let recent = self.samples.newest(RECENT_STARTS);
        let mut likely: Vec<StartPath> =
            recent.into_iter().chain(&going_on).map(|sample| sample.stages.path()).collect();
        likely.sort_unstable();
        likely.dedup();
        // A start that a later one has overtaken hangs, and says nothing of the next.
        let slowest = self
            .watched
            .values()
            .filter(|watch| watch.arrived.is_none() && watch.created.is_some())
            .filter(|watch| newest_ready.is_none_or(|newest| watch.created >= Some(newest)))
            .map(|watch| watch.age(at))
            .max();
        let paths = self.samples.summarise(&going_on);
        let told = Arc::new(paths.iter().map(PathStarts::from).collect());
        self.known = Known { paths, likely, slowest, told };
    }
}
