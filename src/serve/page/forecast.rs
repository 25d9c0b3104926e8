//! The forecast of a tier: what was expected one lead before against what came, how good that was, and which rule leads.

use std::time::Duration;

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::frame::Frame;
use crate::forecast::{Candidate, Forecast, TrackPoint};
use crate::serve::words::{decimal, percent, span};
use crate::snapshot::TierStatus;

/// Mean errors either way that the band shows.
const BAND: f64 = 2.0;

/// The section; nothing for a tier without a forecast.
pub(super) fn section(status: &TierStatus, now: DateTime<Utc>) -> Markup {
    let (Some(forecast), Some(_)) = (&status.forecast, &status.policy.forecast) else { return html! {} };
    let points = forecast.track();
    html! {
        section {
            h2 { "Forecast" }
            @if let Some(told) = &status.decision.forecast { p { (told.because) } }
            @if points.is_empty() {
                p.muted { "Nothing to compare yet: what is expected now comes one lead from now, and is first told after an hour." }
            } @else {
                (plot(&points, now))
                p.small { (score(&points)) }
            }
            (candidates(forecast))
        }
    }
}

fn plot(points: &[TrackPoint], now: DateTime<Utc>) -> Markup {
    let frame = Frame::new(points, |p| [p.expected + BAND * p.spread, p.came, p.expected], now);
    let title = format!("Load that was expected and load that came in {}", frame.span());
    let content = html! {
        path.band d=(frame.band(points, |p| (p.expected - BAND * p.spread).max(0.0), |p| p.expected + BAND * p.spread)) {}
        path.required d=(frame.slope(points, |p| p.expected)) {}
        path.demand d=(frame.slope(points, |p| p.came)) {}
    };
    let told = |p: &TrackPoint| {
        format!(
            "expected {}, give or take {}; came {}",
            decimal(p.expected),
            decimal(p.spread),
            decimal(p.came)
        )
    };
    html! {
        ul.legend {
            li { span.swatch.required {} "expected one lead before" }
            li { span.swatch.demand {} "came" }
            li { span.swatch.band {} "two mean errors either way" }
            li.muted { "replicas' worth of load, times in UTC" }
        }
        (frame.drawing("forecast", &title, &score(points), &content, &frame.hover(points, told)))
    }
}

/// How good it was.
fn score(points: &[TrackPoint]) -> String {
    let count = points.len().max(1) as f64;
    let mean = |of: fn(&TrackPoint) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (error, came) = (mean(|p| (p.came - p.expected).abs()), mean(|p| p.came));
    let share_above = mean(|p| f64::from(u8::from(p.came > p.expected + BAND * p.spread)));
    let of_load = if came > 0.0 { format!(", {} of the load", percent(error / came)) } else { String::new() };
    format!(
        "Off by {} replicas on average{of_load}; more came than the band in {} of {} minutes.",
        decimal(error),
        percent(share_above),
        points.len()
    )
}

/// Which rule leads, and what others would have cost.
fn candidates(forecast: &Forecast) -> Markup {
    let candidates = forecast.candidates();
    if candidates.is_empty() {
        return html! { p.muted.small { "Which rules would have been the cheapest is told after a day." } };
    }
    html! {
        p.small { "Each rule runs a virtual fleet on this tier's real load. The cheapest of the last days leads, late minutes and a handicap for being unlikely counted in:" }
        table.stack {
            thead { tr {
                th scope="col" { "Rule" }
                th.num scope="col" { "Replicas paid" }
                th.num scope="col" { "Late minutes' price" }
                th.num scope="col" { "Handicap" }
                th.num scope="col" { "Together" }
            } }
            tbody { @for candidate in &candidates { (row(candidate)) } }
        }
    }
}

fn row(candidate: &Candidate) -> Markup {
    let Candidate { leader, replicas, late, handicap, leads } = candidate;
    html! {
        tr {
            th scope="row" {
                (leader.rule.name())
                @if let Some(hold) = leader.hold_seconds { ", held for " (span(Duration::from_secs_f64(hold))) }
                @if *leads { " " span.chip { "leads" } }
            }
            td.num data-label="Replicas paid" { (decimal(*replicas)) }
            td.num data-label="Late minutes' price" { (decimal(*late)) }
            td.num data-label="Handicap" { (decimal(*handicap)) }
            td.num data-label="Together" { (decimal(replicas + late + handicap)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_tells_the_error_and_what_was_beyond_the_band() {
        let point = |minute, came| TrackPoint { minute, expected: 4.0, spread: 0.5, came };
        let points = [point(0, 4.0), point(1, 4.5), point(2, 3.5), point(3, 6.0)];
        assert_eq!(
            score(&points),
            "Off by 0.8 replicas on average, 17 % of the load; more came than the band in 25 % of 4 minutes."
        );
    }
}
