//! All tiers at a glance, one row each; and what to do while there is none.

use maud::{Markup, html};

use super::{answer_number, path_of, plot, replicas_or_unknown, supply};
use crate::decision::Answer;
use crate::serve::words::{maybe, words};
use crate::snapshot::{Snapshot, TierStatus};

/// Refused ScaledObjects that are listed; the rest is counted.
const MOST_REFUSED: usize = 20;

/// The table.
pub(super) fn list(snapshot: &Snapshot) -> Markup {
    html! {
        table.tiers.stack {
            thead {
                tr {
                    th scope="col" { "Tier" }
                    th.num scope="col" { "Required" }
                    th.num scope="col" { "Ready" }
                    th.num scope="col" { "Demand" }
                    th scope="col" { "What binds" }
                    th scope="col" { "Lately" }
                }
            }
            tbody {
                @for status in snapshot.tiers.values() { (row(snapshot, status)) }
            }
        }
        (refused(snapshot))
        @if !snapshot.waiting.is_empty() {
            section.plain {
                h2 { "Waiting for a first round" }
                ul { @for id in &snapshot.waiting { li { (id) } } }
            }
        }
    }
}

fn row(snapshot: &Snapshot, status: &TierStatus) -> Markup {
    let decision = &status.decision;
    let id = &status.policy.tier;
    let ready = supply::ready(&status.observation);
    let short = decision.required().zip(ready).is_some_and(|(required, ready)| ready < required);
    let warnings = status.warnings.len();
    html! {
        tr {
            th scope="row" {
                a href={ "/tiers/" (path_of(id)) } { (id.name) }
                span.muted.small { (id.namespace) }
                @if warnings > 0 {
                    span.badge.warn { (warnings) @if warnings == 1 { " warning" } @else { " warnings" } }
                }
            }
            td.num.big data-label="Required" {
                @if matches!(decision.answer, Answer::Unknown { .. }) {
                    span.bad title="unknown: KEDA is told an error" { (answer_number(decision)) }
                } @else {
                    (answer_number(decision))
                }
            }
            td.num data-label="Ready" {
                span.short[short] { (replicas_or_unknown(ready)) }
                @if let Some(current) = status.observation.current.filter(|current| Some(*current) != ready) {
                    span.muted.small { " of " (current) }
                }
            }
            td.num data-label="Demand" { (maybe(decision.demand)) }
            td.why {
                @match &decision.answer {
                    Answer::Unknown { why } => { span.chip.bad { "unknown" } " " (why) }
                    Answer::Required(_) => {
                        span.chip { (words(decision.winner.kind.name())) } " " (decision.winner.because)
                        @if let Some(held) = &decision.held {
                            span.muted { "; held: " (words(held.kind.name())) }
                        }
                    }
                }
            }
            td.spark { (plot::sparkline(&status.recent, snapshot.at, &replicas_or_unknown(decision.required()))) }
        }
    }
}

/// ScaledObjects that get no answer: whoever wrote them looks at KEDA's events, whoever runs the scaler looks here.
fn refused(snapshot: &Snapshot) -> Markup {
    let more = snapshot.refused.len().saturating_sub(MOST_REFUSED);
    html! {
        @if !snapshot.refused.is_empty() {
            section.plain {
                h2 { "Refused ScaledObjects" }
                ul.refused {
                    @for refused in snapshot.refused.iter().take(MOST_REFUSED) {
                        li { strong { (refused.scaled_object) } ": " (refused.why) }
                    }
                    @if more > 0 { li.muted { "and " (more) " more" } }
                }
            }
        }
    }
}

/// What to do while there is no tier.
pub(super) fn no_tier_yet(snapshot: &Snapshot) -> Markup {
    let config = &snapshot.config;
    html! {
        section.plain {
            (refused(snapshot))
            @if snapshot.waiting.is_empty() {
                h2 { "No tier yet" }
                p { "A tier is one vLLM deployment that is scaled as a whole. There are two ways to get one:" }
                ol {
                    li {
                        "Write it under " code { "tiers:" } " in " code { (config.file) } ":"
                        pre { (EXAMPLE_TIER) }
                        "The file is watched; nothing needs a restart. " code { "keda-vllm-scaler check FILE" } " says what is wrong with it."
                    }
                    li {
                        @if config.allow_metadata_tiers {
                            "Point a ScaledObject at this server; its metadata may declare floors and bounds."
                        } @else {
                            "Set " code { "allowMetadataTiers: true" } " there, and a ScaledObject's metadata may declare floors and bounds."
                        }
                    }
                }
                p.muted { "A tier needs no ScaledObject: without one it is a dry run, shown here and in the metrics, and nothing is scaled." }
            } @else {
                h2 { "Waiting for the first round of scrapes" }
                p { "Until a tier's replicas have answered once, KEDA is told an error and the HPA holds what it has." }
                ul { @for id in &snapshot.waiting { li { a href={ "/tiers/" (path_of(id)) } { (id) } } } }
            }
        }
    }
}

const EXAMPLE_TIER: &str = "tiers:
- name: chat
  namespace: serving
  source: {dns: {host: chat-headless.serving.svc.cluster.local, port: 8000}}
  replicas: {min: 1, max: 20}
  coldStart: 180s";
