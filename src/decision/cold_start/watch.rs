//! A replica that is watched while it starts.
//!
//! Its age runs in watched time from when it was first seen, so that a clock that is set neither ages a start nor makes
//! it young again.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::stages::{LONGEST_TOLD, Millis, Stages, Watching};
use crate::decision::ReplicaObservation;
use crate::decision::memory::watched::Watched;
use crate::supply::{Stage, Start};

/// What a list may lag behind the cluster, and the API server's clock may differ from this machine's.
pub(super) const SLACK: Millis = 30_000;

/// A start that goes on, or has just ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Watch {
    /// In Unix milliseconds; None where the source tells no times of a start.
    pub(super) created: Option<i64>,
    first_seen: Watched,
    age_then: Millis,
    /// While it was still starting.
    last_seen: Watched,
    gated: Millis,
    first_run: Option<Millis>,
    /// As last seen.
    pub(super) stages: Option<Stages>,
    /// Since when it is ready.
    pub(super) arrived: Option<Watched>,
}

impl Watch {
    /// From its first sight on, at this age.
    pub(super) fn begin(replica: &ReplicaObservation, age: Millis, at: Watched) -> Self {
        let mut watch = Self {
            created: replica.start.as_ref().map(|start| start.created.timestamp_millis()),
            first_seen: at,
            age_then: age,
            last_seen: at,
            gated: 0,
            first_run: None,
            stages: None,
            arrived: None,
        };
        watch.see(replica.start.as_ref(), at);
        watch
    }

    /// It is still starting.
    pub(super) fn see(&mut self, start: Option<&Start>, at: Watched) {
        self.last_seen = at;
        let Some(start) = start else { return };
        let age = self.age(at);
        if start.stage == Some(Stage::Gated) {
            self.gated = age;
        }
        if let (None, Some(ran)) = (self.first_run, start.container_started) {
            self.first_run = Millis::try_from((ran - start.created).num_milliseconds().max(0)).ok();
        }
        self.stages = Some(Stages::so_far(start, self.watching(), age));
    }

    /// Time since its creation.
    pub(super) fn age(&self, at: Watched) -> Millis {
        let since = Millis::try_from(at.saturating_sub(self.first_seen)).unwrap_or(LONGEST_TOLD);
        self.age_then.saturating_add(since).min(LONGEST_TOLD)
    }

    /// Its stages now that it is ready. None where its status tells another time than this process watched: some clock
    /// was set meanwhile.
    pub(super) fn finished(&self, start: &Start, at: Watched) -> Option<Stages> {
        let stages = Stages::finished(start, self.watching())?;
        let least = self.age(self.last_seen).saturating_sub(SLACK);
        let most = self.age(at).saturating_add(SLACK);
        (least..=most).contains(&stages.total).then_some(stages)
    }

    fn watching(&self) -> Watching {
        Watching { gated: self.gated, first_run: self.first_run }
    }
}

/// The age of a replica by the clock on the wall; 0 where it lies ahead.
pub(super) fn wall_age(created: DateTime<Utc>, now: DateTime<Utc>) -> Millis {
    Millis::try_from((now - created).num_milliseconds().max(0)).unwrap_or(LONGEST_TOLD).min(LONGEST_TOLD)
}
