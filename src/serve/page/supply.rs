//! The replicas: one square each, and one row each.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use crate::decision::{Observation, ReplicaObservation, ReplicaState};
use crate::serve::words::{UNKNOWN, from_now, maybe, percent, quantity, span};
use crate::units::since;

/// More squares than this say less than the sentence beside them.
const MOST_SQUARES: usize = 100;

/// More rows than this are told in the JSON only; troubled replicas come first.
const MOST_ROWS: usize = 200;

/// In the order of the page: what serves, what will, what doesn't.
const STATES: [(ReplicaState, &str); 7] = [
    (ReplicaState::Ready, "ready"),
    (ReplicaState::Starting, "starting"),
    (ReplicaState::Silent, "silent"),
    (ReplicaState::Blocked, "blocked"),
    (ReplicaState::Asleep, "asleep"),
    (ReplicaState::Terminating, "terminating"),
    (ReplicaState::Absent, "absent"),
];

/// The name of a state, which is also its style.
pub(super) fn state_name(state: ReplicaState) -> &'static str {
    STATES.iter().find(|(other, _)| *other == state).map_or("unknown", |(_, name)| name)
}

/// How many replicas are ready; None where nobody can say who the replicas are.
pub(super) fn ready(observation: &Observation) -> Option<u32> {
    let unknown = observation.replicas.is_empty() && observation.replicas_unknown.is_some();
    (!unknown).then(|| observation.count(ReplicaState::Ready))
}

/// `6 ready · 2 starting`, states without a replica left out.
pub(super) fn sentence(observation: &Observation) -> String {
    if ready(observation).is_none() {
        return "replicas unknown".to_owned();
    }
    let parts: Vec<String> = STATES
        .iter()
        .map(|(state, name)| (observation.count(*state), *name))
        .filter(|(count, name)| *count > 0 || *name == "ready")
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    let cut_off = observation.replicas.iter().filter(|replica| replica.is_cut_off()).count();
    let cut_off =
        if cut_off > 0 { format!(" · {cut_off} of the ready cut off from traffic") } else { String::new() };
    parts.join(" · ") + &cut_off
}

/// One square a replica, then one empty square for each that is required and doesn't exist yet.
pub(super) fn squares(observation: &Observation, required: Option<u32>) -> Markup {
    let mut states: Vec<&str> = STATES
        .iter()
        .flat_map(|(state, name)| std::iter::repeat_n(*name, observation.count(*state) as usize))
        .collect();
    let coming = observation.count(ReplicaState::Ready) + observation.count(ReplicaState::Starting);
    if ready(observation).is_none() {
        return html! {};
    }
    let missing = required.unwrap_or(0).saturating_sub(coming) as usize;
    states.extend(std::iter::repeat_n("missing", missing));
    if states.is_empty() || states.len() > MOST_SQUARES {
        return html! {};
    }
    html! {
        p.squares role="img" aria-label={ (sentence(observation)) ", " (missing) " to come" } {
            @for state in states { span.square.(state) title=(state) {} }
        }
    }
}

/// The table of replicas, those that need a look first.
pub(super) fn table(observation: &Observation, now: DateTime<Utc>) -> Markup {
    let mut replicas: Vec<&ReplicaObservation> = observation.replicas.iter().collect();
    replicas.sort_by_key(|replica| urgency(replica));
    html! {
        section {
            h2 { "Replicas" }
            @if let Some(why) = &observation.replicas_unknown {
                p.warning { "Who the replicas are is unknown: " (why) @if !observation.replicas.is_empty() { ". Below are the ones last seen." } }
            }
            @if observation.replicas.is_empty() {
                @if observation.replicas_unknown.is_none() { p.muted { "None." } }
            } @else {
                div.wide {
                    table.replicas.stack {
                        thead {
                            tr {
                                th scope="col" { "Replica" }
                                th scope="col" { "State" }
                                th.num scope="col" { "Age" }
                                th.num scope="col" { "Running" }
                                th.num scope="col" { "Waiting" }
                                th.num scope="col" { "KV" }
                                th.num scope="col" title="uncached input tokens a second" { "In/s" }
                                th.num scope="col" title="output tokens a second" { "Out/s" }
                                th.num scope="col" title="age of the newest metrics page" { "Page age" }
                            }
                        }
                        tbody { @for replica in replicas.iter().take(MOST_ROWS) { (row(replica, now)) } }
                    }
                }
                @if replicas.len() > MOST_ROWS {
                    p.muted { "And " (replicas.len() - MOST_ROWS) " more: the JSON has them all." }
                }
            }
        }
    }
}

fn urgency(replica: &ReplicaObservation) -> u8 {
    match replica.state {
        ReplicaState::Ready if replica.is_cut_off() => 0,
        ReplicaState::Blocked | ReplicaState::Silent => 0,
        ReplicaState::Starting => 1,
        ReplicaState::Terminating | ReplicaState::Asleep | ReplicaState::Absent => 2,
        ReplicaState::Ready => 3,
    }
}

/// Where a start is on its way.
fn stage(replica: &ReplicaObservation) -> Option<&'static str> {
    let starts = matches!(replica.state, ReplicaState::Starting | ReplicaState::Blocked);
    Some(replica.start.as_ref().filter(|_| starts)?.stage?.name())
}

fn row(replica: &ReplicaObservation, now: DateTime<Utc>) -> Markup {
    let load = replica.load.as_ref();
    let age = replica.since.map_or_else(|| UNKNOWN.to_owned(), |at| span(since(now, at)));
    let rate = |rate: Option<f64>| rate.map_or_else(|| UNKNOWN.to_owned(), quantity);
    let page_age = replica.page_age.map_or_else(|| "never".to_owned(), span);
    html! {
        tr {
            th scope="row" {
                (replica.name)
                @if let Some(blocked) = replica.start.as_ref().and_then(|start| start.blocked.as_ref()) { span.error { (blocked) } }
                @else if let Some(error) = &replica.error { span.error { (error) } }
            }
            td.state {
                span.square.(state_name(replica.state)) aria-hidden="true" {} " " (state_name(replica.state))
                @if let Some(stage) = stage(replica) { span.muted { " " (stage) } }
                @if replica.is_cut_off() {
                    span.muted title="Kubernetes doesn't call it ready any more: Services send it nothing" { " cut off" }
                }
            }
            td.num data-label="Age" title=[replica.since.map(|at| from_now(now, at))] { (age) }
            td.num data-label="Running" { (maybe(load.and_then(|l| l.running))) }
            td.num data-label="Waiting" { (maybe(load.and_then(|l| l.waiting))) }
            td.num data-label="KV" { (load.and_then(|l| l.kv_usage).map_or_else(|| UNKNOWN.to_owned(), percent)) }
            td.num data-label="In/s" { (rate(load.and_then(|l| l.uncached_input_tokens_per_second.or(l.input_tokens_per_second)))) }
            td.num data-label="Out/s" { (rate(load.and_then(|l| l.output_tokens_per_second))) }
            td.num data-label="Page age" { (page_age) }
        }
    }
}
