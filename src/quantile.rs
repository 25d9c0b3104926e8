//! A quantile read from a histogram, with what the histogram doesn't know of it. Pure.

use serde::{Deserialize, Serialize};

/// A quantile. Between two bounds it is interpolated, and off by less than its bucket is wide. In the first bucket nobody
/// knows where it lies: vLLM's queue time begins with a bucket of 0.3 s, and a request that never queued is counted there
/// as well as one that queued for 0.29 s. Above the last bound it is open upward.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Quantile {
    /// The estimate, in the unit of the histogram: as Prometheus' `histogram_quantile` has it, linear
    /// from zero in the first bucket and the last bound above it (promql/quantile.go). For arithmetic; whoever shows it
    /// shows the bounds where there are some.
    pub value: f64,
    /// It lies in the first bucket: all that is known is that it isn't above this bound.
    pub at_most: Option<f64>,
    /// It lies above the last bound: all that is known is that it isn't below this one.
    pub at_least: Option<f64>,
}

impl Quantile {
    /// One that lies between two bounds.
    #[must_use]
    pub fn between(value: f64) -> Self {
        Self { value, at_most: None, at_least: None }
    }

    /// One that lies in the first bucket, which ends at `bound`.
    #[must_use]
    pub fn in_the_first_bucket(value: f64, bound: f64) -> Self {
        Self { at_most: Some(bound), ..Self::between(value) }
    }

    /// One that lies above the last bound.
    #[must_use]
    pub fn above(bound: f64) -> Self {
        Self { at_least: Some(bound), ..Self::between(bound) }
    }

    /// For people: what is known, with the number written by `number`, and `at_most` and `at_least` before a bound.
    #[must_use]
    pub fn show(&self, [at_most, at_least]: [&str; 2], number: impl Fn(f64) -> String) -> String {
        match (self.at_most, self.at_least) {
            (Some(bound), _) => format!("{at_most} {}", number(bound)),
            (None, Some(bound)) => format!("{at_least} {}", number(bound)),
            (None, None) => number(self.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_histogram_does_not_know_is_shown_as_a_bound() {
        let shown = |quantile: Quantile| quantile.show(["<=", ">="], |seconds| format!("{seconds} s"));
        assert_eq!(shown(Quantile::between(0.4)), "0.4 s");
        assert_eq!(shown(Quantile::in_the_first_bucket(0.15, 0.3)), "<= 0.3 s");
        assert_eq!(shown(Quantile::above(7680.0)), ">= 7680 s");
    }
}
