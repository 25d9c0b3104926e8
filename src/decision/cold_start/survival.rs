//! Quantiles of spans of which some are only known to be longer than what was seen.

use super::stages::Millis;

/// A span with its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    pub(super) length: Millis,
    /// It ended there; otherwise it was longer, and nobody knows by how much.
    pub(super) ended: bool,
    pub(super) weight: f64,
}

/// The smallest length by which this share of the spans has ended: the weighted Kaplan-Meier estimate (Kaplan and Meier,
/// Nonparametric Estimation from Incomplete Observations, 1958). None without a span.
///
/// To leave out the starts that are still going on would say that starts are short just when they are slow. To count
/// them as over at their present age would say so too. The estimate takes from each what is known: that it was not over
/// by then. It holds where the end of the watching doesn't depend on how long the start would have taken; pods that are
/// given up because they hang break that, upward only if they are counted as over, so they aren't. Where the longest
/// spans are unfinished the estimate may never reach the share: the longest is then the least that can be said.
pub(super) fn quantile(spans: &mut [Span], share: f64) -> Option<Millis> {
    // At equal lengths, what ended goes first: what is unfinished there was longer.
    spans.sort_by_key(|span| (span.length, !span.ended));
    let mut at_risk: f64 = spans.iter().map(|span| span.weight).sum();
    let mut going_on = 1.0;
    for span in spans.iter() {
        if span.ended {
            going_on *= 1.0 - (span.weight / at_risk.max(f64::MIN_POSITIVE)).min(1.0);
            if going_on <= 1.0 - share + super::super::ROUNDING {
                return Some(span.length);
            }
        }
        at_risk -= span.weight;
    }
    spans.last().map(|span| span.length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ended(length: Millis) -> Span {
        Span { length, ended: true, weight: 1.0 }
    }

    fn unfinished(length: Millis) -> Span {
        Span { length, ended: false, weight: 1.0 }
    }

    #[test]
    fn without_unfinished_spans_it_is_the_plain_quantile() {
        let mut spans: Vec<Span> = (1..=10).map(|n| ended(n * 10)).collect();
        assert_eq!(quantile(&mut spans, 0.5), Some(50));
        assert_eq!(quantile(&mut spans, 0.9), Some(90));
        assert_eq!(quantile(&mut [], 0.9), None);
    }

    #[test]
    fn the_textbook_example_with_unfinished_spans() {
        // 6, 6, 6 of 21 at risk, one unfinished there; 7 of 17; unfinished 9; 10 of 15: S = 0.857, 0.807, 0.753
        // (the 6-MP arm of Freireich's leukaemia trial, Kleinbaum and Klein, Survival Analysis, table 2.1).
        let remission = [
            (6, true),
            (6, true),
            (6, true),
            (6, false),
            (7, true),
            (9, false),
            (10, true),
            (10, false),
            (11, false),
            (13, true),
            (16, true),
            (17, false),
            (19, false),
            (20, false),
            (22, true),
            (23, true),
            (25, false),
            (32, false),
            (32, false),
            (34, false),
            (35, false),
        ];
        let spans = || -> Vec<Span> {
            remission
                .iter()
                .map(|(length, is_over)| Span { length: *length, ended: *is_over, weight: 1.0 })
                .collect()
        };
        assert_eq!(quantile(&mut spans(), 0.14), Some(6));
        assert_eq!(quantile(&mut spans(), 0.15), Some(7));
        assert_eq!(quantile(&mut spans(), 0.5), Some(23), "the median remission of that trial");
        assert_eq!(quantile(&mut spans(), 0.9), Some(35), "never reached: at least the longest");
    }

    #[test]
    fn young_starts_say_nothing_and_old_ones_raise() {
        let over = || (0..9).map(|_| ended(60)).collect::<Vec<_>>();
        let mut young = over();
        young.extend([unfinished(5); 20]);
        assert_eq!(quantile(&mut young, 0.9), Some(60));
        let mut old = over();
        old.extend([unfinished(200); 3]);
        assert_eq!((quantile(&mut old, 0.5), quantile(&mut old, 0.9)), (Some(60), Some(200)));
    }

    proptest! {
        /// Of exponential spans cut off at independent times, the estimate finds the median that nobody saw whole.
        #[test]
        fn an_unfinished_span_is_no_short_one(seed in 0_u64..50) {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut uniform = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 11) as f64 / (1_u64 << 53) as f64
            };
            let mut spans: Vec<Span> = (0..2_000)
                .map(|_| {
                    let length = -(1.0 - uniform()).ln() * 100_000.0;
                    let cut = uniform() * 200_000.0;
                    Span { length: length.min(cut) as Millis, ended: length <= cut, weight: 1.0 }
                })
                .collect();
            let median = f64::from(quantile(&mut spans, 0.5).unwrap());
            prop_assert!((median / 69_315.0 - 1.0).abs() < 0.15, "{median}");
        }
    }
}
