//! Spans of time as people write them, and as JSON carries them. Pure.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

/// `at + span`, saturating at the end of representable time.
#[must_use]
pub fn later(at: DateTime<Utc>, span: Duration) -> DateTime<Utc> {
    TimeDelta::from_std(span)
        .ok()
        .and_then(|delta| at.checked_add_signed(delta))
        .unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// `at - span`, saturating at the beginning of representable time.
#[must_use]
pub fn earlier(at: DateTime<Utc>, span: Duration) -> DateTime<Utc> {
    TimeDelta::from_std(span)
        .ok()
        .and_then(|delta| at.checked_sub_signed(delta))
        .unwrap_or(DateTime::<Utc>::MIN_UTC)
}

/// How long before `now` the instant `at` lies; zero when it lies ahead (a clock that was set back).
#[must_use]
pub fn since(now: DateTime<Utc>, at: DateTime<Utc>) -> Duration {
    (now - at).to_std().unwrap_or(Duration::ZERO)
}

/// Why a text is not a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// Nothing, or no number where one is needed.
    #[error("expected a number with a unit, such as 180s, 5m or 1h30m")]
    Malformed,
    /// A bare number: seconds or minutes?
    #[error("a unit is missing: write 180s, 5m, 1h or 500ms")]
    NoUnit,
    /// Longer than a year: a slip of the unit.
    #[error("longer than 366 days")]
    TooLong,
}

/// Reads `500ms`, `180s`, `2.5s`, `5m`, `1h30m` or `14d`.
///
/// # Errors
/// When a unit is missing or unknown, or the total is above 366 days.
pub fn parse_span(text: &str) -> Result<Duration, SpanError> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(SpanError::Malformed);
    }
    let mut total_seconds = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().map_err(|_| SpanError::Malformed)?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit_seconds = match rest[..letters].trim() {
            "" => return Err(SpanError::NoUnit),
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(SpanError::Malformed),
        };
        rest = &rest[letters..];
        total_seconds += number * unit_seconds;
    }
    if total_seconds > 366.0 * 86_400.0 {
        return Err(SpanError::TooLong);
    }
    Duration::try_from_secs_f64(total_seconds).map_err(|_| SpanError::Malformed)
}

/// Writes a span the way [`parse_span`] reads it, to the millisecond below ten seconds and to the second above.
#[must_use]
pub fn format_span(span: Duration) -> String {
    if span < Duration::from_secs(10) && span.subsec_millis() != 0 {
        return if span < Duration::from_secs(1) {
            format!("{}ms", span.as_millis())
        } else {
            format!("{}s", (span.as_secs_f64() * 1000.0).round() / 1000.0)
        };
    }
    let seconds = span.as_secs_f64().round() as u64;
    let (days, hours, minutes, secs) =
        (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let mut out = String::new();
    for (n, unit) in [(days, 'd'), (hours, 'h'), (minutes, 'm'), (secs, 's')] {
        if n > 0 {
            out.push_str(&n.to_string());
            out.push(unit);
        }
    }
    if out.is_empty() { "0s".to_owned() } else { out }
}

/// Serde of a [`Duration`] as seconds, for fields whose names end in `Seconds`.
pub mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes whole and fractional seconds as one number.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(span.as_secs_f64())
    }

    /// Reads what [`serialize`] wrote.
    ///
    /// # Errors
    /// When the number is negative or not finite.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(from)?;
        Duration::try_from_secs_f64(seconds).map_err(serde::de::Error::custom)
    }

    /// The same for an optional span.
    pub mod option {
        use std::time::Duration;

        use serde::{Deserialize, Deserializer, Serializer};

        /// Writes seconds, or null.
        ///
        /// # Errors
        /// Those of the serializer.
        pub fn serialize<S: Serializer>(span: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
            match span {
                Some(span) => to.serialize_f64(span.as_secs_f64()),
                None => to.serialize_none(),
            }
        }

        /// Reads what [`serialize`] wrote.
        ///
        /// # Errors
        /// When the number is negative or not finite.
        pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
            Option::<f64>::deserialize(from)?
                .map(|seconds| Duration::try_from_secs_f64(seconds).map_err(serde::de::Error::custom))
                .transpose()
        }
    }
}

/// The beginning of a text, with `…` where there was more.
#[must_use]
pub fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_with_their_units() {
        for (text, millis) in
            [("500ms", 500), ("180s", 180_000), ("2.5s", 2_500), ("1h30m", 5_400_000), ("14d", 1_209_600_000)]
        {
            assert_eq!(parse_span(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn a_span_without_a_unit_is_refused() {
        assert_eq!(parse_span("180"), Err(SpanError::NoUnit));
        assert_eq!(parse_span("1h30"), Err(SpanError::NoUnit));
        for text in ["", "s", "-5s", "5 parsecs", "1e3s", "NaNs"] {
            assert_eq!(parse_span(text), Err(SpanError::Malformed), "{text}");
        }
        assert_eq!(parse_span("9000d"), Err(SpanError::TooLong));
    }

    #[test]
    fn what_is_written_is_read_back() {
        for millis in [0, 5, 999, 1500, 59_000, 61_000, 3_600_000, 90_061_000] {
            let span = Duration::from_millis(millis);
            assert_eq!(parse_span(&format_span(span)), Ok(span));
        }
    }
}
