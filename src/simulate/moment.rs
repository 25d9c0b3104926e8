//! Time of the simulated world. Pure.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

/// Picoseconds in a second.
const PICOS_PER_SECOND: f64 = 1e12;

/// An instant of the simulated world: picoseconds since it began.
///
/// An integer, so that many small steps and one big one end at the same instant to the last digit; picoseconds, because
/// the measured cost of a context token is a fraction of a nanosecond's multiple. The range is 213 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The beginning.
    pub const START: Self = Self(0);

    /// Later than everything.
    pub const END: Self = Self(u64::MAX);

    /// So many seconds after the beginning; negative and not-a-number are the beginning.
    #[must_use]
    pub fn from_seconds(seconds: f64) -> Self {
        Self((seconds * PICOS_PER_SECOND).round() as u64)
    }

    /// So long after the beginning.
    #[must_use]
    pub fn from_duration(span: Duration) -> Self {
        Self::START.plus(span)
    }

    /// How far `at` is from the wall-clock time `base` at which the world began; before it: the beginning.
    #[must_use]
    pub fn from_wall(base: DateTime<Utc>, at: DateTime<Utc>) -> Self {
        Self::from_duration(crate::units::since(at, base))
    }

    /// The wall-clock time of this instant in a world that began at `base`.
    #[must_use]
    pub fn wall(self, base: DateTime<Utc>) -> DateTime<Utc> {
        base + TimeDelta::nanoseconds((self.0 / 1000).cast_signed())
    }

    /// Seconds since the beginning.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / PICOS_PER_SECOND
    }

    /// Later by a span; saturates.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        let picos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000);
        self.plus_picos(picos)
    }

    /// Later by so many picoseconds; saturates.
    #[must_use]
    pub fn plus_picos(self, picos: u64) -> Self {
        Self(self.0.saturating_add(picos))
    }

    /// Picoseconds since an earlier instant; 0 when that lies ahead.
    #[must_use]
    pub fn picos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The span since an earlier instant, to the nanosecond; zero when that lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.picos_since(earlier) / 1000)
    }

    /// Seconds since an earlier instant; 0 when that lies ahead.
    #[must_use]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.picos_since(earlier) as f64 / PICOS_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_keeps_what_it_is_given() {
        let later = Moment::from_seconds(1.5).plus(Duration::from_millis(250));
        assert!((later.seconds() - 1.75).abs() < 1e-12);
        assert_eq!(later.since(Moment::from_seconds(1.0)), Duration::from_millis(750));
        assert_eq!(Moment::START.since(later), Duration::ZERO);
        let base = DateTime::<Utc>::UNIX_EPOCH;
        assert_eq!(Moment::from_wall(base, later.wall(base)), later);
    }
}
