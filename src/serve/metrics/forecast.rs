//! The forecast of a tier: what it asks for, what it knows, and what of its late budget was used.

use super::families::TierSeries;
use crate::decision::Forecasted;
use crate::forecast::{BudgetUse, DialEnd};

pub(super) fn forecast(series: &mut TierSeries<'_>, forecast: &Forecasted) {
    series.gauge("forecast_replicas", "What the forecast asks for", Some(f64::from(forecast.replicas)));
    series.gauge(
        "forecast_expected_replicas",
        "The need that is expected one lead from now, in replicas' worth of work",
        Some(forecast.outlook.expected),
    );
    series.gauge("forecast_spread_replicas", "The mean error of that", Some(forecast.outlook.spread));
    let known = forecast.frontier;
    series.gauge(
        "forecast_late_minutes_a_week",
        "Late minutes that the rule which leads would have had lately, at the pace of a week",
        known.map(|known| known.late_minutes_a_week),
    );
    series.gauge(
        "forecast_halving_replica_hours_a_day",
        "What half of those late minutes would cost more",
        known.and_then(|known| known.halving_replica_hours_a_day),
    );
    series.gauge(
        "forecast_more_queue_saves_replica_hours_a_day",
        "What 30 s more acceptable queue would save, late minutes counted at their price",
        known.and_then(|known| known.more_queue_saves_replica_hours_a_day),
    );
    series.gauge(
        "forecast_short_start_saves_replica_hours_a_day",
        "What a cold start of 60 s would save, late minutes counted at their price",
        known.and_then(|known| known.short_start_saves_replica_hours_a_day),
    );
    if let Some(budget) = &forecast.budget {
        late_budget(series, budget);
    }
}

fn late_budget(series: &mut TierSeries<'_>, budget: &BudgetUse) {
    series.gauge("forecast_safety", "The dial that keeps the late budget", Some(budget.safety));
    series.gauge(
        "forecast_safety_at_end",
        "1 while the dial stands at its upper end: the budget can't be kept; -1 at its lower one",
        Some(match budget.at_end {
            Some(DialEnd::Most) => 1.0,
            Some(DialEnd::Least) => -1.0,
            None => 0.0,
        }),
    );
    series.gauge(
        "forecast_late_budget_ratio",
        "Share of the work that may be late",
        Some(budget.late_budget),
    );
    series.gauge(
        "forecast_late_work_ratio",
        "Share of the work of the last seven days that was late",
        Some(budget.late_share),
    );
    series.gauge(
        "forecast_late_budget_used_ratio",
        "Of a week's late budget, the share that was used in the last seven days",
        Some(budget.used),
    );
    series.gauge("forecast_late_minutes", "Late minutes of the last seven days", Some(budget.late_minutes));
}
