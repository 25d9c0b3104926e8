//! A drawing over the last hours, a point a minute. Hand-written SVG, the same bytes for the same points.
//!
//! The lines live in an inner drawing that is stretched (a minute is one unit wide, the whole height is 1000); the texts
//! live in the outer one, which isn't, so that they are as large on a phone as on a desk.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use crate::forecast::TrackPoint;
use crate::history::HistoryPoint;
use crate::serve::words::decimal;

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

/// Something of a minute.
pub(super) trait Point {
    /// Minutes since the epoch.
    fn minute(&self) -> i64;
}

impl Point for HistoryPoint {
    fn minute(&self) -> i64 {
        self.minute
    }
}

impl Point for TrackPoint {
    fn minute(&self) -> i64 {
        self.minute
    }
}

/// Where a minute and a value are.
pub(super) struct Frame {
    /// The last minute.
    end: i64,
    /// Minutes in the frame: as many as there are points for, up to six hours.
    minutes: i64,
    top: f64,
    step: f64,
}

impl Frame {
    /// With room for these values.
    pub(super) fn new<P: Point>(points: &[P], values: fn(&P) -> [f64; 3], now: DateTime<Utc>) -> Self {
        let end = now.timestamp().div_euclid(60);
        let since_first = points.first().map_or(0, |point| end - point.minute());
        let minutes = since_first.clamp(FEWEST_MINUTES, MOST_MINUTES);
        let largest = points
            .iter()
            .filter(|p| (end - minutes..=end).contains(&p.minute()))
            .flat_map(values)
            .filter(|value| value.is_finite())
            .fold(1.0_f64, f64::max);
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

    /// Minutes from its left edge to its right one.
    pub(super) fn minutes(&self) -> i64 {
        self.minutes
    }

    /// The largest value on its axis.
    pub(super) fn top(&self) -> f64 {
        self.top
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
    fn runs<P: Point>(&self, points: &[P], value: fn(&P) -> f64) -> Vec<Vec<(i64, i64)>> {
        let mut runs: Vec<Vec<(i64, i64)>> = Vec::new();
        let mut last_minute = None;
        for point in points.iter().filter(|p| (self.start()..self.end).contains(&p.minute())) {
            let value = value(point);
            if !value.is_finite() {
                last_minute = None;
                continue;
            }
            let place = (self.x(point.minute()), self.y(value));
            match runs.last_mut().filter(|_| last_minute == Some(point.minute() - 1)) {
                Some(run) => run.push(place),
                None => runs.push(vec![place]),
            }
            last_minute = Some(point.minute());
        }
        runs
    }

    /// A value holds for its whole minute: a path of steps.
    pub(super) fn line<P: Point>(&self, points: &[P], value: fn(&P) -> f64) -> String {
        let mut path = String::new();
        for run in self.runs(points, value) {
            append_steps(&mut path, &run);
        }
        path
    }

    /// A value that moves all the time, drawn as a slope from minute to minute: steps of it look like noise.
    pub(super) fn slope<P: Point>(&self, points: &[P], value: fn(&P) -> f64) -> String {
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

    /// The same, filled down to the ground.
    pub(super) fn area<P: Point>(&self, points: &[P], value: fn(&P) -> f64) -> String {
        let mut path = String::new();
        for run in self.runs(points, value) {
            append_steps(&mut path, &run);
            if let Some((first, _)) = run.first() {
                append(&mut path, format_args!("V{HEIGHT_UNITS}H{first}Z"));
            }
        }
        path
    }

    /// What is between two values that move all the time.
    pub(super) fn band<P: Point>(&self, points: &[P], low: fn(&P) -> f64, high: fn(&P) -> f64) -> String {
        let mut path = String::new();
        for (above, below) in self.runs(points, high).iter().zip(self.runs(points, low)) {
            for (index, (x, y)) in above.iter().chain(below.iter().rev()).enumerate() {
                let command = if index == 0 { 'M' } else { 'L' };
                append(&mut path, format_args!("{command}{x} {y}"));
            }
            path.push('Z');
        }
        path
    }

    /// What it spans, in words: `the last 6 hours`, or as much as there is.
    pub(super) fn span(&self) -> String {
        match self.minutes {
            MOST_MINUTES => "the last 6 hours".to_owned(),
            minutes if minutes > 120 => format!("the last {} hours", minutes / 60),
            minutes => format!("the last {minutes} minutes"),
        }
    }

    /// A drawing with axes of what was drawn in this frame, and texts to hover on.
    pub(super) fn drawing(
        &self,
        id: &str,
        title: &str,
        described: &str,
        content: &Markup,
        hover: &Markup,
    ) -> Markup {
        html! {
            svg.plot width="100%" height=(TOP_PIXELS + PLOT_PIXELS + AXIS_PIXELS) role="img" aria-labelledby={ (id) "-title " (id) "-desc" } {
                title id={ (id) "-title" } { (title) }
                desc id={ (id) "-desc" } { (described) }
                (stretched(self.minutes, TOP_PIXELS, PLOT_PIXELS, &html! {
                    @for value in ticks(self) {
                        line.grid x1="0" x2=(self.minutes) y1=(self.y(value)) y2=(self.y(value)) {}
                    }
                    @for minute in hours(self) {
                        line.grid x1=(self.x(minute)) x2=(self.x(minute)) y1="0" y2=(HEIGHT_UNITS) {}
                    }
                    (content)
                    (hover)
                }))
                @for value in ticks(self).into_iter().filter(|value| *value > 0.0) {
                    text x="3" y=(TOP_PIXELS + PLOT_PIXELS * self.y(value) as f64 / HEIGHT_UNITS - 3.0) { (decimal(value)) }
                }
                @for minute in hours(self) {
                    text x={ (percent_of_width(self, minute)) "%" } y=(TOP_PIXELS + PLOT_PIXELS + 15.0) text-anchor="middle" {
                        (clock_text(minute))
                    }
                }
            }
        }
    }

    /// A text for each ten minutes, which somebody who points at them sees.
    pub(super) fn hover<P: Point>(&self, points: &[P], text: fn(&P) -> String) -> Markup {
        let mut slots: Vec<(i64, String)> = Vec::new();
        for point in points.iter().filter(|p| (self.start()..self.end).contains(&p.minute())) {
            let x = self.x(point.minute()) / HOVER_MINUTES * HOVER_MINUTES;
            let told = format!("{} {}", clock_text(point.minute()), text(point));
            match slots.last_mut().filter(|slot| slot.0 == x) {
                Some(slot) => slot.1 = told,
                None => slots.push((x, told)),
            }
        }
        html! {
            @for (x, told) in &slots {
                rect.hover x=(x) y="0" width=(HOVER_MINUTES) height=(HEIGHT_UNITS) { title { (told) } }
            }
        }
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

/// A drawing whose width is so many minutes, in the whole width of the page.
pub(super) fn stretched(minutes: i64, top: f64, height: f64, content: &Markup) -> Markup {
    html! {
        svg x="0" y=(top) width="100%" height=(height) viewBox={ "0 0 " (minutes) " " (HEIGHT_UNITS) } preserveAspectRatio="none" {
            (content)
        }
    }
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

    fn values(point: &HistoryPoint) -> [f64; 3] {
        [point.demand, point.required, point.ready].map(f64::from)
    }

    fn at_minute(minute: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(minute * 60, 0).expect("time")
    }

    #[test]
    fn an_unknown_value_or_a_missing_minute_breaks_the_line() {
        let points =
            [point(1000, 1.0), point(1001, 1.0), point(1002, f32::NAN), point(1003, 2.0), point(1005, 2.0)];
        let frame = Frame::new(&points, values, at_minute(1010));
        assert_eq!(frame.line(&points, |p| f64::from(p.ready)), "M20 800H22M23 600H24M25 600H26");
        assert_eq!(frame.line(&points, |p| f64::from(p.demand)), "");
        assert_eq!(frame.slope(&points, |p| f64::from(p.ready)), "M20 800L21 800H22M23 600H24M25 600H26");
        assert_eq!(frame.area(&points[..2], |p| f64::from(p.ready)), "M20 800H22V1000H20Z");
    }

    #[test]
    fn points_outside_the_six_hours_are_not_drawn() {
        let points = [point(100, 50.0), point(1000, 1.0)];
        let frame = Frame::new(&points, values, at_minute(1010));
        assert!((frame.top - 5.0).abs() < 1e-9, "{}", frame.top);
        assert_eq!(frame.runs(&points, |p| f64::from(p.ready)).len(), 1);
    }

    #[test]
    fn the_axis_has_round_steps() {
        for (largest, step, top) in
            [(0.0, 1.0, 2.0), (4.0, 1.0, 5.0), (9.0, 2.0, 10.0), (38.0, 10.0, 40.0), (700.0, 200.0, 800.0)]
        {
            let frame = Frame::new(
                &[HistoryPoint { required: 0.0, ..point(1000, largest) }],
                values,
                at_minute(1010),
            );
            assert_eq!((frame.step, frame.top), (step, top), "{largest}");
        }
    }

    #[test]
    fn a_band_goes_there_and_back_and_breaks_where_nothing_is_known() {
        let track = |minute, came| TrackPoint { minute, expected: 1.0, spread: 0.5, came };
        let points = [track(1000, 1.0), track(1001, 1.0), track(1003, 1.0)];
        let frame = Frame::new(&points, |p| [p.expected, p.came, p.spread], at_minute(1010));
        let band = frame.band(&points, |p| p.expected - p.spread, |p| p.expected + p.spread);
        assert_eq!(band, "M20 250L21 250L21 750L20 750ZM23 250L23 750Z");
    }
}
