//! How long starts take, and what can't start.

use std::time::Duration;

use super::families::TierSeries;
use crate::decision::{BlockedReason, Decision};

const QUANTILES: [&str; 2] = ["0.5", "0.9"];

/// The families of a tier.
pub(super) fn families(series: &mut TierSeries<'_>, decision: &Decision) {
    let cold_start = &decision.cold_start;
    series.gauge(
        "cold_start_in_effect_seconds",
        "The cold start that the lead is made of: learned, or configured",
        Some(cold_start.in_effect.as_secs_f64()),
    );
    if let Some(likely) = cold_start.likely() {
        let mut told = |stage: &'static str, spans: [Duration; 2]| {
            for (quantile, span) in QUANTILES.into_iter().zip(spans) {
                series.with_labels(
                    "cold_start_seconds",
                    "How long starts take by the path that the next one is expected to take",
                    &[("stage", stage), ("quantile", quantile)],
                    Some(span.as_secs_f64()),
                );
            }
        };
        told("total", [likely.p50, likely.p90]);
        for stage in &likely.stages {
            told(stage.stage.name(), [stage.p50, stage.p90]);
        }
        for (end, starts) in [("ready", likely.starts), ("censored", likely.censored)] {
            series.labelled(
                "cold_start_samples",
                "Starts that cold_start_seconds comes from",
                "end",
                end,
                Some(f64::from(starts)),
            );
        }
    }
    for reason in BlockedReason::ALL {
        let blocked = decision.blocked.iter().find(|group| group.reason == reason);
        series.labelled(
            "capacity_blocked",
            "Replicas that were ordered and can't start",
            "reason",
            reason.name(),
            Some(f64::from(blocked.map_or(0, |group| group.replicas))),
        );
    }
}
