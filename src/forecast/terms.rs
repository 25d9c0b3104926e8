//! What a forecast is made for: how long it takes to act on it, and what being wrong is worth.

use super::predict::MOST_LEAD;
use super::what_if::{MORE_QUEUE_SECONDS, SHORT_START_SECONDS};
use super::{BIN_SECONDS, BINS_A_DAY, SLOT_SECONDS};

/// Days whose clocks count: today, and the seven before it that the same time of day is looked up in.
pub const CLOCK_DAYS: usize = 8;

/// What a forecast is made for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    lead_seconds: f64,
    hold_seconds: f64,
    /// Of the lead, what a replica takes from its order until it serves; None where nobody asks what less would save.
    cold_start_seconds: Option<f64>,
    /// An order that is made by a bin serves so many bins after it.
    pub(super) lead_bins: usize,
    /// Slots from an order until its replicas serve.
    pub(super) start_slots: i64,
    /// How long a rule without a hold of its own holds what it asked for.
    pub(super) hold_slots: i64,
    /// Seconds of the tier's work that may wait.
    pub(super) slack_seconds: f64,
    /// What a late minute costs, in minutes of the whole tier.
    pub(super) shortage_minutes: f64,
    /// Share of the work that may be late, where that is what counts.
    pub(super) late_budget: Option<f64>,
    /// By how many bins the clocks of people were put forward since so many days ago; none at all for 0.
    clock_shifts: [i64; CLOCK_DAYS],
}

impl Terms {
    /// `lead_seconds` from the end of a bin until what it makes ordered can serve.
    #[must_use]
    pub fn new(lead_seconds: f64, hold_seconds: f64, slack_seconds: f64, shortage_minutes: f64) -> Self {
        let lead_bins = 1 + (lead_seconds / BIN_SECONDS).ceil() as usize;
        Self {
            lead_seconds,
            hold_seconds,
            cold_start_seconds: None,
            lead_bins: lead_bins.clamp(2, MOST_LEAD),
            start_slots: ((lead_seconds - BIN_SECONDS) / SLOT_SECONDS).ceil().max(0.0) as i64,
            hold_slots: (hold_seconds / SLOT_SECONDS).ceil() as i64,
            slack_seconds,
            shortage_minutes,
            late_budget: None,
            clock_shifts: [0; CLOCK_DAYS],
        }
    }

    /// The same where so large a share of the work may be late, whatever the price.
    #[must_use]
    pub fn with_late_budget(self, late_budget: Option<f64>) -> Self {
        Self { late_budget, ..self }
    }

    /// The same where so much of the lead is the start of a replica.
    #[must_use]
    pub fn with_cold_start(self, seconds: f64) -> Self {
        Self { cold_start_seconds: Some(seconds), ..self }
    }

    /// The same for people whose clocks are so many seconds ahead of UTC now, and were so many days ago: the same time of
    /// day is where they have it.
    #[must_use]
    pub fn with_clocks(self, ahead_of_utc: [i64; CLOCK_DAYS]) -> Self {
        let shift = |then: i64| (ahead_of_utc[0] - then) / BIN_SECONDS as i64;
        Self { clock_shifts: ahead_of_utc.map(shift), ..self }
    }

    /// So many seconds of the tier's work may wait.
    #[must_use]
    pub fn acceptable_seconds(&self) -> f64 {
        self.slack_seconds
    }

    /// The bin at the same time of day so many days ago.
    pub(super) fn days_before(&self, bin: i64, days: usize) -> i64 {
        let shift = self.clock_shifts.get(days).copied().unwrap_or(0);
        bin - (days * BINS_A_DAY) as i64 + shift
    }

    /// The price of a late minute in replica-seconds, for a tier of so many.
    pub(super) fn late_minute(&self, usual: f64) -> f64 {
        self.shortage_minutes * 60.0 * usual
    }

    pub(super) fn with_more_queue(self) -> Self {
        Self { slack_seconds: self.slack_seconds + MORE_QUEUE_SECONDS, ..self }
    }

    /// None where starts are as short already, or nobody said how long they are.
    pub(super) fn with_short_starts(self) -> Option<Self> {
        let saved = self.cold_start_seconds? - SHORT_START_SECONDS;
        let shorter = |seconds: f64| (seconds - saved).max(0.0);
        (saved >= BIN_SECONDS).then(|| Self {
            late_budget: self.late_budget,
            clock_shifts: self.clock_shifts,
            ..Self::new(
                shorter(self.lead_seconds),
                shorter(self.hold_seconds),
                self.slack_seconds,
                self.shortage_minutes,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_time_of_day_is_where_people_have_it() {
        let hour = 3600;
        let utc = Terms::new(205.0, 210.0, 5.0, 30.0);
        assert_eq!(utc.days_before(50_000, 1), 50_000 - 5760);
        // Put forward by an hour two days ago: what is at nine now was at nine an hour later in UTC before.
        let spring = utc.with_clocks([2 * hour, 2 * hour, 2 * hour, hour, hour, hour, hour, hour]);
        assert_eq!(spring.days_before(50_000, 2), 50_000 - 2 * 5760);
        assert_eq!(spring.days_before(50_000, 3), 50_000 - 3 * 5760 + 240);
        let autumn =
            utc.with_clocks([hour, 2 * hour, 2 * hour, 2 * hour, 2 * hour, 2 * hour, 2 * hour, 2 * hour]);
        assert_eq!(autumn.days_before(50_000, 1), 50_000 - 5760 - 240);
    }

    #[test]
    fn shorter_starts_shorten_the_lead_and_the_hold_by_as_much() {
        let terms = Terms::new(205.0, 210.0, 5.0, 30.0).with_cold_start(180.0);
        assert_eq!(terms.with_short_starts(), Some(Terms::new(85.0, 90.0, 5.0, 30.0)));
        assert_eq!(terms.with_cold_start(60.0).with_short_starts(), None, "they are as short already");
        assert_eq!(Terms::new(205.0, 210.0, 5.0, 30.0).with_short_starts(), None);
    }
}
