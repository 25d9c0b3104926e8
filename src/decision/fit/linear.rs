//! Three unknowns: the normal equations, their condition, and a solution without negative parts.

/// Where the upper triangle of a symmetric 3x3 matrix is kept, row by row.
pub(super) const SYMMETRIC: [(usize, usize); 6] = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)];

/// Non-empty subsets of the three unknowns, the full one first.
const SUBSETS: [&[usize]; 7] = [&[0, 1, 2], &[0, 1], &[0, 2], &[1, 2], &[0], &[1], &[2]];

/// A solution with the standard error of each part, relative to the part.
pub(super) struct Solution {
    pub(super) x: [f64; 3],
    pub(super) relative_errors: [f64; 3],
}

fn matrix(sums: &[f64; 10]) -> [[f64; 3]; 3] {
    let mut a = [[0.0; 3]; 3];
    for (value, (i, j)) in sums.iter().zip(SYMMETRIC) {
        a[i][j] = *value;
        a[j][i] = *value;
    }
    a
}

/// The condition index of the regressors: each scaled to length 1, the root of the largest eigenvalue of the normal
/// matrix over the smallest. Infinite when a regressor is always zero or two are proportional.
pub(super) fn condition_index(sums: &[f64; 10]) -> f64 {
    let normal = matrix(sums);
    if (0..3).any(|i| normal[i][i] <= 0.0) {
        return f64::INFINITY;
    }
    let scaled = |i: usize, j: usize| normal[i][j] / (normal[i][i] * normal[j][j]).sqrt();
    let off_diagonal = [scaled(0, 1), scaled(0, 2), scaled(1, 2)];
    // With 1 on the diagonal and p, q, r off it the eigenvalues are 1 + 2 m cos(phi + 2 k pi / 3), where
    // m^2 = (p^2 + q^2 + r^2) / 3 and cos(3 phi) = p q r / m^3: the trigonometric solution of the cubic.
    let spread = (off_diagonal.iter().map(|x| x * x).sum::<f64>() / 3.0).sqrt();
    if spread < 1e-12 {
        return 1.0;
    }
    let angle = (off_diagonal.iter().product::<f64>() / spread.powi(3)).clamp(-1.0, 1.0).acos() / 3.0;
    let largest = 1.0 + 2.0 * spread * angle.cos();
    let smallest = 1.0 + 2.0 * spread * (angle + 2.0 * std::f64::consts::FRAC_PI_3).cos();
    if smallest <= f64::EPSILON { f64::INFINITY } else { (largest / smallest).sqrt() }
}

/// Least squares with every part at least zero: of all subsets of unknowns whose own solution has no negative part, the
/// one with the smallest residual. With three unknowns there are seven, so trying all is exact and cheap.
pub(super) fn solve_non_negative(sums: &[f64; 10], rows: f64) -> Option<Solution> {
    let a = matrix(sums);
    let b = [sums[6], sums[7], sums[8]];
    let mut best: Option<(f64, Solution)> = None;
    for subset in SUBSETS {
        let Some(inverse) = invert(&a, subset) else { continue };
        let mut x = [0.0; 3];
        for (row, &i) in inverse.iter().zip(subset) {
            x[i] = row.iter().zip(subset).map(|(value, &j)| value * b[j]).sum();
        }
        if x.iter().any(|part| *part < 0.0 || !part.is_finite()) {
            continue;
        }
        let explained: f64 =
            (0..3).map(|i| x[i] * (2.0 * b[i] - (0..3).map(|j| a[i][j] * x[j]).sum::<f64>())).sum();
        let residual = (sums[9] - explained).max(0.0);
        if best.as_ref().is_some_and(|(smallest, _)| *smallest <= residual) {
            continue;
        }
        let variance = residual / (rows - 3.0).max(1.0);
        let mut relative_errors = [0.0; 3];
        for (k, &i) in subset.iter().enumerate() {
            relative_errors[i] = (variance * inverse[k][k]).max(0.0).sqrt() / x[i].max(f64::MIN_POSITIVE);
        }
        best = Some((residual, Solution { x, relative_errors }));
    }
    best.map(|(_, solution)| solution)
}

/// The inverse of the part of `a` over a subset of the unknowns, by Gauss-Jordan with pivots.
fn invert(a: &[[f64; 3]; 3], subset: &[usize]) -> Option<[[f64; 3]; 3]> {
    let n = subset.len();
    let mut left = [[0.0; 3]; 3];
    let mut right = [[0.0; 3]; 3];
    for i in 0..n {
        for j in 0..n {
            left[i][j] = a[subset[i]][subset[j]];
        }
        right[i][i] = 1.0;
    }
    for column in 0..n {
        let pivot = (column..n).max_by(|&i, &j| left[i][column].abs().total_cmp(&left[j][column].abs()))?;
        left.swap(column, pivot);
        right.swap(column, pivot);
        let divisor = left[column][column];
        if divisor.abs() < f64::MIN_POSITIVE {
            return None;
        }
        for j in 0..n {
            left[column][j] /= divisor;
            right[column][j] /= divisor;
        }
        for i in (0..n).filter(|&i| i != column) {
            let factor = left[i][column];
            for j in 0..n {
                left[i][j] -= factor * left[column][j];
                right[i][j] -= factor * right[column][j];
            }
        }
    }
    Some(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(rows: &[([f64; 3], f64)]) -> [f64; 10] {
        let mut sums = [0.0; 10];
        for (x, y) in rows {
            for (sum, (i, j)) in sums.iter_mut().zip(SYMMETRIC) {
                *sum += x[i] * x[j];
            }
            for i in 0..3 {
                sums[6 + i] += x[i] * y;
            }
            sums[9] += y * y;
        }
        sums
    }

    #[test]
    fn exact_rows_give_their_coefficients_back() {
        let rows: Vec<_> = [(0.0, 4.0), (100.0, 8.0), (20.0, 30.0), (400.0, 2.0)]
            .map(|(p, d)| ([1.0, p, d], 0.006 + 0.00006 * p + 0.0002 * d))
            .into();
        let solution = solve_non_negative(&sums(&rows), 4.0).unwrap();
        for (found, truth) in solution.x.iter().zip([0.006, 0.00006, 0.0002]) {
            assert!((found / truth - 1.0).abs() < 1e-6, "{found} against {truth}");
        }
    }

    #[test]
    fn a_negative_part_becomes_zero() {
        let rows: Vec<_> = [(0.0, 4.0), (100.0, 8.0), (20.0, 30.0), (400.0, 2.0)]
            .map(|(p, d)| ([1.0, p, d], 0.01 + 0.00006 * p - 0.0001 * d))
            .into();
        let solution = solve_non_negative(&sums(&rows), 4.0).unwrap();
        assert!(solution.x[2] < 1e-12);
        assert!(solution.x[0] > 0.0 && solution.x[1] > 0.0);
    }

    #[test]
    fn proportional_regressors_have_no_finite_condition() {
        let rows: Vec<_> = (1..20).map(|n| ([1.0, 6.0 * f64::from(n), f64::from(n)], 0.01)).collect();
        assert!(condition_index(&sums(&rows)) > 1e6);
        let apart: Vec<_> = (1..20).map(|n| ([1.0, f64::from(n * n % 7), f64::from(n)], 0.01)).collect();
        assert!(condition_index(&sums(&apart)) < 20.0);
    }
}
