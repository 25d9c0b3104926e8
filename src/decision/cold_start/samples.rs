//! The last starts by each path: what is learned, and what one scaler takes over from another.

use serde::{Deserialize, Serialize};

use super::stages::{LONGEST_TOLD, Millis, Stages, StartPath};
use super::survival::{Span, quantile};
use crate::supply::Stage;

/// Starts that are kept of a path: enough for a ninth decile, few enough to forget last month's image.
const MOST_STARTS: usize = 50;

/// Starts of a path that are kept although they never ended. They are kept apart, so that pods which are created and
/// deleted again can't push out what is known.
const MOST_GIVEN_UP: usize = 20;

/// A start weighs half as much as the one this many later: two slow starts in a row are a tenth of all the weight and
/// raise the ninth decile at once; a change for the better is believed after some thirty starts.
const HALF_LIFE_STARTS: f64 = 10.0;

/// One start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sample {
    /// Of the replica: a start counts once, whoever saw it.
    pub(super) id: u64,
    /// When the pod was created, in Unix milliseconds. It never changes, so a pod whose readiness flaps is no new one.
    pub(super) created: i64,
    pub(super) stages: Stages,
    /// Somebody watched it from its creation on.
    pub(super) watched: bool,
}

/// Which of two accounts of the same start is kept: what was seen to its end, then what was watched, then the longer
/// one. The order is total, so that two scalers that take from each other come to the same.
fn rank(sample: &Sample) -> (bool, bool, Millis, [Millis; 5]) {
    (sample.stages.is_finished(), sample.watched, sample.stages.total, sample.stages.spent)
}

/// The last starts, by path, each the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::decision) struct Samples {
    /// Seen to their end.
    finished: Paths,
    /// Over before the replica was ready.
    given_up: Paths,
}

type Paths = [Vec<Sample>; StartPath::ALL.len()];

/// A span in its two quantiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Quantiles {
    pub(super) p50: Millis,
    pub(super) p90: Millis,
}

/// What the starts by one path come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathSummary {
    pub(super) path: StartPath,
    /// Starts that were seen to their end.
    pub(super) finished: u32,
    /// Starts that go on, or ended before the replica was ready.
    pub(super) censored: u32,
    pub(super) total: Quantiles,
    /// The ninth decile of the starts that are over: one that hangs must not move its own deadline.
    pub(super) ended_p90: Option<Millis>,
    /// In the order of [`Stage::ALL`]; None where no start got so far.
    pub(super) stages: [Option<Quantiles>; Stage::ALL.len()],
}

impl Samples {
    /// Takes a start in, unless a better account of it is there already. True if that changed anything.
    ///
    /// What is older than the oldest of a full path is passed over: it was dropped before, or is too old to count.
    pub(super) fn insert(&mut self, sample: Sample) -> bool {
        for path in self.finished.iter_mut().chain(&mut self.given_up) {
            let Some(at) = path.iter().position(|kept| kept.id == sample.id) else { continue };
            if rank(&path[at]) >= rank(&sample) {
                return false;
            }
            path.remove(at);
            break;
        }
        let by_path = sample.stages.path() as usize;
        let (path, most) = if sample.stages.is_finished() {
            (&mut self.finished[by_path], MOST_STARTS)
        } else {
            (&mut self.given_up[by_path], MOST_GIVEN_UP)
        };
        let place = path.partition_point(|kept| (kept.created, kept.id) > (sample.created, sample.id));
        if place >= most {
            return false;
        }
        path.insert(place, sample);
        path.truncate(most);
        true
    }

    /// What is known of the start of this replica.
    pub(super) fn of(&self, id: u64) -> Option<&Sample> {
        self.all().find(|sample| sample.id == id)
    }

    fn all(&self) -> impl Iterator<Item = &Sample> {
        self.finished.iter().chain(&self.given_up).flatten()
    }

    /// Takes in what another scaler saw, as far as it can be true.
    pub(super) fn merge(&mut self, other: &Self) {
        let paths = other.finished.iter().chain(&other.given_up);
        for sample in paths.flat_map(|path| path.iter().take(MOST_STARTS)) {
            if sample.stages.are_sane() {
                self.insert(*sample);
            }
        }
    }

    /// When the newest of the starts was created that was seen to its end.
    pub(super) fn newest_finished(&self) -> Option<i64> {
        self.finished.iter().filter_map(|path| path.first()).map(|sample| sample.created).max()
    }

    /// The newest starts that are over, in any way and by any path.
    pub(super) fn newest(&self, most: usize) -> Vec<&Sample> {
        let mut newest: Vec<&Sample> = self.all().collect();
        newest.sort_by_key(|sample| newest_first(sample));
        newest.truncate(most);
        newest
    }

    /// What each path with a start comes to. `going_on` are the starts that are watched now.
    pub(super) fn summarise(&self, going_on: &[Sample]) -> Vec<PathSummary> {
        StartPath::ALL
            .into_iter()
            .filter_map(|path| {
                let mut starts: Vec<&Sample> = self.finished[path as usize]
                    .iter()
                    .chain(&self.given_up[path as usize])
                    .chain(going_on.iter().filter(|sample| sample.stages.path() == path))
                    .collect();
                starts.sort_by_key(|sample| newest_first(sample));
                let mut summary = summary(path, &starts)?;
                starts.retain(|sample| !going_on.iter().any(|other| other.id == sample.id));
                summary.ended_p90 = total(&starts).map(|total| total.p90);
                Some(summary)
            })
            .collect()
    }
}

fn newest_first(sample: &Sample) -> impl Ord + use<> {
    std::cmp::Reverse((sample.created, sample.id))
}

/// Of starts that are sorted, the newest first. Their end is looked at with those that go on.
fn summary(path: StartPath, starts: &[&Sample]) -> Option<PathSummary> {
    let finished = starts.iter().filter(|sample| sample.stages.is_finished()).count();
    Some(PathSummary {
        path,
        finished: finished as u32,
        censored: (starts.len() - finished) as u32,
        total: total(starts)?,
        ended_p90: None,
        stages: std::array::from_fn(|stage| {
            quantiles(starts, |stages| {
                (stages.through >= stage).then(|| (stages.spent[stage], stages.through > stage))
            })
        }),
    })
}

fn total(starts: &[&Sample]) -> Option<Quantiles> {
    quantiles(starts, |stages| Some((stages.total, stages.is_finished())))
}

/// Of what `of` tells of each start: how long it was, and whether it ended there.
fn quantiles(starts: &[&Sample], of: impl Fn(&Stages) -> Option<(Millis, bool)>) -> Option<Quantiles> {
    let weight = |age: usize| (-(age as f64) / HALF_LIFE_STARTS * std::f64::consts::LN_2).exp();
    let mut spans: Vec<Span> = starts
        .iter()
        .enumerate()
        .filter_map(|(age, sample)| {
            let (length, ended) = of(&sample.stages)?;
            Some(Span { length: length.min(LONGEST_TOLD), ended, weight: weight(age) })
        })
        .collect();
    Some(Quantiles { p50: quantile(&mut spans, 0.5)?, p90: quantile(&mut spans, 0.9)? })
}

/// FNV-1a of a replica's identity: two scalers give the same replica the same number, in any version.
pub(super) fn identity(id: &str) -> u64 {
    id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(id: u64, total: Millis) -> Sample {
        let stages = Stages { spent: [0, 1_000, 2_000, 0, total - 3_000], through: 5, total };
        Sample { id, created: id.cast_signed() * 1_000, stages, watched: true }
    }

    fn p90(samples: &Samples) -> Millis {
        samples.summarise(&[])[0].total.p90
    }

    #[test]
    fn the_last_fifty_starts_count_and_the_newest_most() {
        let mut samples = Samples::default();
        for id in 0..100 {
            samples.insert(sample(id, 60_000));
        }
        assert_eq!(samples.summarise(&[])[0].finished, 50);
        assert_eq!(p90(&samples), 60_000);
        samples.insert(sample(100, 90_000));
        assert_eq!(p90(&samples), 60_000, "one slow start is an accident");
        samples.insert(sample(101, 90_000));
        assert_eq!(p90(&samples), 90_000, "two in a row are a tenth of the weight");
        for id in 102..130 {
            samples.insert(sample(id, 60_000));
        }
        assert_eq!(p90(&samples), 60_000);
    }

    #[test]
    fn a_start_counts_once_however_often_it_is_told() {
        let mut samples = Samples::default();
        assert!(samples.insert(sample(1, 60_000)));
        assert!(!samples.insert(sample(1, 60_000)));
        // Its readiness flapped: the status now tells hours, and nobody watched that.
        let flapped = Sample { watched: false, ..sample(1, 7_200_000) };
        assert!(!samples.insert(flapped));
        for id in 2..60 {
            samples.insert(sample(id, 60_000));
        }
        assert_eq!(samples.of(1), None, "too old to be kept");
        assert!(!samples.insert(flapped), "and not new for having flapped");
    }

    #[test]
    fn two_scalers_that_take_from_each_other_know_the_same() {
        let (mut one, mut other) = (Samples::default(), Samples::default());
        for id in 0..80 {
            let seen = sample(id, 50_000 + id as Millis * 100);
            if id % 3 != 0 {
                one.insert(seen);
            }
            if id % 5 != 0 {
                other.insert(Sample { watched: id % 2 == 0, ..seen });
            }
        }
        let before = one.clone();
        one.merge(&other);
        other.merge(&before);
        assert_eq!(one, other);
    }

    #[test]
    fn starts_that_are_given_up_push_out_nothing_that_is_known() {
        let mut samples = Samples::default();
        for id in 0..5 {
            samples.insert(sample(id, 60_000));
        }
        for id in 10..200 {
            let stages = Stages { spent: [0, 1_000, 2_000, 0, 0], through: 2, total: 3_000 };
            samples.insert(Sample { stages, ..sample(id, 60_000) });
        }
        let summary = &samples.summarise(&[])[0];
        assert_eq!((summary.finished, summary.censored, summary.total.p90), (5, 20, 60_000));
    }

    #[test]
    fn what_a_peer_says_is_checked() {
        let mut peer = Samples::default();
        peer.finished[0].push(Sample {
            stages: Stages { spent: [Millis::MAX; 5], through: 5, total: 1 },
            ..sample(1, 60_000)
        });
        let mut own = Samples::default();
        own.merge(&peer);
        assert_eq!(own, Samples::default());
    }

    #[test]
    fn a_stage_that_a_start_hangs_in_shows_there() {
        let mut samples = Samples::default();
        for id in 0..5 {
            samples.insert(sample(id, 60_000));
        }
        let hangs = |id| Sample {
            stages: Stages { spent: [0, 1_000, 5_000, 0, 200_000], through: 4, total: 206_000 },
            ..sample(id, 60_000)
        };
        let summary = &samples.summarise(&[hangs(10), hangs(11), hangs(12)])[0];
        assert_eq!((summary.finished, summary.censored), (5, 3));
        assert_eq!(summary.stages[4].unwrap().p90, 200_000);
        assert_eq!(summary.stages[2].unwrap().p90, 5_000);
    }
}
