//! What a clairvoyant pays who may be late in so many minutes a week: lower bounds, from one price of a late minute each
//! (Lagrangian duality, see [`super::bound`]). Pure.

use serde::Serialize;

use super::SLOT_SECONDS;
use super::score::WEEK_MINUTES;

/// A table of more states would make eight prices take minutes.
pub(super) const MOST_STATES: u64 = 60_000;

/// Prices of a late minute in replica-slots, for each replica of the static peak: from twenty seconds of the whole fleet
/// to forty minutes of it. Below nobody would start anything, above nothing is late any more.
const PRICES: [f32; 8] = [4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// The budgets that are shown, late minutes a week.
const BUDGETS: [f64; 17] = [
    0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 35.0, 50.0, 75.0, 100.0, 150.0, 200.0, 300.0, 500.0, 1_000.0, 2_000.0,
    5_000.0,
];

/// A point of the frontier.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    /// The budget.
    pub late_minutes_a_week: f64,
    /// Nobody with at most so many pays less.
    pub gpu_hours: f64,
}

/// The prices to ask for, with a static peak of so many replicas.
pub(super) fn prices(constant: u32) -> impl Iterator<Item = f32> {
    PRICES.into_iter().map(move |price| price * constant as f32)
}

/// The frontier from what each price came to, both in replica-slots, over so many seconds; empty without a price.
pub(super) fn points(strict: f64, priced: &[(f32, f64)], seconds: f64) -> Vec<Point> {
    if priced.is_empty() {
        return Vec::new();
    }
    let weeks = seconds / (WEEK_MINUTES * 60.0);
    let point = |budget: f64| {
        let minutes = budget * weeks;
        let of_price = |(price, least): &(f32, f64)| least - f64::from(*price) * minutes;
        // Whole minutes: less than one is none.
        let least = if minutes < 1.0 { strict } else { priced.iter().map(of_price).fold(0.0, f64::max) };
        let gpu_hours = least.min(strict) * SLOT_SECONDS / 3600.0;
        Point { late_minutes_a_week: budget, gpu_hours }
    };
    BUDGETS.into_iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_price_counts_and_more_budget_is_never_dearer() {
        let week = 7.0 * 86_400.0;
        let priced = [(10.0, 9_000.0), (100.0, 9_800.0), (1_000.0, 10_000.0)];
        let points = points(10_000.0, &priced, week);
        let at = |budget: f64| {
            let point = points.iter().find(|point| point.late_minutes_a_week == budget).unwrap();
            (point.gpu_hours * 3600.0 / SLOT_SECONDS).round()
        };
        assert_eq!((at(0.0), at(1.0)), (10_000.0, 9_700.0));
        assert_eq!(at(5.0), 9_300.0, "100 a minute");
        assert_eq!(at(50.0), 8_500.0, "10 a minute");
        assert!(points.is_sorted_by(|a, b| a.gpu_hours >= b.gpu_hours));
    }

    #[test]
    fn a_budget_below_one_minute_of_the_trace_allows_none() {
        let day = points(1_000.0, &[(10.0, 400.0)], 86_400.0);
        assert!(
            day.iter()
                .filter(|point| point.late_minutes_a_week < 7.0)
                .all(|point| point.gpu_hours == day[0].gpu_hours)
        );
        assert!(day[12].gpu_hours < day[0].gpu_hours);
        assert!(points(1_000.0, &[], 86_400.0).is_empty());
    }
}
