//! Cron windows with KEDA's five fields. Pure.

use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::Serialize;

/// A pair of cron expressions in a time zone: open from each start to the next end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Window {
    /// As written.
    pub timezone: String,
    /// As written.
    pub start: String,
    /// As written.
    pub end: String,
}

/// Why a window is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
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

/// A time at which KEDA's cron trigger and ours differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The first instant.
    pub from: DateTime<Utc>,
    /// The first instant after it.
    pub to: DateTime<Utc>,
    /// What KEDA's trigger says; ours says the opposite.
    pub keda_open: bool,
}

/// Every time within `days` from `from` at which KEDA's cron trigger differs.
#[must_use]
pub fn keda_differences(_window: &Window, _from: DateTime<Utc>, _days: u32) -> Vec<Difference> {
    Vec::new()
}

impl Window {
    /// Reads a window.
    ///
    /// # Errors
    /// The first of: an unknown zone, a bad start, a bad end, a pair that never closes.
    pub fn parse(timezone: &str, start: &str, end: &str) -> Result<Self, WindowError> {
        let refuse = |field, message: &str| Err(WindowError { field, message: message.to_owned() });
        if timezone.parse::<chrono_tz::Tz>().is_err() {
            return refuse(
                WindowField::Timezone,
                "unknown time zone: write an IANA name, such as Europe/Berlin",
            );
        }
        for (field, text) in [(WindowField::Start, start), (WindowField::End, end)] {
            let schedule = (text.split_whitespace().count() == 5)
                .then(|| cron::Schedule::from_str(&format!("0 {text}")).ok())
                .flatten();
            match schedule {
                None => return refuse(field, "not five cron fields"),
                Some(schedule) if schedule.after(&DateTime::UNIX_EPOCH).next().is_none() => {
                    return refuse(field, "never fires");
                }
                Some(_) => {}
            }
        }
        if start == end {
            return refuse(
                WindowField::Pair,
                "start and end are the same times: the window would never close",
            );
        }
        Ok(Self { timezone: timezone.to_owned(), start: start.to_owned(), end: end.to_owned() })
    }

    /// Is the window open at this instant? Start inclusive, end exclusive.
    #[must_use]
    pub fn is_open(&self, _at: DateTime<Utc>) -> bool {
        false
    }
}
