//! Time zones by name, and the wall clock in one. Pure.

use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeDelta, TimeZone, Utc};
use chrono_tz::{TZ_VARIANTS, Tz};
use serde::{Deserialize, Serialize};

/// How far from a skipped hour the offsets before and after it are looked up: more than the largest offset plus the
/// longest skip there ever was (a day, Samoa 2011).
const AROUND_A_GAP: TimeDelta = TimeDelta::hours(40);

/// How many zones an error names.
const SUGGESTIONS: usize = 3;

/// A time zone. It is written as its IANA name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Zone(Tz);

impl Zone {
    /// The zone of this IANA name.
    ///
    /// # Errors
    /// An unknown name, with the nearest ones that are known.
    pub fn parse(name: &str) -> Result<Self, String> {
        parse(name).map(Self)
    }

    /// By how much its clocks are ahead of UTC at an instant.
    #[must_use]
    pub fn ahead_of_utc(self, at: DateTime<Utc>) -> TimeDelta {
        TimeDelta::seconds(i64::from(at.with_timezone(&self.0).offset().fix().local_minus_utc()))
    }
}

impl TryFrom<String> for Zone {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::parse(&name)
    }
}

impl From<Zone> for String {
    fn from(zone: Zone) -> Self {
        zone.0.name().to_owned()
    }
}

/// The zone of this name; an error names the nearest ones.
pub(super) fn parse(name: &str) -> Result<Tz, String> {
    let name = name.trim();
    if name.is_empty() {
        return Err("empty: write an IANA name, such as Europe/Berlin or UTC".to_owned());
    }
    if let Ok(zone) = name.parse() {
        return Ok(zone);
    }
    let mut ranked: Vec<(usize, &str)> =
        TZ_VARIANTS.iter().map(|zone| (distance_to_zone(name, zone.name()), zone.name())).collect();
    ranked.sort_unstable();
    let nearest = ranked.first().map_or(usize::MAX, |(distance, _)| *distance);
    let close_enough = name.chars().count().div_ceil(3);
    let near: Vec<&str> = ranked
        .iter()
        .take_while(|(distance, _)| *distance == nearest && nearest <= close_enough)
        .take(SUGGESTIONS)
        .map(|(_, zone)| *zone)
        .collect();
    if near.is_empty() {
        return Err(format!("unknown time zone {name:?}: write an IANA name, such as Europe/Berlin or UTC"));
    }
    Err(format!("unknown time zone {name:?}: did you mean {}?", near.join(" or ")))
}

/// Edits from what was written to a zone's name or to its city alone, case and separators aside.
fn distance_to_zone(written: &str, zone: &str) -> usize {
    let written = plain(written);
    let city = zone.rsplit('/').next().unwrap_or(zone);
    edits(&written, &plain(zone)).min(edits(&written, &plain(city)))
}

fn plain(name: &str) -> Vec<char> {
    name.chars().filter(|c| c.is_alphanumeric() || *c == '/').flat_map(char::to_lowercase).collect()
}

/// Levenshtein's distance.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Which of the two passes of a repeated hour counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    First,
    Last,
}

/// What the wall clock shows at an instant.
pub(super) fn reading(zone: Tz, at: DateTime<Utc>) -> NaiveDateTime {
    at.with_timezone(&zone).naive_local()
}

/// The instant of a reading; a reading that is skipped stands for the first instant after the gap. Never decreases as
/// the reading grows.
pub(super) fn instant(zone: Tz, reading: NaiveDateTime, pass: Pass) -> DateTime<Utc> {
    match zone.from_local_datetime(&reading) {
        MappedLocalTime::Single(at) => at.to_utc(),
        MappedLocalTime::Ambiguous(a, b) => match pass {
            Pass::First => a.min(b).to_utc(),
            Pass::Last => a.max(b).to_utc(),
        },
        MappedLocalTime::None => end_of_gap(zone, reading),
    }
}

/// Is this reading skipped?
pub(super) fn is_skipped(zone: Tz, reading: NaiveDateTime) -> bool {
    matches!(zone.from_local_datetime(&reading), MappedLocalTime::None)
}

/// How long the repeated hour is that this reading lies in; zero outside one.
pub(super) fn fold_length(zone: Tz, reading: NaiveDateTime) -> TimeDelta {
    match zone.from_local_datetime(&reading) {
        MappedLocalTime::Ambiguous(a, b) => (b.to_utc() - a.to_utc()).abs(),
        MappedLocalTime::Single(_) | MappedLocalTime::None => TimeDelta::zero(),
    }
}

/// The instant of a skipped reading on a clock that isn't put forward.
pub(super) fn as_if_unchanged(zone: Tz, skipped: NaiveDateTime) -> DateTime<Utc> {
    let before = zone.offset_from_utc_datetime(&(skipped - AROUND_A_GAP)).fix();
    (skipped - before).and_utc()
}

fn end_of_gap(zone: Tz, skipped: NaiveDateTime) -> DateTime<Utc> {
    let offset = |utc: NaiveDateTime| zone.offset_from_utc_datetime(&utc).fix();
    let (before, after) = (offset(skipped - AROUND_A_GAP), offset(skipped + AROUND_A_GAP));
    // Read with the offset that isn't in force yet, the instant lies before the change; with the old one, after it.
    let mut last_before = skipped - after;
    let mut first_after = skipped - before;
    while first_after - last_before > TimeDelta::seconds(1) {
        let middle = last_before + (first_after - last_before) / 2;
        if offset(middle) == after {
            first_after = middle;
        } else {
            last_before = middle;
        }
    }
    // Halving leaves fractions of a second above the whole second at which zones change.
    let whole = first_after.and_utc().timestamp();
    DateTime::from_timestamp(whole, 0).unwrap_or_else(|| first_after.and_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_zone_is_refused_with_the_nearest_names() {
        assert_eq!(parse("Europe/Berlin"), Ok(chrono_tz::Europe::Berlin));
        assert_eq!(
            parse("Europe/Berln"),
            Err("unknown time zone \"Europe/Berln\": did you mean Europe/Berlin?".to_owned())
        );
        for (written, meant) in [
            ("europe/berlin", "Europe/Berlin"),
            ("Berlin", "Europe/Berlin"),
            ("New York", "America/New_York"),
        ] {
            let message = parse(written).expect_err(written);
            assert!(message.contains(meant), "{message}");
        }
        assert!(parse("CompletelyElsewhere").expect_err("unknown").contains("IANA name"));
        assert!(parse("").expect_err("empty").contains("IANA name"));
        assert!(parse("Local").is_err());
    }

    #[test]
    fn a_skipped_reading_stands_for_the_first_instant_after_the_gap() {
        for (zone, skipped, expected) in [
            (chrono_tz::Europe::Berlin, "2026-03-29T02:30:00", "2026-03-29T01:00:00Z"),
            (chrono_tz::America::New_York, "2026-03-08T02:00:00", "2026-03-08T07:00:00Z"),
            (chrono_tz::Australia::Lord_Howe, "2026-10-04T02:15:00", "2026-10-03T15:30:00Z"),
            (chrono_tz::Pacific::Apia, "2011-12-30T12:00:00", "2011-12-30T10:00:00Z"),
        ] {
            let skipped: NaiveDateTime = skipped.parse().expect("time");
            assert!(is_skipped(zone, skipped));
            let expected: DateTime<Utc> = expected.parse().expect("time");
            assert_eq!(instant(zone, skipped, Pass::First), expected, "{zone}");
        }
    }
}
