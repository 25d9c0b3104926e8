//! Windows as a timeline, over changes of the clock, and as properties against a slow reading of the wall clock.

use std::time::Duration;

use chrono::{DateTime, Datelike, TimeDelta, TimeZone, Timelike, Utc};
use chrono_tz::Tz;
use proptest::prelude::*;

use super::{Difference, Opening, Window, WindowField, keda_differences};

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("an instant")
}

fn window(zone: &str, start: &str, end: &str) -> Window {
    Window::parse(zone, start, end).expect("a good window")
}

/// The changes of a window in `[from, to)`, each as the zone's wall clock with its offset.
fn changes(window: &Window, from: &str, to: &str) -> Vec<String> {
    let zone: Tz = window.timezone.parse().expect("zone");
    let to = at(to);
    std::iter::successors(window.next_change(at(from)), |(last, _)| window.next_change(*last))
        .take_while(|(change, _)| *change < to)
        .map(|(change, open)| {
            let sign = if open { "opens" } else { "closes" };
            format!("{} {sign}", change.with_timezone(&zone).format("%a %d %H:%M %:z"))
        })
        .collect()
}

#[test]
fn a_working_week_opens_and_closes_on_weekdays() {
    let week = window("Europe/Berlin", "0 8 * * 1-5", "0 18 * * 1-5");
    assert!(!week.is_open(at("2026-11-30T06:59:59Z")));
    assert!(week.is_open(at("2026-11-30T07:00:00Z")));
    assert!(week.is_open(at("2026-11-30T16:59:59.999Z")));
    assert!(!week.is_open(at("2026-11-30T17:00:00Z")));
    assert_eq!(
        changes(&week, "2026-12-04T00:00:00Z", "2026-12-08T00:00:00Z"),
        [
            "Fri 04 08:00 +01:00 opens",
            "Fri 04 18:00 +01:00 closes",
            "Mon 07 08:00 +01:00 opens",
            "Mon 07 18:00 +01:00 closes"
        ]
    );
}

#[test]
fn a_window_opens_early_by_the_span_that_is_asked() {
    let week = window("UTC", "0 8 * * 1-5", "0 18 * * 1-5");
    let lead = Duration::from_mins(4);
    assert!(!week.opens_within(at("2026-11-30T07:55:59Z"), lead));
    assert!(week.opens_within(at("2026-11-30T07:56:00Z"), lead));
    assert!(week.opens_within(at("2026-11-30T17:59:59Z"), lead));
    assert!(!week.opens_within(at("2026-11-30T18:00:00Z"), lead));
}

#[test]
fn the_latest_event_wins_where_starts_and_ends_do_not_alternate() {
    let monday = window("UTC", "0 9 * * 1", "0 18 * * *");
    assert_eq!(
        changes(&monday, "2026-11-29T00:00:00Z", "2026-12-07T00:00:00Z"),
        ["Mon 30 09:00 +00:00 opens", "Mon 30 18:00 +00:00 closes"]
    );
    let until_saturday = window("UTC", "0 8 * * 1-5", "0 8 * * *");
    assert_eq!(
        changes(&until_saturday, "2026-11-29T00:00:00Z", "2026-12-07T00:00:00Z"),
        ["Mon 30 08:00 +00:00 opens", "Sat 05 08:00 +00:00 closes"]
    );
}

#[test]
fn the_current_or_next_opening_is_told_whole() {
    let night = window("UTC", "0 22 * * *", "0 6 * * *");
    let opening =
        Opening { opens_at: at("2026-11-29T22:00:00Z"), closes_at: Some(at("2026-11-30T06:00:00Z")) };
    assert_eq!(night.current_or_next_opening(at("2026-11-29T12:00:00Z")), Some(opening));
    assert_eq!(night.current_or_next_opening(at("2026-11-30T05:59:00Z")), Some(opening));
    assert_eq!(night.current_or_next_opening(at("2026-11-29T22:00:00Z")), Some(opening));
}

#[test]
fn a_start_in_a_skipped_hour_opens_right_after_it() {
    let early = window("Europe/Berlin", "30 2 * * *", "0 8 * * *");
    assert_eq!(
        changes(&early, "2026-03-28T12:00:00Z", "2026-03-30T00:00:00Z"),
        ["Sun 29 03:00 +02:00 opens", "Sun 29 08:00 +02:00 closes"]
    );
}

#[test]
fn a_night_that_ends_in_a_skipped_hour_is_not_lost() {
    let night = window("Europe/Berlin", "0 22 * * *", "30 2 * * *");
    assert_eq!(
        changes(&night, "2026-03-28T12:00:00Z", "2026-03-30T00:00:00Z"),
        ["Sat 28 22:00 +01:00 opens", "Sun 29 03:00 +02:00 closes", "Sun 29 22:00 +02:00 opens"]
    );
}

#[test]
fn a_window_wholly_in_a_skipped_hour_opens_after_it() {
    let batch = window("Europe/Berlin", "10 2 * * *", "50 2 * * *");
    assert_eq!(
        changes(&batch, "2026-03-28T12:00:00Z", "2026-03-30T00:00:00Z"),
        ["Sun 29 03:00 +02:00 opens", "Sun 29 03:50 +02:00 closes"]
    );
    let hour = window("America/New_York", "0 2 * * *", "0 3 * * *");
    assert_eq!(
        changes(&hour, "2026-03-07T12:00:00Z", "2026-03-09T04:00:00Z"),
        ["Sun 08 03:00 -04:00 opens", "Sun 08 04:00 -04:00 closes"]
    );
    let half = window("Australia/Lord_Howe", "0 2 * * *", "30 2 * * *");
    assert_eq!(
        changes(&half, "2026-10-03T12:00:00Z", "2026-10-04T12:00:00Z"),
        ["Sun 04 02:30 +11:00 opens", "Sun 04 03:00 +11:00 closes"]
    );
}

#[test]
fn in_a_repeated_hour_a_window_starts_the_first_time_and_ends_the_last() {
    let early = window("America/New_York", "30 1 * * *", "45 1 * * *");
    assert_eq!(
        changes(&early, "2026-10-31T12:00:00Z", "2026-11-02T00:00:00Z"),
        ["Sun 01 01:30 -04:00 opens", "Sun 01 01:45 -05:00 closes"]
    );
    let restart = window("America/New_York", "45 1 * * *", "15 1 * * *");
    assert_eq!(
        changes(&restart, "2026-10-31T12:00:00Z", "2026-11-02T00:00:00Z"),
        Vec::<String>::new(),
        "the break from 01:15 to 01:45 is given up in the night that has it twice"
    );
}

#[test]
fn at_the_same_minute_the_start_wins_even_in_a_repeated_hour() {
    let kept = window("Europe/Berlin", "30 2 * * *", "30 2,5 * * 0");
    assert_eq!(
        changes(&kept, "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z"),
        ["Sun 25 05:30 +01:00 closes", "Mon 26 02:30 +01:00 opens"]
    );
}

#[test]
fn every_part_of_a_window_is_refused_by_name() {
    let field = |zone, start, end| Window::parse(zone, start, end).expect_err("refused").field;
    assert_eq!(field("Mars/Olympus", "0 8 * * *", "0 9 * * *"), WindowField::Timezone);
    assert_eq!(field("UTC", "0 8 * * 7", "0 9 * * *"), WindowField::Start);
    assert_eq!(field("UTC", "0 8 * * *", "0 9 31 2 *"), WindowField::End);
    assert_eq!(field("UTC", "0 8 31 4 *", "0 9 * * *"), WindowField::Start);
    assert_eq!(field("UTC", "0 8 * * 1-5", "0 8 * * MON-FRI"), WindowField::Pair);
    assert_eq!(field("UTC", "0 8 * * *", "0 8 * * 1-5"), WindowField::Pair);
    assert_eq!(field("UTC", "0 8 1 * 1", "0 8 1 * *"), WindowField::Pair);
    assert!(Window::parse("UTC", "0 8 * * 1-5", "0 8 * * *").is_ok(), "it closes on Saturday");
    let message = Window::parse("UTC", "0 8 * * *", "0 8 * * *").expect_err("same").to_string();
    assert!(message.starts_with("start and end: start and end are the same times"), "{message}");
}

#[test]
fn a_window_serialises_as_it_was_written() {
    let json = serde_json::to_string(&window("UTC", "0 8 * * MON", "0 9 * * MON")).expect("json");
    assert_eq!(json, r#"{"timezone":"UTC","start":"0 8 * * MON","end":"0 9 * * MON"}"#);
}

#[test]
fn differences_to_kedas_trigger_are_listed() {
    let night = window("Europe/Berlin", "0 22 * * *", "30 2 * * *");
    // In spring the trigger stays closed from Saturday 02:30 on: the end of Sunday doesn't fire. Ours opens at 22:00.
    assert_eq!(
        keda_differences(&night, at("2026-03-01T00:00:00Z"), 60),
        [Difference { from: at("2026-03-28T21:00:00Z"), to: at("2026-03-29T01:00:00Z"), keda_open: false }]
    );
    let week = window("Europe/Berlin", "0 8 * * 1-5", "0 18 * * 1-5");
    assert_eq!(keda_differences(&week, at("2026-01-01T00:00:00Z"), 400), []);
    let always = window("UTC", "0 8 * * 1-5", "0 8 * * *");
    assert_eq!(
        keda_differences(&always, at("2026-11-30T00:00:00Z"), 7),
        [
            Difference { from: at("2026-11-30T00:00:00Z"), to: at("2026-11-30T08:00:00Z"), keda_open: true },
            Difference { from: at("2026-12-05T08:00:00Z"), to: at("2026-12-07T00:00:00Z"), keda_open: true }
        ]
    );
}

#[test]
fn a_walk_over_busy_windows_ends() {
    let busy = window("UTC", "*/2 * * * *", "1-59/2 * * * *");
    assert_eq!(keda_differences(&busy, at("2026-01-01T00:00:00Z"), 20), []);
}

/// Zones with every kind of change, and the spring and autumn changes of 2026 in each.
const ZONES: [(&str, &str, &str); 5] = [
    ("Europe/Berlin", "2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"),
    ("America/New_York", "2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z"),
    ("Australia/Sydney", "2026-10-03T16:00:00Z", "2026-04-04T16:00:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30:00Z", "2026-04-04T15:00:00Z"),
    ("Africa/Cairo", "2026-04-23T22:00:00Z", "2026-10-29T21:00:00Z"),
];

fn around_a_change() -> impl Strategy<Value = (&'static str, DateTime<Utc>)> {
    (0..ZONES.len(), any::<bool>()).prop_map(|(zone, spring)| {
        let (name, forward, back) = ZONES[zone];
        (name, at(if spring { forward } else { back }))
    })
}

/// A time of day near the changes, or anywhere.
fn daily() -> impl Strategy<Value = (u32, u32)> {
    prop_oneof![
        (0_u32..5, prop_oneof![Just(0_u32), Just(15), Just(30), Just(45), 0_u32..60]),
        (0_u32..24, 0_u32..60)
    ]
}

fn expression() -> impl Strategy<Value = String> {
    let days = prop_oneof![Just("* * *"), Just("* * 1-5"), Just("* * 0"), Just("*/2 * 6"), Just("28-31 * *")];
    let minutes = prop_oneof![Just(String::new()), (0_u32..60).prop_map(|m| format!(",{m}"))];
    (daily(), minutes, days).prop_map(|((hour, minute), more, days)| format!("{minute}{more} {hour} {days}"))
}

/// A naive reading of the rule: walk the wall clock's minutes one by one.
fn open_on_the_wall(window: &Window, zone: Tz, when: DateTime<Utc>) -> bool {
    let mut reading = when.with_timezone(&zone).naive_local().with_second(0).expect("minute");
    for _ in 0..60 * 24 * 40 {
        if window.starts.contains(reading) {
            return true;
        }
        if window.ends.contains(reading) {
            return false;
        }
        reading -= TimeDelta::minutes(1);
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_window_is_open_whenever_the_wall_clock_lies_in_it(
        (zone, change) in around_a_change(), start in expression(), end in expression(),
    ) {
        let Ok(window) = Window::parse(zone, &start, &end) else { return Ok(()) };
        let tz: Tz = zone.parse().expect("zone");
        for minutes in -200..200 {
            let when = change + TimeDelta::minutes(minutes * 7);
            let on_the_wall = open_on_the_wall(&window, tz, when);
            let ours = window.is_open(when);
            prop_assert!(ours || !on_the_wall, "lost at {when}");
            if ours && !on_the_wall {
                let hours_after = (when - change).num_minutes();
                prop_assert!((-60..120).contains(&hours_after), "overstays at {when}");
            }
        }
    }

    #[test]
    fn changes_are_exactly_where_the_window_changes(
        (zone, change) in around_a_change(), start in expression(), end in expression(),
    ) {
        let Ok(window) = Window::parse(zone, &start, &end) else { return Ok(()) };
        let from = change - TimeDelta::hours(20);
        let to = change + TimeDelta::hours(20);
        let mut walked = Vec::new();
        let mut open = window.is_open(from);
        let mut when = from;
        while when < to {
            when += TimeDelta::minutes(1);
            if window.is_open(when) != open {
                open = !open;
                walked.push((when, open));
            }
        }
        let told: Vec<_> = std::iter::successors(window.next_change(from), |(last, _)| window.next_change(*last))
            .take_while(|(when, _)| *when <= to)
            .collect();
        prop_assert_eq!(&told, &walked);
        for pair in walked.windows(2) {
            if let [(opens_at, true), (closes_at, false)] = *pair {
                let opening = Opening { opens_at, closes_at: Some(closes_at) };
                for when in [opens_at, closes_at - TimeDelta::seconds(1)] {
                    prop_assert_eq!(window.current_or_next_opening(when), Some(opening));
                }
            }
        }
    }

    #[test]
    fn windows_that_touch_have_no_dip(
        (zone, change) in around_a_change(), a in daily(), b in daily(), c in daily(),
    ) {
        let mut times = [a, b, c];
        times.sort_unstable();
        let [a, b, c] = times.map(|(hour, minute)| format!("{minute} {hour} * * *"));
        let whole = Window::parse(zone, &a, &c);
        let parts = (Window::parse(zone, &a, &b), Window::parse(zone, &b, &c));
        let (Ok(whole), (Ok(first), Ok(second))) = (whole, parts) else { return Ok(()) };
        for minutes in -300..300 {
            let when = change + TimeDelta::minutes(minutes * 5);
            prop_assert!(
                !whole.is_open(when) || first.is_open(when) || second.is_open(when),
                "dip at {}", when
            );
        }
    }

    #[test]
    fn before_and_after_are_inverse_on_the_wall_clock(text in expression(), minutes in 0_i64..60 * 24 * 800) {
        let table = super::timetable::Timetable::parse(&text).expect("good");
        let reading = at("2026-01-01T00:00:00Z").naive_utc() + TimeDelta::minutes(minutes);
        let next = table.after(reading).expect("fires");
        let last = table.at_or_before(reading).expect("fired");
        prop_assert!(last <= reading && reading < next);
        prop_assert!(table.contains(next) && table.contains(last));
        prop_assert_eq!(table.at_or_before(next), Some(next));
        prop_assert_eq!(table.at_or_before(next - TimeDelta::minutes(1)), Some(last));
        prop_assert_eq!(table.after(last), Some(next));
    }
}

#[test]
fn minutes_of_an_expression_are_those_of_its_fields() {
    let table = super::timetable::Timetable::parse("7,40 3-5 29-31 2,3 1").expect("good");
    let mut expected = Vec::new();
    let mut day = at("2027-12-01T00:00:00Z");
    while day.year() < 2029 {
        for hour in 3..=5 {
            for minute in [7, 40] {
                let of_week = day.weekday().num_days_from_sunday() == 1;
                if [2, 3].contains(&day.month()) && (day.day() >= 29 || of_week) {
                    expected.push(
                        Utc.with_ymd_and_hms(day.year(), day.month(), day.day(), hour, minute, 0).unwrap(),
                    );
                }
            }
        }
        day += TimeDelta::days(1);
    }
    let told: Vec<_> = super::firings("7,40 3-5 29-31 2,3 1", "UTC", at("2027-12-01T00:00:00Z"))
        .expect("good")
        .take_while(|hit| hit.year() < 2029)
        .collect();
    assert_eq!(told, expected);
    assert!(expected.iter().all(|hit| table.contains(hit.naive_utc())));
}
