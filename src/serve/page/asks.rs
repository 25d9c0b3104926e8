//! What each signal alone would need, as bars on one scale, and every bound on the answer.

use maud::{Markup, html};

use crate::decision::{Ask, Decision};
use crate::serve::words::{budget, decimal, frontier, maybe, span, words};

/// The bars, with a mark at what is ready.
pub(super) fn asks(decision: &Decision, ready: Option<u32>) -> Markup {
    let shown_ready = ready.map(f64::from);
    let numbers =
        decision.asks.iter().filter_map(|ask| ask.replicas).chain(decision.ahead).chain(decision.demand);
    let numbers = numbers.chain(decision.forecast.as_ref().map(|forecast| f64::from(forecast.replicas)));
    let largest = numbers.fold(shown_ready.unwrap_or(0.0).max(1.0), f64::max);
    // Room for the mark at the end of the longest bar.
    let scale = largest * 1.02;
    html! {
        section {
            h2 { "What each signal asks for" }
            ul.bars style=[shown_ready.map(|ready| format!("--mark:{:.2}%", ready * 100.0 / scale))] {
                @for ask in &decision.asks { (bar(ask, scale)) }
                @if let Some(ahead) = decision.ahead {
                    li.bar {
                        span.name { "ramp ahead" }
                        span.track.warm { span.fill style=(width(ahead, scale)) {} }
                        span.value { (maybe(Some(ahead))) }
                        span.because { "what the declared ramp can reach within one lead time of " (span(decision.lead)) }
                    }
                }
                @if let Some(forecast) = &decision.forecast {
                    li.bar {
                        span.name { "forecast" }
                        span.track.warm { span.fill style=(width(f64::from(forecast.replicas), scale)) {} }
                        span.value { (forecast.replicas) }
                        span.because { (forecast.because) @if let Some(used) = &forecast.budget { " · " (budget(used)) } @if let Some(known) = &forecast.frontier { " · " (frontier(known)) } }
                    }
                }
            }
            p.muted.small { "In replicas."
                @if let Some(ready) = ready { " The mark is what is ready: " (ready) "." }
                @match decision.demand {
                    Some(demand) => { " Together they are a demand of " b { (decimal(demand)) } "." }
                    None => " The demand is unknown.",
                } }
        }
    }
}

fn bar(ask: &Ask, scale: f64) -> Markup {
    let off = ask.weight <= 0.0;
    html! {
        li.bar.off[off] {
            span.name { (words(ask.signal.name())) }
            span.track { @if let Some(replicas) = ask.replicas.filter(|replicas| *replicas > 0.0) { span.fill style=(width(replicas, scale)) {} } }
            span.value { (maybe(ask.replicas)) }
            span.because {
                @if off { span.badge { "off" } " " }
                @if ask.saturated { span.badge.warn { "saturated" } " " }
                @if ask.kept { span.badge.warn title="the signal is missing now; this is its last ask" { "kept" } " " }
                (ask.because)
                @if !off && (ask.weight - 1.0).abs() > 1e-9 { " · weight " (ask.weight) }
            }
        }
    }
}

fn width(replicas: f64, scale: f64) -> String {
    format!("width:{:.2}%", (replicas / scale).clamp(0.0, 1.0) * 100.0)
}

/// Every bound; the one that won and the one that holds are marked.
pub(super) fn bounds(decision: &Decision) -> Markup {
    if decision.bounds.is_empty() {
        return html! {};
    }
    let mark = |kind| {
        if decision.winner.kind == kind {
            Some("binds")
        } else if decision.held.as_ref().is_some_and(|held| held.kind == kind) {
            Some("holds")
        } else {
            None
        }
    };
    html! {
        section {
            h2 { "Bounds" }
            table {
                thead { tr { th scope="col" { "Bound" } th.num scope="col" { "Replicas" } th scope="col" { "Because" } } }
                tbody {
                    @for bound in &decision.bounds {
                        tr.marked[mark(bound.kind).is_some()] {
                            th scope="row" {
                                (words(bound.kind.name()))
                                @if let Some(mark) = mark(bound.kind) { " " span.chip { (mark) } }
                            }
                            td.num { (bound.replicas) }
                            td { (bound.because) }
                        }
                    }
                }
            }
        }
    }
}
