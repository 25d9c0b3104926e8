//! The last six hours as a drawing: ready as an area, demand and required as lines. Hand-written SVG, the same bytes
//! for the same points.
//!
//! The lines live in an inner drawing that is stretched (a minute is one unit wide, the whole height is 1000); the texts
//! live in the outer one, which isn't, so that they are as large on a phone as on a desk.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use crate::history::HistoryPoint;
use crate::serve::words::{UNKNOWN, decimal};

/// The longest span that is drawn.
const MOST_MINUTES: i64 = 360;
/// The shortest: a tier's first minutes are not drawn as if they were hours.
const FEWEST_MINUTES: i64 = 30;
const HEIGHT_UNITS: f64 = 1000.0;
const TOP_PIXELS: f64 = 14.0;
const PLOT_PIXELS: f64 = 190.0;
/// Below the plot: the hours.
const AXIS_PIXELS: f64 = 22.0;
/// A hover text for every so many minutes.
const HOVER_MINUTES: i64 = 10;

/// Steps that look round on an axis, smallest first; beyond them powers of ten.
const ROUND_STEPS: [f64; 3] = [1.0, 2.0, 5.0];
/// How many steps an axis has at most.
const MOST_STEPS: f64 = 5.0;

struct Frame {
    /// The last minute.
    end: i64,
    /// Minutes in the frame: as many as there are points for, up to six hours.
    minutes: i64,
    top: f64,
    step: f64,
}

impl Frame {
    fn new(points: &[HistoryPoint], now: DateTime<Utc>) -> Self {
        let end = now.timestamp().div_euclid(60);
        let since_first = points.first().map_or(0, |point| end - point.minute);
        let minutes = since_first.clamp(FEWEST_MINUTES, MOST_MINUTES);
        let largest = points
            .iter()
            .filter(|p| (end - minutes..=end).contains(&p.minute))
            .flat_map(|p| [p.demand, p.required, p.ready])
            .filter(|value| value.is_finite())
            .fold(1.0_f64, |largest, value| largest.max(f64::from(value)));
        let needed = largest * 1.05;
        let mut power = 1.0;
        let step = 'found: loop {
            for round in ROUND_STEPS {
                if needed <= round * power * MOST_STEPS {
                    break 'found round * power;
                }
            }
            power *= 10.0;
        };
        Self { end, minutes, top: (needed / step).ceil() * step, step }
    }

    fn start(&self) -> i64 {
        self.end - self.minutes
    }

    fn x(&self, minute: i64) -> i64 {
        (minute - self.start()).clamp(0, self.minutes)
    }

    fn y(&self, value: f64) -> i64 {
        (HEIGHT_UNITS * (1.0 - (value / self.top).clamp(0.0, 1.0))).round() as i64
    }

    /// The points in the frame as runs without a missing minute or an unknown value.
    fn runs(&self, points: &[HistoryPoint], value: fn(&HistoryPoint) -> f32) -> Vec<Vec<(i64, i64)>> {
        let mut runs: Vec<Vec<(i64, i64)>> = Vec::new();
        let mut last_minute = None;
        for point in points.iter().filter(|p| (self.start()..self.end).contains(&p.minute)) {
            let value = f64::from(value(point));
            if !value.is_finite() {
                last_minute = None;
                continue;
            }
            let place = (self.x(point.minute), self.y(value));
            match runs.last_mut().filter(|_| last_minute == Some(point.minute - 1)) {
                Some(run) => run.push(place),
                None => runs.push(vec![place]),
            }
            last_minute = Some(point.minute);
        }
        runs
    }

    /// A value holds for its whole minute: a path of steps.
    fn line(&self, points: &[HistoryPoint], value: fn(&HistoryPoint) -> f32) -> String {
        let mut path = String::new();
        for run in self.runs(points, value) {
            append_steps(&mut path, &run);
        }
        path
    }

    /// A value that moves all the time, drawn as a slope from minute to minute: steps of it look like noise.
    fn slope(&self, points: &[HistoryPoint], value: fn(&HistoryPoint) -> f32) -> String {
        let mut path = String::new();
        for run in self.runs(points, value) {
            for (index, (x, y)) in run.iter().enumerate() {
                let command = if index == 0 { 'M' } else { 'L' };
                append(&mut path, format_args!("{command}{x} {y}"));
            }
            if let Some((x, _)) = run.last() {
                append(&mut path, format_args!("H{}", x + 1));
            }
        }
        path
    }

    fn area(&self, points: &[HistoryPoint], value: fn(&HistoryPoint) -> f32) -> String {
        let mut path = String::new();
        for run in self.runs(points, value) {
            append_steps(&mut path, &run);
            if let Some((first, _)) = run.first() {
                append(&mut path, format_args!("V{HEIGHT_UNITS}H{first}Z"));
            }
        }
        path
    }
}

fn append_steps(path: &mut String, run: &[(i64, i64)]) {
    let mut height = None;
    for (x, y) in run {
        match height {
            None => append(path, format_args!("M{x} {y}")),
            Some(last) if last == *y => {}
            Some(_) => append(path, format_args!("H{x}V{y}")),
        }
        height = Some(*y);
    }
    if let Some((x, _)) = run.last() {
        append(path, format_args!("H{}", x + 1));
    }
}

fn append(path: &mut String, text: std::fmt::Arguments<'_>) {
    let written = path.write_fmt(text);
    debug_assert!(written.is_ok(), "a String takes all text");
}

/// What the plot shows, in words: `the last 6 hours`, or as much as there is.
pub(super) fn span(points: &[HistoryPoint], now: DateTime<Utc>) -> String {
    match Frame::new(points, now).minutes {
        MOST_MINUTES => "the last 6 hours".to_owned(),
        minutes if minutes > 120 => format!("the last {} hours", minutes / 60),
        minutes => format!("the last {minutes} minutes"),
    }
}

/// The plot of a tier's page.
pub(super) fn plot(points: &[HistoryPoint], now: DateTime<Utc>) -> Markup {
    if points.is_empty() {
        return html! { p.muted { "No history yet: a point comes every minute." } };
    }
    let frame = Frame::new(points, now);
    html! {
        (legend(points))
        svg.plot width="100%" height=(TOP_PIXELS + PLOT_PIXELS + AXIS_PIXELS) role="img" aria-labelledby="plot-title plot-desc" {
            title id="plot-title" { "Demand, required and ready replicas in " (span(points, now)) }
            desc id="plot-desc" { (description(points)) }
            (stretched(frame.minutes, TOP_PIXELS, PLOT_PIXELS, &html! {
                @for value in ticks(&frame) {
                    line.grid x1="0" x2=(frame.minutes) y1=(frame.y(value)) y2=(frame.y(value)) {}
                }
                @for minute in hours(&frame) {
                    line.grid x1=(frame.x(minute)) x2=(frame.x(minute)) y1="0" y2=(HEIGHT_UNITS) {}
                }
                (series(&frame, points))
                @for slot in hover_slots(&frame, points) {
                    rect.hover x=(slot.x) y="0" width=(HOVER_MINUTES) height=(HEIGHT_UNITS) { title { (slot.text) } }
                }
            }))
            @for value in ticks(&frame).into_iter().filter(|value| *value > 0.0) {
                text x="3" y=(TOP_PIXELS + PLOT_PIXELS * frame.y(value) as f64 / HEIGHT_UNITS - 3.0) { (decimal(value)) }
            }
            @for minute in hours(&frame) {
                text x={ (percent_of_width(&frame, minute)) "%" } y=(TOP_PIXELS + PLOT_PIXELS + 15.0) text-anchor="middle" {
                    (clock_text(minute))
                }
            }
        }
    }
}

/// A small plot without axes; `required` is told to those who can't see it.
pub(super) fn sparkline(points: &[HistoryPoint], now: DateTime<Utc>, required: &str) -> Markup {
    if points.is_empty() {
        return html! { span.muted.small { "no history yet" } };
    }
    let frame = Frame::new(points, now);
    html! {
        svg.sparkline width="100%" height="34" role="img" {
            title { (span(points, now)) ", up to " (decimal(frame.top)) " replicas; " (required) " required now" }
            (stretched(frame.minutes, 1.0, 32.0, &series(&frame, points)))
        }
    }
}

fn stretched(minutes: i64, top: f64, height: f64, content: &Markup) -> Markup {
    html! {
        svg x="0" y=(top) width="100%" height=(height) viewBox={ "0 0 " (minutes) " " (HEIGHT_UNITS) } preserveAspectRatio="none" {
            (content)
        }
    }
}

fn series(frame: &Frame, points: &[HistoryPoint]) -> Markup {
    html! {
        path.ready-area d=(frame.area(points, |p| p.ready)) {}
        path.ready d=(frame.line(points, |p| p.ready)) {}
        path.demand d=(frame.slope(points, |p| p.demand)) {}
        path.required d=(frame.line(points, |p| p.required)) {}
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

struct HoverSlot {
    x: i64,
    text: String,
}

fn hover_slots(frame: &Frame, points: &[HistoryPoint]) -> Vec<HoverSlot> {
    let mut slots: Vec<HoverSlot> = Vec::new();
    for point in points.iter().filter(|p| (frame.start()..frame.end).contains(&p.minute)) {
        let x = frame.x(point.minute) / HOVER_MINUTES * HOVER_MINUTES;
        let of = |value: f32| decimal(f64::from(value));
        let text = format!(
            "{} required {}, demand {}, ready {}",
            clock_text(point.minute),
            of(point.required),
            of(point.demand),
            of(point.ready)
        );
        match slots.last_mut().filter(|slot| slot.x == x) {
            Some(slot) => slot.text = text,
            None => slots.push(HoverSlot { x, text }),
        }
    }
    slots
}

fn ticks(frame: &Frame) -> Vec<f64> {
    let count = (frame.top / frame.step).round() as u32;
    (0..=count).map(|n| f64::from(n) * frame.step).collect()
}

/// The round times in the frame: whole hours, or quarters of them while there is little to show.
fn hours(frame: &Frame) -> Vec<i64> {
    let every = if frame.minutes > 120 { 60 } else { 15 };
    let first = frame.start().div_euclid(every) + 1;
    // The text at the very edge would be cut.
    let last = (frame.end - frame.minutes / 40).div_euclid(every);
    (first..=last).map(|mark| mark * every).collect()
}

fn percent_of_width(frame: &Frame, minute: i64) -> String {
    format!("{:.2}", frame.x(minute) as f64 * 100.0 / frame.minutes as f64)
}

fn clock_text(minute: i64) -> String {
    DateTime::from_timestamp(minute * 60, 0).map_or_else(String::new, |at| at.format("%H:%M").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(minute: i64, ready: f32) -> HistoryPoint {
        HistoryPoint {
            minute,
            requests: 0.0,
            uncached_input_tokens: 0.0,
            output_tokens: 0.0,
            rejected: 0.0,
            kv_tokens: 0.0,
            running: 0.0,
            waiting: 0.0,
            ready,
            demand: f32::NAN,
            required: 4.0,
        }
    }

    fn at_minute(minute: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(minute * 60, 0).expect("time")
    }

    #[test]
    fn an_unknown_value_or_a_missing_minute_breaks_the_line() {
        let points =
            [point(1000, 1.0), point(1001, 1.0), point(1002, f32::NAN), point(1003, 2.0), point(1005, 2.0)];
        let frame = Frame::new(&points, at_minute(1010));
        assert_eq!(frame.line(&points, |p| p.ready), "M20 800H22M23 600H24M25 600H26");
        assert_eq!(frame.line(&points, |p| p.demand), "");
        assert_eq!(frame.slope(&points, |p| p.ready), "M20 800L21 800H22M23 600H24M25 600H26");
        assert_eq!(frame.area(&points[..2], |p| p.ready), "M20 800H22V1000H20Z");
    }

    #[test]
    fn points_outside_the_six_hours_are_not_drawn() {
        let points = [point(100, 50.0), point(1000, 1.0)];
        let frame = Frame::new(&points, at_minute(1010));
        assert!((frame.top - 5.0).abs() < 1e-9, "{}", frame.top);
        assert_eq!(frame.runs(&points, |p| p.ready).len(), 1);
    }

    #[test]
    fn the_axis_has_round_steps() {
        for (largest, step, top) in
            [(0.0, 1.0, 2.0), (4.0, 1.0, 5.0), (9.0, 2.0, 10.0), (38.0, 10.0, 40.0), (700.0, 200.0, 800.0)]
        {
            let frame =
                Frame::new(&[HistoryPoint { required: 0.0, ..point(1000, largest) }], at_minute(1010));
            assert_eq!((frame.step, frame.top), (step, top), "{largest}");
        }
    }
}
