//! The downhill simplex of Nelder and Mead ("A simplex method for function minimization", 1965) with its usual
//! coefficients. No gradient, no random number: the same function gives the same minimum.

/// Edges below this are rounding.
const SMALLEST: f64 = 1e-4;

/// A minimum.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) point: Vec<f64>,
    pub(super) value: f64,
}

/// Looks for a minimum from a point on, with at most so many evaluations.
pub(super) fn minimise(
    start: &[f64],
    first_step: f64,
    evaluations: usize,
    of: impl Fn(&[f64]) -> f64,
) -> Found {
    let mut left = evaluations;
    let mut evaluate = |point: Vec<f64>| {
        left = left.saturating_sub(1);
        (Found { value: of(&point), point }, left > 0)
    };
    let dimensions = start.len();
    let mut simplex = vec![evaluate(start.to_vec()).0];
    for dimension in 0..dimensions {
        let mut point = start.to_vec();
        point[dimension] += first_step;
        simplex.push(evaluate(point).0);
    }
    loop {
        // Stable: of equal values the older comes first.
        simplex.sort_by(|one, other| one.value.total_cmp(&other.value));
        let worst = simplex[dimensions].clone();
        if width(&simplex) < SMALLEST {
            break;
        }
        let centre = centre(&simplex[..dimensions]);
        let away = |factor: f64| -> Vec<f64> {
            centre.iter().zip(&worst.point).map(|(c, w)| c + factor * (c - w)).collect()
        };
        let (reflected, mut go_on) = evaluate(away(1.0));
        if reflected.value < simplex[0].value {
            let (expanded, more) = evaluate(away(2.0));
            go_on = more;
            simplex[dimensions] = if expanded.value < reflected.value { expanded } else { reflected };
        } else if reflected.value < simplex[dimensions - 1].value {
            simplex[dimensions] = reflected;
        } else {
            let outside = reflected.value < worst.value;
            let (contracted, more) = evaluate(away(if outside { 0.5 } else { -0.5 }));
            go_on = more;
            if contracted.value < reflected.value.min(worst.value) {
                simplex[dimensions] = contracted;
            } else {
                let best = simplex[0].point.clone();
                for corner in &mut simplex[1..] {
                    let shrunk = corner.point.iter().zip(&best).map(|(c, b)| b + 0.5 * (c - b)).collect();
                    (*corner, go_on) = evaluate(shrunk);
                }
            }
        }
        if !go_on {
            break;
        }
    }
    simplex.sort_by(|one, other| one.value.total_cmp(&other.value));
    simplex.swap_remove(0)
}

/// The longest edge along one dimension.
fn width(simplex: &[Found]) -> f64 {
    let best = &simplex[0].point;
    simplex[1..]
        .iter()
        .flat_map(|corner| corner.point.iter().zip(best).map(|(c, b)| (c - b).abs()))
        .fold(0.0, f64::max)
}

fn centre(corners: &[Found]) -> Vec<f64> {
    let mut sum = vec![0.0; corners[0].point.len()];
    for corner in corners {
        for (total, value) in sum.iter_mut().zip(&corner.point) {
            *total += value;
        }
    }
    sum.iter().map(|total| total / corners.len() as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_valley_of_rosenbrock_is_followed_to_its_end() {
        let found =
            minimise(&[-1.2, 1.0], 0.3, 400, |p| (1.0 - p[0]).powi(2) + 100.0 * (p[1] - p[0] * p[0]).powi(2));
        assert!((found.point[0] - 1.0).abs() < 1e-3 && (found.point[1] - 1.0).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn points_where_there_is_no_value_are_left() {
        let found = minimise(&[3.0], 0.5, 200, |p| if p[0] < 1.0 { f64::INFINITY } else { p[0] });
        assert!((found.point[0] - 1.0).abs() < 1e-3, "{found:?}");
    }
}
