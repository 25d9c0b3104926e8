//! A pair of expressions: open from each start to the next end. Pure.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use super::timetable::Timetable;
use super::zone::{self, Pass};
use crate::units::later;

/// How many starts or ends are looked at for one answer. A window with more of them in a row that change nothing (an
/// end at nearly every minute that is also a start) is taken to stay as it is; real ones need one or two.
const MOST_EVENTS: usize = 20_000;

/// What events are whole multiples of.
const ONE_MINUTE: TimeDelta = TimeDelta::minutes(1);

/// A pair of cron expressions in a time zone: open from each start to the next end.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenWindow")]
pub struct Window {
    /// As written.
    pub timezone: String,
    /// As written.
    pub start: String,
    /// As written.
    pub end: String,
    #[serde(skip)]
    pub(super) zone: Tz,
    #[serde(skip)]
    pub(super) starts: Timetable,
    #[serde(skip)]
    pub(super) ends: Timetable,
}

/// A window as it is written, which may be wrong.
#[derive(Deserialize)]
struct WrittenWindow {
    timezone: String,
    start: String,
    end: String,
}

impl TryFrom<WrittenWindow> for Window {
    type Error = WindowError;

    fn try_from(written: WrittenWindow) -> Result<Self, WindowError> {
        Self::parse(&written.timezone, &written.start, &written.end)
    }
}

/// Why a window is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct WindowError {
    /// What is wrong.
    pub field: WindowField,
    /// One line that says what to write instead.
    pub message: String,
}

/// A part of a window as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowField {
    /// The zone.
    Timezone,
    /// The first expression.
    Start,
    /// The second one.
    End,
    /// Both are good, together they aren't.
    Pair,
}

impl fmt::Display for WindowField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timezone => "timezone",
            Self::Start => "start",
            Self::End => "end",
            Self::Pair => "start and end",
        })
    }
}

/// One time that a window is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The first instant.
    pub opens_at: DateTime<Utc>,
    /// The first instant after it; None where it stays open for ever.
    pub closes_at: Option<DateTime<Utc>>,
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window({:?} to {:?} in {})", self.start, self.end, self.timezone)
    }
}

impl Window {
    /// Reads a window.
    ///
    /// # Errors
    /// The first of: an unknown zone, a bad start, a bad end, a pair that never closes.
    pub fn parse(timezone: &str, start: &str, end: &str) -> Result<Self, WindowError> {
        let refuse = |field| move |message| WindowError { field, message };
        let zone = zone::parse(timezone).map_err(refuse(WindowField::Timezone))?;
        let starts = Timetable::parse(start).map_err(refuse(WindowField::Start))?;
        let ends = Timetable::parse(end).map_err(refuse(WindowField::End))?;
        if starts == ends {
            return Err(refuse(WindowField::Pair)(format!(
                "start and end are the same times ({start:?} and {end:?}): the window would never close; for a floor \
                 that always holds use replicas.min"
            )));
        }
        if ends.is_within(&starts) {
            return Err(refuse(WindowField::Pair)(format!(
                "every end ({end:?}) is also a start ({start:?}), where the start wins: the window would never close; \
                 for a floor that always holds use replicas.min"
            )));
        }
        Ok(Self {
            timezone: timezone.to_owned(),
            start: start.to_owned(),
            end: end.to_owned(),
            zone,
            starts,
            ends,
        })
    }

    /// What the clock of the window's zone shows at an instant.
    #[must_use]
    pub fn local(&self, at: DateTime<Utc>) -> DateTime<Tz> {
        at.with_timezone(&self.zone)
    }

    /// The window's zone.
    #[must_use]
    pub fn zone(&self) -> Tz {
        self.zone
    }

    /// An instant as people of the window's zone say it, with the zone's name: `08:00 Europe/Berlin`.
    #[must_use]
    pub fn told(&self, at: DateTime<Utc>, format: &str) -> String {
        format!("{} {}", self.local(at).format(format), self.zone.name())
    }

    /// Is the window open at this instant? Start inclusive, end exclusive.
    #[must_use]
    pub fn is_open(&self, at: DateTime<Utc>) -> bool {
        let Some(start) = self.latest(&self.starts, at, Pass::First) else { return false };
        match self.latest(&self.ends, at, Pass::Last) {
            Some(end) if end > start => self.close_of_moved(start).is_some_and(|close| at < close),
            // At the same reading the start wins, whichever pass of a repeated hour it is.
            _ => true,
        }
    }

    /// Is the window open at any instant of `[from, from + span]`?
    #[must_use]
    pub fn opens_within(&self, from: DateTime<Utc>, span: Duration) -> bool {
        self.is_open(from) || self.next_opening(from).is_some_and(|opens_at| opens_at <= later(from, span))
    }

    /// The next instant at which the window opens or closes, and whether it is open from then on.
    #[must_use]
    pub fn next_change(&self, after: DateTime<Utc>) -> Option<(DateTime<Utc>, bool)> {
        if self.is_open(after) {
            self.next_closing(after).map(|at| (at, false))
        } else {
            self.next_opening(after).map(|at| (at, true))
        }
    }

    /// The opening that holds at this instant, or the next one.
    #[must_use]
    pub fn current_or_next_opening(&self, after: DateTime<Utc>) -> Option<Opening> {
        let opens_at = if self.is_open(after) { self.opened_at(after)? } else { self.next_opening(after)? };
        Some(Opening { opens_at, closes_at: self.next_closing(after.max(opens_at)) })
    }

    /// The latest start whose first pass isn't after `at`, or the latest end whose last pass isn't.
    fn latest(&self, table: &Timetable, at: DateTime<Utc>, pass: Pass) -> Option<NaiveDateTime> {
        let now = zone::reading(self.zone, at);
        let fold = zone::fold_length(self.zone, now);
        let mut reading = table.at_or_before(now + fold)?;
        // Outside a repeated hour the wall clock orders readings as it orders instants.
        while !fold.is_zero() && zone::instant(self.zone, reading, pass) > at {
            reading = table.at_or_before(reading - ONE_MINUTE)?;
        }
        Some(reading)
    }

    /// The first start or end after `at`, the other way round.
    fn next(&self, table: &Timetable, at: DateTime<Utc>, pass: Pass) -> Option<NaiveDateTime> {
        let now = zone::reading(self.zone, at);
        let fold = zone::fold_length(self.zone, now);
        let mut reading = table.after(now - fold)?;
        while !fold.is_zero() && zone::instant(self.zone, reading, pass) <= at {
            reading = table.after(reading)?;
        }
        Some(reading)
    }

    /// When a window closes that lies wholly in a skipped hour: at its end on the clock as it would be without the
    /// change, so that it isn't lost and windows that touch still touch. None for every other start.
    fn close_of_moved(&self, start: NaiveDateTime) -> Option<DateTime<Utc>> {
        if !zone::is_skipped(self.zone, start) {
            return None;
        }
        let end = self.ends.after(start)?;
        let opens_at = zone::instant(self.zone, start, Pass::First);
        let lies_in_the_gap = zone::instant(self.zone, end, Pass::Last) <= opens_at;
        lies_in_the_gap.then(|| zone::as_if_unchanged(self.zone, start) + (end - start))
    }

    /// While closed: the next start always opens.
    fn next_opening(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.next(&self.starts, after, Pass::First).map(|start| zone::instant(self.zone, start, Pass::First))
    }

    /// While open: the first end that isn't taken back by a start.
    fn next_closing(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let moved = self
            .latest(&self.starts, after, Pass::First)
            .and_then(|start| self.close_of_moved(start))
            .filter(|close| *close > after && !self.is_open(*close));
        let first_end = self.next(&self.ends, after, Pass::Last);
        let ended = std::iter::successors(first_end, |end| self.ends.after(*end))
            .take(MOST_EVENTS)
            .filter(|end| !self.starts.contains(*end))
            .map(|end| zone::instant(self.zone, end, Pass::Last))
            .find(|at| !self.is_open(*at));
        moved.into_iter().chain(ended).min()
    }

    /// While open: the first start after the last end that closed.
    fn opened_at(&self, at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let last_end = self.latest(&self.ends, at, Pass::Last);
        let closed = std::iter::successors(last_end, |end| self.ends.at_or_before(*end - ONE_MINUTE))
            .take(MOST_EVENTS)
            .filter(|end| !self.starts.contains(*end))
            .flat_map(|end| {
                let start = self.starts.at_or_before(end - ONE_MINUTE);
                let moved = start.and_then(|start| self.close_of_moved(start)).filter(|close| *close <= at);
                moved.into_iter().chain([zone::instant(self.zone, end, Pass::Last)])
            })
            .find(|closed_at| !self.is_open(*closed_at));
        self.next_opening(closed.unwrap_or(DateTime::UNIX_EPOCH))
    }
}
