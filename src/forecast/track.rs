//! The forecast of the last hours against what came, minute by minute: for people to look at.

use serde::{Deserialize, Serialize};

use super::BIN_SECONDS;
use super::days::Minutes;

/// Minutes that are kept: six hours, as the page shows.
const MINUTES: usize = 360;

/// Bins of 15 s in a minute.
const BINS_A_MINUTE: i64 = 60 / BIN_SECONDS as i64;

/// A minute of it, in replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrackPoint {
    /// Minutes since the epoch.
    pub minute: i64,
    /// The need of this minute that was expected one lead before it.
    pub expected: f64,
    /// The mean error that was expected with it.
    pub spread: f64,
    /// The need that came.
    pub came: f64,
}

/// The last minutes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Track {
    expected: Minutes,
    spread: Minutes,
    came: Minutes,
    /// The minute that is being filled, and how many bins are in it.
    minute: Option<i64>,
    bins: u32,
}

impl Track {
    pub(super) fn new() -> Self {
        let unseen = || Minutes::unseen(MINUTES);
        Self { expected: unseen(), spread: unseen(), came: unseen(), minute: None, bins: 0 }
    }

    /// A bin whose forecast, with its spread, can be compared with what came.
    pub(super) fn push(&mut self, bin: i64, expected: f64, spread: f64, came: f64) {
        let minute = bin.div_euclid(BINS_A_MINUTE);
        let lists = [&mut self.expected, &mut self.spread, &mut self.came];
        if self.minute != Some(minute) {
            for list in lists {
                list.turn_to(self.minute, minute);
            }
            (self.minute, self.bins) = (Some(minute), 0);
        }
        let before = self.bins;
        for (list, value) in
            [(&mut self.expected, expected), (&mut self.spread, spread), (&mut self.came, came)]
        {
            self.bins = before;
            list.average(minute, &mut self.bins, value);
        }
    }

    /// Whole minutes, the oldest first.
    pub(super) fn points(&self) -> Vec<TrackPoint> {
        let Some(last) = self.minute else { return Vec::new() };
        let at = |list: &Minutes, minute: i64| list.at(self.minute, minute);
        (last - MINUTES as i64 + 1..last)
            .filter_map(|minute| {
                let (expected, spread) = (at(&self.expected, minute)?, at(&self.spread, minute)?);
                Some(TrackPoint { minute, expected, spread, came: at(&self.came, minute)? })
            })
            .collect()
    }

    /// See `Loads::rescale`.
    pub(super) fn rescale(&mut self, times: f64) {
        for list in [&mut self.expected, &mut self.spread, &mut self.came] {
            list.rescale(times);
        }
    }

    /// Of the right size; anything else was not written by us.
    pub(super) fn is_sane(&self) -> bool {
        [&self.expected, &self.spread, &self.came].into_iter().all(|list| list.len() == MINUTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_minutes_are_told_and_a_gap_stays_one() {
        let mut track = Track::new();
        for bin in 40..52 {
            track.push(bin, 4.0, 0.5, if bin < 44 { 3.0 } else { 5.0 });
        }
        track.push(80, 1.0, 0.1, 1.0);
        let points = track.points();
        assert_eq!(points.iter().map(|point| point.minute).collect::<Vec<_>>(), [10, 11, 12]);
        assert_eq!(points[0], TrackPoint { minute: 10, expected: 4.0, spread: 0.5, came: 3.0 });
        assert!((points[1].came - 5.0).abs() < 1e-6);
        track.push(84, 1.0, 0.1, 1.0);
        assert_eq!(track.points().last().map(|point| point.minute), Some(20));
    }

    #[test]
    fn six_hours_are_kept() {
        let mut track = Track::new();
        for bin in 0..4_000 {
            track.push(bin, 4.0, 0.5, 4.0);
        }
        let points = track.points();
        assert_eq!((points.len(), points[0].minute), (MINUTES - 1, 4_000 / 4 - 360));
    }
}
