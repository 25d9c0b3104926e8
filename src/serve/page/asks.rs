//! What each signal alone would need, as bars on one scale, and every bound on the answer.

use maud::{Markup, html};

use crate::decision::{Ask, Decision};
use crate::serve::words::{maybe, words};

/// The bars, with a mark at what is ready.
pub(super) fn asks(decision: &Decision, ready: u32) -> Markup {
    let numbers =
        decision.asks.iter().filter_map(|ask| ask.replicas).chain(decision.ahead).chain(decision.demand);
    let largest = numbers.fold(f64::from(ready.max(1)), f64::max);
    // Room for the mark at the end of the longest bar.
    let scale = largest * 1.02;
    html! {
        section {
            h2 { "What each signal asks for" }
            ul.bars style=(format!("--mark:{:.2}%", f64::from(ready) * 100.0 / scale)) {
                @for ask in &decision.asks { (bar(ask, scale)) }
                @if let Some(ahead) = decision.ahead {
                    li.bar {
                        span.name { "ramp ahead" }
                        span.track.warm { span.fill style=(width(ahead, scale)) {} }
                        span.value { (maybe(Some(ahead))) }
                        span.because { "what the declared ramp can reach within one lead time of " (crate::serve::words::span(decision.lead)) }
                    }
                }
            }
            p.muted.small { "In replicas. The mark is what is ready: " (ready) ". Together they are a demand of " b { (maybe(decision.demand)) } "." }
        }
    }
}

fn bar(ask: &Ask, scale: f64) -> Markup {
    let off = ask.weight <= 0.0;
    html! {
        li.bar.off[off] {
            span.name {
                (words(ask.signal.name()))
                @if ask.saturated { " " span.badge.warn { "saturated" } }
                @if ask.kept { " " span.badge.warn title="the signal is missing now; this is its last ask" { "kept" } }
                @if off { " " span.badge { "off" } }
            }
            span.track { @if let Some(replicas) = ask.replicas { span.fill style=(width(replicas, scale)) {} } }
            span.value { (maybe(ask.replicas)) }
            span.because { (ask.because) @if ask.weight > 0.0 && (ask.weight - 1.0).abs() > 1e-9 { " · weight " (ask.weight) } }
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
                        tr.binds[mark(bound.kind).is_some()] {
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
