//! Rows that were played request by request, as a report beside the bound. Pure.
//!
//! The bound is that of the same load as a fluid, with what one replica carries for its capacity: somebody who knew the
//! future would still have to serve it.

use crate::backtest::report::{Fidelity, Findings, Record};
use crate::backtest::score::Score;
use crate::backtest::series::Series;
use crate::backtest::{Backtest, Job, Played, Report};

use super::{Capacity, Minute, PlayedRow, RequestScore};

/// A minute is late when more of its work is.
const LATE_SHARE: f64 = 0.01;

/// Slots of a minute.
const MINUTE_SLOTS: u32 = 12;

impl Backtest {
    /// The report of these rows. Everything that this is itself set up to play is left out but for the bound and, with
    /// details, its frontier.
    #[must_use]
    pub fn report_of_requests(&self, rows: Vec<PlayedRow>, capacity: Capacity) -> Report {
        let warnings = self.warnings.clone();
        let mut found = Findings { warnings, fidelity: Fidelity::Requests, ..Findings::default() };
        for job in self.jobs.iter().filter(|job| matches!(job, Job::Bound | Job::Priced(_))) {
            match self.play(*job) {
                Played::Bound(replica_slots) => found.bound_replica_slots = replica_slots,
                Played::Priced(price, least) => found.priced.push((price, least)),
                _ => {}
            }
        }
        let row = |PlayedRow { policy, score, changes }: PlayedRow| {
            let record = self
                .settings
                .details
                .then(|| Record { series: series(&score.minutes, self.work.len(), capacity), changes });
            (policy, scored(&score), record)
        };
        found.rows = rows.into_iter().map(row).collect();
        Report::new(&self.settings, &self.terms, &self.work, (self.rows_read, self.from), found)
    }
}

fn scored(score: &RequestScore) -> Score {
    Score {
        gpu_hours: score.gpu_hours,
        late_work: score.late_work,
        late_minutes_a_week: score.late_minutes_a_week,
        starts: score.starts,
        queue_seconds: score.queue_seconds,
        first_token: Some(score.first_token_seconds),
        lost: Some(score.lost()),
    }
}

/// The minutes of a run in the buckets of a plot. A queue's time is what its requests take of all that serve.
fn series(minutes: &[Minute], slots: usize, capacity: Capacity) -> Series {
    let mut series = Series::new(slots);
    let minutes_a_bucket = (series.slots_a_bucket as u32 / MINUTE_SLOTS).max(1) as usize;
    for (of_bucket, bucket) in minutes.chunks(minutes_a_bucket).zip(&mut series.buckets) {
        for minute in of_bucket {
            bucket.demand.note(minute.demand);
            bucket.ready.note(minute.ready);
            bucket.paid.note(minute.paid);
            let queue_seconds = minute.waiting / (capacity.requests_per_second * minute.ready.max(1.0));
            bucket.longest_queue_seconds = bucket.longest_queue_seconds.max(queue_seconds);
            bucket.slots += MINUTE_SLOTS;
            if minute.late > LATE_SHARE {
                bucket.late_slots += MINUTE_SLOTS;
            }
        }
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::policy::TokenRates;

    #[test]
    fn minutes_of_a_run_are_the_buckets_of_its_plot() {
        let rates = TokenRates { input_tokens_per_second: 1.0, output_tokens_per_second: 1.0 };
        let capacity = Capacity { requests_per_second: 2.0, rates };
        let minute = |late| Minute { demand: 3.0, ready: 2.0, paid: 4.0, waiting: 40.0, late };
        let series = series(&[minute(0.0), minute(0.02)], 24, capacity);
        assert_eq!(
            (series.buckets.len(), series.buckets[0].late_slots, series.buckets[1].late_slots),
            (2, 0, 12)
        );
        let first = series.buckets[0];
        assert_eq!((first.demand.most, first.ready.least, first.paid.mean()), (3.0, 2.0, 4.0));
        assert!((first.longest_queue_seconds - 10.0).abs() < 1e-9);
    }
}
