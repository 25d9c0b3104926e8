//! A page as text for people.

use chrono::DateTime;

use crate::engines::{Dialect, EnginePage, EngineSample, Histogram};

/// What stands where the page doesn't tell.
const UNKNOWN: &str = "unknown";

/// Writes a page: what holds for the replica, then each engine, then what is missing and why.
pub(super) fn page(page: &EnginePage) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| push(&mut out, &format!("{name:<24}{value}"));
    line("engine kind", dialect(page.dialect).to_owned());
    line("model", page.model.clone().unwrap_or_else(|| UNKNOWN.to_owned()));
    line("process started", page.process_start_seconds.and_then(time).unwrap_or_else(|| UNKNOWN.to_owned()));
    line("awake", page.awake.map_or(UNKNOWN, |awake| if awake { "yes" } else { "no" }).to_owned());
    line("KV tokens an engine", count(page.kv_tokens_per_engine));
    line("requests refused", count(page.rejected_total));
    line("speculative decoding", if page.speculative { "yes" } else { "no" }.to_owned());
    for sample in &page.engines {
        engine(&mut out, sample);
    }
    if !page.missing.is_empty() {
        push(&mut out, "\nmissing on this page");
        for missing in &page.missing {
            push(&mut out, &format!("  {}\n      {}", missing.name, missing.why));
        }
    }
    out.trim_end().to_owned()
}

fn engine(out: &mut String, sample: &EngineSample) {
    push(out, &format!("\nengine {}", sample.engine));
    let mut line = |name: &str, value: String| push(out, &format!("  {name:<22}{value}"));
    line("running", count(sample.running));
    let reasons = match (sample.waiting_for_capacity, sample.waiting_deferred) {
        (Some(capacity), Some(deferred)) => format!("  ({capacity} for capacity, {deferred} deferred)"),
        _ => String::new(),
    };
    line("waiting", count(sample.waiting) + &reasons);
    let kv_usage = sample.kv_usage.map(|share| format!("{:.1} %", share * 100.0));
    line("KV usage", kv_usage.unwrap_or_else(|| UNKNOWN.to_owned()));
    let computed = sample.computed_prompt_tokens_total.map(|tokens| format!("  ({tokens} computed)"));
    line("prompt tokens", count(sample.prompt_tokens_total) + &computed.unwrap_or_default());
    line("output tokens", count(sample.generation_tokens_total));
    line("preemptions", count(sample.preemptions_total));
    line("requests finished", count(sample.finished_total));
    push(out, &format!("  {:<22}{:>10}{:>12}{:>12}{:>12}", "since the start", "count", "mean", "p50", "p95"));
    for (name, unit, observed) in [
        ("time to first token", " s", &sample.time_to_first_token),
        ("inter-token time", " s", &sample.inter_token),
        ("queue time", " s", &sample.queue_time),
        ("prompt tokens", "", &sample.request_prompt_tokens),
        ("output tokens", "", &sample.request_generation_tokens),
        ("tokens a step", "", &sample.iteration_tokens),
    ] {
        histogram(out, name, unit, observed.as_ref());
    }
}

fn histogram(out: &mut String, name: &str, unit: &str, observed: Option<&Histogram>) {
    let Some(observed) = observed else {
        return push(out, &format!("  {name:<22}{UNKNOWN:>10}"));
    };
    let number = |value: f64| format!("{}{unit}", short(value));
    let [mean, median, p95] = [
        observed.mean().map(number),
        observed.quantile(0.5).map(|quantile| quantile.show(["<=", ">="], number)),
        observed.quantile(0.95).map(|quantile| quantile.show(["<=", ">="], number)),
    ]
    .map(|shown| shown.unwrap_or_else(|| "-".to_owned()));
    push(out, &format!("  {name:<22}{:>10}{mean:>12}{median:>12}{p95:>12}", observed.count));
}

fn push(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

fn dialect(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::VllmV0 => "vLLM, V0 engine",
        Dialect::VllmV1 => "vLLM, V1 engine",
        Dialect::VllmRust => "vLLM, V1 engine behind the Rust front end",
    }
}

fn time(seconds: f64) -> Option<String> {
    let instant = DateTime::from_timestamp(seconds as i64, 0)?;
    Some(instant.format("%Y-%m-%d %H:%M:%S UTC").to_string())
}

fn count(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string())
}

/// Three significant digits or so: enough for a histogram's resolution.
fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
