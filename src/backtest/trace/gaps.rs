//! Points that were measured at regular times, some of which may be missing, as a trace. Absent is not zero: what is
//! missing is taken to be as it was before, and how much of that there is is told.

use std::collections::BTreeMap;

use super::bins::{BIN_SECONDS, LARGEST_COUNT};
use super::slots::{Slots, Wants};
use super::{Arrivals, Trace};

/// A trace of which more than this share was made up tells nothing.
const MOST_FILLED: f64 = 0.5;

/// What was measured over one step; None where it wasn't.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Requests in the step.
    pub requests: Option<f64>,
    /// Their input tokens.
    pub input_tokens: Option<f64>,
    /// Their output tokens.
    pub output_tokens: Option<f64>,
}

impl Measured {
    fn is_complete(&self, wanted: [bool; 3]) -> bool {
        [self.requests, self.input_tokens, self.output_tokens]
            .iter()
            .zip(wanted)
            .all(|(value, wanted)| value.is_some() || !wanted)
    }
}

/// Steps that were filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Of the trace.
    pub steps: u64,
    /// In which something was missing.
    pub missing: u64,
    /// The longest run of those.
    pub longest_run: u64,
}

/// A trace that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovered {
    /// The trace.
    pub trace: Trace,
    /// What of it was made up.
    pub filled: Filled,
    /// When it begins, seconds since 1970.
    pub begins_seconds: f64,
    /// What was never measured though tokens of the other kind were, and so counts as none.
    pub absent: Option<&'static str>,
    /// Steps that were asked for before the first and after the last in which all was measured.
    pub outside: u64,
}

/// Makes a trace of measurements by the number of their step; step 0 begins at `begins_seconds` since 1970.
///
/// # Errors
/// When there are none, when more than half of the steps miss something, when a value is no count, or when the trace is too
/// long.
pub fn recovered(
    points: &BTreeMap<i64, Measured>,
    asked: Option<(i64, i64)>,
    begins_seconds: f64,
    step_seconds: f64,
    most_slots: Option<usize>,
) -> Result<Recovered, String> {
    if !BIN_SECONDS.contains(&step_seconds) {
        return Err(format!(
            "steps of {step_seconds:?} s: between {} and {} s",
            BIN_SECONDS.start(),
            BIN_SECONDS.end()
        ));
    }
    // What was never measured is a column that the source doesn't have.
    let has = |part: fn(&Measured) -> Option<f64>| points.values().any(|point| part(point).is_some());
    let wanted = [has(|p| p.requests), has(|p| p.input_tokens), has(|p| p.output_tokens)];
    let mut known = points.iter().filter(|(_, point)| point.is_complete(wanted)).map(|(step, _)| *step);
    let Some(first) = known.next().filter(|_| wanted.contains(&true)) else {
        return Err("nothing was measured".to_owned());
    };
    let last = known.next_back().unwrap_or(first);
    let (mut slots, mut filled) = (Slots::new(most_slots), Filled::default());
    let (mut before, mut run) = (Measured::default(), 0);
    for step in first..=last {
        let point = points.get(&step).copied().unwrap_or_default();
        run = if point.is_complete(wanted) { 0 } else { run + 1 };
        filled.missing += u64::from(run > 0);
        filled.longest_run = filled.longest_run.max(run);
        before = Measured {
            requests: point.requests.or(before.requests),
            input_tokens: point.input_tokens.or(before.input_tokens),
            output_tokens: point.output_tokens.or(before.output_tokens),
        };
        let start = filled.steps as f64 * step_seconds;
        if slots.is_past(start) {
            break;
        }
        filled.steps += 1;
        if slots.spread(start, start + step_seconds, arrivals(&before)?)? == Wants::NoMore {
            break;
        }
    }
    if filled.missing as f64 > filled.steps as f64 * MOST_FILLED {
        return Err(format!(
            "{} of {} steps of {step_seconds} s miss something: more than half would be made up",
            filled.missing, filled.steps
        ));
    }
    let trace = slots.into_trace(step_seconds, filled.steps);
    let absent = match wanted {
        [_, true, false] => Some("output tokens"),
        [_, false, true] => Some("input tokens"),
        _ => None,
    };
    let outside = asked.map_or(0, |(from, to)| (first - from).max(0) + (to - last).max(0)) as u64;
    let begins_seconds = begins_seconds + first as f64 * step_seconds;
    Ok(Recovered { trace, filled, begins_seconds, absent, outside })
}

fn arrivals(point: &Measured) -> Result<Arrivals, String> {
    let count = |value: Option<f64>, name: &str| match value {
        None => Ok(0.0),
        Some(value) if value.is_finite() && (0.0..=LARGEST_COUNT).contains(&value) => Ok(value),
        Some(value) => Err(format!("{name} of {value:e}: from 0 to {LARGEST_COUNT:e}")),
    };
    Ok(Arrivals {
        requests: count(point.requests, "requests")?,
        input_tokens: count(point.input_tokens, "input tokens")?,
        output_tokens: count(point.output_tokens, "output tokens")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(requests: Option<f64>, input: Option<f64>) -> Measured {
        Measured { requests, input_tokens: input, output_tokens: None }
    }

    fn of(points: &[(i64, Measured)]) -> Result<Recovered, String> {
        recovered(&points.iter().copied().collect(), Some((90, 110)), 7.0, 60.0, None)
    }

    #[test]
    fn what_is_missing_is_as_it_was_before_and_is_told() {
        let points = [
            (100, measured(None, Some(9.0))),
            (101, measured(Some(12.0), Some(120.0))),
            (104, measured(Some(24.0), None)),
            (105, measured(Some(36.0), Some(360.0))),
            (106, measured(Some(36.0), Some(360.0))),
            (107, measured(Some(36.0), Some(360.0))),
            (108, measured(None, None)),
        ];
        let Recovered { trace, filled, begins_seconds, absent, outside } = of(&points).unwrap();
        assert_eq!(outside, 11 + 3, "before 101 and after 107");
        assert_eq!(absent, Some("output tokens"));
        assert_eq!(filled, Filled { steps: 7, missing: 3, longest_run: 3 });
        assert_eq!(begins_seconds, 101.0 * 60.0 + 7.0);
        assert_eq!(trace.slots.len(), 84, "from the first to the last minute in which all is known");
        let minute = |n: usize| {
            let slots = &trace.slots[n * 12..][..12];
            [slots.iter().map(|s| s.requests).sum::<f64>(), slots.iter().map(|s| s.input_tokens).sum()]
        };
        let near = |a: [f64; 2], b: [f64; 2]| (a[0] - b[0]).abs() < 1e-6 && (a[1] - b[1]).abs() < 1e-6;
        assert!(near(minute(2), [12.0, 120.0]), "{:?}", minute(2));
        assert!(near(minute(3), [24.0, 120.0]));
        assert!(near(minute(4), [36.0, 360.0]));
    }

    #[test]
    fn nothing_and_too_little_are_refused() {
        assert!(of(&[]).unwrap_err().contains("nothing was measured"));
        assert!(of(&[(1, measured(None, None))]).unwrap_err().contains("nothing was measured"));
        let hole = [(0, measured(Some(1.0), None)), (9, measured(Some(1.0), None))];
        assert!(of(&hole).unwrap_err().contains("8 of 10 steps"), "{:?}", of(&hole));
        assert!(of(&[(1, measured(Some(-1.0), None))]).unwrap_err().contains("requests of -1"));
    }
}
