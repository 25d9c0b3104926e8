//! The result as one self-contained page: no script, nothing fetched, light and dark, readable on a phone.

use maud::{Markup, html};

use super::document::document;
use super::plot::{self, answer, time};
use super::{Fidelity, Record, Report, Row, cells, number};
use crate::backtest::changes::Changes;
use crate::backtest::split::Split;
use crate::serve::words::words;

/// What every number on the page leaves out, of a fluid.
const A_FLUID_LEAVES_OUT: &[&str] = &[
    "Work is a fluid: no single request, no KV cache that fills, no preemption, no prefix cache, no routing. Times are queue times, not times to the first token.",
    "Every start takes the same time and succeeds: no failed start, no node that can't be had, no quota.",
    "Giving back is immediate: nothing drains.",
    "Every reading succeeds and is one slot old; capacity is what it is said to be.",
    "Nobody gives up, and nobody comes back.",
    "Load inside a row of the trace is even: real load is rougher, and every policy is later than told here.",
];

/// The same request by request.
const REQUESTS_LEAVE_OUT: &[&str] = &[
    "Requests come evenly within a slot of 5 s and have drawn lengths: a client's burst is nobody's, and real load is rougher.",
    "A step takes what its law says: no network, no tokenizer, no API server that is itself busy, no speculative decoding, one engine a replica.",
    "No prompt shares a prefix with another.",
    "Every start takes the same time and succeeds: no failed start, no node that can't be had, no quota.",
    "Every reading succeeds.",
    "Nobody gives up, and nobody comes back.",
    "The bound is that of the same load as a fluid.",
];

impl Report {
    /// The page. The same report gives the same bytes.
    #[must_use]
    pub fn page(&self) -> String {
        let body = html! {
            h1 { "Backtest" }
            p { (self.headline()) }
            @if !self.warnings.is_empty() { ul.warnings { @for warning in &self.warnings { li { (warning) } } } }
            (self.policies_section())
            (self.price_section())
            (self.latency_section())
            (self.split_section())
            @for (at, row) in self.policies.iter().enumerate() {
                @if let Some(record) = &row.record { (self.run_section(at, row, record)) }
            }
            (self.left_out_section())
        };
        document(&format!("Backtest: {}", self.headline()), "", &body)
    }

    fn policies_section(&self) -> Markup {
        let columns = self.columns();
        let counted = match self.fidelity {
            Fidelity::Fluid => "work",
            Fidelity::Requests => "requests",
        };
        html! {
            h2 { "What each costs, and who waits" }
            div.scroll { table {
                thead { tr {
                    th { "" }
                    th.name { "policy" }
                    @for column in &columns { th { (column.title) } }
                } }
                tbody {
                    (table_row("", &self.bound_cells(&columns)))
                    @for (at, row) in self.policies.iter().enumerate() {
                        (table_row(&(at + 1).to_string(), &cells(row, &columns)))
                    }
                }
            } }
            p.muted {
                "GPU-hours from order to release. Ratio: to the clairvoyant bound, the cheapest schedule that knew the future, paid the same starts and was never late. Late: queued longer than "
                (number(self.acceptable_queue_seconds)) " s. Percentiles: of the queue time over the " (counted) "."
            }
            @if !self.notes.is_empty() { ul.muted { @for note in &self.notes { li { (note) } } } }
        }
    }

    fn price_section(&self) -> Markup {
        html! {
            h2 { "GPU-hours against late minutes a week" }
            (plot::price_and_lateness(self))
            p.muted {
                "Points are numbered as above. The line is what a clairvoyant would have paid who may be late in as many minutes: a lower bound, nobody can lie below it."
            }
        }
    }

    fn latency_section(&self) -> Markup {
        let queue: plot::Percentiles = |row| {
            let times = row.score.queue_seconds;
            Some([times.p50, times.p95, times.p99])
        };
        let first: plot::Percentiles =
            |row| row.score.first_token.map(|times| [times.p50, times.p95, times.p99]);
        html! {
            h2 { "Queue time in seconds" }
            (percentiles_legend())
            (plot::percentiles(self, "Queue time", queue))
            @if self.policies.iter().any(|row| row.score.first_token.is_some()) {
                h2 { "Time to the first token in seconds" }
                (percentiles_legend())
                (plot::percentiles(self, "Time to the first token", first))
            }
        }
    }

    fn split_section(&self) -> Markup {
        let Some(first) = self.splits.first() else { return html! {} };
        html! {
            h2 { "Where the excess goes" }
            div.scroll { table {
                thead { tr {
                    th.name { "policy" }
                    th { "excess" }
                    @for part in &first.parts { th { (part.of) } }
                } }
                tbody { @for split in &self.splits { (split_row(split, self.bound_gpu_hours)) } }
            } }
            p.muted {
                "GPU-hours, and in percent of the bound; below it the late minutes a week once that is known. One ignorance after the other is taken away: the HPA and the age of the answer; not knowing when a replica is needed again; not knowing what arrives, half a cold start ahead and a whole one. What is left is the rule itself: head-room, rounding, queues that nobody plans for."
            }
        }
    }

    fn run_section(&self, at: usize, row: &Row, record: &Record) -> Markup {
        html! {
            h2 { (at + 1) ". " (row.policy) }
            ul.legend {
                li { span.swatch.demand {} "demand" }
                li { span.swatch.ready {} "ready replicas" }
                li { span.swatch.late {} "minutes with late work" }
                li.muted { "replicas, times in UTC, " (number(record.series.bucket_seconds() / 60.0)) " min a column" }
            }
            (plot::over_time(self, row, record, at))
            @if let Some(changes) = &record.changes { (self.changes_table(changes)) }
        }
    }

    fn changes_table(&self, changes: &Changes) -> Markup {
        html! {
            details {
                summary {
                    (changes.all().len()) " changes of the answer, with their reasons"
                    @if changes.left_out() > 0 { "; " (changes.left_out()) " smaller ones are left out" }
                }
                div.scroll { table.changes {
                    thead { tr { th.name { "time" } th { "answer" } th { "demand" } th.name { "set by" } th.name { "because" } } }
                    tbody { @for change in changes.all() { tr {
                        td.name { (time(self.begins, change.slot)) }
                        td { (answer(change.from)) " → " (answer(change.to)) }
                        td { @if let Some(demand) = change.demand { (number(demand)) } @else { "–" } }
                        td.name { (words(change.reason)) }
                        td.because { (change.because) }
                    } } }
                } }
            }
        }
    }

    fn left_out_section(&self) -> Markup {
        let left_out = match self.fidelity {
            Fidelity::Fluid => A_FLUID_LEAVES_OUT,
            Fidelity::Requests => REQUESTS_LEAVE_OUT,
        };
        html! {
            h2 { "What the simulation leaves out" }
            ul { @for left_out in left_out { li { (left_out) } } }
            p.muted {
                "Slots of " (number(self.slot_seconds)) " s; work rounded to " (number(self.work_unit_seconds))
                " replica-seconds, nothing lost; arrivals multiplied by " (self.scale) "; seed " (self.seed) "."
            }
        }
    }
}

fn percentiles_legend() -> Markup {
    html! { ul.legend {
        @for (class, text) in [("p50", "half waits no longer"), ("p95", "95 % of the work"), ("p99", "99 % of the work")] {
            li { span.swatch.(class) {} (text) }
        }
    } }
}

fn table_row(number: &str, cells: &[String]) -> Markup {
    html! { tr {
        td { (number) }
        @for (at, cell) in cells.iter().enumerate() { td.name[at == 0] { (cell) } }
    } }
}

fn split_row(split: &Split, bound_gpu_hours: f64) -> Markup {
    let told = |gpu_hours: f64| format!("{gpu_hours:.1} ({:.1} %)", gpu_hours / bound_gpu_hours * 100.0);
    html! { tr {
        td.name { (split.policy) }
        td { (told(split.excess_gpu_hours)) }
        @for part in &split.parts {
            td { (told(part.gpu_hours)) span.small { (number(part.late_minutes_a_week)) " late min/wk" } }
        }
    } }
}

#[cfg(test)]
mod tests;
