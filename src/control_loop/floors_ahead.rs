//! Scheduled floors that are open now or open within a day, as the page shows them.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::decision::Policy;
use crate::snapshot::FloorAhead;
use crate::units::{earlier, later};

/// How far ahead floors are shown.
const FLOORS_SHOWN_AHEAD: Duration = Duration::from_secs(24 * 3600);

/// Worked out once a minute, the grain of a cron expression: walking the calendar at each round of each tier adds up.
#[derive(Debug, Default)]
pub(super) struct FloorsAhead {
    minute: Option<i64>,
    floors: Vec<FloorAhead>,
}

impl FloorsAhead {
    pub(super) fn at(&mut self, policy: &Policy, lead: Duration, now: DateTime<Utc>) -> Vec<FloorAhead> {
        let minute = now.timestamp().div_euclid(60);
        if self.minute != Some(minute) {
            self.minute = Some(minute);
            self.floors = floors_ahead(policy, now);
        }
        // The lead is learned and may change with every round; the calendar doesn't.
        for floor in &mut self.floors {
            floor.answered_from = earlier(floor.opens_at, lead);
        }
        self.floors.clone()
    }
}

/// The windows that are open now or open within a day, with the configured lead.
fn floors_ahead(policy: &Policy, now: DateTime<Utc>) -> Vec<FloorAhead> {
    let horizon = later(now, FLOORS_SHOWN_AHEAD);
    let mut ahead: Vec<FloorAhead> = policy
        .floors
        .iter()
        .filter_map(|floor| {
            let opening = floor.window.current_or_next_opening(now)?;
            (opening.opens_at <= horizon).then(|| FloorAhead {
                name: floor.name.clone(),
                replicas: floor.replicas,
                timezone: floor.window.zone(),
                opens_at: opening.opens_at,
                answered_from: earlier(opening.opens_at, policy.lead()),
                closes_at: opening.closes_at,
            })
        })
        .collect();
    ahead.sort_by_key(|floor| floor.opens_at);
    ahead
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::fixtures::{at, floor, policy};

    #[test]
    fn floors_ahead_are_worked_out_once_a_minute() {
        let with = Policy { floors: vec![floor("0 9 * * *", "0 18 * * *", 6)], ..policy() };
        let without = policy();
        let mut ahead = FloorsAhead::default();
        assert_eq!(ahead.at(&with, with.lead(), at("10:00:01")).len(), 1);
        assert_eq!(
            ahead.at(&without, without.lead(), at("10:00:59")).len(),
            1,
            "the same minute: not looked at again"
        );
        assert_eq!(ahead.at(&without, without.lead(), at("10:01:00")).len(), 0);
        assert_eq!(
            ahead.at(&with, with.lead(), at("10:00:30")).len(),
            1,
            "a clock that was set back is another minute"
        );
    }
}
