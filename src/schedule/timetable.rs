//! The wall-clock minutes of one expression, forward and backward. Pure.
//!
//! The `cron` crate reads fields differently from KEDA (`1-5` is Sunday to Thursday, both day fields must match) and
//! version 0.17 iterates out of order in a repeated hour. So it gets explicit lists made from our own [`Fields`] and is
//! asked only on the plain timeline of the wall clock, written as UTC, where no hour repeats; zones are mapped here.

use std::str::FromStr;

use chrono::{
    DateTime, Datelike, MappedLocalTime, NaiveDate, NaiveDateTime, TimeDelta, TimeZone, Timelike, Utc,
};
use chrono_tz::Tz;
use cron::Schedule;

use super::fields::{Fields, contains};
use super::zone;

/// After this many years from 2000 the calendar has shown every pair of weekday and date, leap days included.
const CALENDAR_CYCLE_YEARS: i32 = 28;

/// The minutes of one expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Timetable {
    fields: Fields,
    /// Two where either day field is enough: one for each.
    schedules: Vec<Schedule>,
}

impl Timetable {
    /// Reads an expression; an error says what to write instead.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let fields = Fields::parse(text)?;
        let (of_month, of_week) = (fields.days_of_month, fields.days_of_week);
        let days = if fields.both_days {
            vec![(of_month, of_week)]
        } else {
            vec![(of_month, u64::MAX), (u64::MAX, of_week)]
        };
        let schedules = days
            .into_iter()
            .map(|(of_month, of_week)| {
                let canonical = format!(
                    "0 {} {} {} {} {}",
                    list(fields.minutes, 0, 59, 0),
                    list(fields.hours, 0, 23, 0),
                    list(of_month, 1, 31, 0),
                    list(fields.months, 1, 12, 0),
                    // The crate counts Sunday as 1.
                    list(of_week, 0, 6, 1),
                );
                Schedule::from_str(&canonical).map_err(|error| format!("{canonical}: {error}"))
            })
            .collect::<Result<_, String>>()?;
        Ok(Self { fields, schedules })
    }

    /// The first minute after a reading of the wall clock.
    pub(super) fn after(&self, reading: NaiveDateTime) -> Option<NaiveDateTime> {
        let from = inside_its_minute(reading);
        self.schedules.iter().filter_map(|s| s.after(&from).next()).min().map(|hit| hit.naive_utc())
    }

    /// The last minute that isn't after a reading of the wall clock.
    pub(super) fn at_or_before(&self, reading: NaiveDateTime) -> Option<NaiveDateTime> {
        let from = inside_its_minute(reading);
        self.schedules.iter().filter_map(|s| s.after(&from).next_back()).max().map(|hit| hit.naive_utc())
    }

    /// Is the minute of this reading one of them?
    pub(super) fn contains(&self, reading: NaiveDateTime) -> bool {
        let date = reading.date();
        contains(self.fields.minutes, reading.minute())
            && contains(self.fields.hours, reading.hour())
            && self.fields.matches_day(date.month(), date.day(), date.weekday().num_days_from_sunday())
    }

    /// Is every minute of this one also a minute of the other?
    pub(super) fn is_within(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.fields, &other.fields);
        if ours.minutes & !theirs.minutes != 0 || ours.hours & !theirs.hours != 0 {
            return false;
        }
        let Some(first) = NaiveDate::from_ymd_opt(2000, 1, 1) else { return false };
        first.iter_days().take_while(|day| day.year() < 2000 + CALENDAR_CYCLE_YEARS).all(|day| {
            let (month, date, weekday) = (day.month(), day.day(), day.weekday().num_days_from_sunday());
            !ours.matches_day(month, date, weekday) || theirs.matches_day(month, date, weekday)
        })
    }

    /// The first firing after an instant as KEDA's cron library has it: a skipped reading doesn't fire, a repeated one
    /// fires twice.
    pub(super) fn fires_after(&self, tz: Tz, at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let now = zone::reading(tz, at);
        let fold = zone::fold_length(tz, now);
        let mut reading = self.after(now - fold)?;
        if fold.is_zero() {
            loop {
                match tz.from_local_datetime(&reading) {
                    MappedLocalTime::Single(hit) => return Some(hit.to_utc()),
                    MappedLocalTime::Ambiguous(a, b) => return Some(a.min(b).to_utc()),
                    MappedLocalTime::None => reading = self.after(reading)?,
                }
            }
        }
        let mut earliest: Option<DateTime<Utc>> = None;
        loop {
            let hits = match tz.from_local_datetime(&reading) {
                MappedLocalTime::Single(hit) => [Some(hit), None],
                MappedLocalTime::Ambiguous(a, b) => [Some(a), Some(b)],
                MappedLocalTime::None => [None, None],
            };
            let later = hits.into_iter().flatten().map(|hit| hit.to_utc()).filter(|hit| *hit > at).min();
            earliest = earliest.into_iter().chain(later).min();
            if reading > now + fold && earliest.is_some() {
                return earliest;
            }
            match self.after(reading) {
                Some(next) => reading = next,
                None => return earliest,
            }
        }
    }
}

/// The firings of an expression after an instant, in the zone, as KEDA's cron library has them: for tests against that
/// library and for tools that compare.
///
/// # Errors
/// When the zone or the expression is refused; the text says why.
pub fn firings(
    expression: &str,
    timezone: &str,
    after: DateTime<Utc>,
) -> Result<impl Iterator<Item = DateTime<Utc>> + use<>, String> {
    let tz = zone::parse(timezone)?;
    let table = Timetable::parse(expression)?;
    let first = table.fires_after(tz, after);
    Ok(std::iter::successors(first, move |at| table.fires_after(tz, *at)))
}

/// Half way between two minutes: whether the crate counts the instant itself doesn't matter then.
fn inside_its_minute(reading: NaiveDateTime) -> DateTime<Utc> {
    let past_the_minute = TimeDelta::seconds(i64::from(reading.second()))
        + TimeDelta::nanoseconds(i64::from(reading.nanosecond()));
    (reading - past_the_minute + TimeDelta::seconds(30)).and_utc()
}

/// A set as a comma list, each number moved up by `shift`; `*` where it is whole.
fn list(set: u64, least: u32, most: u32, shift: u32) -> String {
    if (least..=most).all(|number| contains(set, number)) {
        return "*".to_owned();
    }
    let numbers = (least..=most).filter(|number| contains(set, *number));
    numbers.map(|number| (number + shift).to_string()).collect::<Vec<_>>().join(",")
}
