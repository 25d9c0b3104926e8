//! Recursive least squares with forgetting: weights of a linear model that follow what is seen.

use serde::{Deserialize, Serialize};

/// Variance of the weights before anything was seen: small, so that a few odd bins don't turn them over.
const PRIOR_VARIANCE: f64 = 0.05;

/// Sum of the variances at most. Without a bound, silence would let it grow until one bin rewrites the model.
const MOST_VARIANCE: f64 = 0.4;

/// A linear model of `N` features, learned one row at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LeastSquares<const N: usize>
where
    [f64; N]: Serialize + for<'a> Deserialize<'a>,
    [[f64; N]; N]: Serialize + for<'a> Deserialize<'a>,
{
    weights: [f64; N],
    covariance: [[f64; N]; N],
    /// What a row still counts for after one more.
    forgetting: f64,
}

impl<const N: usize> LeastSquares<N>
where
    [f64; N]: Serialize + for<'a> Deserialize<'a>,
    [[f64; N]; N]: Serialize + for<'a> Deserialize<'a>,
{
    /// Begins with these weights; a row counts half after `half_life` more.
    pub(super) fn new(half_life: f64, weights: [f64; N]) -> Self {
        let mut covariance = [[0.0; N]; N];
        for (at, row) in covariance.iter_mut().enumerate() {
            row[at] = PRIOR_VARIANCE;
        }
        Self { weights, covariance, forgetting: 0.5_f64.powf(1.0 / half_life) }
    }

    /// What the model says of these features.
    pub(super) fn predict(&self, features: &[f64; N]) -> f64 {
        self.weights.iter().zip(features).map(|(weight, feature)| weight * feature).sum()
    }

    /// Learns that these features came to `target`.
    pub(super) fn learn(&mut self, features: &[f64; N], target: f64) {
        let gain = self.covariance.map(|row| row.iter().zip(features).map(|(p, x)| p * x).sum::<f64>());
        let scale = self.forgetting + features.iter().zip(gain).map(|(x, g)| x * g).sum::<f64>();
        let error = target - self.predict(features);
        let mut trace = 0.0;
        for (at, row) in self.covariance.iter_mut().enumerate() {
            self.weights[at] += gain[at] / scale * error;
            for (p, other) in row.iter_mut().zip(gain) {
                *p = (*p - gain[at] * other / scale) / self.forgetting;
            }
            trace += row[at];
        }
        if trace > MOST_VARIANCE {
            let shrink = MOST_VARIANCE / trace;
            self.covariance.iter_mut().flatten().for_each(|p| *p *= shrink);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_the_weights_and_follows_them_when_they_change() {
        let mut model = LeastSquares::<2>::new(200.0, [0.0; 2]);
        let row = |n: u32| [1.0, f64::from(n % 7) / 7.0];
        for n in 0..2000 {
            let x = row(n);
            model.learn(&x, 0.3 * x[0] - 0.5 * x[1]);
        }
        assert!((model.predict(&[1.0, 1.0]) + 0.2).abs() < 0.01, "{}", model.predict(&[1.0, 1.0]));
        for n in 0..4000 {
            let x = row(n);
            model.learn(&x, 0.1 * x[0] + 0.4 * x[1]);
        }
        assert!((model.predict(&[1.0, 1.0]) - 0.5).abs() < 0.01, "{}", model.predict(&[1.0, 1.0]));
    }

    #[test]
    fn a_week_of_silence_does_not_let_one_row_rewrite_it() {
        let mut model = LeastSquares::<2>::new(200.0, [0.5, 0.5]);
        for _ in 0..40_000 {
            model.learn(&[0.0, 0.0], 0.0);
        }
        model.learn(&[1.0, 1.0], 100.0);
        assert!(model.predict(&[1.0, 1.0]) < 1.0 + 100.0 * 0.5, "{}", model.predict(&[1.0, 1.0]));
        assert!(model.covariance.iter().flatten().all(|p| p.is_finite()));
    }
}
