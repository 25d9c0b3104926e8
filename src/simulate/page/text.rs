//! Prometheus text as Python's `prometheus_client` writes it: labels sorted by name, integers as `1.0`, large numbers as
//! `1e+06`, and a `_created` gauge after every counter and histogram. Pure.

use super::super::distribution::Distribution;

/// Bytes to make room for at once: a page is about 45 kB.
const PAGE_BYTES: usize = 48 * 1024;

/// A label besides `engine` and `model_name`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extra<'a>(pub(super) &'static str, pub(super) &'a str);

/// What a distribution counts in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    /// Tokens or events: shown as they are.
    Count,
    /// Shown as seconds.
    Picoseconds,
}

impl Unit {
    fn shown(self, value: f64) -> f64 {
        match self {
            Self::Count => value,
            Self::Picoseconds => value / 1e12,
        }
    }
}

/// Writes a page, family by family.
#[derive(Debug)]
pub(super) struct PageWriter<'a> {
    out: String,
    model: &'a str,
    created: f64,
}

impl<'a> PageWriter<'a> {
    pub(super) fn new(model: &'a str, created_seconds: f64) -> Self {
        Self { out: String::with_capacity(PAGE_BYTES), model, created: created_seconds }
    }

    pub(super) fn finish(self) -> String {
        self.out
    }

    /// A gauge without labels and without the prefix `vllm:`.
    pub(super) fn plain_gauge(&mut self, name: &str, help: &str, value: f64) {
        self.comments("", name, help, "gauge");
        self.push(&[name, " ", &python_float(value), "\n"]);
    }

    /// What vLLM's front end counts of its own requests: on a real page it stands behind all of the engine's families.
    pub(super) fn http_requests(&mut self, answered: u64) {
        self.comments("", "http_requests_total", "Requests by method, status and handler.", "counter");
        let labels = "{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"} ";
        self.push(&["http_requests_total", labels, &python_float(answered as f64), "\n"]);
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, rows: &[(Option<Extra<'_>>, f64)]) {
        self.comments("vllm:", name, help, "gauge");
        for (extra, value) in rows {
            self.row(name, "", *extra, true, *value);
        }
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.counter_rows(name, help, &[(None, value)], true);
    }

    pub(super) fn counters(&mut self, name: &str, help: &str, rows: &[(Extra<'_>, u64)]) {
        let rows: Vec<_> = rows.iter().map(|(extra, value)| (Some(*extra), *value)).collect();
        self.counter_rows(name, help, &rows, true);
    }

    /// Counters of the server as a whole: without the label `engine`.
    pub(super) fn model_counters(&mut self, name: &str, help: &str, rows: &[(Extra<'_>, u64)]) {
        let rows: Vec<_> = rows.iter().map(|(extra, value)| (Some(*extra), *value)).collect();
        self.counter_rows(name, help, &rows, false);
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str, distribution: &Distribution, unit: Unit) {
        self.comments("vllm:", name, help, "histogram");
        for (bound, count) in distribution.cumulative() {
            let bound = python_float(unit.shown(bound as f64));
            self.row(name, "_bucket", Some(Extra("le", &bound)), true, count as f64);
        }
        let count = distribution.count() as f64;
        self.row(name, "_bucket", Some(Extra("le", "+Inf")), true, count);
        self.row(name, "_count", None, true, count);
        self.row(name, "_sum", None, true, unit.shown(distribution.sum() as f64));
        self.created_rows(name, help, &[None], true);
    }

    /// A gauge of value 1 that carries labels alone.
    pub(super) fn info(&mut self, name: &str, help: &str, labels: &[(&str, &str)]) {
        self.comments("vllm:", name, help, "gauge");
        self.push(&["vllm:", name, "{"]);
        for (index, (label, value)) in labels.iter().enumerate() {
            self.push(&[if index > 0 { "," } else { "" }, label, "=\"", value, "\""]);
        }
        self.push(&["} 1.0\n"]);
    }

    fn counter_rows(&mut self, name: &str, help: &str, rows: &[(Option<Extra<'_>>, u64)], engine: bool) {
        let total = format!("{name}_total");
        self.comments("vllm:", &total, help, "counter");
        for (extra, value) in rows {
            self.row(&total, "", *extra, engine, *value as f64);
        }
        let extras: Vec<_> = rows.iter().map(|(extra, _)| *extra).collect();
        self.created_rows(name, help, &extras, engine);
    }

    fn created_rows(&mut self, name: &str, help: &str, extras: &[Option<Extra<'_>>], engine: bool) {
        let name = format!("{name}_created");
        self.comments("vllm:", &name, help, "gauge");
        for extra in extras {
            self.row(&name, "", *extra, engine, self.created);
        }
    }

    fn comments(&mut self, prefix: &str, name: &str, help: &str, kind: &str) {
        self.push(&["# HELP ", prefix, name, " ", help, "\n# TYPE ", prefix, name, " ", kind, "\n"]);
    }

    fn row(&mut self, name: &str, suffix: &str, extra: Option<Extra<'_>>, engine: bool, value: f64) {
        self.push(&["vllm:", name, suffix, "{", if engine { "engine=\"0\"," } else { "" }]);
        // Labels are sorted by name; `le` and `finished_reason` come before `model_name`, `reason` and others after.
        let (before, after) = match extra {
            Some(extra) if extra.0 < "model_name" => (Some(extra), None),
            other => (None, other),
        };
        if let Some(Extra(label, text)) = before {
            self.push(&[label, "=\"", text, "\","]);
        }
        let model = self.model.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        self.push(&["model_name=\"", &model, "\""]);
        if let Some(Extra(label, text)) = after {
            self.push(&[",", label, "=\"", text, "\""]);
        }
        self.push(&["} ", &python_float(value), "\n"]);
    }

    fn push(&mut self, parts: &[&str]) {
        for part in parts {
            self.out.push_str(part);
        }
    }
}

/// A number as Python's `prometheus_client` writes it: the shortest text that reads back to the same number, with `e+0N`
/// from a million on.
#[must_use]
pub fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = format!("{value:?}");
    if let Some((mantissa, exponent)) = text.split_once('e') {
        // Rust writes 1e-5 and 1e16 where Python writes 1e-05 and 1e+16.
        let (sign, digits) = exponent.strip_prefix('-').map_or(("+", exponent), |digits| ("-", digits));
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    match text.find('.') {
        Some(dot) if value > 0.0 && dot > 6 => {
            let digits = format!("{}.{}{}", &text[..1], &text[1..dot], &text[dot + 1..]);
            format!("{}e+0{}", digits.trim_end_matches(['0', '.']), dot - 1)
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_python_writes_them() {
        for (value, text) in [
            (0.0, "0.0"),
            (31.0, "31.0"),
            (0.808_510_638_297_872_4, "0.8085106382978724"),
            (123_456.0, "123456.0"),
            (1_000_000.0, "1e+06"),
            (4_584_439_808.0, "4.584439808e+09"),
            (1_795_971_434.92, "1.79597143492e+09"),
            (0.001, "0.001"),
            (0.00002, "2e-05"),
            (0.000_025, "2.5e-05"),
            (1e-7, "1e-07"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(python_float(value), text);
        }
    }
}
