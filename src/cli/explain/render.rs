//! A tier or all of them as text. Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::style::{Side, Style, Table, Tone, bar, plain, push};
use super::view::{Answer, Config, Decision, Record, Status, Store, Tier, Tiers};
use crate::serve::words::{UNKNOWN, asked_when, budget, decimal, frontier, maybe, quantity, span, words};

mod cold_start;
mod supply;

use cold_start::cold_start;
use supply::{floors, supply};

/// How wide an ask's bar is.
const BAR_CELLS: usize = 24;

/// One row a tier.
pub(super) fn all(tiers: &Tiers, style: Style) -> String {
    let mut out = String::new();
    alarms(&mut out, &tiers.config, &tiers.store, &tiers.record, style);
    for refused in &tiers.refused {
        let line =
            format!("refused: ScaledObject {}: {}", plain(&refused.scaled_object), plain(&refused.why));
        push(&mut out, format_args!("{}\n", style.paint(Tone::Warning, &line)));
    }
    if tiers.decided.is_empty() && tiers.waiting.is_empty() {
        let file = plain(&tiers.config.file);
        push(
            &mut out,
            format_args!(
                "no tier yet: write one under `tiers:` in {file}, or let a ScaledObject declare one\n"
            ),
        );
        return out;
    }
    let mut table = Table::new(&[
        ("tier", Side::Left),
        ("required", Side::Right),
        ("ready", Side::Right),
        ("demand", Side::Right),
        ("binds", Side::Left),
        ("because", Side::Left),
    ]);
    for status in &tiers.decided {
        let decision = &status.decision;
        let ready = ready_count(status);
        let (required, binds, because, tone) = match &decision.answer {
            Answer::Unknown { why } => ("?".to_owned(), "unknown", why.as_str(), Some(Tone::Bad)),
            Answer::Required(n) => {
                let tone = ready.is_some_and(|ready| ready < *n).then_some(Tone::Warning);
                let binding = decision.held.as_ref().unwrap_or(&decision.winner);
                (n.to_string(), words(&binding.kind), binding.because.as_str(), tone)
            }
        };
        table.row(
            tone,
            &[
                full_name(decision),
                required,
                maybe(ready.map(f64::from)),
                maybe(decision.demand),
                binds.to_owned(),
                because.to_owned(),
            ],
        );
    }
    for id in &tiers.waiting {
        let name = format!("{}/{}", id.namespace, id.name);
        let unknown = || UNKNOWN.to_owned();
        table.row(
            Some(Tone::Muted),
            &[name, unknown(), unknown(), unknown(), unknown(), "waits for its first round".to_owned()],
        );
    }
    table.write(&mut out, style);
    push(
        &mut out,
        format_args!("  {}\n", style.paint(Tone::Muted, &format!("as of {} UTC", tiers.at.format("%F %T")))),
    );
    out
}

/// Everything about one tier.
pub(super) fn one(tier: &Tier, style: Style) -> String {
    let mut out = String::new();
    let (status, now) = (&tier.status, tier.at);
    alarms(&mut out, &tier.config, &tier.store, &tier.record, style);
    answer(&mut out, status, now, style);
    list(&mut out, "warnings", &status.warnings, Tone::Warning, style);
    list(&mut out, "notes", &status.decision.notes, Tone::Strong, style);
    asks(&mut out, &status.decision, ready_count(status).map(f64::from), style);
    bounds(&mut out, &status.decision, style);
    floors(&mut out, status, now, style);
    supply(&mut out, status, now, style);
    cold_start(&mut out, &status.decision, style);
    policy(&mut out, status, style);
    out
}

fn alarms(out: &mut String, config: &Config, store: &Store, record: &Record, style: Style) {
    if let Some(problems) = &config.rejected {
        let head = format!(
            "A NEWER CONFIGURATION WAS REFUSED; the one before it stays in force ({}):",
            plain(&config.file)
        );
        push(out, format_args!("{}\n", style.paint(Tone::Bad, &head)));
        for line in problems.lines() {
            push(out, format_args!("  {}\n", style.paint(Tone::Bad, &plain(line))));
        }
        out.push('\n');
    }
    if let Some(alarm) = &store.alarm {
        push(
            out,
            format_args!(
                "{}\n\n",
                style.paint(Tone::Bad, &format!("THE STORE IS NOT USED: {}", plain(alarm)))
            ),
        );
    }
    if let Some(alarm) = &record.alarm {
        push(
            out,
            format_args!("{}\n\n", style.paint(Tone::Bad, &format!("NOTHING IS RECORDED: {}", plain(alarm)))),
        );
    }
}

fn answer(out: &mut String, status: &Status, now: DateTime<Utc>, style: Style) {
    let decision = &status.decision;
    push(
        out,
        format_args!(
            "{}  {}\n",
            style.paint(Tone::Strong, &plain(&full_name(decision))),
            style.paint(Tone::Muted, &format!("{} UTC", now.format("%F %T")))
        ),
    );
    match &decision.answer {
        Answer::Required(n) => {
            let binds = words(&decision.winner.kind);
            push(out, format_args!("  required  {}\n", style.paint(Tone::Accent, &n.to_string())));
            push(
                out,
                format_args!(
                    "  binds     {}: {}\n",
                    style.paint(Tone::Strong, &plain(binds)),
                    plain(&decision.winner.because)
                ),
            );
            if let Some(held) = &decision.held {
                push(
                    out,
                    format_args!(
                        "  held by   {}: {}\n",
                        style.paint(Tone::Strong, &plain(words(&held.kind))),
                        plain(&held.because)
                    ),
                );
            }
        }
        Answer::Unknown { why } => {
            push(
                out,
                format_args!(
                    "  required  {}\n",
                    style.paint(Tone::Bad, "unknown: KEDA is told an error, the HPA holds")
                ),
            );
            push(out, format_args!("  because   {}\n", plain(why)));
        }
    }
    push(out, format_args!("  now       {}, demand {}", sentence(status), maybe(decision.demand)));
    if let Some(ahead) = decision.ahead {
        push(out, format_args!(", declared ramp {} in {}", decimal(ahead), seconds(decision.lead_seconds)));
    }
    if let Some(current) = status.observation.current {
        push(out, format_args!(", scale target at {current}"));
    }
    if decision.known.known < decision.known.expected {
        push(out, format_args!(", load known of {} of {}", decision.known.known, decision.known.expected));
    }
    out.push('\n');
    if let Some(forecast) = &decision.forecast {
        push(out, format_args!("  forecast  {}\n", plain(&forecast.because)));
        if let Some(used) = &forecast.budget {
            push(out, format_args!("            {}\n", budget(used)));
        }
        if let Some(known) = &forecast.frontier {
            push(out, format_args!("            {}\n", frontier(known)));
        }
    }
    match status.asked.as_deref() {
        // An older scaler doesn't say.
        None => {}
        Some([]) => push(out, format_args!("  asked     by no ScaledObject since the scaler began\n")),
        Some(askers) => {
            for asker in askers {
                let (name, when) = (plain(&asker.scaled_object), asked_when(asker, now));
                push(out, format_args!("  asked     by {name}: {when}\n"));
            }
        }
    }
    if status.declared_by_metadata {
        push(out, format_args!("            declared by a ScaledObject's metadata, not by the file\n"));
    }
}

fn list(out: &mut String, title: &str, lines: &[String], tone: Tone, style: Style) {
    if lines.is_empty() {
        return;
    }
    heading(out, title, style);
    for line in lines {
        push(out, format_args!("  {} {}\n", style.paint(tone, "!"), plain(line)));
    }
}

fn asks(out: &mut String, decision: &Decision, ready: Option<f64>, style: Style) {
    heading(out, "asks (replicas)", style);
    let known = decision.asks.iter().filter_map(|ask| ask.replicas).chain(decision.ahead);
    let scale = known.fold(ready.unwrap_or(0.0).max(1.0), f64::max);
    let mut lines: Vec<(String, Option<f64>, Tone, String)> = decision
        .asks
        .iter()
        .map(|ask| {
            let off = ask.weight <= 0.0;
            let mut because = ask.because.clone();
            if !off && (ask.weight - 1.0).abs() > 1e-9 {
                because = format!("{because}, weight {}", ask.weight);
            }
            let marks =
                [(ask.saturated, "saturated"), (ask.kept, "kept: the signal is missing now"), (off, "off")];
            for (_, mark) in marks.iter().filter(|(is_so, _)| *is_so) {
                because = format!("[{mark}] {because}");
            }
            let tone = if off {
                Tone::Muted
            } else if ask.saturated {
                Tone::Bad
            } else {
                Tone::Warning
            };
            (words(&ask.signal).to_owned(), ask.replicas, tone, because)
        })
        .collect();
    lines.push(("ready".to_owned(), ready, Tone::Good, "for comparison".to_owned()));
    let width = lines.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
    for (name, replicas, tone, because) in lines {
        let drawn = style.paint(tone, &bar(replicas.map_or(0.0, |n| n / scale), BAR_CELLS));
        push(
            out,
            format_args!("  {:<width$}  {drawn} {:>5}  {}\n", plain(&name), maybe(replicas), plain(&because)),
        );
    }
}

fn bounds(out: &mut String, decision: &Decision, style: Style) {
    if decision.bounds.is_empty() {
        return;
    }
    heading(out, "bounds", style);
    let mut table = Table::new(&[
        ("bound", Side::Left),
        ("replicas", Side::Right),
        ("", Side::Left),
        ("because", Side::Left),
    ]);
    for bound in &decision.bounds {
        let binds = decision.winner.kind == bound.kind;
        let holds = decision.held.as_ref().is_some_and(|held| held.kind == bound.kind);
        let mark = if binds {
            "binds"
        } else if holds {
            "holds"
        } else {
            ""
        };
        let tone = (binds || holds).then_some(Tone::Strong);
        table.row(
            tone,
            &[
                words(&bound.kind).to_owned(),
                bound.replicas.to_string(),
                mark.to_owned(),
                bound.because.clone(),
            ],
        );
    }
    table.write(out, style);
}

fn policy(out: &mut String, status: &Status, style: Style) {
    let (policy, decision) = (&status.policy, &status.decision);
    let rates = &decision.capacity.rates;
    heading(out, "capacity and policy", style);
    push(out, format_args!("  replicas  {} to {}\n", policy.min, policy.max));
    push(
        out,
        format_args!(
            "  one       {} uncached input or {} output tokens/s ({})\n",
            quantity(rates.input_tokens_per_second),
            quantity(rates.output_tokens_per_second),
            plain(&decision.capacity.source)
        ),
    );
    if !decision.capacity.fit.is_empty() {
        push(out, format_args!("  fit       {}\n", plain(&decision.capacity.fit)));
    }
    push(
        out,
        format_args!(
            "  lead      {}, of which {} cold start\n",
            seconds(decision.lead_seconds),
            seconds(
                decision
                    .cold_start
                    .as_ref()
                    .map_or(policy.cold_start_seconds, |cold_start| cold_start.in_effect_seconds)
            )
        ),
    );
    push(
        out,
        format_args!(
            "  history   {}\n",
            span(Duration::from_secs(status.history_minutes.saturating_mul(60)))
        ),
    );
}

fn heading(out: &mut String, title: &str, style: Style) {
    push(out, format_args!("\n{}\n", style.paint(Tone::Strong, title)));
}

fn full_name(decision: &Decision) -> String {
    format!("{}/{}", decision.tier.namespace, decision.tier.name)
}

/// None where nobody can say who the replicas are.
fn ready_count(status: &Status) -> Option<u32> {
    let observation = &status.observation;
    let unknown = observation.replicas.is_empty() && observation.replicas_unknown.is_some();
    (!unknown).then(|| observation.replicas.iter().filter(|r| r.state == "ready").count() as u32)
}

/// `6 ready, 2 starting`, in the order in which the states first come.
fn sentence(status: &Status) -> String {
    if ready_count(status).is_none() {
        return "replicas unknown".to_owned();
    }
    let mut counts: Vec<(&str, u32)> = vec![("ready", 0)];
    for replica in &status.observation.replicas {
        match counts.iter_mut().find(|(state, _)| *state == replica.state) {
            Some((_, count)) => *count += 1,
            None => counts.push((&replica.state, 1)),
        }
    }
    let parts: Vec<String> =
        counts.iter().map(|(state, count)| format!("{count} {}", plain(state))).collect();
    parts.join(", ")
}

fn seconds(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map_or_else(|_| UNKNOWN.to_owned(), span)
}
