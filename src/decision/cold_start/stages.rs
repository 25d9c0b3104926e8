//! How far one start has come: the time of each stage, and the path that it shows.

use serde::{Deserialize, Serialize};

use crate::supply::{Stage, Start};

/// Milliseconds of a start. A start is bounded by [`LONGEST_TOLD`], so they fit.
pub(crate) type Millis = u32;

/// No stage and no start is taken to be longer: a pod that is older has not been starting all the time.
pub(super) const LONGEST_TOLD: Millis = 24 * 3_600 * 1_000;

/// Waiting longer for a node than this, a pod waited for a node to be made. The Kubernetes SLO for the start of a pod on
/// a node that is there is 5 s (sig-scalability, pod startup latency), and the fastest node takes half a minute to join.
const NEW_NODE_FROM: Millis = 15_000;

/// From its node to its running container longer than this, without the init containers, a pod waited for an image. A
/// sandbox with its network takes a few seconds; the image of an engine has gigabytes and takes tens of seconds.
const IMAGE_PULLED_FROM: Millis = 10_000;

/// The times of a pod's status have whole seconds and are set by the API server, the scheduler and the kubelet, each by
/// its own clock. What is out of order by more than this is no measurement.
const CLOCKS_APART: i64 = 2_000;

/// The way that a start took, as its stages tell: no right to read nodes or events is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StartPath {
    /// A node was there, and the image on it.
    WarmNodeImagePresent,
    /// A node was there, and the image had to be pulled.
    WarmNodeImagePulled,
    /// A node had to be made, and had the image.
    NewNodeImagePresent,
    /// A node had to be made, and the image to be pulled.
    NewNodeImagePulled,
}

impl StartPath {
    /// All, the shortest first.
    pub const ALL: [Self; 4] = [
        Self::WarmNodeImagePresent,
        Self::WarmNodeImagePulled,
        Self::NewNodeImagePresent,
        Self::NewNodeImagePulled,
    ];

    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::WarmNodeImagePresent => "warm node, image present",
            Self::WarmNodeImagePulled => "warm node, image pulled",
            Self::NewNodeImagePresent => "new node, image present",
            Self::NewNodeImagePulled => "new node, image pulled",
        }
    }
}

/// The stages of a start, finished or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stages {
    /// Time spent in each, in the order of [`Stage::ALL`]; the one at `through` is still going on.
    pub(super) spent: [Millis; 5],
    /// How many of them are through.
    pub(super) through: usize,
    /// From creation until it was ready, or until now.
    pub(super) total: Millis,
}

/// What only somebody who watched a start knows of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Watching {
    /// How long it was seen behind a scheduling gate: a status tells no end of a gate.
    pub(super) gated: Millis,
    /// When its container ran first, after its creation: a status tells the last start only.
    pub(super) first_run: Option<Millis>,
}

impl Stages {
    /// Of a start that is over. None where the times are incomplete or out of order.
    ///
    /// Pulling is what is left between the node and the running container when the init containers' own time is taken
    /// out: some images are pulled before them, some after.
    pub(super) fn finished(start: &Start, watching: Watching) -> Option<Self> {
        let total = after(start, start.ready?)?;
        let scheduled = after(start, start.scheduled?)?;
        let ran = after(start, start.container_started?)?;
        let ran = watching.first_run.map_or(ran, |first| first.min(ran));
        in_order(scheduled, ran)?;
        in_order(ran, total)?;
        let (to_container, init) = to_container(start, scheduled, ran);
        let gated = watching.gated.min(scheduled);
        let spent =
            [gated, scheduled - gated, to_container.saturating_sub(init), init, total.saturating_sub(ran)];
        Some(Self { spent, through: Stage::ALL.len(), total })
    }

    /// Of a start that is this old and goes on.
    pub(super) fn so_far(start: &Start, watching: Watching, age: Millis) -> Self {
        let gated = watching.gated.min(age);
        let Some(scheduled) = start.scheduled.and_then(|at| after(start, at)).map(|at| at.min(age)) else {
            if start.stage == Some(Stage::Gated) {
                return Self { spent: [age, 0, 0, 0, 0], through: 0, total: age };
            }
            return Self { spent: [gated, age - gated, 0, 0, 0], through: 1, total: age };
        };
        let gated = gated.min(scheduled);
        let waited = scheduled - gated;
        let Some(ran) = start.container_started.and_then(|at| after(start, at)) else {
            let (so_far, init) = to_container(start, scheduled, age);
            let pulling = so_far.saturating_sub(init);
            return Self { spent: [gated, waited, pulling, 0, 0], through: 2, total: age };
        };
        let ran = watching.first_run.map_or(ran, |first| first.min(ran)).min(age);
        let (to_container, init) = to_container(start, scheduled, ran);
        let pulling = to_container.saturating_sub(init);
        Self { spent: [gated, waited, pulling, init, age.saturating_sub(ran)], through: 4, total: age }
    }

    /// Is it over, the replica ready?
    pub(super) fn is_finished(&self) -> bool {
        self.through >= Stage::ALL.len()
    }

    /// The path, as far as it shows.
    pub(super) fn path(&self) -> StartPath {
        match (self.spent[1] >= NEW_NODE_FROM, self.spent[2] >= IMAGE_PULLED_FROM) {
            (false, false) => StartPath::WarmNodeImagePresent,
            (false, true) => StartPath::WarmNodeImagePulled,
            (true, false) => StartPath::NewNodeImagePresent,
            (true, true) => StartPath::NewNodeImagePulled,
        }
    }

    /// Can these be the stages of a start? What comes from a peer is checked before it is believed.
    pub(super) fn are_sane(&self) -> bool {
        let sum: u64 = self.spent.iter().map(|spent| u64::from(*spent)).sum();
        self.through <= Stage::ALL.len()
            && self.total <= LONGEST_TOLD
            && sum <= u64::from(self.total) + 2 * CLOCKS_APART.unsigned_abs()
    }
}

/// A moment of the start, after its creation. None where it lies before it by more than clocks differ, or a day after.
fn after(start: &Start, at: chrono::DateTime<chrono::Utc>) -> Option<Millis> {
    let span = (at - start.created).num_milliseconds();
    if !(-CLOCKS_APART..=i64::from(LONGEST_TOLD)).contains(&span) {
        return None;
    }
    Millis::try_from(span.max(0)).ok()
}

fn in_order(earlier: Millis, later: Millis) -> Option<()> {
    (i64::from(later) - i64::from(earlier) >= -CLOCKS_APART).then_some(())
}

/// From the node to the running container, and how much of that the init containers took.
fn to_container(start: &Start, scheduled: Millis, ran: Millis) -> (Millis, Millis) {
    let span = ran.saturating_sub(scheduled);
    let init = (start.init_seconds * 1000.0).round().clamp(0.0, f64::from(LONGEST_TOLD)) as Millis;
    (span, init.min(span))
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::decision::fixtures::at;

    fn start(scheduled: i64, ran: i64, ready: i64, init_seconds: f64) -> Start {
        let created = at("10:00");
        let after = |seconds: i64| Some(created + TimeDelta::seconds(seconds));
        Start {
            created,
            scheduled: after(scheduled),
            initialised: after(ran),
            init_seconds,
            container_started: after(ran),
            ready: after(ready),
            stage: None,
            blocked: None,
            restarts: 0,
        }
    }

    fn seconds(stages: &Stages) -> [Millis; 5] {
        stages.spent.map(|spent| spent / 1000)
    }

    #[test]
    fn the_stages_of_a_start_add_up_to_its_total() {
        let stages = Stages::finished(&start(40, 100, 160, 20.0), Watching::default()).unwrap();
        assert_eq!((seconds(&stages), stages.total), ([0, 40, 40, 20, 60], 160_000));
        assert_eq!(stages.path(), StartPath::NewNodeImagePulled);
    }

    #[test]
    fn the_path_shows_in_the_stages_alone() {
        for (scheduled, ran, expected) in [
            (1, 4, StartPath::WarmNodeImagePresent),
            (1, 61, StartPath::WarmNodeImagePulled),
            (50, 54, StartPath::NewNodeImagePresent),
            (50, 110, StartPath::NewNodeImagePulled),
        ] {
            let stages = Stages::finished(&start(scheduled, ran, 200, 0.0), Watching::default()).unwrap();
            assert_eq!(stages.path(), expected);
        }
        // Weights that an init container fetches are no image.
        let stages = Stages::finished(&start(1, 61, 200, 58.0), Watching::default()).unwrap();
        assert_eq!(stages.path(), StartPath::WarmNodeImagePresent);
    }

    #[test]
    fn the_wait_behind_a_gate_is_no_wait_for_a_node() {
        let watching = Watching { gated: 300_000, first_run: None };
        let stages = Stages::finished(&start(302, 305, 400, 0.0), watching).unwrap();
        assert_eq!(seconds(&stages), [300, 2, 3, 0, 95]);
        assert_eq!(stages.path(), StartPath::WarmNodeImagePresent);
    }

    #[test]
    fn clocks_a_second_apart_give_no_negative_stage_and_more_gives_nothing() {
        let stages = Stages::finished(&start(2, 1, 60, 0.0), Watching::default()).unwrap();
        assert_eq!(seconds(&stages), [0, 2, 0, 0, 59]);
        assert_eq!(Stages::finished(&start(30, 1, 60, 0.0), Watching::default()), None);
        assert_eq!(Stages::finished(&start(-30, 1, 60, 0.0), Watching::default()), None);
        assert_eq!(Stages::finished(&start(1, 2, -3_600, 0.0), Watching::default()), None);
        assert_eq!(Stages::finished(&start(1, 2, 3 * 86_400, 0.0), Watching::default()), None);
    }

    #[test]
    fn a_start_that_goes_on_is_in_its_present_stage() {
        let mut going_on = start(40, 100, 160, 20.0);
        going_on.ready = None;
        let so_far = |start: &Start, age| Stages::so_far(start, Watching::default(), age);
        assert_eq!(seconds(&so_far(&going_on, 130_000)), [0, 40, 40, 20, 30]);
        going_on.container_started = None;
        going_on.init_seconds = 0.0;
        let pulling = so_far(&going_on, 70_000);
        assert_eq!((seconds(&pulling), pulling.through), ([0, 40, 30, 0, 0], 2));
        going_on.scheduled = None;
        let waiting = so_far(&going_on, 35_000);
        assert_eq!((seconds(&waiting), waiting.through), ([0, 35, 0, 0, 0], 1));
    }
}
