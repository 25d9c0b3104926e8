//! What comes and what is there: floors ahead and replicas, as tables.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;

use super::super::style::{Side, Style, Table, Tone, plain, push};
use super::super::view::{FloorAhead, Replica, Status};
use super::{heading, seconds};
use crate::serve::words::{UNKNOWN, from_now, maybe, percent, span, words};
use crate::units::since;

pub(super) fn floors(out: &mut String, status: &Status, now: DateTime<Utc>, style: Style) {
    if status.floors_ahead.is_empty() {
        return;
    }
    heading(out, "floors ahead", style);
    let mut table = Table::new(&[
        ("floor", Side::Left),
        ("replicas", Side::Right),
        ("opens", Side::Left),
        ("answered from", Side::Left),
        ("closes", Side::Left),
        ("zone", Side::Left),
    ]);
    for floor in &status.floors_ahead {
        table.row((floor.answered_from <= now).then_some(Tone::Strong), &floor_cells(floor, now));
    }
    table.write(out, style);
}

fn floor_cells(floor: &FloorAhead, now: DateTime<Utc>) -> Vec<String> {
    // An older scaler doesn't say it, and a newer one may know zones that this one doesn't.
    let zone: Tz = floor.timezone.parse().unwrap_or(Tz::UTC);
    let when =
        |at: DateTime<Utc>| format!("{} ({})", at.with_timezone(&zone).format("%a %H:%M"), from_now(now, at));
    vec![
        floor.name.clone(),
        floor.replicas.to_string(),
        when(floor.opens_at),
        when(floor.answered_from),
        floor.closes_at.map_or_else(|| "never".to_owned(), when),
        zone.name().to_owned(),
    ]
}

pub(super) fn supply(out: &mut String, status: &Status, now: DateTime<Utc>, style: Style) {
    heading(out, "supply", style);
    if let Some(why) = &status.observation.replicas_unknown {
        push(
            out,
            format_args!(
                "  {}\n",
                style.paint(Tone::Warning, &format!("who the replicas are is unknown: {}", plain(why)))
            ),
        );
    }
    if status.observation.replicas.is_empty() {
        if status.observation.replicas_unknown.is_none() {
            push(out, format_args!("  none\n"));
        }
        return;
    }
    let mut table = Table::new(&[
        ("replica", Side::Left),
        ("state", Side::Left),
        ("age", Side::Right),
        ("running", Side::Right),
        ("waiting", Side::Right),
        ("KV", Side::Right),
        ("page", Side::Right),
        ("error", Side::Left),
    ]);
    for replica in &status.observation.replicas {
        let tone = match replica.state.as_str() {
            "ready" => None,
            "starting" => Some(Tone::Good),
            "silent" | "blocked" => Some(Tone::Bad),
            _ => Some(Tone::Muted),
        };
        table.row(tone, &replica_cells(replica, now));
    }
    table.write(out, style);
}

/// A replica that starts, with the stage that it is in.
fn state(replica: &Replica) -> String {
    let state = words(&replica.state);
    let starts = matches!(replica.state.as_str(), "starting" | "blocked");
    match replica.start.as_ref().filter(|_| starts).and_then(|start| start.stage) {
        Some(stage) => format!("{state}, {}", stage.name()),
        None => state.to_owned(),
    }
}

fn replica_cells(replica: &Replica, now: DateTime<Utc>) -> Vec<String> {
    let load = replica.load.as_ref();
    let blocked = replica.start.as_ref().and_then(|start| start.blocked.clone());
    vec![
        replica.name.clone(),
        state(replica),
        replica.since.map_or_else(|| UNKNOWN.to_owned(), |at| span(since(now, at))),
        maybe(load.and_then(|l| l.running)),
        maybe(load.and_then(|l| l.waiting)),
        load.and_then(|l| l.kv_usage).map_or_else(|| UNKNOWN.to_owned(), percent),
        replica.page_age_seconds.map_or_else(|| "never".to_owned(), seconds),
        blocked.or_else(|| replica.error.clone()).unwrap_or_default(),
    ]
}
