//! The result, as a table for people, as JSON, as CSV and as a page. Pure.

use std::fmt::Write as _;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::changes::Changes;
use super::fleet::Terms;
use super::frontier::{self, Point};
use super::score::Score;
use super::series::Series;
use super::split::{Part, Split, Steps};
use super::work::Work;
use super::{SLOT_SECONDS, Settings};
use crate::decision::policy::TokenRates;
use crate::units::format_span;

mod axis;
mod csv;
mod document;
mod lesson;
mod page;
mod plot;

/// How the fleet was modelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Fidelity {
    /// Work as a fluid.
    #[default]
    Fluid,
    /// Request by request.
    Requests,
}

/// Everything that a backtest found. The same input gives the same report.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// How the fleet was modelled.
    pub fidelity: Fidelity,
    /// Length of the trace.
    pub days: f64,
    /// Rows of the file that were read.
    pub rows_read: u64,
    /// The wall-clock time of its beginning.
    pub begins: DateTime<Utc>,
    /// What comes before is not scored.
    pub scored_from_seconds: f64,
    /// The busiest minute of the trace is the work of so many replicas.
    pub peak_replicas: f64,
    /// In the fleet, in whole slots.
    pub cold_start_seconds: f64,
    /// Work that queues longer is late.
    pub acceptable_queue_seconds: f64,
    /// What a replica of the fleet serves; request by request, of this mix of requests, as found by playing one.
    pub replica_rates: TokenRates,
    /// Length of a slot.
    pub slot_seconds: f64,
    /// Replica-seconds that work is rounded to.
    pub work_unit_seconds: f64,
    /// What the arrivals of the trace were multiplied by.
    pub scale: f64,
    /// Of whatever was drawn.
    pub seed: u64,
    /// What the cheapest schedule that knew the future would have cost, without any late work.
    pub bound_gpu_hours: f64,
    /// The same with a budget of late minutes: lower bounds. Empty where details weren't wanted.
    pub frontier: Vec<Point>,
    /// The policies.
    pub policies: Vec<Row>,
    /// What each policy pays for which ignorance. Empty where it wasn't asked for.
    pub splits: Vec<Split>,
    /// What the numbers can't tell.
    pub warnings: Vec<String>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// One policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its name, with its settings.
    pub policy: String,
    /// Its GPU-hours over those of the bound.
    pub ratio: f64,
    /// What it came to.
    #[serde(flatten)]
    pub score: Score,
    /// What it looked like over time, where details were wanted. On the page only.
    #[serde(skip)]
    pub record: Option<Record>,
}

/// A run over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Demand, replicas and queue.
    pub series: Series,
    /// The answers with their reasons, of those that give any.
    pub changes: Option<Changes>,
}

/// A row before its ratio is known.
pub(super) type Found = (String, Score, Option<Record>);

/// What the jobs came to.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) fidelity: Fidelity,
    pub(super) bound_replica_slots: f64,
    /// Prices of a late minute, and what the clairvoyant comes to at them.
    pub(super) priced: Vec<(f32, f64)>,
    pub(super) rows: Vec<Found>,
    /// Rows and what they pay with one ignorance fewer each.
    pub(super) steps: Vec<(String, Score, Box<Steps>)>,
    pub(super) warnings: Vec<String>,
}

impl Report {
    /// `read` are the rows of the file and the first slot that is scored.
    pub(super) fn new(
        settings: &Settings,
        terms: &Terms,
        work: &Work,
        (rows_read, from): (u64, usize),
        found: Findings,
    ) -> Self {
        let bound_gpu_hours = found.bound_replica_slots * SLOT_SECONDS / 3600.0;
        let row = |(policy, score, record): Found| Row {
            policy,
            ratio: score.gpu_hours / bound_gpu_hours,
            score,
            record,
        };
        let split = |(policy, score, steps): (String, Score, Box<Steps>)| {
            steps.parts(policy, &score, bound_gpu_hours)
        };
        let scored_seconds = (work.len() - from) as f64 * SLOT_SECONDS;
        Self {
            fidelity: found.fidelity,
            days: work.len() as f64 * SLOT_SECONDS / 86_400.0,
            rows_read,
            begins: settings.begins,
            scored_from_seconds: from as f64 * SLOT_SECONDS,
            peak_replicas: work.peak,
            cold_start_seconds: f64::from(terms.cold_start_slots) * SLOT_SECONDS,
            acceptable_queue_seconds: terms.acceptable_seconds,
            replica_rates: settings.rates,
            slot_seconds: SLOT_SECONDS,
            work_unit_seconds: work.unit_seconds(),
            scale: work.scale,
            seed: settings.seed,
            bound_gpu_hours,
            frontier: frontier::points(found.bound_replica_slots, &found.priced, scored_seconds),
            policies: found.rows.into_iter().map(row).collect(),
            splits: found.steps.into_iter().map(split).collect(),
            warnings: found.warnings,
            notes: notes(work, settings.details && found.priced.is_empty()),
        }
    }

    /// What was played, in a line.
    #[must_use]
    pub fn headline(&self) -> String {
        let mut line = format!(
            "{:.2} days of {} rows from {}, peak {} replicas, cold start {} s, late after {} s of queue",
            self.days,
            self.rows_read,
            self.begins.format("%a %Y-%m-%d %H:%M UTC"),
            number(self.peak_replicas),
            self.cold_start_seconds,
            self.acceptable_queue_seconds
        );
        if self.scored_from_seconds > 0.0 {
            let learning = Duration::from_secs_f64(self.scored_from_seconds);
            write!(line, ", scored after {}", format_span(learning)).unwrap_or_default();
        }
        line
    }

    /// The table for a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = format!("{}\n\n", self.headline());
        let names = self.policies.iter().map(|row| row.policy.chars().count());
        let wide = names.max().unwrap_or(0).max(17);
        let columns = self.columns();
        let mut rows = vec![
            std::iter::once("policy".to_owned()).chain(columns.iter().map(|c| c.title.to_owned())).collect(),
        ];
        rows.push(self.bound_cells(&columns));
        rows.extend(self.policies.iter().map(|row| cells(row, &columns)));
        for row in rows {
            line(&mut out, &row, wide, &columns.iter().map(|column| column.width).collect::<Vec<_>>());
        }
        self.split_table(&mut out);
        for note in &self.notes {
            write!(out, "\nnote: {note}").unwrap_or_default();
        }
        if !self.notes.is_empty() {
            out.push('\n');
        }
        out
    }

    /// Where the money goes, in GPU-hours.
    fn split_table(&self, out: &mut String) {
        let Some(first) = self.splits.first() else { return };
        out.push_str("\nwhere the excess goes, GPU-hours (late minutes a week once that is known)\n");
        let names = self.splits.iter().map(|split| split.policy.chars().count());
        let wide = names.max().unwrap_or(0).max("policy".len());
        let titles = std::iter::once("excess").chain(first.parts.iter().map(|part| part.of));
        let titles: Vec<String> = std::iter::once("policy").chain(titles).map(str::to_owned).collect();
        // Room for numbers of a week, and two spaces before each.
        let widths: Vec<usize> = titles[1..].iter().map(|title| title.chars().count().max(14) + 1).collect();
        line(out, &titles, wide, &widths);
        for split in &self.splits {
            let mut cells = vec![split.policy.clone(), format!("{:.1}", split.excess_gpu_hours)];
            let part = |part: &Part| format!("{:.1} ({:.1})", part.gpu_hours, part.late_minutes_a_week);
            cells.extend(split.parts.iter().map(part));
            line(out, &cells, wide, &widths);
        }
    }

    /// The columns that at least one policy fills.
    fn columns(&self) -> Vec<Column> {
        let told = |value: fn(&Score) -> bool| self.policies.iter().any(|row| value(&row.score));
        let (first_token, lost) = (told(|s| s.first_token.is_some()), told(|s| s.lost.is_some()));
        COLUMNS
            .into_iter()
            .filter(|column| match column.of {
                Of::Always => true,
                Of::FirstToken => first_token,
                Of::Lost => lost,
            })
            .collect()
    }

    fn bound_cells(&self, columns: &[Column]) -> Vec<String> {
        let value = |column: &Column| match column.title {
            "GPU-hours" => format!("{:.1}", self.bound_gpu_hours),
            "ratio" => "1.000".to_owned(),
            "late work" => "0.000 %".to_owned(),
            "late min/wk" => "0.0".to_owned(),
            _ => "-".to_owned(),
        };
        std::iter::once("clairvoyant bound".to_owned()).chain(columns.iter().map(value)).collect()
    }
}

/// When a column is shown.
#[derive(Clone, Copy)]
enum Of {
    Always,
    /// Where the model of the fleet has tokens.
    FirstToken,
    /// Where it loses requests.
    Lost,
}

/// A column of the table.
#[derive(Clone, Copy)]
struct Column {
    title: &'static str,
    width: usize,
    of: Of,
    value: fn(&Row) -> String,
}

const fn column(title: &'static str, width: usize, of: Of, value: fn(&Row) -> String) -> Column {
    Column { title, width, of, value }
}

/// A space of its own stands before each, so that a number that is too wide runs into no other.
const COLUMNS: [Column; 12] = [
    column("GPU-hours", 9, Of::Always, |row| format!("{:.1}", row.score.gpu_hours)),
    column("ratio", 6, Of::Always, |row| format!("{:.3}", row.ratio)),
    column("late work", 10, Of::Always, |row| format!("{:.3} %", row.score.late_work * 100.0)),
    column("late min/wk", 12, Of::Always, |row| format!("{:.1}", row.score.late_minutes_a_week)),
    column("starts", 6, Of::Always, |row| row.score.starts.to_string()),
    column("p50 s", 7, Of::Always, |row| format!("{:.1}", row.score.queue_seconds.p50)),
    column("p95 s", 7, Of::Always, |row| format!("{:.1}", row.score.queue_seconds.p95)),
    column("p99 s", 7, Of::Always, |row| format!("{:.1}", row.score.queue_seconds.p99)),
    column("TTFT p50", 8, Of::FirstToken, |row| told(row.score.first_token.map(|times| times.p50))),
    column("TTFT p95", 8, Of::FirstToken, |row| told(row.score.first_token.map(|times| times.p95))),
    column("TTFT p99", 8, Of::FirstToken, |row| told(row.score.first_token.map(|times| times.p99))),
    column("lost", 8, Of::Lost, |row| row.score.lost.map_or_else(|| "-".to_owned(), |lost| lost.to_string())),
];

fn told(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.2}"))
}

fn cells(row: &Row, columns: &[Column]) -> Vec<String> {
    std::iter::once(row.policy.clone()).chain(columns.iter().map(|column| (column.value)(row))).collect()
}

fn line(out: &mut String, cells: &[String], wide: usize, widths: &[usize]) {
    let mut text = format!("{:wide$}", cells.first().map_or("", String::as_str));
    for (cell, width) in cells.iter().skip(1).zip(widths) {
        // Writing to a String doesn't fail.
        write!(text, " {cell:>width$}").unwrap_or_default();
    }
    out.push_str(text.trim_end());
    out.push('\n');
}

/// With up to two decimals, without those that are zero.
fn number(value: f64) -> String {
    format!("{}", (value * 100.0).round() / 100.0)
}

fn notes(work: &Work, no_frontier: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if work.assumed_lengths {
        notes.push(
            "the trace has no tokens: each request counts as 1155 input and 211 output tokens".to_owned(),
        );
    }
    if no_frontier {
        notes.push("the clairvoyant with a budget of late minutes would take too long here".to_owned());
    }
    notes
}
