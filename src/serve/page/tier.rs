//! One tier: the number and its reason first, everything that led to it below.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::{answer_number, asks, cold_start, forecast, plot, supply};
use crate::decision::{Answer, Decision, Observation};
use crate::quantile::Quantile;
use crate::serve::words::{asked_when, from_now, latency, maybe, percent, quantity, span, words};
use crate::snapshot::{FloorAhead, Snapshot, TierStatus};

/// The content of the page.
pub(super) fn page(snapshot: &Snapshot, status: &TierStatus) -> Markup {
    let ready = supply::ready(&status.observation);
    html! {
        (answer(status, ready))
        (attention(status))
        section {
            h2 { "Replicas, " (plot::span(&status.recent, snapshot.at)) }
            (plot::plot(&status.recent, snapshot.at))
        }
        (asks::asks(&status.decision, ready))
        (asks::bounds(&status.decision))
        (forecast::section(status, snapshot.at))
        (floors(status, snapshot.at))
        (supply::table(&status.observation, snapshot.at))
        (cold_start::section(&status.decision.cold_start))
        (load(&status.observation))
        (asked(status, snapshot.at))
        (policy(status))
    }
}

fn answer(status: &TierStatus, ready: Option<u32>) -> Markup {
    let decision = &status.decision;
    let short = decision.required().zip(ready).map_or(0, |(required, ready)| required.saturating_sub(ready));
    html! {
        section.answer.unknown[decision.required().is_none()] {
            p.number { strong { (answer_number(decision)) } span { @if decision.required() == Some(1) { "replica required" } @else { "replicas required" } } }
            div.reason {
                @match &decision.answer {
                    Answer::Unknown { why } => {
                        p.binds { span.chip.bad { "unknown" } " " (why) }
                        p.muted { "KEDA is told an error, so the HPA holds " (held_by_hpa(&status.observation)) "." }
                    }
                    Answer::Required(_) => {
                        p.binds { span.chip { (words(decision.winner.kind.name())) } " " (decision.winner.because) }
                        @if let Some(held) = &decision.held {
                            p.held { span.chip.quiet { "held: " (words(held.kind.name())) } " " (held.because) }
                        }
                    }
                }
                (supply::squares(&status.observation, decision.required()))
                p.supply {
                    span { (supply::sentence(&status.observation)) }
                    @if short > 0 { span.badge.warn { (short) " short" } }
                    span.muted { "demand " (maybe(decision.demand)) }
                    @if let Some(current) = status.observation.current { span.muted { "scale target at " (current) } }
                    @if decision.known.known < decision.known.expected {
                        span.muted { "load known of " (decision.known.known) " of " (decision.known.expected) }
                    }
                }
            }
        }
    }
}

fn held_by_hpa(observation: &Observation) -> String {
    observation
        .current
        .map_or_else(|| "what it has".to_owned(), |current| format!("the {current} that it has"))
}

/// What an operator should act on.
fn attention(status: &TierStatus) -> Markup {
    if status.warnings.is_empty() && status.decision.notes.is_empty() && !status.declared_by_metadata {
        return html! {};
    }
    html! {
        section.attention aria-label="Notes and warnings" {
            ul {
                @for warning in &status.warnings { li.warning { (warning) } }
                @for note in &status.decision.notes { li { (note) } }
                @if status.declared_by_metadata { li { "Declared by a ScaledObject's metadata, not by the file." } }
            }
        }
    }
}

fn floors(status: &TierStatus, now: DateTime<Utc>) -> Markup {
    html! {
        section {
            h2 { "Floors ahead" }
            @if status.floors_ahead.is_empty() {
                p.muted {
                    @if status.policy.floors.is_empty() { "None configured." } @else { "None open, none opening within a day." }
                }
            } @else {
                table.floors.stack {
                    thead {
                        tr {
                            th scope="col" { "Floor" }
                            th.num scope="col" { "Replicas" }
                            th scope="col" { "Opens" }
                            th scope="col" { "Answered from" }
                            th scope="col" { "Closes" }
                        }
                    }
                    tbody { @for floor in &status.floors_ahead { (floor_row(floor, now)) } }
                }
            }
        }
    }
}

fn floor_row(floor: &FloorAhead, now: DateTime<Utc>) -> Markup {
    let when = |at: DateTime<Utc>| {
        let local = at.with_timezone(&floor.timezone).format("%a %H:%M");
        html! { span title=(at.format("%a %H:%M UTC")) { (local) } " " span.muted { (from_now(now, at)) } }
    };
    let open = floor.opens_at <= now;
    html! {
        tr {
            th scope="row" {
                (floor.name)
                @if open { " " span.chip { "open" } }
                @else if floor.answered_from <= now { " " span.chip { "answered" } }
                span.muted.small { (floor.timezone.name()) }
            }
            td.num data-label="Replicas" { (floor.replicas) }
            td data-label="Opens" { (when(floor.opens_at)) }
            td data-label="Answered from" { (when(floor.answered_from)) }
            td data-label="Closes" { @match floor.closes_at { Some(at) => (when(at)), None => "never" } }
        }
    }
}

fn load(observation: &Observation) -> Markup {
    let load = &observation.load;
    let seconds = |value: Option<Quantile>| value.map(|value| value.show(["≤", "≥"], latency));
    let facts: Vec<(&str, Option<String>)> = vec![
        ("Queue time p95", seconds(load.queue_time_p95_seconds)),
        ("Time to first token p50", seconds(load.time_to_first_token_p50_seconds)),
        ("Time to first token p95", seconds(load.time_to_first_token_p95_seconds)),
        ("Between tokens p50", seconds(load.inter_token_p50_seconds)),
        ("Between tokens p95", seconds(load.inter_token_p95_seconds)),
        ("Backlog growth", load.waiting_growth_per_second.map(|v| format!("{} requests/s", maybe(Some(v))))),
        ("Input a request", load.mean_input_tokens.map(|v| format!("{} tokens", quantity(v)))),
        (
            "Uncached input a request",
            load.mean_uncached_input_tokens.map(|v| format!("{} tokens", quantity(v))),
        ),
        ("Output a request", load.mean_output_tokens.map(|v| format!("{} tokens", quantity(v)))),
        (
            "Activator",
            observation.activator.as_ref().map(|activator| match (&activator.error, activator.queued) {
                (Some(error), _) => format!("not readable: {error}"),
                (None, queued) => format!("{} queued", maybe(queued)),
            }),
        ),
    ];
    let known: Vec<(&str, String)> =
        facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    if known.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "Load" }
            (fact_list(&known))
        }
    }
}

/// Who asks, and when last: a ScaledObject that doesn't reach the scaler shows nowhere else.
fn asked(status: &TierStatus, now: DateTime<Utc>) -> Markup {
    let askers = status.asked.list();
    html! {
        section {
            h2 { "Asked by KEDA" }
            @if askers.is_empty() {
                p.muted { "Not since this scaler began. Without a ScaledObject this is a dry run." }
            } @else {
                dl.facts {
                    @for asker in &askers {
                        div { dt { "ScaledObject " (asker.scaled_object) } dd { (asked_when(asker, now)) } }
                    }
                }
            }
        }
    }
}

fn policy(status: &TierStatus) -> Markup {
    let (policy, decision) = (&status.policy, &status.decision);
    let mut facts = vec![
        ("Replicas", format!("{} to {}", policy.min, policy.max)),
        ("Capacity of one", capacity(decision)),
        ("Capacity is", decision.capacity.source.clone()),
        (
            "Lead time",
            format!(
                "{} ({} cold start, {} on the way)",
                span(decision.lead),
                span(decision.cold_start.in_effect),
                span(policy.control_delay)
            ),
        ),
        ("Hold before giving back", span(policy.hold_with(decision.cold_start.in_effect))),
        ("Demand history", span(std::time::Duration::from_secs(status.history_minutes.saturating_mul(60)))),
    ];
    if !decision.capacity.fit.is_empty() {
        facts.push(("Online fit", decision.capacity.fit.clone()));
    }
    if let Some(ramp) = policy.max_ramp {
        facts.push(("Declared ramp", format!("{}x in {}", maybe(Some(ramp.factor)), span(ramp.within))));
    }
    facts.push((
        "Targets",
        format!(
            "KV cache {}, tokens {}",
            percent(policy.signals.kv_cache.target),
            percent(policy.signals.tokens.target)
        ),
    ));
    html! {
        section {
            h2 { "Capacity and policy" }
            (fact_list(&facts))
        }
    }
}

fn capacity(decision: &Decision) -> String {
    let rates = decision.capacity.rates;
    format!(
        "{} uncached input or {} output tokens/s",
        quantity(rates.input_tokens_per_second),
        quantity(rates.output_tokens_per_second)
    )
}

fn fact_list(facts: &[(&str, String)]) -> Markup {
    html! {
        dl.facts { @for (name, value) in facts { div { dt { (name) } dd { (value) } } } }
    }
}
