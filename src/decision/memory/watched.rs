//! Time that was watched, and the largest value over the last of it.
//!
//! Holds and other waits are counted in watched time: it runs with the clock while rounds follow each other, and a jump
//! of the clock, or a process that was stopped, counts for no more than one long round. So a clock that is set forward
//! can't end a hold early, one that is set back can't wedge it, and a gap in which nobody looked is not a time in which
//! a lower number was enough.

use std::collections::VecDeque;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// What one step of the clock counts at most: the longest sensible scrape interval.
const LONGEST_ROUND: Duration = Duration::from_mins(1);

/// Entries that a window keeps. Values fall from the oldest to the newest entry, so a window has as many as the load had
/// falling steps; beyond this many the oldest two are merged into the one that holds longer.
const MOST_ENTRIES: usize = 256;

/// Milliseconds of watched time.
pub(crate) type Watched = u64;

/// A span in the unit of watched time.
pub(crate) fn millis(span: Duration) -> Watched {
    Watched::try_from(span.as_millis()).unwrap_or(Watched::MAX)
}

/// Turns wall time into watched time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WatchedClock {
    watched: Watched,
    last: Option<DateTime<Utc>>,
}

impl WatchedClock {
    /// The watched time at this instant.
    pub(crate) fn at(&self, now: DateTime<Utc>) -> Watched {
        let passed = self.last.and_then(|last| (now - last).to_std().ok()).unwrap_or(Duration::ZERO);
        self.watched.saturating_add(millis(passed.min(LONGEST_ROUND)))
    }

    /// Moves on to this instant.
    pub(crate) fn advance(&mut self, now: DateTime<Utc>) -> Watched {
        self.watched = self.at(now);
        self.last = Some(now);
        self.watched
    }

    /// The watched time up to the last instant.
    pub(crate) fn watched(&self) -> Watched {
        self.watched
    }

    /// A new process begins here: what passed since the last instant was not watched.
    pub(crate) fn resume(&mut self, now: DateTime<Utc>) {
        self.last = Some(now);
    }

    /// When it was moved on last.
    pub(crate) fn last(&self) -> Option<DateTime<Utc>> {
        self.last
    }
}

/// The largest of a series of values over a span: a monotone queue, largest and oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LargestOver {
    entries: VecDeque<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    value: u32,
    /// Until when the value was the one in force.
    until: Watched,
}

impl LargestOver {
    /// A value is in force from now on; the one before it was until now.
    pub(crate) fn push(&mut self, at: Watched, value: u32) {
        if let Some(newest) = self.entries.back_mut() {
            newest.until = newest.until.max(at);
        }
        while self.entries.back().is_some_and(|newest| newest.value <= value) {
            self.entries.pop_back();
        }
        self.entries.push_back(Entry { value, until: at });
        if self.entries.len() > MOST_ENTRIES
            && let (Some(oldest), Some(second)) = (self.entries.pop_front(), self.entries.front_mut())
        {
            second.value = oldest.value;
        }
    }

    /// The largest value that was in force within the span up to `at`. The newest value always is.
    pub(crate) fn largest(&self, at: Watched, span: Duration) -> Option<u32> {
        let span = millis(span);
        self.entries
            .iter()
            .find(|entry| entry.until.saturating_add(span) > at)
            .or(self.entries.back())
            .map(|entry| entry.value)
    }

    /// Drops what no longer counts.
    pub(crate) fn forget(&mut self, at: Watched, span: Duration) {
        let span = millis(span);
        while self.entries.len() > 1
            && self.entries.front().is_some_and(|oldest| oldest.until.saturating_add(span) <= at)
        {
            self.entries.pop_front();
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_secs(10);

    fn second(n: u64) -> Watched {
        n * 1000
    }

    #[test]
    fn a_lower_value_counts_once_it_was_enough_for_the_whole_span() {
        let mut needs = LargestOver::default();
        needs.push(second(0), 8);
        needs.push(second(5), 3);
        assert_eq!(needs.largest(second(14), HOLD), Some(8), "8 was in force until second 5");
        assert_eq!(needs.largest(second(15), HOLD), Some(3));
    }

    #[test]
    fn the_newest_value_never_leaves() {
        let mut needs = LargestOver::default();
        needs.push(second(0), 8);
        assert_eq!(needs.largest(second(1_000), HOLD), Some(8));
        needs.push(second(1_000), 2);
        assert_eq!(needs.largest(second(1_009), HOLD), Some(8), "it was in force all the time");
    }

    #[test]
    fn a_window_is_bounded_and_errs_upward() {
        let mut needs = LargestOver::default();
        for n in 0..10_000_u32 {
            needs.push(u64::from(n), 20_000 - n);
        }
        assert!(needs.entries.len() <= MOST_ENTRIES);
        assert_eq!(needs.largest(9_999, HOLD), Some(20_000));
    }

    #[test]
    fn a_jump_of_the_clock_counts_for_one_long_round() {
        let start = DateTime::UNIX_EPOCH + chrono::TimeDelta::days(20_000);
        let mut clock = WatchedClock::default();
        clock.advance(start);
        clock.advance(start + chrono::TimeDelta::seconds(5));
        assert_eq!(clock.at(start), 5_000, "back");
        clock.advance(start - chrono::TimeDelta::days(3));
        clock.advance(start + chrono::TimeDelta::days(3));
        assert_eq!(clock.watched, 65_000, "forward");
    }

    proptest::proptest! {
        #[test]
        fn the_queue_agrees_with_looking_at_every_value(
            steps in proptest::collection::vec((0_u64..4_000, 0_u32..50), 1..120)
        ) {
            let (mut queue, mut all, mut at) = (LargestOver::default(), Vec::<(u64, u32)>::new(), 0);
            for (wait, value) in steps {
                at += wait;
                queue.push(at, value);
                queue.forget(at, HOLD);
                all.push((at, value));
                let mut largest = value;
                for pair in all.windows(2) {
                    // In force from its own instant to the next one's.
                    if pair[1].0 + 10_000 > at {
                        largest = largest.max(pair[0].1);
                    }
                }
                proptest::prop_assert_eq!(queue.largest(at, HOLD), Some(largest));
            }
        }
    }
}
