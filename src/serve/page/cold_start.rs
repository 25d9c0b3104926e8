//! How long a start takes, stage by stage.

use maud::{Markup, html};

use crate::decision::{ColdStart, PathStarts};
use crate::serve::words::{count, shortened_by, span};

/// The bar of the path that the next replica is expected to take, and a row for each path.
pub(super) fn section(cold_start: &ColdStart) -> Markup {
    html! {
        section {
            h2 { "Cold start" }
            p { b { (span(cold_start.in_effect)) } " in effect: " (cold_start.because) }
            @if let Some(likely) = cold_start.likely() { (bar(likely)) }
            @if !cold_start.paths.is_empty() { (paths(cold_start)) }
        }
    }
}

fn bar(starts: &PathStarts) -> Markup {
    let whole: f64 = starts.stages.iter().map(|stage| stage.p50.as_secs_f64()).sum();
    if whole <= 0.0 {
        return html! {};
    }
    let shown = || starts.stages.iter().filter(|stage| !stage.p90.is_zero());
    let sentence = shown()
        .map(|stage| format!("{} {}", stage.stage.name(), span(stage.p50)))
        .collect::<Vec<_>>()
        .join(", ");
    html! {
        p.stages role="img" aria-label={ "Median of each stage: " (sentence) } {
            @for stage in shown() {
                span.stage.(stage.stage.name()) style={ "width:" (format!("{:.2}", stage.p50.as_secs_f64() / whole * 100.0)) "%" } title={ (stage.stage.name()) " " (span(stage.p50)) } {}
            }
        }
        ul.legend {
            @for stage in shown() {
                li {
                    span.stage.(stage.stage.name()) aria-hidden="true" {}
                    (stage.stage.name()) " " b { (span(stage.p50)) } span.muted { " p90 " (span(stage.p90)) }
                }
            }
        }
        @if let Some(longest) = starts.dominating() {
            p.small { "Longest is " b { (longest.name()) } ". Shortened by " (shortened_by(longest)) "." }
        }
    }
}

fn paths(cold_start: &ColdStart) -> Markup {
    html! {
        table.stack {
            thead {
                tr {
                    th scope="col" { "Path" }
                    th.num scope="col" { "p50" }
                    th.num scope="col" { "p90" }
                    th.num scope="col" { "Starts" }
                    th.num scope="col" title="go on, were given up, or were blocked: they count as at least as long as they were seen" { "Unfinished" }
                }
            }
            tbody {
                @for starts in cold_start.paths.iter() {
                    tr {
                        th scope="row" { (starts.path.words()) @if cold_start.path == Some(starts.path) { " " span.chip { "expected" } } }
                        td.num data-label="p50" { (span(starts.p50)) }
                        td.num data-label="p90" { (span(starts.p90)) }
                        td.num data-label="Starts" title=(count(starts.starts, "start", "starts")) { (starts.starts) }
                        td.num data-label="Unfinished" { (starts.censored) }
                    }
                }
            }
        }
    }
}
