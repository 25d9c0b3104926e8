//! Where KEDA's own cron trigger answers something else than ours. Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::window::Window;
use crate::units::later;

/// How many starts and ends are walked: a start every minute for 130 days. Real windows have a few a day.
const MOST_STEPS: usize = 200_000;

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

/// Every time within `days` from `from` at which KEDA's cron trigger differs, oldest first; the last one is cut at the
/// end of the walk.
///
/// KEDA's rule (cron scaler, `getCronMetricValue`): active while the next end isn't after the next start, over firing
/// times in which a skipped hour doesn't fire and a repeated one fires twice.
#[must_use]
pub fn keda_differences(window: &Window, from: DateTime<Utc>, days: u32) -> Vec<Difference> {
    let until = later(from, Duration::from_secs(u64::from(days) * 86_400));
    let keda_start = |at| window.starts.fires_after(window.zone, at);
    let keda_end = |at| window.ends.fires_after(window.zone, at);

    let mut found: Vec<Difference> = Vec::new();
    let mut at = from;
    let (mut next_start, mut next_end) = (keda_start(at), keda_end(at));
    let mut our_open = window.is_open(at);
    let mut our_change = window.next_change(at);
    for _ in 0..MOST_STEPS {
        let keda_open = match (next_start, next_end) {
            (Some(start), Some(end)) => end <= start,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let our_next = our_change.map(|(change_at, _)| change_at);
        let step_end =
            [next_start, next_end, our_next].into_iter().flatten().min().unwrap_or(until).min(until);
        if keda_open != our_open {
            match found.last_mut().filter(|last| last.to == at && last.keda_open == keda_open) {
                Some(last) => last.to = step_end,
                None => found.push(Difference { from: at, to: step_end, keda_open }),
            }
        }
        if step_end >= until {
            break;
        }
        at = step_end;
        if next_start.is_some_and(|start| start <= at) {
            next_start = keda_start(at);
        }
        if next_end.is_some_and(|end| end <= at) {
            next_end = keda_end(at);
        }
        if let Some((change_at, open)) = our_change
            && change_at <= at
        {
            our_open = open;
            our_change = window.next_change(at);
        }
    }
    found
}
