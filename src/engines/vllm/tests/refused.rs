//! Pages and numbers that are refused.

use super::*;
use super::{busy, page, read, why};

fn impossible(name: &str, value: &str) -> Result<EnginePage, PageError> {
    Err(PageError::Impossible { name: name.to_owned(), value: value.to_owned() })
}

#[test]
fn labels_that_are_not_utf8_are_refused_with_their_line() {
    for (label, what) in [
        ("model_name=\"m", "a model_name that is not UTF-8"),
        ("engine=\"0", "an engine label that is not UTF-8"),
    ] {
        let text = busy(&[]).into_bytes();
        let at = text.windows(label.len()).position(|window| window == label.as_bytes()).unwrap();
        let mut broken = text.clone();
        broken[at + label.len() - 1] = 0xff;
        assert_eq!(read_page(&broken, None, None), Err(PageError::Malformed { line: 2, what }));
    }
}

#[test]
fn megabytes_of_garbage_are_an_error() {
    let size = 32 << 20;
    for (garbage, expected) in [
        (vec![0; size], "not_exposition"),
        (b"<html>".repeat(size / 6), "not_exposition"),
        (b"#".repeat(size), "truncated"),
        (b"# HELP vllm:num_requests_running\n".repeat(size / 33), "no_engine_series"),
        (b"# TYPE vllm:num_requests_running gauge\n".repeat(size / 39), "no_engine_series"),
        (b"up 1\n".repeat(size / 5), "no_engine_series"),
        ([&b"up 1\n"[..], &b"{\"".repeat(size / 2), b"\n"].concat(), "malformed"),
        ([&b"up 1\nvllm:num_requests_running"[..], &vec![b'{'; size], b"\n"].concat(), "malformed"),
    ] {
        assert_eq!(read_page(&garbage, None, None).unwrap_err().cause(), expected, "{:?}", &garbage[..20]);
    }
}

#[test]
fn several_models_need_a_name() {
    let both = page(&[
        "# TYPE vllm:num_requests_running gauge",
        r#"vllm:num_requests_running{engine="0",model_name="a\"x"} 3.0"#,
        r#"vllm:num_requests_running{engine="0",model_name="b"} 5.0"#,
        "# TYPE vllm:admission_rejections_total counter",
        r#"vllm:admission_rejections_total{model_name="b",reason="max_num_queued_reqs"} 7.0"#,
        "# TYPE vllm:cache_config_info gauge",
        r#"vllm:cache_config_info{engine="0",kv_cache_size_tokens="1536"} 1.0"#,
    ]);
    assert_eq!(read(&both), Err(PageError::SeveralModels("a\"x, b".to_owned())));
    let running = |model| {
        let page = read_page(both.as_bytes(), None, Some(model)).unwrap();
        (page.engines[0].running, page.rejected_total, page.kv_tokens_per_engine)
    };
    assert_eq!(running("a\"x"), (Some(3.0), None, None));
    assert_eq!(running("b"), (Some(5.0), Some(7.0), None));
    let error = read_page(both.as_bytes(), None, Some("c"));
    assert_eq!(error, Err(PageError::NoSuchModel { wanted: "c".to_owned(), present: "a\"x, b".to_owned() }));
}

#[test]
fn a_series_that_stands_twice_is_refused_with_its_line() {
    let twice = [
        (r#"vllm:num_requests_running{engine="0",model_name="m",pod="b"} 4.0"#, "vllm:num_requests_running"),
        (r#"vllm:num_requests_waiting{model_name="m"} 1.0"#, "vllm:num_requests_waiting"),
    ];
    for (line, name) in twice {
        assert_eq!(read(&busy(&[line])), Err(PageError::Duplicate { line: 5, name }), "{line}");
    }
    for (name, label) in
        [("vllm:request_success", "finished_reason"), ("vllm:admission_rejections", "reason")]
    {
        let line = format!("{name}_total{{engine=\"0\",{label}=\"stop\",model_name=\"m\"}} 4.0");
        let type_line = format!("# TYPE {name}_total counter");
        let doubled = busy(&[&type_line, &line, &line]);
        assert_eq!(read(&doubled), Err(PageError::Duplicate { line: 7, name }));
    }
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    for value in ["-1", "NaN", "+Inf", "-Inf", "1e999"] {
        let text = busy(&[]).replace("3.0", value);
        assert_eq!(read(&text), impossible("vllm:num_requests_running", value));
    }
    let kv = |value: &str| {
        read(&busy(&[
            "# TYPE vllm:kv_cache_usage_perc gauge",
            &format!("vllm:kv_cache_usage_perc{{engine=\"0\",model_name=\"m\"}} {value}"),
        ]))
    };
    assert_eq!(kv("1.01"), impossible("vllm:kv_cache_usage_perc", "1.01"));
    assert_eq!(kv("1.0000000000000002").unwrap().engines[0].kv_usage, Some(1.0));
    assert_eq!(kv("-0.0").unwrap().engines[0].kv_usage.map(f64::to_bits), Some(0));
    let counter = "# TYPE vllm:generation_tokens_total counter\n\
        vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} NaN";
    assert_eq!(read(&busy(&[counter])), impossible("vllm:generation_tokens", "NaN"));
}

/// A histogram of queue times with these rows: (series and bound, value).
fn queue_time(rows: &[(&str, &str)]) -> Result<Option<Histogram>, PageError> {
    let mut lines = vec!["# TYPE vllm:request_queue_time_seconds histogram".to_owned()];
    for (series, value) in rows {
        let (suffix, bound) = series.split_once(' ').unwrap_or((series, ""));
        let bound = if bound.is_empty() { String::new() } else { format!(",le=\"{bound}\"") };
        lines.push(format!(
            "vllm:request_queue_time_seconds_{suffix}{{engine=\"0\"{bound},model_name=\"m\"}} {value}"
        ));
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    read(&busy(&lines)).map(|mut page| page.engines[0].queue_time.take())
}

#[test]
fn a_histogram_is_read_whole_in_any_order_or_not_at_all() {
    let whole =
        [("sum", "4.5"), ("bucket 2.0", "3"), ("bucket 1", "1"), ("bucket +Inf", "4.0"), ("count", "4")];
    let expected = Histogram { bounds: vec![1.0, 2.0], cumulative: vec![1.0, 3.0], count: 4.0, sum: 4.5 };
    assert_eq!(queue_time(&whole), Ok(Some(expected)));
    for missing in [0, 3, 4] {
        let mut rows = whole.to_vec();
        rows.remove(missing);
        assert_eq!(queue_time(&rows), Ok(None), "without {:?}", whole[missing]);
    }
}

#[test]
fn a_histogram_that_contradicts_itself_is_refused() {
    let refused = |rows: &[(&str, &str)]| queue_time(rows).unwrap_err().to_string();
    let sound = [("bucket 1", "1"), ("bucket 2", "3"), ("bucket +Inf", "4"), ("sum", "9"), ("count", "4")];
    let with = |place: usize, row: (&'static str, &'static str)| {
        let mut rows = sound.to_vec();
        rows[place] = row;
        refused(&rows)
    };
    assert!(with(4, ("count", "5")).contains("_count (other than its bucket +Inf) has the value 5"));
    assert!(with(1, ("bucket 2", "0")).contains("fewer than in the bucket before"));
    assert!(with(2, ("bucket +Inf", "2")).contains("fewer than in the bucket before"));
    assert!(with(1, ("bucket 1", "1")).contains("the same bound twice"));
    assert!(with(0, ("bucket one", "1")).contains("without a number in its label le"));
    assert!(with(0, ("bucket", "1")).contains("without a number in its label le"));
    assert!(with(3, ("sum", "NaN")).contains("has the value NaN"));
    assert!(with(3, ("count", "4")).contains("stands twice"));
}

#[test]
fn a_router_that_reexports_the_names_is_not_an_engine() {
    let router = page(&[
        "# TYPE vllm:num_requests_running gauge",
        r#"vllm:num_requests_running{server="http://10.0.0.1:8000"} 3.0"#,
        "# TYPE vllm:num_requests_waiting gauge",
    ]);
    assert_eq!(read(&router), Err(PageError::NoEngineSeries));
    let mixed = busy(&[]).replace(r#"waiting{engine="0",model_name="m"}"#, r#"waiting{server="a"}"#);
    let read = read(&mixed).unwrap();
    assert_eq!(read.engines[0].waiting, None, "rows of another kind don't mean zero");
    assert!(why(&read, "vllm:num_requests_waiting").is_some());
}

#[test]
fn floods_end_at_a_bound() {
    let rows = |count: usize, row: &dyn Fn(usize) -> String| {
        let rows: Vec<String> = (0..count).map(row).collect();
        busy(&[&rows.join("\n")])
    };
    for (flood, what) in [
        (
            rows(2000, &|n| format!("vllm:num_requests_running{{engine=\"x{n}\",model_name=\"m\"}} 1")),
            "more than 1024 engines",
        ),
        (
            rows(100, &|n| {
                format!(
                    "vllm:request_success_total{{engine=\"0\",finished_reason=\"{n}\",model_name=\"m\"}} 1"
                )
            }),
            "more than 64 reasons",
        ),
        (
            rows(600, &|n| {
                format!("vllm:iteration_tokens_total_bucket{{engine=\"0\",le=\"{n}\",model_name=\"m\"}} 1")
            }),
            "more than 512 buckets",
        ),
        (
            rows(2000, &|n| format!("vllm:cache_config_info{{engine=\"{n}\"}} 1")),
            "more than 1024 rows of cache_config_info",
        ),
    ] {
        let error = read(&flood).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    let labels: Vec<String> = (0..600).map(|n| format!("l{n}=\"\"")).collect();
    let error = read(&busy(&[&format!("vllm:num_requests_running{{{}}} 1", labels.join(","))])).unwrap_err();
    assert!(error.to_string().contains("more than 512 labels"), "{error}");
}

#[test]
fn every_cause_has_a_name_of_its_own() {
    let causes = [
        PageError::Empty,
        PageError::NotExposition(String::new()),
        PageError::Malformed { line: 1, what: "" },
        PageError::Truncated,
        PageError::NoEngineSeries,
        PageError::SeveralModels(String::new()),
        PageError::NoSuchModel { wanted: String::new(), present: String::new() },
        PageError::Duplicate { line: 1, name: "" },
        PageError::Impossible { name: String::new(), value: String::new() },
    ]
    .map(|error| error.cause());
    let distinct: std::collections::BTreeSet<&str> = causes.into_iter().collect();
    assert_eq!(distinct.len(), causes.len());
}
