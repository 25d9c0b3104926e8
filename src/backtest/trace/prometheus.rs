//! What Prometheus answers to a range query (`GET /api/v1/query_range`) with `requests`, `input` and `output` rates: saved
//! in a file, or asked for a chunk at a time.
//!
//! A series is known by its label `kind`, or by the name of its metric (`vllm:request_success_total`,
//! `vllm:prompt_tokens_total`, `vllm:generation_tokens_total`). Series of one kind are summed. Values are rates a second;
//! a time at which one is missing is unknown, not idle.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::gaps::{self, Measured, Recovered};

mod range;

pub use range::{Chunk, RangeQuery, of_model};

/// Series of one answer: more are not summed by any query that is meant here.
const MOST_SERIES: usize = 10_000;

/// A point may lie off the grid of steps by so much of a step.
const OFF_GRID: f64 = 0.01;

/// Letters of an error or a warning of Prometheus that are passed on: it repeats the query.
const MOST_LETTERS: usize = 500;

/// Warnings of one answer that are passed on.
const MOST_WARNINGS: usize = 5;

#[derive(Deserialize)]
struct Answer {
    status: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    data: Data,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Data {
    result_type: String,
    result: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    metric: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<(f64, String)>,
    #[serde(default)]
    histograms: Option<IgnoredAny>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Requests,
    Input,
    Output,
}

/// Reads a saved answer.
///
/// # Errors
/// What is wrong with it, and what to ask instead.
pub fn read(text: &[u8], most_slots: Option<usize>) -> Result<Recovered, String> {
    let answer = Answer::read(text)?;
    let (begins, step) = grid(&answer.data.result)?;
    let mut points = Points::new(begins, step);
    points.take(&answer.data.result)?;
    points.recovered(most_slots)
}

/// What is wrong, of an answer whose status says that something is; None where it is no answer of Prometheus.
#[must_use]
pub fn refusal(text: &[u8]) -> Option<String> {
    let answer: Answer = serde_json::from_slice(text).ok()?;
    (answer.status == "error").then(|| crate::units::shortened(&answer.error, MOST_LETTERS))
}

impl Answer {
    fn read(text: &[u8]) -> Result<Self, String> {
        let answer: Self = serde_json::from_slice(text)
            .map_err(|error| format!("not an answer of /api/v1/query_range: {error}"))?;
        if answer.status != "success" {
            let told = crate::units::shortened(&answer.error, MOST_LETTERS);
            return Err(format!("Prometheus answered an error: {told}"));
        }
        if answer.data.result_type != "matrix" {
            return Err(format!(
                "the answer is a `{}`: ask /api/v1/query_range, which answers a `matrix`",
                crate::units::shortened(&answer.data.result_type, MOST_LETTERS)
            ));
        }
        Ok(answer)
    }
}

/// The points of one answer or of several on one grid of times.
#[derive(Clone, Debug)]
pub struct Points {
    begins: f64,
    step: f64,
    series: usize,
    /// The first and the last step that were asked for, as far as is known.
    asked: Option<(i64, i64)>,
    steps: BTreeMap<i64, Measured>,
}

impl Points {
    /// None yet; the grid begins at this time, seconds since 1970, and has a point every `step` seconds.
    #[must_use]
    pub fn new(begins: f64, step: f64) -> Self {
        Self { begins, step, series: 0, asked: None, steps: BTreeMap::new() }
    }

    /// The answer to one chunk of a query, which may hold nothing. What Prometheus warns of.
    ///
    /// # Errors
    /// What is wrong with it; a point outside of the chunk is, too.
    pub fn chunk(&mut self, chunk: Chunk, text: &[u8]) -> Result<Vec<String>, String> {
        let answer = Answer::read(text)?;
        let asked = chunk.begins as f64..=chunk.ends as f64;
        let mut times = answer.data.result.iter().flat_map(|series| series.values.iter().map(|(at, _)| *at));
        if let Some(at) = times.find(|at| !asked.contains(at)) {
            return Err(format!("the answer has the time {at}, which wasn't asked for"));
        }
        self.take(&answer.data.result)?;
        self.ask(chunk.begins as f64);
        self.ask(chunk.ends as f64);
        let shortened = |told: &String| crate::units::shortened(told, MOST_LETTERS);
        Ok(answer.warnings.iter().take(MOST_WARNINGS).map(shortened).collect())
    }

    fn take(&mut self, result: &[Series]) -> Result<(), String> {
        self.series = self.series.max(result.len());
        if result.len() > MOST_SERIES {
            return Err(format!("{} series: sum them in the query, at most {MOST_SERIES}", result.len()));
        }
        for series in result {
            let kind = kind(&series.metric)?;
            if series.histograms.is_some() {
                return Err("the series are histograms: ask for a rate of their counts".to_owned());
            }
            for (at, value) in &series.values {
                self.note(kind, *at, value)?;
            }
        }
        Ok(())
    }

    fn ask(&mut self, at: f64) {
        let step = ((at - self.begins) / self.step + OFF_GRID).floor() as i64;
        let (first, last) = self.asked.unwrap_or((step, step));
        self.asked = Some((first.min(step), last.max(step)));
    }

    fn note(&mut self, kind: Kind, at: f64, value: &str) -> Result<(), String> {
        let (begins, step) = (self.begins, self.step);
        let steps = (at - begins) / step;
        if (steps - steps.round()).abs() > OFF_GRID {
            return Err(format!("the time {at} is off the grid of {step} s that begins at {begins}"));
        }
        self.ask(at);
        let rate: f64 = value.parse().map_err(|_| format!("`{value}` at {at} is no number"))?;
        if rate.is_nan() {
            return Ok(());
        }
        if rate < 0.0 || rate.is_infinite() {
            let told = crate::units::shortened(value, MOST_LETTERS);
            return Err(format!("`{told}` at {at} is no rate: 0 or more a second"));
        }
        let point = self.steps.entry(steps.round() as i64).or_default();
        let sum = match kind {
            Kind::Requests => &mut point.requests,
            Kind::Input => &mut point.input_tokens,
            Kind::Output => &mut point.output_tokens,
        };
        *sum = Some(sum.unwrap_or(0.0) + rate * step);
        Ok(())
    }

    /// All of them as a trace.
    ///
    /// # Errors
    /// When there are none, or too few.
    pub fn recovered(self, most_slots: Option<usize>) -> Result<Recovered, String> {
        if self.series == 0 {
            return Err("the answer is empty: no series matches the query in this range".to_owned());
        }
        // A rate at a time is the mean of the step before it.
        gaps::recovered(&self.steps, self.asked, self.begins - self.step, self.step, most_slots)
    }
}

/// The first time, and the smallest step between two points of a series.
fn grid(result: &[Series]) -> Result<(f64, f64), String> {
    if result.is_empty() {
        return Err("the answer is empty: no series matches the query in this range".to_owned());
    }
    let times = || result.iter().flat_map(|series| series.values.iter().map(|(at, _)| *at));
    if times().any(|at| !at.is_finite()) {
        return Err("a time is no number".to_owned());
    }
    let begins = times().fold(f64::INFINITY, f64::min);
    let mut step = f64::INFINITY;
    for series in result {
        for pair in series.values.windows(2) {
            let between = pair[1].0 - pair[0].0;
            if between <= 0.0 {
                return Err(format!("the time {} is not after the one before it", pair[1].0));
            }
            step = step.min(between);
        }
    }
    if !step.is_finite() {
        return Err("one point tells no step: ask for a range of several".to_owned());
    }
    Ok((begins, step))
}

fn kind(metric: &BTreeMap<String, String>) -> Result<Kind, String> {
    let name = metric.get("__name__").map_or("", String::as_str);
    let known = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match metric.get("kind").map(String::as_str) {
        Some("requests") => Ok(Kind::Requests),
        Some("input") => Ok(Kind::Input),
        Some("output") => Ok(Kind::Output),
        _ if known(&["request_success", "request_total"]) => Ok(Kind::Requests),
        _ if known(&["prompt_tokens"]) => Ok(Kind::Input),
        _ if known(&["generation_tokens"]) => Ok(Kind::Output),
        _ => Err(format!(
            "the series {metric:?} says nothing of what it is: give it a label `kind` of requests, input or output"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::gaps::Filled;
    use super::*;

    fn series(kind: &str, values: &str) -> String {
        format!("{{\"metric\":{{\"kind\":\"{kind}\"}},\"values\":[{values}]}}")
    }

    fn matrix(series: &[String]) -> String {
        format!(
            "{{\"status\":\"success\",\"data\":{{\"resultType\":\"matrix\",\"result\":[{}]}}}}",
            series.join(",")
        )
    }

    #[track_caller]
    fn refused(text: &str, words: &str) {
        let told = read(text.as_bytes(), None).unwrap_err();
        assert!(told.contains(words), "{told}");
    }

    #[test]
    fn rates_become_counts_and_a_missing_point_is_no_zero() {
        let text = matrix(&[
            series("requests", r#"[1700000000,"2"],[1700000060,"3"],[1700000120,"NaN"],[1700000180,"4"]"#),
            series("input", r#"[1700000000,"100"],[1700000060,"150"],[1700000120,"150"],[1700000180,"200"]"#),
            series("output", r#"[1700000000,"10"],[1700000060,"5"],[1700000180,"20"]"#),
            series("output", r#"[1700000000,"0"],[1700000060,"10"]"#),
        ]);
        let Recovered { trace, filled, begins_seconds, .. } = read(text.as_bytes(), None).unwrap();
        assert_eq!(filled, Filled { steps: 4, missing: 1, longest_run: 1 });
        assert_eq!((trace.bin_seconds, begins_seconds), (60.0, 1_699_999_940.0));
        let slot = |n: usize| trace.slots[n * 12];
        assert!((slot(0).requests - 10.0).abs() < 1e-9, "2 a second for 5 s");
        assert!((slot(1).output_tokens - 75.0).abs() < 1e-9, "two series are summed");
        assert!((slot(2).requests - 15.0).abs() < 1e-9, "as it was before");
        assert!((slot(3).input_tokens - 1000.0).abs() < 1e-9);
    }

    #[test]
    fn series_are_known_by_the_names_of_vllm_s_metrics_too() {
        let named = |name: &str| {
            format!("{{\"metric\":{{\"__name__\":\"{name}\"}},\"values\":[[0,\"1\"],[15,\"1\"]]}}")
        };
        let text = matrix(&[named("vllm:request_success_total"), named("vllm:prompt_tokens_total")]);
        assert_eq!(read(text.as_bytes(), None).unwrap().trace.slots[0].input_tokens, 5.0);
        refused(&matrix(&[named("up")]), "says nothing of what it is");
    }

    #[test]
    fn whatever_is_no_matrix_is_refused_with_a_reason() {
        refused("", "not an answer");
        refused("[1,2]", "not an answer");
        refused(r#"{"status":"error","error":"query timed out"}"#, "query timed out");
        refused(r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#, "query_range");
        refused(&matrix(&[]), "no series matches");
        let histogram = r#"{"metric":{"kind":"requests"},"values":[[0,"1"],[60,"1"]],"histograms":[[0,{}]]}"#;
        refused(&matrix(&[histogram.to_owned()]), "the series are histograms");
        refused(&matrix(&[series("requests", r#"[5,"1"]"#)]), "one point tells no step");
        refused(&matrix(&[series("requests", r#"[5,"1"],[5,"1"]"#)]), "not after the one before");
        refused(&matrix(&[series("requests", r#"[0,"1"],[60,"x"]"#)]), "`x` at 60 is no number");
        refused(&matrix(&[series("requests", r#"[0,"1"],[60,"-1"]"#)]), "`-1` at 60 is no rate");
        refused(&matrix(&[series("requests", r#"[0,"1"],[60,"+Inf"]"#)]), "`+Inf` at 60 is no rate");
        refused(&matrix(&[series("requests", r#"[0,"1"],[60,"1"],[130,"1"]"#)]), "off the grid");
    }

    #[test]
    fn chunks_are_one_trace_and_one_that_holds_nothing_is_a_gap() {
        let chunk = |begins, ends| Chunk { begins, ends };
        let mut points = Points::new(60.0, 60.0);
        let of = |values: &str| matrix(&[series("requests", values)]);
        points.chunk(chunk(60, 180), of(r#"[60,"1"],[120,"2"],[180,"3"]"#).as_bytes()).unwrap();
        points.chunk(chunk(240, 300), matrix(&[]).as_bytes()).unwrap();
        points.chunk(chunk(360, 360), of(r#"[360,"6"]"#).as_bytes()).unwrap();
        let outside = points.clone().chunk(chunk(420, 480), of(r#"[360,"6"]"#).as_bytes()).unwrap_err();
        assert!(outside.contains("time 360, which wasn't asked for"), "{outside}");
        let recovered = points.recovered(None).unwrap();
        assert_eq!(recovered.filled, Filled { steps: 6, missing: 2, longest_run: 2 });
        assert!((recovered.trace.slots[3 * 12].requests - 15.0).abs() < 1e-9, "as it was before");
        assert!(Points::new(0.0, 60.0).recovered(None).unwrap_err().contains("no series matches"));
    }

    #[test]
    fn what_prometheus_warns_of_and_refuses_is_passed_on_and_bounded() {
        let warned = format!(
            r#"{{"status":"success","data":{{"resultType":"matrix","result":[]}},"warnings":["store is gone","{}"]}}"#,
            "x".repeat(5000)
        );
        let told = Points::new(0.0, 60.0).chunk(Chunk { begins: 0, ends: 60 }, warned.as_bytes()).unwrap();
        assert!(told.len() == 2 && told[0] == "store is gone" && told[1].len() < 600, "{told:?}");
        let refused = r#"{"status":"error","errorType":"execution","error":"query processing would load too many samples"}"#;
        assert!(refusal(refused.as_bytes()).unwrap().contains("too many samples"));
        assert_eq!(refusal(b"<html>bad gateway</html>"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_trace_or_an_error(text in r#"\{"status":"success","data":\{"resultType":"matrix","result":\[.{0,80}\]\}\}"#) {
            drop(read(text.as_bytes(), None));
        }
    }
}
