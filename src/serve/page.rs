//! The page: what each tier is answered and why, for somebody who is woken at night. Server-rendered, without scripts.
//!
//! The order is the order of questions: is anything wrong, how many, why, since when, what comes, which replicas.
//! All text that comes from outside is escaped by the templates.

use chrono::{DateTime, TimeDelta, Utc};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::words::{UNKNOWN, count, from_now, span};
use crate::decision::{Answer, Decision, TierId};
use crate::snapshot::{ConfigStatus, Snapshot, TierStatus};

mod asks;
mod cold_start;
mod forecast;
mod frame;
mod overview;
mod plot;
mod supply;
mod tier;

const STYLE: &str = include_str!("page/style.css");

/// How often the page loads itself anew: a scrape round is 5 s unless configured.
const REFRESH_SECONDS: u32 = 5;

/// A snapshot older than this is told loudly: the control loop publishes after every round.
const STALE_SNAPSHOT: TimeDelta = TimeDelta::minutes(2);

/// How a page is looked at.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The time, to tell the age of the snapshot.
    pub now: DateTime<Utc>,
    /// Whether the page loads itself anew.
    pub refresh: Refresh,
}

/// Whether the page loads itself anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refresh {
    /// Every few seconds.
    Running,
    /// Only when asked.
    Paused,
}

/// The page of all tiers.
#[must_use]
pub fn all_tiers(snapshot: &Snapshot, view: View) -> Markup {
    let content =
        if snapshot.tiers.is_empty() { overview::no_tier_yet(snapshot) } else { overview::list(snapshot) };
    shell("All tiers", None, snapshot, view, &content)
}

/// The page of one tier.
#[must_use]
pub fn one_tier(snapshot: &Snapshot, status: &TierStatus, view: View) -> Markup {
    let id = &status.policy.tier;
    let title = format!("{} required · {}", answer_number(&status.decision), id.name);
    shell(&title, Some(id), snapshot, view, &tier::page(snapshot, status))
}

/// The page of a tier that is configured and has no decision yet.
#[must_use]
pub fn waiting_tier(snapshot: &Snapshot, id: &TierId, view: View) -> Markup {
    let content = html! {
        section.plain {
            h2 { "No decision yet" }
            p { (id) " is configured; its first round of scrapes isn't done. KEDA is told an error meanwhile, so the HPA holds." }
        }
    };
    shell(&id.name, Some(id), snapshot, view, &content)
}

/// The page for a tier that doesn't exist.
#[must_use]
pub fn no_such_tier(snapshot: &Snapshot, id: &TierId, view: View) -> Markup {
    let content = html! {
        section.plain {
            h2 { "No tier " (id) }
            p { "The configuration in force has none of this name. " a href="/" { "All tiers" } }
        }
    };
    shell("No such tier", Some(id), snapshot, view, &content)
}

/// What every page has: where one is, how old what one sees is, what is wrong with the scaler itself.
fn shell(title: &str, id: Option<&TierId>, snapshot: &Snapshot, view: View, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                @if view.refresh == Refresh::Running {
                    meta http-equiv="refresh" content=(REFRESH_SECONDS);
                }
                title { (title) " · keda-vllm-scaler" }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    nav aria-label="Where" {
                        @if let Some(id) = id {
                            a href="/" { "All tiers" }
                            span.sep { "/" }
                            span.muted { (id.namespace) }
                            span.sep { "/" }
                            h1 { (id.name) }
                        } @else {
                            h1 { "Tiers" }
                        }
                    }
                    p.asof {
                        time datetime=(snapshot.at.to_rfc3339()) { (snapshot.at.format("%a %H:%M:%S")) " UTC" }
                        @if view.refresh == Refresh::Running {
                            a href="?refresh=off" title={ "Loads anew every " (REFRESH_SECONDS) " s" } { "pause" }
                        } @else {
                            span { "paused" } a href="?" { "resume" }
                        }
                    }
                }
                (alarms(snapshot, view))
                main { (content) }
                (footer(snapshot, id))
            }
        }
    }
}

fn alarms(snapshot: &Snapshot, view: View) -> Markup {
    let age = view.now - snapshot.at;
    html! {
        @if age > STALE_SNAPSHOT {
            div.alarm role="alert" {
                h2 { "This is " (span(age.to_std().unwrap_or_default())) " old" }
                p { "The control loop has published nothing since. KEDA still gets the numbers below." }
            }
        }
        @if let Some(problems) = &snapshot.config.rejected {
            div.alarm role="alert" {
                h2 { "A newer configuration was refused" }
                p { "The one " (loaded(&snapshot.config, snapshot.at)) " stays in force. What is wrong in " code { (snapshot.config.file) } ":" }
                pre { (problems) }
            }
        }
        @if let Some(alarm) = &snapshot.store.alarm {
            div.alarm role="alert" {
                h2 { "The store is not used" }
                p { (alarm) " Decisions go on; what is learned from now on is lost at the next restart." }
            }
        }
        @if let Some(alarm) = &snapshot.record.alarm {
            div.alarm role="alert" {
                h2 { "Nothing is recorded" }
                p { (alarm) ". Decisions go on; " (snapshot.record.lost) " of them are in no file." }
            }
        }
    }
}

fn footer(snapshot: &Snapshot, id: Option<&TierId>) -> Markup {
    let config = &snapshot.config;
    let json = id.map_or_else(|| "/v1/tiers".to_owned(), |id| format!("/v1/tiers/{}", path_of(id)));
    html! {
        footer {
            @if !config.warnings.is_empty() {
                details {
                    summary { (count(config.warnings.len() as u32, "warning", "warnings")) " about the configuration" }
                    ul { @for warning in &config.warnings { li { (warning) } } }
                }
            }
            p {
                span { "Configuration " code { (config.file) } ", " (loaded(config, snapshot.at)) }
                @if let Some(path) = &snapshot.store.path {
                    span { "Store " code { (path) } ", " (super::words::bytes(snapshot.store.size_bytes)) }
                } @else {
                    span { "No store: history is kept in memory" }
                }
                @if let Some(path) = &snapshot.record.path {
                    span { "Recording " code { (path) } ", " (super::words::bytes(snapshot.record.size_bytes)) }
                }
                span { "Up " (span((snapshot.at - snapshot.started_at).to_std().unwrap_or_default())) }
                span { "Version " (env!("CARGO_PKG_VERSION")) }
                span { a href=(json) { "JSON" } " · " a href="/metrics" { "metrics" } }
            }
        }
    }
}

fn loaded(config: &ConfigStatus, now: DateTime<Utc>) -> String {
    config.loaded_at.map_or_else(
        || "not loaded".to_owned(),
        |at| format!("loaded {} UTC ({})", at.format("%a %H:%M"), from_now(now, at)),
    )
}

/// The number that KEDA is told, or what stands for none.
fn answer_number(decision: &Decision) -> String {
    match decision.answer {
        Answer::Required(replicas) => replicas.to_string(),
        Answer::Unknown { .. } => "?".to_owned(),
    }
}

fn replicas_or_unknown(replicas: Option<u32>) -> String {
    replicas.map_or_else(|| UNKNOWN.to_owned(), |replicas| replicas.to_string())
}

/// `namespace/name` as it stands in an address.
fn path_of(id: &TierId) -> String {
    format!("{}/{}", encoded(&id.namespace), encoded(&id.name))
}

/// A path segment of an address: everything but RFC 3986's unreserved characters is percent-encoded.
fn encoded(segment: &str) -> String {
    segment
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}
