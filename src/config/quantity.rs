//! Quantities as people write them: spans, shares, sizes, ramps and steps. Every refusal says what to write.

use std::time::Duration;

use crate::decision::policy::{Ramp, Step};
use crate::units::{SpanError, format_span, parse_span};

/// A load that grows further than this within one declared ramp is a slip of the pen.
const MAX_RAMP_FACTOR: f64 = 1000.0;

/// `180s`, `5m`, `1h30m`, `500ms`, within bounds.
pub(super) fn span(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let span = parse_span(text).map_err(|error| match error {
        SpanError::NoUnit if text.bytes().all(|b| b.is_ascii_digit()) => {
            format!("`{text}` has no unit: write {text}s for seconds or {text}m for minutes")
        }
        other => format!("{}: {other}", quoted(text)),
    })?;
    if span < least {
        return Err(format!("{text} is too short: write {} or more", format_span(least)));
    }
    if span > most {
        return Err(format!("{text} is too long: write {} or less", format_span(most)));
    }
    Ok(span)
}

/// A whole number within bounds.
pub(super) fn count(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let expected = || format!("write a whole number from {least} to {most}");
    let number: i128 =
        text.parse().map_err(|_| format!("{} is no whole number: {}", quoted(text), expected()))?;
    if text.len() > 1 && text.trim_start_matches(['+', '-']).starts_with('0') {
        // YAML 1.1 reads 010 as eight, YAML 1.2 as ten.
        return Err(format!("{} begins with a zero: {}", quoted(text), expected()));
    }
    u32::try_from(number)
        .ok()
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("{} is out of range: {}", quoted(text), expected()))
}

/// A finite number within bounds; NaN and infinities are refused.
pub(super) fn number(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let expected = || format!("write a number from {least} to {most}");
    let number = decimal(text).ok_or_else(|| format!("{} is no number: {}", quoted(text), expected()))?;
    if !(least..=most).contains(&number) {
        return Err(format!("{} is out of range: {}", quoted(text), expected()));
    }
    Ok(number)
}

/// A share above 0 and at most 1: `0.8` or `80%`.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let expected = "write a share above 0 and at most 1, such as 0.8 or 80%";
    let value = match text.strip_suffix('%') {
        Some(percent) => decimal(percent.trim()).map(|percent| percent / 100.0),
        None => decimal(text),
    };
    let value = value.ok_or_else(|| format!("{} is no share: {expected}", quoted(text)))?;
    if (2.0..=100.0).contains(&value) && !text.ends_with('%') {
        return Err(format!("{text} is above 1: {expected} (did you mean {text}%?)"));
    }
    if value <= 0.0 || value > 1.0 {
        return Err(format!("{text} is out of range: {expected}"));
    }
    Ok(value)
}

/// Bytes with a unit: `8MiB`, `512KiB`, `1GiB`, `100MB`.
pub(super) fn size(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let expected =
        || format!("write a size with a unit from {} to {}", format_size(least), format_size(most));
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: usize = match unit.trim() {
        "" => return Err(format!("{} has no unit: {}", quoted(text), expected())),
        "B" => 1,
        "KB" | "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(format!("{} is no size: {}", quoted(text), expected())),
    };
    number
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .filter(|bytes| (least..=most).contains(bytes))
        .ok_or_else(|| format!("{} is out of range: {}", quoted(text), expected()))
}

/// `8388608` is `8MiB`.
pub(super) fn format_size(bytes: usize) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{}{name}", bytes / unit);
        }
    }
    format!("{bytes}B")
}

/// The steepest growth expected: `2x in 120s`.
pub(crate) fn ramp(text: &str) -> Result<Ramp, String> {
    let malformed =
        || format!("{} is no ramp: write how many times in how long, such as 2x in 120s", quoted(text));
    let (factor, within) = text.split_once("in").ok_or_else(malformed)?;
    let factor = factor.trim().strip_suffix('x').and_then(decimal).ok_or_else(malformed)?;
    if factor <= 1.0 {
        return Err(format!("{text} does not grow: the factor must be above 1, such as 2x in 120s"));
    }
    if factor > MAX_RAMP_FACTOR {
        return Err(format!("{text} grows too far: write a factor of {MAX_RAMP_FACTOR} or less"));
    }
    let within = span(within.trim(), Duration::from_secs(1), Duration::from_hours(24))?;
    Ok(Ramp { factor, within })
}

/// The largest step down: a share such as `50%`, or a number of replicas such as `2`.
pub(super) fn step(text: &str) -> Result<Step, String> {
    if text.ends_with('%') {
        return share(text).map(Step::Share);
    }
    match text.parse::<u32>() {
        Ok(replicas) if replicas >= 1 => Ok(Step::Replicas(replicas)),
        _ => Err(format!(
            "{} is no step: write a share such as 50% or a number of replicas such as 2",
            quoted(text)
        )),
    }
}

/// Billions of parameters: `8B`, `70B`, `1.5B`.
pub(super) fn model_size(text: &str) -> Result<f64, String> {
    text.strip_suffix(['B', 'b'])
        .and_then(decimal)
        .filter(|billions| (0.01..=10_000.0).contains(billions))
        .ok_or_else(|| {
            format!("{} is no model size: write billions of parameters, such as 8B or 70B", quoted(text))
        })
}

/// Digits with at most one point. `f64::from_str` would also take `inf`, `NaN` and `1e400`.
fn decimal(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') && digits.len() <= 32;
    plain.then(|| text.parse::<f64>().ok()).flatten()
}

/// A text as messages show it: bounded, control characters made visible.
pub(super) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().count() > 60 {
        shown.push('…');
    }
    format!("`{shown}`")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const YEAR: Duration = Duration::from_hours(366 * 24);

    fn any_span(text: &str) -> Result<Duration, String> {
        span(text, Duration::ZERO, YEAR)
    }

    #[test]
    fn a_bare_number_is_no_span_and_the_message_says_what_to_write() {
        assert_eq!(
            any_span("180"),
            Err("`180` has no unit: write 180s for seconds or 180m for minutes".to_owned())
        );
        assert!(any_span("soon").unwrap_err().contains("expected a number with a unit"));
        assert_eq!(any_span("3m"), Ok(Duration::from_mins(3)));
        let day = Duration::from_hours(24);
        assert_eq!(span("1s", day, YEAR), Err("1s is too short: write 1d or more".to_owned()));
        assert_eq!(span("2d", Duration::ZERO, day), Err("2d is too long: write 1d or less".to_owned()));
    }

    #[test]
    fn counts_are_whole_and_within_bounds() {
        assert_eq!(count("6", 1, 10), Ok(6));
        for text in ["-1", "11", "010", "6.0", "six", "", "1e1", "99999999999999999999"] {
            let message = count(text, 1, 10).unwrap_err();
            assert!(message.contains("write a whole number from 1 to 10"), "{text}: {message}");
        }
    }

    #[test]
    fn shares_are_above_zero_and_at_most_one() {
        assert_eq!(share("0.8"), Ok(0.8));
        assert_eq!(share("80%"), Ok(0.8));
        assert_eq!(share("1"), Ok(1.0));
        assert!(share("80").unwrap_err().contains("did you mean 80%?"));
        for text in ["0", "0%", "-0.5", "101%", "NaN", "inf", "eighty", "%"] {
            assert!(share(text).unwrap_err().contains("above 0 and at most 1"), "{text}");
        }
    }

    #[test]
    fn numbers_are_finite() {
        assert_eq!(number("1.5", 0.0, 2.0), Ok(1.5));
        for text in ["NaN", ".nan", "inf", ".inf", "-inf", "1e400", "1e3", "", "-1", "3"] {
            assert!(number(text, 0.0, 2.0).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_carry_units() {
        assert_eq!(size("8MiB", 1, usize::MAX), Ok(8 << 20));
        assert_eq!(size("100MB", 1, usize::MAX), Ok(100_000_000));
        assert!(size("8388608", 1, 16 << 20).unwrap_err().contains("has no unit: write a size with a unit"));
        assert!(size("17MiB", 1, 16 << 20).unwrap_err().ends_with("from 1B to 16MiB"));
        for text in ["", "MiB", "8 mebibytes", "-1MiB", "99999999999999999999GiB"] {
            assert!(size(text, 1, 16 << 20).is_err(), "{text}");
        }
    }

    #[test]
    fn a_ramp_grows() {
        assert_eq!(ramp("2x in 120s"), Ok(Ramp { factor: 2.0, within: Duration::from_mins(2) }));
        assert_eq!(ramp("2xin120s"), ramp("2x in 120s"));
        assert_eq!(ramp("1.5x in 5m"), Ok(Ramp { factor: 1.5, within: Duration::from_mins(5) }));
        for (text, part) in [
            ("1x in 120s", "must be above 1"),
            ("0.5x in 120s", "must be above 1"),
            ("2x in 120", "has no unit"),
            ("2x in 0s", "too short"),
            ("2x", "is no ramp"),
            ("2 in 120s", "is no ramp"),
            ("NaNx in 120s", "is no ramp"),
            ("2000x in 120s", "grows too far"),
        ] {
            let message = ramp(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn a_step_is_a_share_or_a_number_of_replicas() {
        assert_eq!(step("50%"), Ok(Step::Share(0.5)));
        assert_eq!(step("2"), Ok(Step::Replicas(2)));
        for text in ["0", "0%", "-1", "0.5", "half"] {
            assert!(step(text).is_err(), "{text}");
        }
    }

    #[test]
    fn long_and_hostile_texts_are_shown_bounded() {
        assert_eq!(quoted("a\nb"), "`a\\nb`");
        assert!(quoted(&"x".repeat(10_000)).chars().count() < 70);
    }

    proptest! {
        #[test]
        fn no_text_makes_a_reader_panic_or_give_a_bad_number(text in ".{0,40}") {
            if let Ok(value) = share(&text) { prop_assert!(value > 0.0 && value <= 1.0); }
            if let Ok(value) = number(&text, 0.0, 9.0) { prop_assert!((0.0..=9.0).contains(&value)); }
            if let Ok(value) = ramp(&text) { prop_assert!(value.factor > 1.0 && value.factor.is_finite()); }
            if let Ok(value) = size(&text, 1, 100) { prop_assert!((1..=100).contains(&value)); }
            let _unused = (step(&text), model_size(&text), any_span(&text), count(&text, 0, 5));
        }
    }
}
