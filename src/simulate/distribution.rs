//! A histogram in whole numbers, so that sums don't depend on the order of observations. Pure.

/// Powers of two that a value may lie between, and one more for the end of the last.
const OCTAVES: usize = u64::BITS as usize + 2;

/// Counts by upper bound, and a sum, in one unit (tokens, or picoseconds).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    bounds: Vec<u64>,
    /// How many bounds have fewer bits than so many: a value is looked for among those with as many as it has itself.
    shorter: [u16; OCTAVES],
    counts: Vec<u64>,
    above: u64,
    sum: u128,
}

impl Distribution {
    /// With these ascending upper bounds, of which there are at most thousands; `+Inf` is implied.
    #[must_use]
    pub fn new(bounds: Vec<u64>) -> Self {
        let counts = vec![0; bounds.len()];
        let shorter =
            std::array::from_fn(|bits| bounds.partition_point(|bound| length(*bound) < bits) as u16);
        Self { bounds, shorter, counts, above: 0, sum: 0 }
    }

    /// With bounds in seconds, kept in picoseconds.
    #[must_use]
    pub fn of_seconds(bounds: &[f64]) -> Self {
        Self::new(bounds.iter().map(|b| (b * 1e12).round() as u64).collect())
    }

    /// Observes a value `times` times.
    pub fn observe(&mut self, value: u64, times: u64) {
        let at = self.place(value);
        match self.counts.get_mut(at) {
            Some(count) => *count += times,
            None => self.above += times,
        }
        self.sum += u128::from(value) * u128::from(times);
    }

    /// Observes `count` values `times` times each: the first one, and each larger than the one before by `growth`.
    pub fn observe_run(&mut self, first: u64, growth: u64, count: u64, times: u64) {
        let mut done = 0;
        while done < count {
            let value = first + done * growth;
            let at = self.place(value);
            // So many of the rest aren't above that bound either.
            let here = match self.bounds.get(at) {
                Some(bound) if growth > 0 => ((bound - value) / growth + 1).min(count - done),
                _ => count - done,
            };
            match self.counts.get_mut(at) {
                Some(counted) => *counted += here * times,
                None => self.above += here * times,
            }
            done += here;
        }
        let steps = u128::from(count) * u128::from(count.saturating_sub(1)) / 2;
        let sum = u128::from(first) * u128::from(count) + u128::from(growth) * steps;
        self.sum += sum * u128::from(times);
    }

    /// The place of the first bound that isn't below a value.
    fn place(&self, value: u64) -> usize {
        let bits = length(value);
        let (from, to) = (self.shorter[bits] as usize, self.shorter[bits + 1] as usize);
        from + self.bounds[from..to].partition_point(|bound| *bound < value)
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

/// Bits of a number without its leading zeros.
fn length(value: u64) -> usize {
    (u64::BITS - value.leading_zeros()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_values_is_the_values_one_by_one() {
        let bounds = vec![1, 5, 10, 40];
        for (first, growth, count) in [(1, 1, 60), (5, 0, 7), (3, 7, 9), (41, 2, 3), (2, 100, 4), (6, 3, 0)] {
            let (mut run, mut single) =
                (Distribution::new(bounds.clone()), Distribution::new(bounds.clone()));
            run.observe_run(first, growth, count, 3);
            (0..count).for_each(|step| single.observe(first + step * growth, 3));
            assert_eq!(run, single, "{first} {growth} {count}");
        }
    }

    #[test]
    fn a_value_is_counted_at_the_first_bound_that_is_not_below_it() {
        let bounds = vec![0, 1, 3, 4, 5, 31, 32, 33, 1 << 40, u64::MAX - 1];
        let around = |bound: &u64| [bound.saturating_sub(1), *bound, bound.saturating_add(1)];
        for value in bounds.iter().flat_map(around).chain([7, 1 << 20, u64::MAX]) {
            let mut d = Distribution::new(bounds.clone());
            d.observe(value, 1);
            let below = bounds.iter().filter(|bound| **bound < value).count();
            let seen = d.cumulative().filter(|(_, total)| *total == 0).count();
            assert_eq!(seen, below, "{value}");
        }
    }

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
