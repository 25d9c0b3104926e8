//! A range query, in chunks that Prometheus answers. Pure.

use std::time::Duration;

use chrono::{DateTime, Utc};

/// Points a series that are asked for at a time. Prometheus refuses a range of more than 11,000 steps (`queryRange` in its
/// `web/api/v1/api.go`).
const POINTS_OF_A_CHUNK: i64 = 11_000;

/// Points of a whole query: 400 days in steps of 9 s, or 46 days of seconds. A slip of the step would ask for days.
const MOST_POINTS: i64 = 4_000_000;

/// Seconds of a range: those of any trace.
const LONGEST_SECONDS: i64 = 400 * 86_400;

/// Steps, seconds: Prometheus scrapes no faster, and a bin is no longer.
const STEPS: std::ops::RangeInclusive<u64> = 1..=86_400;

/// Letters of a query: it goes into a URL.
const MOST_LETTERS: usize = 8_000;

/// The shortest window of a rate: four scrapes of 15 s.
const SHORTEST_WINDOW: Duration = Duration::from_secs(60);

/// A range query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeQuery {
    query: String,
    /// Seconds since 1970.
    begins: i64,
    ends: i64,
    step: i64,
}

/// A part of a range: both ends are asked for, seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The first point.
    pub begins: i64,
    /// The last one.
    pub ends: i64,
}

impl RangeQuery {
    /// From `from` on and before `to`, a point every `step`.
    ///
    /// # Errors
    /// What is wrong, and what to write instead.
    pub fn new(query: &str, from: DateTime<Utc>, to: DateTime<Utc>, step: Duration) -> Result<Self, String> {
        if query.trim().is_empty() {
            return Err("the query is empty".to_owned());
        }
        if query.len() > MOST_LETTERS {
            return Err(format!("the query is longer than {MOST_LETTERS} letters: make it a recording rule"));
        }
        if step.subsec_nanos() != 0 || !STEPS.contains(&step.as_secs()) {
            return Err("the step: whole seconds, from 1s to 1d".to_owned());
        }
        let (begins, ends) = (from.timestamp(), to.timestamp());
        let step = step.as_secs().cast_signed();
        if ends <= begins {
            return Err("the range ends before it begins".to_owned());
        }
        if ends - begins < 2 * step {
            return Err("the range is shorter than two steps".to_owned());
        }
        if ends - begins > LONGEST_SECONDS {
            return Err("the range is longer than 400 days".to_owned());
        }
        if (ends - begins) / step > MOST_POINTS {
            return Err(format!("more than {MOST_POINTS} points: ask for a longer step or a shorter range"));
        }
        Ok(Self { query: query.to_owned(), begins, ends, step })
    }

    /// What is asked.
    #[must_use]
    pub fn query(&self) -> &str {
        &self.query
    }

    /// The time of the first point, seconds since 1970.
    #[must_use]
    pub fn begins(&self) -> i64 {
        self.begins
    }

    /// Between two points, seconds.
    #[must_use]
    pub fn step(&self) -> i64 {
        self.step
    }

    /// What to ask one after the other for the first `seconds` of it: no point twice, and none left out.
    #[must_use]
    pub fn chunks(&self, seconds: Option<f64>) -> impl ExactSizeIterator<Item = Chunk> + use<> {
        let wanted = seconds.map_or(i64::MAX, |seconds| seconds.ceil() as i64);
        let (begins, step) = (self.begins, self.step);
        // A point tells of the step that begins with it.
        let points = ((self.ends - begins).min(wanted).max(1) + step - 1) / step;
        let chunks = (points + POINTS_OF_A_CHUNK - 1) / POINTS_OF_A_CHUNK;
        (0..chunks as usize).map(move |chunk| {
            let first = chunk.cast_signed() as i64 * POINTS_OF_A_CHUNK;
            let last = (first + POINTS_OF_A_CHUNK).min(points) - 1;
            Chunk { begins: begins + first * step, ends: begins + last * step }
        })
    }
}

/// The query for what a model of vLLM was asked for: rates over a step, and over a minute at least.
///
/// # Errors
/// When the name can't stand in a query.
pub fn of_model(model: &str, step: Duration) -> Result<String, String> {
    if model.is_empty()
        || model.len() > 500
        || model.chars().any(|c| c.is_control() || matches!(c, '"' | '\\'))
    {
        return Err(format!("{model:?} is no name of a model"));
    }
    let window = step.max(SHORTEST_WINDOW).as_secs();
    let rate = |metric: &str, kind: &str| {
        format!(
            r#"label_replace(sum(rate(vllm:{metric}{{model_name="{model}"}}[{window}s])), "kind", "{kind}", "", "")"#
        )
    };
    Ok([
        rate("request_success_total", "requests"),
        rate("prompt_tokens_total", "input"),
        rate("generation_tokens_total", "output"),
    ]
    .join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap()
    }

    fn query(seconds: i64, step: u64) -> RangeQuery {
        RangeQuery::new("up", at(1000), at(1000 + seconds), Duration::from_secs(step)).unwrap()
    }

    #[track_caller]
    fn refused(text: &str, to: i64, step: Duration, words: &str) {
        let told = RangeQuery::new(text, at(1000), at(to), step).unwrap_err();
        assert!(told.contains(words), "{told}");
    }

    #[test]
    fn chunks_hold_each_point_once_and_no_more_than_prometheus_answers() {
        for (seconds, step) in [(120, 60), (60 * 11_000, 60), (60 * 11_001, 60), (2_592_001, 60), (33_000, 1)]
        {
            let chunks: Vec<Chunk> = query(seconds, step).chunks(None).collect();
            let mut points = Vec::new();
            for chunk in &chunks {
                assert!((chunk.ends - chunk.begins) / step.cast_signed() < 11_000, "{chunk:?}");
                points.extend((chunk.begins..=chunk.ends).step_by(step as usize));
            }
            let expected: Vec<i64> = (1000..1000 + seconds).step_by(step as usize).collect();
            assert_eq!(points, expected, "{seconds} s in steps of {step} s");
        }
    }

    #[test]
    fn only_the_beginning_is_asked_for_where_no_more_is_wanted() {
        let month = query(30 * 86_400, 60);
        let chunks: Vec<Chunk> = month.chunks(Some(86_400.0)).collect();
        assert_eq!(chunks, [Chunk { begins: 1000, ends: 1000 + 86_400 - 60 }]);
        assert_eq!(month.chunks(Some(1e18)).len(), month.chunks(None).len());
    }

    #[test]
    fn a_slip_is_refused_with_what_to_write() {
        let minute = Duration::from_secs(60);
        refused(" ", 9000, minute, "the query is empty");
        refused(&"x".repeat(8001), 9000, minute, "longer than 8000");
        refused("up", 9000, Duration::from_millis(1500), "whole seconds");
        refused("up", 9000, Duration::from_secs(90_000), "from 1s to 1d");
        refused("up", 500, minute, "ends before it begins");
        refused("up", 1100, minute, "shorter than two steps");
        refused("up", 1000 + 401 * 86_400, minute, "longer than 400 days");
        refused("up", 9_000_000, Duration::from_secs(1), "more than 4000000 points");
    }

    #[test]
    fn a_model_is_asked_for_by_its_name() {
        let query = of_model("meta/Llama-3.1", Duration::from_secs(300)).unwrap();
        assert!(
            query.contains(r#"rate(vllm:prompt_tokens_total{model_name="meta/Llama-3.1"}[300s])"#),
            "{query}"
        );
        assert!(of_model("m", Duration::from_secs(5)).unwrap().contains("[60s]"));
        assert!(of_model(r#"m"} or up{x=""#, Duration::from_secs(60)).is_err());
    }
}
