//! The result, as a table for people and as JSON. Pure.

use std::fmt::Write as _;

use serde::Serialize;

use super::fleet::Terms;
use super::score::Score;
use super::work::Work;
use super::{SLOT_SECONDS, Settings};

/// Everything that a backtest found. The same input gives the same report.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Length of the trace.
    pub days: f64,
    /// The busiest minute of the trace is the work of so many replicas.
    pub peak_replicas: u32,
    /// In the fleet, in whole slots.
    pub cold_start_seconds: f64,
    /// Work that queues longer is late.
    pub acceptable_queue_seconds: f64,
    /// Length of a slot.
    pub slot_seconds: f64,
    /// Replica-seconds that work is rounded to.
    pub work_unit_seconds: f64,
    /// What the arrivals of the trace were multiplied by.
    pub scale: f64,
    /// What the cheapest schedule that knew the future would have cost, without any late work.
    pub bound_gpu_hours: f64,
    /// The policies.
    pub policies: Vec<Row>,
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
}

impl Report {
    pub(super) fn new(
        settings: &Settings,
        terms: &Terms,
        work: &Work,
        bound_replica_seconds: f64,
        scored: Vec<(String, Score)>,
    ) -> Self {
        let bound_gpu_hours = bound_replica_seconds / 3600.0;
        let row = |(policy, score): (String, Score)| Row {
            policy,
            ratio: score.gpu_hours / bound_gpu_hours,
            score,
        };
        Self {
            days: work.len() as f64 * SLOT_SECONDS / 86_400.0,
            peak_replicas: settings.peak_replicas,
            cold_start_seconds: f64::from(terms.cold_start_slots) * SLOT_SECONDS,
            acceptable_queue_seconds: terms.acceptable_seconds,
            slot_seconds: SLOT_SECONDS,
            work_unit_seconds: work.unit_seconds(),
            scale: work.scale,
            bound_gpu_hours,
            policies: scored.into_iter().map(row).collect(),
            notes: notes(settings, work),
        }
    }

    /// The table for a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        let wide = self.policies.iter().map(|row| row.policy.chars().count()).max().unwrap_or(0).max(17);
        let mut out = format!(
            "{:.2} days, peak {} replicas, cold start {} s, late after {} s of queue\n\n",
            self.days, self.peak_replicas, self.cold_start_seconds, self.acceptable_queue_seconds
        );
        let mut line = |cells: [&str; 9]| {
            let [policy, rest @ ..] = cells;
            let mut text = format!("{policy:wide$}");
            for (cell, width) in rest.into_iter().zip([9, 6, 10, 12, 6, 7, 7, 7]) {
                // Writing to a String doesn't fail. A space of its own, so that a number that is too wide for its column runs into no other.
                write!(text, " {cell:>width$}").unwrap_or_default();
            }
            out.push_str(text.trim_end());
            out.push('\n');
        };
        line([
            "policy",
            "GPU-hours",
            "ratio",
            "late work",
            "late min/wk",
            "starts",
            "p50 s",
            "p95 s",
            "p99 s",
        ]);
        let bound = format!("{:.1}", self.bound_gpu_hours);
        line(["clairvoyant bound", &bound, "1.000", "0.000 %", "0.0", "-", "-", "-", "-"]);
        for Row { policy, ratio, score } in &self.policies {
            let queue = score.queue_seconds;
            line([
                policy,
                &format!("{:.1}", score.gpu_hours),
                &format!("{ratio:.3}"),
                &format!("{:.3} %", score.late_work * 100.0),
                &format!("{:.1}", score.late_minutes_a_week),
                &score.starts.to_string(),
                &format!("{:.1}", queue.p50),
                &format!("{:.1}", queue.p95),
                &format!("{:.1}", queue.p99),
            ]);
        }
        for note in &self.notes {
            write!(out, "\nnote: {note}").unwrap_or_default();
        }
        if !self.notes.is_empty() {
            out.push('\n');
        }
        out
    }
}

fn notes(settings: &Settings, work: &Work) -> Vec<String> {
    let mut notes = Vec::new();
    if work.assumed_lengths {
        notes.push(
            "the trace has no tokens: each request counts as 1155 input and 211 output tokens".to_owned(),
        );
    }
    let max = settings.policy.max;
    if max < settings.peak_replicas {
        notes.push(format!(
            "max {max} is below the peak of {}: only the static peak and the bound may go beyond it",
            settings.peak_replicas
        ));
    }
    notes
}
