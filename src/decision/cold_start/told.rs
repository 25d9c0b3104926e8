//! What is known of cold starts, as it is shown.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::samples::{PathSummary, Quantiles};
use super::stages::{Millis, StartPath};
use crate::supply::Stage;
use crate::units::seconds;

/// The cold start that a decision looks ahead, and how it is known.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ColdStart {
    /// From an order until the replica is ready.
    #[serde(rename = "inEffectSeconds", with = "seconds")]
    pub in_effect: Duration,
    /// It comes from starts that were seen, not from the configuration.
    pub learned: bool,
    /// In words.
    pub because: String,
    /// The path that the next replica is expected to take: the slowest of those that the last ones took.
    pub path: Option<StartPath>,
    /// What is known of each path that a start took.
    pub paths: Arc<Vec<PathStarts>>,
}

impl ColdStart {
    /// One of which nothing but the configuration is known.
    #[must_use]
    pub fn configured(cold_start: Duration) -> Self {
        Self {
            in_effect: cold_start,
            learned: false,
            because: "configured".to_owned(),
            path: None,
            paths: Arc::default(),
        }
    }

    /// The starts by the path that the next replica is expected to take.
    #[must_use]
    pub fn likely(&self) -> Option<&PathStarts> {
        self.paths.iter().find(|starts| Some(starts.path) == self.path)
    }
}

/// The starts by one path.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PathStarts {
    /// Which path.
    pub path: StartPath,
    /// Starts that were seen to their end.
    pub starts: u32,
    /// Starts that go on, were given up, or were blocked on their way: they count as at least as long as they were seen.
    pub censored: u32,
    /// From creation until ready: half of the starts are over by then.
    #[serde(rename = "p50Seconds", with = "seconds")]
    pub p50: Duration,
    /// Nine of ten are.
    #[serde(rename = "p90Seconds", with = "seconds")]
    pub p90: Duration,
    /// The stages, in the order of a start; those that no start reached are left out.
    pub stages: Vec<StageTime>,
}

impl PathStarts {
    /// The stage that takes longest, by its median. None where none takes any time.
    #[must_use]
    pub fn dominating(&self) -> Option<Stage> {
        let longest = self.stages.iter().max_by_key(|stage| stage.p50)?;
        (!longest.p50.is_zero()).then_some(longest.stage)
    }
}

/// How long a stage takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StageTime {
    /// Which stage.
    pub stage: Stage,
    /// Its median.
    #[serde(rename = "p50Seconds", with = "seconds")]
    pub p50: Duration,
    /// Its ninth decile.
    #[serde(rename = "p90Seconds", with = "seconds")]
    pub p90: Duration,
}

impl From<&PathSummary> for PathStarts {
    fn from(summary: &PathSummary) -> Self {
        let span = |millis: Millis| Duration::from_millis(u64::from(millis));
        let stages = Stage::ALL.into_iter().zip(summary.stages);
        Self {
            path: summary.path,
            starts: summary.finished,
            censored: summary.censored,
            p50: span(summary.total.p50),
            p90: span(summary.total.p90),
            stages: stages
                .filter_map(|(stage, quantiles)| {
                    let Quantiles { p50, p90 } = quantiles?;
                    Some(StageTime { stage, p50: span(p50), p90: span(p90) })
                })
                .collect(),
        }
    }
}
