//! A histogram in whole numbers, so that sums don't depend on the order of observations. Pure.

/// Counts by upper bound, and a sum, in one unit (tokens, or picoseconds).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    bounds: Vec<u64>,
    counts: Vec<u64>,
    above: u64,
    sum: u128,
}

impl Distribution {
    /// With these ascending upper bounds; `+Inf` is implied.
    #[must_use]
    pub fn new(bounds: Vec<u64>) -> Self {
        let counts = vec![0; bounds.len()];
        Self { bounds, counts, above: 0, sum: 0 }
    }

    /// With bounds in seconds, kept in picoseconds.
    #[must_use]
    pub fn of_seconds(bounds: &[f64]) -> Self {
        Self::new(bounds.iter().map(|b| (b * 1e12).round() as u64).collect())
    }

    /// Observes a value `times` times.
    pub fn observe(&mut self, value: u64, times: u64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        match self.counts.get_mut(at) {
            Some(count) => *count += times,
            None => self.above += times,
        }
        self.sum += u128::from(value) * u128::from(times);
    }

    /// Each upper bound with the observations at or below it.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut total = 0;
        self.bounds.iter().zip(&self.counts).map(move |(bound, count)| {
            total += count;
            (*bound, total)
        })
    }

    /// Observations in all.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum::<u64>() + self.above
    }

    /// Sum of the observed values.
    #[must_use]
    pub fn sum(&self) -> u128 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_counts_below_it() {
        let mut d = Distribution::new(vec![1, 5, 10]);
        d.observe(5, 2);
        d.observe(6, 1);
        d.observe(11, 3);
        assert_eq!(d.cumulative().collect::<Vec<_>>(), [(1, 0), (5, 2), (10, 3)]);
        assert_eq!((d.count(), d.sum()), (6, 49));
    }
}
