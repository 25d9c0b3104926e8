//! The one clock: wall time that runs with tokio's, so that paused tests move cron and timers together, and that the
//! demo can run faster than life.
//!
//! Intervals, holds, ages and cron are clock time. Network timeouts are real time and don't come here.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

/// Wall time anchored to tokio's monotonic time, times a factor. Cheap to copy; copies agree.
///
/// In production it follows the system clock: see [`Clock::system`].
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: DateTime<Utc>,
    anchor: Instant,
    factor: f64,
    system: bool,
}

impl Clock {
    /// The system clock. It is read anew at each call, so that a clock that is set (NTP after boot) is followed:
    /// floors are promises about wall time.
    #[must_use]
    pub fn system() -> Self {
        Self { base: DateTime::UNIX_EPOCH, anchor: Instant::now(), factor: 1.0, system: true }
    }

    /// A clock that shows `base` now and runs `factor` times as fast as tokio's.
    #[must_use]
    pub fn starting_at(base: DateTime<Utc>, factor: f64) -> Self {
        Self { base, anchor: Instant::now(), factor, system: false }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> DateTime<Utc> {
        if self.system {
            // `Utc::now` panics before 1970, where a machine without a battery may be for a moment.
            #[expect(clippy::disallowed_methods, reason = "the one place that reads the system clock")]
            return SystemTime::now().into();
        }
        let elapsed = self.anchor.elapsed().as_secs_f64() * self.factor;
        self.base + TimeDelta::nanoseconds((elapsed * 1e9) as i64)
    }

    /// How much faster than life this clock runs.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// The real time that a span of clock time takes.
    #[must_use]
    pub fn real(&self, span: Duration) -> Duration {
        span.div_f64(self.factor)
    }

    /// Sleeps a span of clock time.
    pub async fn sleep(&self, span: Duration) {
        tokio::time::sleep(self.real(span)).await;
    }
}
