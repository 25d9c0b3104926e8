//! Cron windows with KEDA's five fields. Pure.
//!
//! Only daily windows in UTC (`M H * * *`) so far.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use crate::units::later;

/// A pair of cron expressions in a time zone: open from each start to the next end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Window {
    /// As written.
    pub timezone: String,
    /// As written.
    pub start: String,
    /// As written.
    pub end: String,
    #[serde(skip)]
    opens: TimeDelta,
    #[serde(skip)]
    closes: TimeDelta,
}

/// Why a window is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WindowError {
    /// One line.
    pub message: String,
}

impl Window {
    /// Reads a window.
    ///
    /// # Errors
    /// When an expression is not a daily one.
    pub fn parse(timezone: &str, start: &str, end: &str) -> Result<Self, WindowError> {
        let (opens, closes) = (daily(start)?, daily(end)?);
        Ok(Self { timezone: timezone.into(), start: start.into(), end: end.into(), opens, closes })
    }

    /// Is the window open at this instant? Start inclusive, end exclusive.
    #[must_use]
    pub fn is_open(&self, at: DateTime<Utc>) -> bool {
        match self.next_change(at) {
            Some((_, open_afterwards)) => !open_afterwards,
            None => false,
        }
    }

    /// Is the window open at any instant of `[from, from + span]`?
    #[must_use]
    pub fn opens_within(&self, from: DateTime<Utc>, span: Duration) -> bool {
        self.is_open(from) || next(self.opens, from).is_some_and(|opens| opens <= later(from, span))
    }

    /// The next instant at which the window opens or closes, and whether it is open from then on.
    #[must_use]
    pub fn next_change(&self, after: DateTime<Utc>) -> Option<(DateTime<Utc>, bool)> {
        let (opens, closes) = (next(self.opens, after)?, next(self.closes, after)?);
        Some(if opens <= closes { (opens, true) } else { (closes, false) })
    }
}

fn next(time_of_day: TimeDelta, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let midnight = after.date_naive().and_hms_opt(0, 0, 0)?.and_utc();
    let today = midnight.checked_add_signed(time_of_day)?;
    if today > after { Some(today) } else { today.checked_add_signed(TimeDelta::days(1)) }
}

fn daily(expression: &str) -> Result<TimeDelta, WindowError> {
    let refuse = || WindowError { message: format!("{expression:?} is not of the form M H * * *") };
    let fields: Vec<&str> = expression.split_whitespace().collect();
    let [minute, hour, "*", "*", "*"] = fields[..] else { return Err(refuse()) };
    let minute: i64 = minute.parse().map_err(|_| refuse())?;
    let hour: i64 = hour.parse().map_err(|_| refuse())?;
    Ok(TimeDelta::minutes(hour * 60 + minute))
}
