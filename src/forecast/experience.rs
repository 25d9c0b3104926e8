//! How much a forecast has seen, by which one scaler knows whether another's is the better one.

use serde::{Deserialize, Serialize};

/// Bins in a row that nobody saw, after which the watch begins anew: ten minutes.
const GAP: u32 = 40;

/// How much a forecast has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Experience {
    /// The first bin since when it has been watched by one process after another without a gap, counted from the epoch.
    since: Option<i64>,
    /// Bins that were seen.
    bins: u64,
    /// The last bin that was taken in.
    last: Option<i64>,
    /// Bins in a row that nobody saw.
    unseen: u32,
}

impl Experience {
    /// A bin is over. False where it was taken in before: nothing is learned twice. One that lies further back than a gap
    /// is told by another clock than that of the last one, and counts.
    pub(super) fn take(&mut self, bin: i64, seen: bool) -> bool {
        if self.last.is_some_and(|last| (last - i64::from(GAP)..=last).contains(&bin)) {
            return false;
        }
        self.last = Some(bin);
        if seen {
            self.unseen = 0;
            self.bins += 1;
            self.since.get_or_insert(bin);
        } else {
            self.unseen = self.unseen.saturating_add(1);
            if self.unseen >= GAP {
                self.since = None;
            }
        }
        true
    }

    /// Bins that were seen.
    pub(super) fn bins(&self) -> u64 {
        self.bins
    }

    /// Another process begins to watch.
    pub(super) fn resume(&mut self) {
        self.since = None;
    }

    /// The clock was set back: what comes is new.
    pub(super) fn forget_the_last(&mut self) {
        self.last = None;
    }

    /// Bins that it lags behind one that is over.
    pub(super) fn behind(&self, bin: i64) -> i64 {
        self.last.map_or(0, |last| bin - last - 1)
    }

    /// Should it take the place of `own`? It has been watched without a gap for longer, and rests on at least half as much.
    #[must_use]
    pub fn is_better_than(&self, own: &Self) -> bool {
        let Some(since) = self.since else { return false };
        own.since.is_none_or(|own| since < own) && self.bins * 2 >= own.bins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(from: i64, bins: i64) -> Experience {
        let mut experience = Experience::default();
        (from..from + bins).for_each(|bin| assert!(experience.take(bin, true)));
        experience
    }

    #[test]
    fn one_that_watched_for_longer_without_a_gap_is_better() {
        let (old, young) = (watched(0, 500), watched(100, 400));
        assert!(old.is_better_than(&young) && !young.is_better_than(&old));
        assert!(young.is_better_than(&Experience::default()));
        assert!(!Experience::default().is_better_than(&Experience::default()));
        let mut restarted = old;
        restarted.resume();
        restarted.take(510, true);
        assert!(young.is_better_than(&restarted), "it saw what the other missed");
        assert!(!watched(505, 10).is_better_than(&restarted), "it has seen too little");
    }

    #[test]
    fn what_is_taken_over_is_not_taken_again_and_again() {
        let holder = watched(0, 500);
        assert!(!holder.is_better_than(&holder.clone()));
    }

    #[test]
    fn ten_minutes_in_which_nobody_saw_anything_are_a_gap() {
        let mut one = watched(0, 500);
        (500..539).for_each(|bin| assert!(one.take(bin, false)));
        assert!(one.is_better_than(&watched(1, 500)));
        one.take(539, false);
        assert!(!one.is_better_than(&watched(1, 500)));
    }

    #[test]
    fn no_bin_is_taken_twice() {
        let mut one = watched(0, 10);
        assert!(!one.take(9, true) && one.take(10, true));
        assert_eq!(one.behind(14), 3);
        one.take(4000, true);
        assert!(!one.take(3990, true), "another scaler saw it");
        assert!(one.take(11, true) && one.take(12, true), "the other's clock is ahead");
    }
}
