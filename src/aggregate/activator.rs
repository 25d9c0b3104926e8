//! The queue at the activator over time. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{WindowSettings, bounded};
use crate::decision::ActivatorObservation;
use crate::units::{earlier, since};

/// Readings kept: a rate window of a minute at two readings a second. With more in the window its older part is dropped.
const MAX_READINGS: usize = 128;

/// What an activator said lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Activator {
    /// Oldest first, over one rate window.
    readings: VecDeque<(DateTime<Utc>, f64)>,
    /// Why the last attempt failed, where it did.
    error: Option<String>,
}

impl Activator {
    pub(super) fn read(&mut self, at: DateTime<Utc>, queued: Result<f64, String>, window: Duration) {
        let number = match queued {
            Ok(number) if number.is_finite() && number >= 0.0 => number,
            Ok(number) => {
                self.error = Some(format!("the activator says {number}, which is no queue"));
                return;
            }
            Err(why) => {
                self.error = Some(bounded(&why));
                return;
            }
        };
        self.error = None;
        if self.readings.back().is_some_and(|(last, _)| *last >= at) {
            self.readings.clear();
        }
        self.readings.push_back((at, number));
        let opens = earlier(at, window);
        while self.readings.len() > MAX_READINGS || self.readings.get(1).is_some_and(|(at, _)| *at <= opens) {
            self.readings.pop_front();
        }
    }

    /// How fast the queue grows, requests a second, and over which span. It is a count, so the difference is exact: what
    /// leaves it for a replica is seen there as growth, and in the sum of both as none.
    pub(super) fn growth(&self, now: DateTime<Utc>, settings: &WindowSettings) -> Option<(f64, Duration)> {
        let ((first, before), (last, number)) = (*self.readings.front()?, *self.readings.back()?);
        let span = since(last, first);
        let fresh = since(now, last) <= settings.stale_after;
        (fresh && !span.is_zero()).then(|| ((number - before) / span.as_secs_f64(), span))
    }

    /// Readings across a clock that was set tell nothing but the last number.
    pub(super) fn follow_the_clock(&mut self, now: DateTime<Utc>, limit: DateTime<Utc>) {
        if let Some((at, number)) = self.readings.back().copied()
            && at > limit
        {
            self.readings.clear();
            self.readings.push_back((now, number));
        }
    }

    pub(super) fn observe(&self, now: DateTime<Utc>, settings: &WindowSettings) -> ActivatorObservation {
        let last = self.readings.back();
        let age = last.map(|(at, _)| since(now, *at));
        let fresh = age.is_some_and(|age| age <= settings.stale_after);
        let queued = last.filter(|_| fresh).map(|(_, number)| *number);
        let error = match (&self.error, age) {
            (None, Some(age)) if !fresh => Some(format!("not read for {} s", age.as_secs())),
            (error, _) => error.clone(),
        };
        ActivatorObservation { queued, age, error }
    }
}
