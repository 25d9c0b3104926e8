//! The drawing of a lesson: one SVG with its own style, for the page and for itself. The same lesson gives the same bytes.

use std::fmt::Write as _;

use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, PreEscaped, html};

use super::super::axis::{self, Axis};
use super::super::number;
use crate::backtest::lessons::{Bars, Panel, Picture, Told};
use crate::backtest::requests::Minute;

/// Width of the drawing; everything is in its units.
const WIDTH: f64 = 960.0;
const MARGIN: f64 = 12.0;
/// More panels than this stand in two columns.
const ONE_COLUMN: usize = 3;
/// Between two columns.
const GUTTER: f64 = 20.0;
/// Left of a panel: the numbers of its axis.
const LEFT: f64 = 26.0;
const LEGEND: f64 = 34.0;
const TITLE: f64 = 18.0;
/// Replicas.
const FLEET: f64 = 84.0;
/// Waiting requests.
const WAITING: f64 = 24.0;
/// Times of day.
const TIMES: f64 = 24.0;
const PANEL: f64 = TITLE + FLEET + WAITING + TIMES;

/// A point of a line is at least so wide: thinner ones can't be seen, and make the drawing large.
const POINT: f64 = 2.0;

/// A point is late when more of its work is.
const LATE_SHARE: f64 = 0.01;

/// Minutes between two times below a short picture; longer ones have whole hours.
const MINUTE_STEPS: [i64; 4] = [5, 10, 15, 30];

/// A bar, with the gap to the next one.
const BAR: f64 = 17.0;
/// Between two groups of bars.
const GROUP: f64 = 30.0;
/// Left of bars: whose they are.
const NAMES: f64 = 210.0;
/// Right of bars: how long they are.
const NUMBERS: f64 = 70.0;

const STYLE: &str = include_str!("drawing.css");

impl Told {
    /// The picture as an SVG that needs nothing else.
    #[must_use]
    pub fn drawing(&self) -> String {
        match &self.picture {
            Picture::Time { load, late, panels } => over_time(self, [load, late], panels).into_string(),
            Picture::Bars(groups) => bars(self, groups).into_string(),
        }
    }
}

fn framed(told: &Told, height: f64, content: &Markup) -> Markup {
    html! {
        svg.lesson xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (height) } width=(WIDTH) height=(height) role="img" aria-labelledby="lesson-title" {
            title #lesson-title { "What the lesson " (told.lesson) " shows" }
            style { (PreEscaped(STYLE)) }
            rect.ground width=(WIDTH) height=(height) rx="6" {}
            (content)
        }
    }
}

/// What all panels are drawn to.
struct Scales {
    replicas: Axis,
    waiting: f64,
    width: f64,
}

fn over_time(told: &Told, [load, late]: [&str; 2], panels: &[Panel]) -> Markup {
    let columns: usize = if panels.len() > ONE_COLUMN { 2 } else { 1 };
    let column = (WIDTH - 2.0 * MARGIN - GUTTER * (columns - 1) as f64) / columns as f64;
    let points = || panels.iter().flat_map(|panel| &panel.points);
    let most = |value: fn(&Minute) -> f64| points().map(value).fold(0.0, f64::max);
    let scales = Scales {
        replicas: Axis::up_to(most(|point| point.demand.max(point.paid))),
        waiting: most(|point| point.waiting).max(1.0),
        width: column - LEFT,
    };
    let waiting = format!("waiting, up to {}, square roots", number(scales.waiting.ceil()));
    let legend =
        [("load", load), ("ready", "ready"), ("paid", "paid"), ("late", late), ("waiting", &waiting)];
    let rows = panels.len().div_ceil(columns);
    framed(
        told,
        LEGEND + PANEL * rows as f64 + MARGIN,
        &html! {
            (legend_of(&legend))
            @for (at, panel) in panels.iter().enumerate() {
                g transform={ "translate(" (MARGIN + (column + GUTTER) * (at % columns) as f64) "," (LEGEND + PANEL * (at / columns) as f64) ")" } {
                    (panel_of(told.begins, panel, &scales))
                }
            }
        },
    )
}

fn legend_of(entries: &[(&str, &str)]) -> Markup {
    /// A letter, on average.
    const LETTER: f64 = 5.9;
    let mut left = MARGIN;
    let placed = entries.iter().map(|(class, text)| {
        let x = left;
        left += 32.0 + LETTER * text.chars().count() as f64;
        (x.round(), class, text)
    });
    html! {
        @for (x, class, text) in placed {
            rect class={ "key " (class) } x=(x) y="12" width="10" height="10" rx="2" {}
            text x=(x + 15.0) y="21" { (text) }
        }
    }
}

fn panel_of(begins: DateTime<Utc>, panel: &Panel, scales: &Scales) -> Markup {
    let seconds = panel.point_seconds * panel.points.len() as f64;
    let points = thinned(&panel.points, (scales.width / POINT) as usize);
    let wide = scales.width / (points.len() as f64).max(1.0);
    let y = |replicas: f64| (TITLE + FLEET * (1.0 - scales.replicas.share(replicas))).round();
    let bottom = TITLE + FLEET + WAITING;
    // A square root: a queue of ten is seen beside one of a thousand.
    let queue = |waiting: f64| (bottom - (WAITING - 2.0) * (waiting / scales.waiting).sqrt()).round();
    let right = LEFT + scales.width;
    html! {
        text.title x=(LEFT) y=(TITLE - 5.0) { (panel.title) }
        @for tick in scales.replicas.ticks() {
            line.grid x1=(LEFT) x2=(right) y1=(y(tick)) y2=(y(tick)) {}
            text x=(LEFT - 5.0) y=(y(tick) + 4.0) text-anchor="end" { (number(tick)) }
        }
        path.ready d=(area(&points, wide, TITLE + FLEET, |point| y(point.ready))) {}
        @for (at, point) in points.iter().enumerate().filter(|(_, point)| point.late > LATE_SHARE) {
            rect.late x=(round(LEFT + wide * at as f64)) y=(TITLE) width=(round(wide)) height=(FLEET) fill-opacity=(opacity(point)) {}
        }
        path.paid d=(steps(&points, wide, |point| y(point.paid))) {}
        path.load d=(steps(&points, wide, |point| y(point.demand))) {}
        path.waiting d=(area(&points, wide, bottom, |point| queue(point.waiting))) {}
        line.grid x1=(LEFT) x2=(right) y1=(bottom) y2=(bottom) {}
        @for (share, text) in times(begins, seconds) {
            text x=(round(LEFT + scales.width * share)) y=(bottom + 13.0) text-anchor="middle" { (text) }
        }
    }
}

/// At most so many points: means of neighbours, and the worst of what queued and was late.
fn thinned(points: &[Minute], most: usize) -> Vec<Minute> {
    let of_one = points.len().div_ceil(most.max(1)).max(1);
    let merged = |points: &[Minute]| {
        let mean = |value: fn(&Minute) -> f64| points.iter().map(value).sum::<f64>() / points.len() as f64;
        let most = |value: fn(&Minute) -> f64| points.iter().map(value).fold(0.0, f64::max);
        Minute {
            demand: mean(|point| point.demand),
            ready: mean(|point| point.ready),
            paid: mean(|point| point.paid),
            waiting: most(|point| point.waiting),
            late: most(|point| point.late),
        }
    };
    points.chunks(of_one).map(merged).collect()
}

/// A value that holds for the whole of its point.
fn steps(points: &[Minute], wide: f64, y: impl Fn(&Minute) -> f64) -> String {
    let x = |at: usize| round(LEFT + wide * at as f64);
    let mut path = String::new();
    let mut last = None;
    for (at, point) in points.iter().enumerate() {
        let height = y(point);
        // Writing to a String doesn't fail.
        match last {
            None => write!(path, "M{} {height}", x(at)),
            Some(last) if last == height => Ok(()),
            Some(_) => write!(path, "H{}V{height}", x(at)),
        }
        .unwrap_or_default();
        last = Some(height);
    }
    write!(path, "H{}", x(points.len())).unwrap_or_default();
    path
}

/// What lies below a value.
fn area(points: &[Minute], wide: f64, bottom: f64, y: impl Fn(&Minute) -> f64) -> String {
    format!("{}V{bottom}H{LEFT}Z", steps(points, wide, y))
}

/// A point with little late work is still seen.
fn opacity(point: &Minute) -> String {
    format!("{:.1}", 0.3 + 0.5 * point.late.clamp(0.0, 1.0))
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Times below a picture of so many seconds: the share of its width, and the text.
fn times(begins: DateTime<Utc>, seconds: f64) -> Vec<(f64, String)> {
    let minutes = (seconds / 60.0).round() as i64;
    let Some(step) = MINUTE_STEPS.into_iter().find(|step| minutes / step <= 6) else {
        return axis::times(begins, seconds);
    };
    (1..=minutes / step)
        .map(|n| (n * step, begins + TimeDelta::minutes(n * step)))
        .map(|(minute, at)| (minute as f64 / minutes as f64, at.format("%H:%M").to_string()))
        // The text at the very edge would be cut.
        .filter(|(share, _)| *share <= 0.97)
        .collect()
}

fn bars(told: &Told, groups: &[Bars]) -> Markup {
    let height = |group: &Bars| GROUP + BAR * group.bars.len() as f64;
    let mut top = 0.0;
    let placed: Vec<(f64, &Bars)> = groups
        .iter()
        .map(|group| {
            let at = top;
            top += height(group);
            (at, group)
        })
        .collect();
    framed(
        told,
        top + MARGIN,
        &html! {
            @for (top, group) in placed {
                text.title x=(MARGIN) y=(top + GROUP - 8.0) { (group.title) }
                @for (at, (name, share, told)) in shares(group).into_iter().enumerate() {
                    text x=(NAMES - 8.0) y=(top + GROUP + BAR * at as f64 + 11.0) text-anchor="end" { (name) }
                    rect.load x=(NAMES) y=(top + GROUP + BAR * at as f64 + 1.0) width=(round(1.0 + share * (WIDTH - NAMES - NUMBERS))) height=(BAR - 4.0) {}
                    text x=(round(NAMES + 8.0 + share * (WIDTH - NAMES - NUMBERS))) y=(top + GROUP + BAR * at as f64 + 11.0) { (told) }
                }
            }
        },
    )
}

/// Bars as shares of the longest one of their group.
fn shares(group: &Bars) -> Vec<(&str, f64, &str)> {
    let longest = group.bars.iter().map(|(_, value, _)| *value).fold(f64::MIN_POSITIVE, f64::max);
    group.bars.iter().map(|(name, value, told)| (name.as_str(), value / longest, told.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pictures_have_minutes_and_long_ones_hours() {
        let begins: DateTime<Utc> = "2024-01-01T10:00:00Z".parse().unwrap();
        let texts = |minutes: f64| {
            times(begins, minutes * 60.0).into_iter().map(|(_, text)| text).collect::<Vec<_>>()
        };
        assert_eq!(texts(30.0), ["10:05", "10:10", "10:15", "10:20", "10:25"]);
        assert_eq!(texts(90.0), ["10:15", "10:30", "10:45", "11:00", "11:15"]);
        assert_eq!(texts(300.0), ["11:00", "12:00", "13:00", "14:00"]);
    }

    #[test]
    fn equal_points_are_one_stretch() {
        let point = |ready| Minute { ready, ..Minute::default() };
        let points = [point(1.0), point(1.0), point(2.0)];
        assert_eq!(steps(&points, 4.0, |point| point.ready), "M26 1H34V2H38");
        assert_eq!(area(&points[..1], 4.0, 9.0, |point| point.ready), "M26 1H30V9H26Z");
    }

    #[test]
    fn neighbours_are_merged_and_the_worst_of_their_queues_stays() {
        let point = |demand, waiting| Minute { demand, waiting, ..Minute::default() };
        let merged = thinned(&[point(1.0, 0.0), point(3.0, 9.0), point(5.0, 1.0)], 2);
        assert_eq!(merged, [point(2.0, 9.0), point(5.0, 1.0)]);
    }
}
