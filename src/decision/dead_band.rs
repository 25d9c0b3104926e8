//! The HPA's dead band: what it would ignore, and the smallest number that it doesn't.
//!
//! The HPA leaves a tier of `C` replicas alone while `1 - t <= answer / C <= 1 + t` (Kubernetes,
//! `replica_calculator.go`; until 1.32 the bounds were exclusive by a rounding error). A number above `C (1 + t)` by a
//! whole replica is outside for both generations, and the HPA then goes to exactly that number.

use super::policy::{DeadBand, InsideBand};

/// What floating point may be off by.
const SLACK: f64 = 1e-9;

/// What the dead band does to a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The HPA follows, or there is nothing to follow.
    Follows,
    /// Upward inside the band: this is the smallest number that moves the HPA.
    Exceed(u32),
    /// The HPA stays where it is: below what is needed.
    StaysBelow,
    /// The HPA stays where it is, with so many more than needed.
    StaysAbove(u32),
}

/// What becomes of `answer` where the scale target has `current` replicas. `Exceed` is above the answer, at most `max`.
pub(super) fn judge(band: &DeadBand, answer: u32, current: u32, max: u32) -> Verdict {
    if answer == current || current == 0 || !(band.tolerance > 0.0 && band.tolerance.is_finite()) {
        return Verdict::Follows;
    }
    let of_current = f64::from(current);
    if answer < current {
        let inside = f64::from(answer) >= of_current * (1.0 - band.tolerance) - SLACK;
        return if inside && answer > 0 { Verdict::StaysAbove(current - answer) } else { Verdict::Follows };
    }
    let largest_ignored = (of_current * (1.0 + band.tolerance) + SLACK).floor();
    if f64::from(answer) > largest_ignored {
        return Verdict::Follows;
    }
    let moves = largest_ignored as u32 + 1;
    if band.inside == InsideBand::Stay || moves > max { Verdict::StaysBelow } else { Verdict::Exceed(moves) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BAND: DeadBand = DeadBand { tolerance: 0.1, inside: InsideBand::Exceed };

    /// The HPA's own check for an external metric with target 1: since 1.33 inclusive at both ends.
    fn hpa(value: u32, current: u32, tolerance: f64) -> u32 {
        let ratio = f64::from(value) / f64::from(current);
        if (1.0 - tolerance..=1.0 + tolerance).contains(&ratio) { current } else { value }
    }

    /// Until 1.32.
    fn hpa_before_1_33(value: u32, current: u32, tolerance: f64) -> u32 {
        let ratio = f64::from(value) / f64::from(current);
        if (1.0 - ratio).abs() <= tolerance { current } else { value }
    }

    #[test]
    fn the_table_of_numbers_that_the_hpa_swallows() {
        use Verdict::{Exceed, Follows, StaysAbove};
        for (current, needed, expected) in [
            (9, 10, Follows),
            (10, 11, Exceed(12)),
            (10, 9, StaysAbove(1)),
            (11, 12, Exceed(13)),
            (20, 21, Exceed(23)),
            (20, 22, Exceed(23)),
            (20, 23, Follows),
            (20, 19, StaysAbove(1)),
            (20, 18, StaysAbove(2)),
            (20, 17, Follows),
            (30, 31, Exceed(34)),
            (100, 110, Exceed(111)),
            (100, 111, Follows),
            (100, 90, StaysAbove(10)),
            (100, 89, Follows),
            (0, 5, Follows),
            (1, 0, Follows),
        ] {
            assert_eq!(judge(&BAND, needed, current, 1_000), expected, "{needed} of {current}");
        }
    }

    #[test]
    fn without_a_tolerance_every_number_moves_the_hpa() {
        let exact = DeadBand { tolerance: 0.0, inside: InsideBand::Exceed };
        assert_eq!(judge(&exact, 21, 20, 1_000), Verdict::Follows);
    }

    #[test]
    fn the_maximum_is_never_exceeded() {
        assert_eq!(judge(&BAND, 21, 20, 22), Verdict::StaysBelow);
    }

    #[test]
    fn an_operator_may_prefer_to_stay() {
        let stay = DeadBand { inside: InsideBand::Stay, ..BAND };
        assert_eq!(judge(&stay, 21, 20, 1_000), Verdict::StaysBelow);
    }

    proptest! {
        #[test]
        fn both_generations_of_the_hpa_reach_what_is_needed(
            current in 1_u32..3_000, needed in 1_u32..4_000, tolerance in 0.01_f64..0.5
        ) {
            let band = DeadBand { tolerance, inside: InsideBand::Exceed };
            let answered = match judge(&band, needed, current, u32::MAX) {
                Verdict::Exceed(n) => n,
                _ => needed,
            };
            for reached in [hpa(answered, current, tolerance), hpa_before_1_33(answered, current, tolerance)] {
                prop_assert!(reached >= needed, "{answered} for {needed} of {current} reaches {reached}");
                let surplus = f64::from(reached) - f64::from(needed);
                prop_assert!(surplus <= f64::from(current) * tolerance + 1.0 + 1e-6);
            }
        }
    }
}
