//! Names, numbers and spans as people read them, the same on the page and in the terminal. Pure.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::forecast::{BudgetUse, Frontier, LateCount};
use crate::supply::Stage;
use crate::telemetry::{AskedBy, Rpc};
use crate::units::since;

/// What stands for an unknown number.
pub const UNKNOWN: &str = "–";

/// A signal, a bound or a replica's state, by its name in the API, in words.
#[must_use]
pub fn words(name: &str) -> &str {
    match name {
        "kvCache" => "KV cache",
        "warmPool" => "warm pool",
        "inUse" => "in use",
        "min" => "minimum",
        "max" => "maximum",
        "nMinusOne" => "one fewer is too few",
        "maxStep" => "largest step down",
        "justStarted" => "just started",
        "tooFewKnown" => "too few known",
        "deadBand" => "dead band",
        "unknownLoad" => "unknown load",
        same => same,
    }
}

/// What the rule that leads a forecast costs, and what fewer late minutes would.
#[must_use]
pub fn frontier(frontier: &Frontier) -> String {
    let late = format!(
        "with {} replicas in the mean, {} late minutes a week",
        decimal(frontier.replicas),
        decimal(frontier.late_minutes_a_week)
    );
    let halved = frontier
        .halving_replica_hours_a_day
        .map(|hours| format!("; half of them would cost {} replica-hours a day more", decimal(hours)));
    let saves = |hours: Option<f64>, what: &str| {
        hours.map(|hours| format!("; {what} would save {} replica-hours a day", decimal(hours)))
    };
    let parts = [
        halved,
        saves(frontier.more_queue_saves_replica_hours_a_day, "30 s more acceptable queue"),
        saves(frontier.short_start_saves_replica_hours_a_day, "a cold start of 60 s"),
    ];
    std::iter::once(late).chain(parts.into_iter().flatten()).collect()
}

/// How much of a late budget was used, with the late minutes beside it.
#[must_use]
pub fn budget(used: &BudgetUse) -> String {
    let share = |share: f64| format!("{} %", (share * 1e6).round() / 1e4);
    format!(
        "of the work of the last seven days {} was late and {} may be: {} of the budget used, {} late minutes, {}",
        share(used.late_share),
        share(used.late_budget),
        percent(used.used),
        decimal(used.late_minutes),
        match used.counted {
            LateCount::QueueTimes => "as the replicas count them",
            LateCount::Waiting => "as what waits tells",
            LateCount::VirtualFleet => "as a virtual fleet came to",
        }
    )
}

/// What shortens a stage of a cold start.
#[must_use]
pub fn shortened_by(stage: Stage) -> &'static str {
    match stage {
        Stage::Gated => "more quota for this tier, or a higher priority in its queue",
        Stage::Unscheduled => "warm nodes or reserved capacity",
        Stage::Pulling => "images pulled to the nodes beforehand, or a smaller image",
        Stage::Init => "weights on local NVMe or in a cache that nodes share",
        Stage::Loading => {
            "a compile cache that is kept, and weights close by; readiness only after a warm-up request"
        }
    }
}

/// A number with at most one decimal; not-a-number is [`UNKNOWN`].
#[must_use]
pub fn decimal(number: f64) -> String {
    if !number.is_finite() {
        return UNKNOWN.to_owned();
    }
    let rounded = (number * 10.0).round() / 10.0;
    // Negative zero would show its sign.
    format!("{}", rounded + 0.0)
}

/// [`decimal`] of what may be unknown.
#[must_use]
pub fn maybe(number: Option<f64>) -> String {
    number.map_or_else(|| UNKNOWN.to_owned(), decimal)
}

/// A large number to three digits: `950`, `12.3k`, `1.2M`.
#[must_use]
pub fn quantity(number: f64) -> String {
    if !number.is_finite() {
        return UNKNOWN.to_owned();
    }
    for (size, letter) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if number.abs() >= size * 0.9995 {
            let scaled = number / size;
            return if scaled.abs() >= 99.95 {
                format!("{scaled:.0}{letter}")
            } else {
                format!("{scaled:.1}{letter}")
            };
        }
    }
    if number.abs() >= 99.95 { format!("{number:.0}") } else { decimal(number) }
}

/// A share as a percentage.
#[must_use]
pub fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.0} %", share * 100.0) } else { UNKNOWN.to_owned() }
}

/// Seconds of a latency, in the unit that fits.
#[must_use]
pub fn latency(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => UNKNOWN.to_owned(),
        s if s < 1.0 => format!("{:.0} ms", s * 1000.0),
        s => format!("{} s", decimal(s)),
    }
}

/// A size in bytes.
#[must_use]
pub fn bytes(size: u64) -> String {
    format!("{}B", quantity(size as f64))
}

/// A span to its two largest units: `4s`, `3m20s`, `2h05m`, `3d4h`.
#[must_use]
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 if (seconds / 60).is_multiple_of(60) => format!("{}h", seconds / 3600),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// When something is, seen from `now`: `in 2h05m`, `3m20s ago`, `now`.
#[must_use]
pub fn from_now(now: DateTime<Utc>, at: DateTime<Utc>) -> String {
    let ahead = at - now;
    if ahead.abs() < TimeDelta::seconds(1) {
        return "now".to_owned();
    }
    let distance = span(ahead.abs().to_std().unwrap_or(Duration::MAX));
    if ahead > TimeDelta::zero() { format!("in {distance}") } else { format!("{distance} ago") }
}

/// When a ScaledObject last made each call: `GetMetrics 3s ago, IsActive 12s ago`.
#[must_use]
pub fn asked_when(asker: &AskedBy, now: DateTime<Utc>) -> String {
    let calls = Rpc::ALL.iter().filter_map(|rpc| {
        // A snapshot is older than what was asked since.
        let ago = since(now, asker.last(*rpc)?);
        Some(format!("{} {} ago", rpc.name(), span(ago)))
    });
    calls.collect::<Vec<_>>().join(", ")
}

/// One and many.
#[must_use]
pub fn count(number: u32, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_unknown_is_not_zero() {
        assert_eq!(decimal(5.0), "5");
        assert_eq!(decimal(5.649), "5.6");
        assert_eq!(decimal(-0.01), "0");
        assert_eq!(decimal(f64::NAN), UNKNOWN);
        assert_eq!(maybe(None), UNKNOWN);
        for (number, text) in [
            (0.0, "0"),
            (950.4, "950"),
            (999.9, "1.0k"),
            (12_345.0, "12.3k"),
            (987_654.0, "988k"),
            (1.25e6, "1.2M"),
        ] {
            assert_eq!(quantity(number), text);
        }
        assert_eq!(percent(0.427), "43 %");
        assert_eq!(latency(0.0421), "42 ms");
        assert_eq!(latency(2.04), "2 s");
    }

    #[test]
    fn spans_have_two_units() {
        for (seconds, text) in
            [(0, "0s"), (59, "59s"), (200, "3m20s"), (3600, "1h"), (7500, "2h05m"), (277_200, "3d5h")]
        {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn times_are_told_from_now() {
        let now = DateTime::UNIX_EPOCH;
        assert_eq!(from_now(now, now + TimeDelta::minutes(125)), "in 2h05m");
        assert_eq!(from_now(now, now - TimeDelta::seconds(200)), "3m20s ago");
        assert_eq!(from_now(now, now), "now");
    }
}
