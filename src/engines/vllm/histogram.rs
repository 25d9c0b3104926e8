//! The rows of one histogram of one engine, and their check.

use crate::engines::{Histogram, PageError};
use crate::exposition::{Part, Sample, parse_number};

use super::rows::{count_of, duplicate, malformed};

/// More buckets than vLLM makes (1-2-5 up to the model's length: about 25): a bound on memory.
const MAX_BUCKETS: usize = 512;

/// The usual number of finite buckets, so that one allocation is enough.
const USUAL_BUCKETS: usize = 24;

#[derive(Clone, Debug, Default)]
pub(super) struct HistogramRows {
    /// Finite upper bounds, in the order of the page.
    bounds: Vec<f64>,
    /// The observations at or below each.
    cumulative: Vec<f64>,
    infinite: Option<f64>,
    sum: Option<f64>,
    count: Option<f64>,
}

impl HistogramRows {
    /// Takes one row; `bound` is its label `le` as written.
    pub(super) fn add(
        &mut self,
        page: &[u8],
        name: &'static str,
        sample: &Sample<'_>,
        bound: Option<&[u8]>,
    ) -> Result<(), PageError> {
        let value = count_of(name, sample)?;
        let slot = match sample.part {
            Part::Sum => &mut self.sum,
            Part::Count | Part::Value => &mut self.count,
            Part::Bucket => {
                let bound = bound.and_then(parse_number).unwrap_or(f64::NAN);
                if bound != f64::INFINITY {
                    return self.add_finite(page, sample, bound, value);
                }
                &mut self.infinite
            }
        };
        if slot.replace(value).is_some() {
            return Err(duplicate(page, name, sample));
        }
        Ok(())
    }

    fn add_finite(
        &mut self,
        page: &[u8],
        sample: &Sample<'_>,
        bound: f64,
        value: f64,
    ) -> Result<(), PageError> {
        if !bound.is_finite() {
            return Err(malformed(page, sample, "a bucket without a number in its label le"));
        }
        if self.bounds.len() == MAX_BUCKETS {
            return Err(malformed(page, sample, "more than 512 buckets"));
        }
        if self.bounds.is_empty() {
            self.bounds.reserve_exact(USUAL_BUCKETS);
            self.cumulative.reserve_exact(USUAL_BUCKETS);
        }
        self.bounds.push(bound);
        self.cumulative.push(value);
        Ok(())
    }

    /// The histogram; None while a part of it is missing (no row at all, or a page cut short).
    ///
    /// # Errors
    /// When the parts contradict each other: a bound twice, fewer observations below a higher bound, a count other than
    /// that of the bucket `+Inf`.
    pub(super) fn finish(self, name: &'static str) -> Result<Option<Histogram>, PageError> {
        let (Some(infinite), Some(sum), Some(count)) = (self.infinite, self.sum, self.count) else {
            return Ok(None);
        };
        let (mut bounds, mut cumulative) = (self.bounds, self.cumulative);
        if !bounds.is_sorted() {
            let mut buckets: Vec<(f64, f64)> = bounds.into_iter().zip(cumulative).collect();
            buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
            (bounds, cumulative) = buckets.into_iter().unzip();
        }
        let impossible = |series: &str, value: f64| PageError::Impossible {
            name: format!("{name}{series}"),
            value: value.to_string(),
        };
        let mut below = 0.0;
        let mut last_bound = f64::NEG_INFINITY;
        for (&bound, &observed) in bounds.iter().zip(&cumulative) {
            if bound <= last_bound {
                return Err(impossible("_bucket (the same bound twice)", bound));
            }
            if observed < below {
                return Err(impossible("_bucket (fewer than in the bucket before)", observed));
            }
            (below, last_bound) = (observed, bound);
        }
        if infinite < below {
            return Err(impossible("_bucket (fewer than in the bucket before)", infinite));
        }
        if infinite.to_bits() != count.to_bits() {
            return Err(impossible("_count (other than its bucket +Inf)", count));
        }
        Ok(Some(Histogram { bounds, cumulative, count, sum }))
    }
}
