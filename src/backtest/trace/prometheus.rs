//! What Prometheus answers to a range query, saved: `GET /api/v1/query_range` with `requests`, `input` and `output` rates.
//!
//! A series is known by its label `kind`, or by the name of its metric (`vllm:request_success_total`,
//! `vllm:prompt_tokens_total`, `vllm:generation_tokens_total`). Series of one kind are summed. Values are rates a second;
//! a time at which one is missing is unknown, not idle.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Trace;
use super::gaps::{self, Filled, Measured};

/// Series of one answer: more are not summed by any query that is meant here.
const MOST_SERIES: usize = 10_000;

/// A point may lie off the grid of steps by so much of a step.
const OFF_GRID: f64 = 0.01;

#[derive(Deserialize)]
struct Answer {
    status: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    data: Data,
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
pub fn read(text: &[u8], most_slots: Option<usize>) -> Result<(Trace, Filled), String> {
    let answer: Answer = serde_json::from_slice(text)
        .map_err(|error| format!("not an answer of /api/v1/query_range: {error}"))?;
    if answer.status != "success" {
        return Err(format!("Prometheus answered an error: {}", answer.error));
    }
    let Data { result_type, result } = answer.data;
    if result_type != "matrix" {
        return Err(format!(
            "the answer is a `{result_type}`: ask /api/v1/query_range, which answers a `matrix`"
        ));
    }
    if result.is_empty() {
        return Err("the answer is empty: no series matches the query in this range".to_owned());
    }
    if result.len() > MOST_SERIES {
        return Err(format!("{} series: sum them in the query, at most {MOST_SERIES}", result.len()));
    }
    let (begins, step) = grid(&result)?;
    let mut points: BTreeMap<i64, Measured> = BTreeMap::new();
    for series in &result {
        let kind = kind(&series.metric)?;
        for (at, value) in &series.values {
            let steps = (at - begins) / step;
            if (steps - steps.round()).abs() > OFF_GRID {
                return Err(format!("the time {at} is off the grid of {step} s that begins at {begins}"));
            }
            let rate: f64 = value.parse().map_err(|_| format!("`{value}` at {at} is no number"))?;
            if rate.is_nan() {
                continue;
            }
            let point = points.entry(steps.round() as i64).or_default();
            let sum = match kind {
                Kind::Requests => &mut point.requests,
                Kind::Input => &mut point.input_tokens,
                Kind::Output => &mut point.output_tokens,
            };
            *sum = Some(sum.unwrap_or(0.0) + rate * step);
        }
    }
    gaps::trace(&points, step, most_slots)
}

/// The first time, and the smallest step between two points of a series.
fn grid(result: &[Series]) -> Result<(f64, f64), String> {
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
        let (trace, filled) = read(text.as_bytes(), None).unwrap();
        assert_eq!(filled, Filled { steps: 4, missing: 1, longest_run: 1 });
        assert_eq!(trace.bin_seconds, 60.0);
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
        assert_eq!(read(text.as_bytes(), None).unwrap().0.slots[0].input_tokens, 5.0);
        refused(&matrix(&[named("up")]), "says nothing of what it is");
    }

    #[test]
    fn whatever_is_no_matrix_is_refused_with_a_reason() {
        refused("", "not an answer");
        refused("[1,2]", "not an answer");
        refused(r#"{"status":"error","error":"query timed out"}"#, "query timed out");
        refused(r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#, "query_range");
        refused(&matrix(&[]), "no series matches");
        refused(&matrix(&[series("requests", r#"[5,"1"]"#)]), "one point tells no step");
        refused(&matrix(&[series("requests", r#"[5,"1"],[5,"1"]"#)]), "not after the one before");
        refused(&matrix(&[series("requests", r#"[0,"1"],[60,"x"]"#)]), "`x` at 60 is no number");
        refused(&matrix(&[series("requests", r#"[0,"1"],[60,"-1"]"#)]), "requests of -60");
        refused(&matrix(&[series("requests", r#"[0,"1"],[60,"+Inf"]"#)]), "requests of inf");
        refused(&matrix(&[series("requests", r#"[0,"1"],[60,"1"],[130,"1"]"#)]), "off the grid");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_trace_or_an_error(text in r#"\{"status":"success","data":\{"resultType":"matrix","result":\[.{0,80}\]\}\}"#) {
            drop(read(text.as_bytes(), None));
        }
    }
}
