//! The last hours of a tier as a drawing: ready as an area, demand and required as lines.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::frame::{Frame, stretched};
use crate::history::HistoryPoint;
use crate::serve::words::{UNKNOWN, decimal};

fn frame(points: &[HistoryPoint], now: DateTime<Utc>) -> Frame {
    Frame::new(points, |p| [p.demand, p.required, p.ready].map(f64::from), now)
}

/// What the plot shows, in words: `the last 6 hours`, or as much as there is.
pub(super) fn span(points: &[HistoryPoint], now: DateTime<Utc>) -> String {
    frame(points, now).span()
}

/// The plot of a tier's page.
pub(super) fn plot(points: &[HistoryPoint], now: DateTime<Utc>) -> Markup {
    if points.is_empty() {
        return html! { p.muted { "No history yet: a point comes every minute." } };
    }
    let frame = frame(points, now);
    let title = format!("Demand, required and ready replicas in {}", frame.span());
    html! {
        (legend(points))
        (frame.drawing("plot", &title, &description(points), &series(&frame, points), &frame.hover(points, told)))
    }
}

/// A minute in words.
fn told(point: &HistoryPoint) -> String {
    let of = |value: f32| decimal(f64::from(value));
    format!("required {}, demand {}, ready {}", of(point.required), of(point.demand), of(point.ready))
}

/// A small plot without axes; `required` is told to those who can't see it.
pub(super) fn sparkline(points: &[HistoryPoint], now: DateTime<Utc>, required: &str) -> Markup {
    if points.is_empty() {
        return html! { span.muted.small { "no history yet" } };
    }
    let frame = frame(points, now);
    html! {
        svg.sparkline width="100%" height="34" role="img" {
            title { (frame.span()) ", up to " (decimal(frame.top())) " replicas; " (required) " required now" }
            (stretched(frame.minutes(), 1.0, 32.0, &series(&frame, points)))
        }
    }
}

fn series(frame: &Frame, points: &[HistoryPoint]) -> Markup {
    html! {
        path.ready-area d=(frame.area(points, |p| f64::from(p.ready))) {}
        path.ready d=(frame.line(points, |p| f64::from(p.ready))) {}
        path.demand d=(frame.slope(points, |p| f64::from(p.demand))) {}
        path.required d=(frame.line(points, |p| f64::from(p.required))) {}
    }
}

fn legend(points: &[HistoryPoint]) -> Markup {
    let last = |value: fn(&HistoryPoint) -> f32| {
        points.last().map_or_else(|| UNKNOWN.to_owned(), |point| decimal(f64::from(value(point))))
    };
    html! {
        ul.legend {
            li { span.swatch.required {} "required " b { (last(|p| p.required)) } }
            li { span.swatch.demand {} "demand " b { (last(|p| p.demand)) } }
            li { span.swatch.ready {} "ready " b { (last(|p| p.ready)) } }
            li.muted { "replicas, times in UTC" }
        }
    }
}

/// The plot in a sentence.
fn description(points: &[HistoryPoint]) -> String {
    let range = |value: fn(&HistoryPoint) -> f32| {
        let known = points.iter().map(value).filter(|v| v.is_finite());
        let (low, high) = known.fold((f32::INFINITY, f32::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        if low > high {
            "unknown".to_owned()
        } else {
            format!("{} to {}", decimal(f64::from(low)), decimal(f64::from(high)))
        }
    };
    format!(
        "Demand {}, required {}, ready {}.",
        range(|p| p.demand),
        range(|p| p.required),
        range(|p| p.ready)
    )
}
