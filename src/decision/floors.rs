//! Scheduled floors: how many replicas are promised for the time that a replica ordered now would serve.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::policy::{Floor, Policy};
use crate::units::{earlier, format_span};

/// The floor that counts now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FloorNow {
    pub(super) replicas: u32,
    pub(super) because: String,
}

/// A floor with the time for which it was worked out. Looking up windows costs more than the rest of a decision, and
/// their answer changes a few times a day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FloorPlan {
    /// Of the floors and the lead that it was made from.
    fingerprint: u64,
    from: DateTime<Utc>,
    until: DateTime<Utc>,
    floor: Option<FloorNow>,
}

impl FloorPlan {
    /// The largest floor over `[now, now + lead]`: capacity is to be ready *at* the start, so a floor opens one lead
    /// early. Windows that overlap or meet give the larger number without a dip, and so do those less than one lead
    /// apart.
    pub(super) fn of(policy: &Policy, lead: Duration, now: DateTime<Utc>) -> Self {
        let mut until = DateTime::<Utc>::MAX_UTC;
        let mut largest: Option<&Floor> = None;
        for floor in &policy.floors {
            let counts = floor.window.opens_within(now, lead);
            if let Some((change, _)) = floor.window.next_change(now) {
                // One that counts may stop to with its next change; one that doesn't begins a lead before it.
                until = until.min(if counts { change } else { earlier(change, lead) });
            }
            if counts && largest.is_none_or(|so_far| floor.replicas > so_far.replicas) {
                largest = Some(floor);
            }
        }
        let floor =
            largest.map(|floor| FloorNow { replicas: floor.replicas, because: because(floor, now, lead) });
        Self { fingerprint: fingerprint(policy, lead), from: now, until, floor }
    }

    /// Does the plan still tell the floor at this instant, for these floors and this lead?
    pub(super) fn holds(&self, policy: &Policy, lead: Duration, now: DateTime<Utc>) -> bool {
        self.from <= now && now < self.until && self.fingerprint == fingerprint(policy, lead)
    }

    pub(super) fn floor(&self) -> Option<&FloorNow> {
        self.floor.as_ref()
    }
}

fn because(floor: &Floor, now: DateTime<Utc>, lead: Duration) -> String {
    let name = &floor.name;
    match floor.window.next_change(now) {
        Some((opens, true)) => format!(
            "floor {name} of {} from {}: ordered one lead ({}) before",
            floor.replicas,
            floor.window.told(opens, "%H:%M"),
            format_span(lead)
        ),
        Some((closes, false)) => {
            format!(
                "floor {name} of {}, open until {}",
                floor.replicas,
                floor.window.told(closes, "%a %H:%M")
            )
        }
        None => format!("floor {name} of {}", floor.replicas),
    }
}

/// FNV-1a over what a plan is made from; 0 stands for no plan.
fn fingerprint(policy: &Policy, lead: Duration) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut take = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        hash = (hash ^ 0xff).wrapping_mul(0x0000_0100_0000_01b3);
    };
    take(&lead.as_millis().to_le_bytes());
    for Floor { name, window, replicas } in &policy.floors {
        take(name.as_bytes());
        take(window.timezone.as_bytes());
        take(window.start.as_bytes());
        take(window.end.as_bytes());
        take(&replicas.to_le_bytes());
    }
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::fixtures::{at, floor, policy};
    use crate::schedule::Window;

    fn floor_at(policy: &Policy, time: &str) -> Option<u32> {
        FloorPlan::of(policy, policy.lead(), at(time)).floor.map(|floor| floor.replicas)
    }

    #[test]
    fn a_floor_counts_from_one_lead_before_its_start_to_its_end() {
        // One lead is 3m30s.
        let policy = Policy { floors: vec![floor("0 9 * * *", "0 18 * * *", 6)], ..policy() };
        for (time, expected) in [
            ("08:56:29", None),
            ("08:56:30", Some(6)),
            ("09:00:00", Some(6)),
            ("17:59:59", Some(6)),
            ("18:00:00", None),
        ] {
            assert_eq!(floor_at(&policy, time), expected, "{time}");
        }
    }

    #[test]
    fn reasons_tell_times_in_the_windows_own_zone() {
        let window = Window::parse("Europe/Berlin", "0 9 * * *", "0 18 * * *").unwrap();
        let floor = Floor { name: "office".to_owned(), window, replicas: 6 };
        let policy = Policy { floors: vec![floor], ..policy() };
        let because = |time: &str| FloorPlan::of(&policy, policy.lead(), at(time)).floor.unwrap().because;
        // Berlin is one hour ahead of UTC in December.
        assert_eq!(
            because("07:58"),
            "floor office of 6 from 09:00 Europe/Berlin: ordered one lead (3m30s) before"
        );
        assert_eq!(because("12:00"), "floor office of 6, open until Tue 18:00 Europe/Berlin");
    }

    #[test]
    fn windows_that_overlap_or_meet_take_the_larger_number_without_a_dip() {
        let floors = vec![
            floor("0 8 * * *", "0 12 * * *", 4),
            floor("0 12 * * *", "0 18 * * *", 6),
            floor("0 11 * * *", "0 13 * * *", 5),
        ];
        let policy = Policy { floors, ..policy() };
        for (time, expected) in
            [("10:00", 4), ("10:57", 5), ("11:56", 5), ("11:57", 6), ("12:00", 6), ("17:00", 6)]
        {
            assert_eq!(floor_at(&policy, time), Some(expected), "{time}");
        }
    }

    #[test]
    fn a_gap_shorter_than_the_lead_is_no_gap() {
        let floors = vec![floor("0 8 * * *", "0 12 * * *", 4), floor("2 12 * * *", "0 18 * * *", 4)];
        let policy = Policy { floors, ..policy() };
        assert_eq!(floor_at(&policy, "12:01"), Some(4));
    }

    #[test]
    fn a_plan_holds_until_the_floor_can_change() {
        let floors = vec![floor("0 9 * * *", "0 18 * * *", 6), floor("30 9 * * *", "0 17 * * *", 8)];
        let policy = Policy { floors, ..policy() };
        let start = at("00:00");
        let mut plan = FloorPlan::of(&policy, policy.lead(), start);
        let mut made = 1;
        for second in (0..2 * 86_400).step_by(10) {
            let now = start + chrono::TimeDelta::seconds(second);
            if !plan.holds(&policy, policy.lead(), now) {
                plan = FloorPlan::of(&policy, policy.lead(), now);
                made += 1;
            }
            assert_eq!(plan.floor, FloorPlan::of(&policy, policy.lead(), now).floor, "{now}");
        }
        assert!(made < 20, "made {made} plans in two days");
    }

    #[test]
    fn other_floors_or_another_lead_need_another_plan() {
        let policy = Policy { floors: vec![floor("0 9 * * *", "0 18 * * *", 6)], ..policy() };
        let plan = FloorPlan::of(&policy, policy.lead(), at("12:00"));
        assert!(plan.holds(&policy, policy.lead(), at("12:01")));
        assert!(!plan.holds(&policy, policy.lead(), at("11:59")), "the clock was set back");
        assert!(!plan.holds(&policy, Duration::from_mins(15), at("12:01")));
        let more = Policy { floors: vec![floor("0 9 * * *", "0 18 * * *", 7)], ..policy };
        assert!(!plan.holds(&more, more.lead(), at("12:01")));
    }
}
