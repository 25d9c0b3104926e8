//! The plots of the page as hand-written SVG: the same bytes for the same report.
//!
//! Lines live in inner drawings that are stretched; texts and points live in the outer one, which isn't, so that they are
//! as large on a phone as on a desk.

use std::fmt::Write as _;

use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, html};

use super::axis::{self, Axis, LogAxis};
use super::{Record, Report, Row, number};
use crate::backtest::SLOT_SECONDS;
use crate::backtest::series::{Bucket, Series};

/// Height of stretched drawings, in their own units.
const HEIGHT_UNITS: f64 = 1000.0;
const TOP_PIXELS: f64 = 14.0;
const PLOT_PIXELS: f64 = 190.0;
/// Below the plot: the numbers of the axis.
const AXIS_PIXELS: f64 = 22.0;
/// A line of the plot of queue times.
const ROW_PIXELS: f64 = 26.0;
/// The left end of a logarithmic axis, seconds: less is nothing.
const SHORTEST_SECONDS: f64 = 0.01;

/// Demand against ready replicas, with the minutes in which work was late.
pub(super) fn over_time(report: &Report, row: &Row, record: &Record, id: usize) -> Markup {
    let (series, begins) = (&record.series, report.begins);
    let buckets = &series.buckets;
    let largest = buckets.iter().map(|b| b.demand.most.max(b.ready.most)).fold(0.0, f64::max);
    let axis = Axis::up_to(largest);
    let seconds = buckets.iter().map(|bucket| f64::from(bucket.slots)).sum::<f64>() * SLOT_SECONDS;
    let y = |value: f64| (HEIGHT_UNITS * (1.0 - axis.share(value))).round();
    let width = buckets.len();
    let unscored = report.scored_from_seconds / series.bucket_seconds();
    html! {
        svg.plot width="100%" height=(TOP_PIXELS + PLOT_PIXELS + AXIS_PIXELS) role="img" aria-labelledby={ "run-" (id) } {
            title id={ "run-" (id) } { "Demand and ready replicas of " (row.policy) ", with the minutes in which work was late" }
            (stretched(width, TOP_PIXELS, PLOT_PIXELS, &html! {
                @for tick in axis.ticks() { line.grid x1="0" x2=(width) y1=(y(tick)) y2=(y(tick)) {} }
                path.ready-area d=(area(buckets, y, |_| 0.0, |b| b.ready.least)) {}
                path.ready-band d=(area(buckets, y, |b| b.ready.least, |b| b.ready.most)) {}
                path.ready d=(steps(buckets, y, |b| b.ready.most)) {}
                path.demand-band d=(area(buckets, y, |b| b.demand.least, |b| b.demand.most)) {}
                path.demand d=(steps(buckets, y, |b| b.demand.mean())) {}
                @for (at, bucket) in late(buckets) {
                    rect.late x=(at) y="0" width="1" height=(HEIGHT_UNITS) fill-opacity=(opacity(bucket)) {}
                }
                @if unscored > 0.0 { rect.unscored x="0" y="0" width=(round(unscored)) height=(HEIGHT_UNITS) {} }
                @for (at, text) in hover(record, begins) {
                    rect.hover x=(at) y="0" width="1" height=(HEIGHT_UNITS) { title { (text) } }
                }
            }))
            @for tick in axis.ticks().filter(|tick| *tick > 0.0) {
                text x="3" y=(TOP_PIXELS + PLOT_PIXELS * y(tick) / HEIGHT_UNITS - 3.0) { (number(tick)) }
            }
            @for (share, text) in axis::times(begins, seconds) {
                text x={ (percent(share)) "%" } y=(TOP_PIXELS + PLOT_PIXELS + 15.0) text-anchor="middle" { (text) }
            }
        }
    }
}

/// GPU-hours against late minutes, with the frontier of the clairvoyant. Points are numbered as the table's rows.
pub(super) fn price_and_lateness(report: &Report) -> Markup {
    let late = report.policies.iter().map(|row| row.score.late_minutes_a_week).fold(0.0, f64::max);
    let hours = report.policies.iter().map(|row| row.score.gpu_hours).fold(report.bound_gpu_hours, f64::max);
    // One minute more counts most where there are few, and the static peak is far above all others.
    let x = |minutes: f64| 0.06 + 0.9 * (1.0 + minutes).ln() / (1.0 + late.max(10.0)).ln();
    let axis = LogAxis::between(report.bound_gpu_hours, hours);
    let y = |hours: f64| TOP_PIXELS + PLOT_PIXELS * (1.0 - axis.share(hours));
    let marks = [0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0];
    html! {
        svg.plot width="100%" height=(TOP_PIXELS + PLOT_PIXELS + AXIS_PIXELS) role="img" aria-labelledby="price-title" {
            title id="price-title" { "GPU-hours against late minutes a week, with what a clairvoyant would have paid" }
            @for tick in axis.ticks() { line.grid x1="0" x2="100%" y1=(round(y(tick))) y2=(round(y(tick))) {} }
            @for pair in report.frontier.windows(2).filter(|pair| x(pair[0].late_minutes_a_week) <= 1.0) {
                line.bound x1={ (percent(x(pair[0].late_minutes_a_week))) "%" } x2={ (percent(x(pair[1].late_minutes_a_week))) "%" }
                    y1=(round(y(pair[0].gpu_hours))) y2=(round(y(pair[1].gpu_hours))) {}
            }
            @if report.frontier.is_empty() {
                line.bound x1="0" x2="100%" y1=(round(y(report.bound_gpu_hours))) y2=(round(y(report.bound_gpu_hours))) {}
            }
            @for tick in axis.ticks() { text x="3" y=(round(y(tick) - 3.0)) { (number(tick)) } }
            @for mark in marks.into_iter().filter(|mark| x(*mark) <= 0.97) {
                text x={ (percent(x(mark))) "%" } y=(TOP_PIXELS + PLOT_PIXELS + 15.0) text-anchor="middle" { (number(mark)) }
            }
            @for (at, row) in report.policies.iter().enumerate() {
                g.point {
                    title { (row.policy) ": " (number(row.score.gpu_hours)) " GPU-hours, " (number(row.score.late_minutes_a_week)) " late minutes a week" }
                    circle cx={ (percent(x(row.score.late_minutes_a_week))) "%" } cy=(round(y(row.score.gpu_hours))) r="9" {}
                    text x={ (percent(x(row.score.late_minutes_a_week))) "%" } y=(round(y(row.score.gpu_hours)) + 4.0) text-anchor="middle" { (at + 1) }
                }
            }
        }
    }
}

/// A kind of latency: its value of a row at each percentile, where the row has it.
pub(super) type Percentiles = fn(&Row) -> Option<[f64; 3]>;

/// Percentiles of a latency, a line a policy, on a logarithmic axis.
pub(super) fn percentiles(report: &Report, title: &str, of: Percentiles) -> Markup {
    let rows: Vec<(usize, [f64; 3])> =
        report.policies.iter().enumerate().filter_map(|(at, row)| Some((at + 1, of(row)?))).collect();
    let longest = rows.iter().map(|(_, times)| times[2]).fold(10.0, f64::max);
    let span = (longest / SHORTEST_SECONDS).ln();
    let x = |seconds: f64| 0.08 + 0.86 * (seconds.max(SHORTEST_SECONDS) / SHORTEST_SECONDS).ln() / span;
    let height = ROW_PIXELS * rows.len() as f64;
    html! {
        svg.plot width="100%" height=(height + AXIS_PIXELS) role="img" aria-label=(title) {
            @for mark in [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0].into_iter().filter(|mark| x(*mark) <= 0.97) {
                line.grid x1={ (percent(x(mark))) "%" } x2={ (percent(x(mark))) "%" } y1="0" y2=(height) {}
                text x={ (percent(x(mark))) "%" } y=(height + 15.0) text-anchor="middle" {
                    @if mark > SHORTEST_SECONDS { (number(mark)) } @else { "0" }
                }
            }
            @for (line, (at, times)) in rows.iter().enumerate() {
                g {
                    title { (report.policies[*at - 1].policy) ": p50 " (number(times[0])) " s, p95 " (number(times[1])) " s, p99 " (number(times[2])) " s" }
                    rect.hover x="0" width="100%" y=(ROW_PIXELS * line as f64) height=(ROW_PIXELS) {}
                    text x="3" y=(ROW_PIXELS * line as f64 + 17.0) { (at) }
                    line.spread x1={ (percent(x(times[0]))) "%" } x2={ (percent(x(times[2]))) "%" } y1=(middle(line)) y2=(middle(line)) {}
                    // The smallest on top, so that those that are alike are all seen.
                    @for (time, (class, radius)) in times.iter().zip([("p50", 3), ("p95", 5), ("p99", 7)]).rev() {
                        circle class=(class) cx={ (percent(x(*time))) "%" } cy=(middle(line)) r=(radius) {}
                    }
                }
            }
        }
    }
}

fn middle(line: usize) -> f64 {
    ROW_PIXELS * line as f64 + ROW_PIXELS / 2.0
}

fn stretched(width: usize, top: f64, height: f64, content: &Markup) -> Markup {
    html! {
        svg x="0" y=(top) width="100%" height=(height) viewBox={ "0 0 " (width) " " (HEIGHT_UNITS) } preserveAspectRatio="none" {
            (content)
        }
    }
}

/// A value that holds for its whole bucket.
fn steps(buckets: &[Bucket], y: impl Fn(f64) -> f64, value: impl Fn(&Bucket) -> f64) -> String {
    let mut path = String::new();
    let mut last = None;
    for (at, bucket) in buckets.iter().enumerate() {
        let height = y(value(bucket));
        // Writing to a String doesn't fail.
        match last {
            None => write!(path, "M{at} {height}"),
            Some(last) if last == height => Ok(()),
            Some(_) => write!(path, "H{at}V{height}"),
        }
        .unwrap_or_default();
        last = Some(height);
    }
    write!(path, "H{}", buckets.len()).unwrap_or_default();
    path
}

/// What lies between two values.
fn area(
    buckets: &[Bucket],
    y: impl Fn(f64) -> f64,
    low: impl Fn(&Bucket) -> f64,
    high: impl Fn(&Bucket) -> f64,
) -> String {
    let mut path = steps(buckets, &y, high);
    for (at, bucket) in buckets.iter().enumerate().rev() {
        write!(path, "V{}H{at}", y(low(bucket))).unwrap_or_default();
    }
    path.push('Z');
    path
}

fn late(buckets: &[Bucket]) -> impl Iterator<Item = (usize, &Bucket)> {
    buckets.iter().enumerate().filter(|(_, bucket)| bucket.late_slots > 0)
}

/// A single late minute of a long bucket is still seen.
fn opacity(bucket: &Bucket) -> String {
    let share = f64::from(bucket.late_slots) / f64::from(bucket.slots.max(1));
    format!("{:.2}", 0.35 + 0.5 * share)
}

/// A text a bucket: what it was like, and the largest change of the answer in it with its reason.
fn hover(record: &Record, begins: DateTime<Utc>) -> Vec<(usize, String)> {
    let Series { slots_a_bucket, buckets } = &record.series;
    let text = |(at, bucket): (usize, &Bucket)| {
        let mut text = format!(
            "{}: demand {} to {}, ready {} to {}",
            time(begins, at * slots_a_bucket),
            number(bucket.demand.least),
            number(bucket.demand.most),
            bucket.ready.least,
            bucket.ready.most
        );
        if bucket.late_slots > 0 {
            let (late, queue) = (f64::from(bucket.late_slots) * SLOT_SECONDS, bucket.longest_queue_seconds);
            write!(text, ", late for {late} s, queue up to {} s", number(queue)).unwrap_or_default();
        }
        let changes = record.changes.as_ref().map_or(&[][..], |changes| changes.all());
        let from = changes.partition_point(|change| change.slot < at * slots_a_bucket);
        let here = changes[from..].iter().take_while(|change| change.slot < (at + 1) * slots_a_bucket);
        if let Some(change) = here.max_by_key(|change| change.size()) {
            let (from, to) = (answer(change.from), answer(change.to));
            write!(text, "; answer {from} to {to}: {}", change.because).unwrap_or_default();
        }
        (at, text)
    };
    buckets.iter().enumerate().map(text).collect()
}

/// An answer in a text.
pub(super) fn answer(answer: Option<u32>) -> String {
    answer.map_or_else(|| "none".to_owned(), |replicas| replicas.to_string())
}

/// The wall-clock time of a slot.
pub(super) fn time(begins: DateTime<Utc>, slot: usize) -> String {
    let at = begins + TimeDelta::milliseconds((slot as f64 * SLOT_SECONDS * 1e3) as i64);
    at.format("%a %-d %b %H:%M:%S").to_string()
}

fn percent(share: f64) -> String {
    format!("{:.2}", share * 100.0)
}

fn round(pixels: f64) -> f64 {
    (pixels * 10.0).round() / 10.0
}
