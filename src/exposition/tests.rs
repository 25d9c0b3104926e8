use proptest::prelude::*;

use super::*;

const RUNNING: usize = 0;
const WAITING: usize = 1;
const TOKENS: usize = 2;
const STEPS: usize = 3;

fn wanted() -> Wanted {
    Wanted::new(&[
        Family::new("vllm:num_requests_running", Shape::Gauge),
        Family::new("vllm:num_requests_waiting", Shape::Gauge),
        Family::new("vllm:prompt_tokens", Shape::Counter),
        Family::new("vllm:iteration_tokens_total", Shape::Histogram),
    ])
}

/// What a walk tells, with one label, in a form that can be compared (NaN included).
fn walk(page: &[u8], walk: Walk) -> Result<(Vec<String>, Option<usize>), ScanError> {
    let wanted = wanted();
    let mut scanner = Scanner::new(page, &wanted, walk);
    let mut told = Vec::new();
    while let Some(event) = scanner.next_event()? {
        told.push(match event {
            Event::Type { family } => format!("type {family}"),
            Event::Sample(sample) => {
                let label = scanner.label("engine").map(|label| String::from_utf8_lossy(label).into_owned());
                format!("{} {:?} {:?} {}", sample.family, sample.part, label, sample.value)
            }
        });
    }
    Ok((told, scanner.last_family()))
}

fn one_sample(line: &str) -> Result<Option<(usize, Part, f64)>, ScanError> {
    let wanted = wanted();
    let page = format!("{line}\n");
    let mut scanner = Scanner::new(page.as_bytes(), &wanted, Walk::Lines);
    Ok(scanner.next_event()?.and_then(|event| match event {
        Event::Sample(sample) => Some((sample.family, sample.part, sample.value)),
        Event::Type { .. } => None,
    }))
}

#[test]
fn a_series_is_matched_by_its_whole_name() {
    for (line, expected) in [
        ("vllm:num_requests_running 1", Some((RUNNING, Part::Value, 1.0))),
        ("vllm:num_requests_waiting{a=\"b\"} 2", Some((WAITING, Part::Value, 2.0))),
        ("vllm_num_requests_waiting 2", Some((WAITING, Part::Value, 2.0))),
        ("vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 3", None),
        ("vllm:num_requests_runnin 1", None),
        ("vllm.num_requests_running 1", None),
        ("vllm:num:requests_running 1", None),
        ("vllm:prompt_tokens_total 5", Some((TOKENS, Part::Value, 5.0))),
        ("vllm:prompt_tokens 5", None),
        ("vllm:prompt_tokens_created 1.79e+09", None),
        ("vllm:prompt_tokens_total_created 1.79e+09", None),
        ("vllm:iteration_tokens_total_bucket{le=\"1.0\"} 6", Some((STEPS, Part::Bucket, 6.0))),
        ("vllm:iteration_tokens_total_sum 7", Some((STEPS, Part::Sum, 7.0))),
        ("vllm:iteration_tokens_total_count 8", Some((STEPS, Part::Count, 8.0))),
        ("vllm:iteration_tokens_total 9", None),
        ("vllm:iteration_tokens_total_created 1.79e+09", None),
    ] {
        assert_eq!(one_sample(line).unwrap(), expected, "{line}");
        let typed = format!("# TYPE vllm:num_requests_running gauge\n{line}");
        let typed_again = format!("# TYPE vllm:iteration_tokens_total histogram\n{line}");
        for page in [typed, typed_again] {
            let wanted = wanted();
            let page = format!("{page}\n");
            let mut scanner = Scanner::new(page.as_bytes(), &wanted, Walk::Families);
            assert!(matches!(scanner.next_event(), Ok(Some(Event::Type { .. }))));
            let found = scanner.next_event().unwrap();
            assert_eq!(found.is_some(), expected.is_some(), "{page}");
        }
    }
}

#[test]
fn labels_may_hold_anything_in_any_order() {
    let wanted = wanted();
    let page =
        br#"vllm:num_requests_running { path = "C:\\dir\"}, x 1\n{" , engine="3",model_name="a,b} c" , } 4
"#;
    let mut scanner = Scanner::new(page, &wanted, Walk::Lines);
    let Some(Event::Sample(sample)) = scanner.next_event().unwrap() else { panic!("no sample") };
    assert_eq!((sample.value, sample.written), (4.0, &b"4"[..]));
    assert_eq!(scanner.label("engine"), Some(&b"3"[..]));
    assert_eq!(scanner.label("model_name"), Some(&b"a,b} c"[..]));
    assert_eq!(unescape(scanner.label("path").unwrap()).unwrap(), "C:\\dir\"}, x 1\n{");
    assert_eq!(scanner.label("model"), None);
    assert_eq!(scanner.next_event(), Ok(None));
}

#[test]
fn names_in_quotes_are_read_as_prometheus_3_writes_them() {
    let page =
        b"# TYPE \"vllm:num_requests_running\" gauge\n{\"vllm:num_requests_running\",engine=\"1\"} 2\n";
    let told = vec!["type 0".to_owned(), "0 Value Some(\"1\") 2".to_owned()];
    assert_eq!(walk(page, Walk::Families), Ok((told.clone(), Some(RUNNING))));
    assert_eq!(walk(page, Walk::Lines), Ok((told, Some(RUNNING))));
    assert_eq!(one_sample("{\"up\",engine=\"1\"} 2"), Ok(None));
}

#[test]
fn values_are_followed_by_a_timestamp_an_exemplar_or_nothing() {
    for line in [
        "vllm:num_requests_running 1",
        "vllm:num_requests_running\t1 ",
        "  vllm:num_requests_running{}  1.0\r",
        "vllm:num_requests_running 1 1795971434920",
        "vllm:num_requests_running 1 1795971434.92",
        "vllm:num_requests_running{a=\"b\"} 1 # {trace_id=\"x y\"} 0.67 1795971434.92",
        "vllm:num_requests_running 1 1795971434.92 # {trace_id=\"x\"} 0.67",
    ] {
        assert_eq!(one_sample(line).unwrap(), Some((RUNNING, Part::Value, 1.0)), "{line:?}");
    }
}

#[test]
fn a_broken_line_of_a_wanted_series_is_an_error_with_its_number() {
    for (line, expected) in [
        ("vllm:num_requests_running", "the value is not a number"),
        ("vllm:num_requests_running one", "the value is not a number"),
        ("vllm:num_requests_running{a=\"b\"}", "the value is not a number"),
        ("vllm:num_requests_running{a=\"b\" 1", "labels without a comma or a closing brace"),
        ("vllm:num_requests_running{a=\"b 1", "a quoted text doesn't end on its line"),
        ("vllm:num_requests_running{a=\"b\\", "a quoted text doesn't end on its line"),
        ("vllm:num_requests_running{a=b} 1", "a label value without quotes"),
        ("vllm:num_requests_running{a} 1", "a label without a value"),
        ("vllm:num_requests_running{=\"b\"} 1", "a label name is missing"),
        ("vllm:num_requests_running 1 then", "what follows the value is no timestamp"),
        ("vllm:num_requests_running 1 2 3", "text after the value"),
        ("vllm:num_requests_running 1\rjunk", "text after the value"),
    ] {
        let page = format!("# HELP x y\n\n{line}\nup 1\n");
        let result = walk(page.as_bytes(), Walk::Lines);
        let Err(ScanError::Malformed { line: number, what }) = result else { panic!("{line}: {result:?}") };
        assert!(number == 3 && what == expected, "{line}: {number}, {what}");
    }
}

#[test]
fn a_counter_named_without_total_betrays_openmetrics() {
    for (page, expected) in [
        ("# TYPE vllm:prompt_tokens counter\nvllm:prompt_tokens_total 1\n", true),
        ("# TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total 1\n", false),
        ("# TYPE vllm:iteration_tokens_total histogram\n", false),
    ] {
        let wanted = wanted();
        let mut scanner = Scanner::new(page.as_bytes(), &wanted, Walk::Families);
        while scanner.next_event().unwrap().is_some() {}
        assert_eq!(scanner.saw_openmetrics_names(), expected, "{page}");
    }
}

#[test]
fn the_family_that_a_page_ends_in_is_known() {
    let running = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\n";
    for (tail, expected) in [
        ("", Some(RUNNING)),
        ("# HELP vllm:x y\n", Some(RUNNING)),
        ("# HELP vllm:x y\n# TYPE vllm:x gauge\n", None),
        ("# TYPE vllm:x gauge\nvllm:x 1\n", None),
        ("# TYPE vllm:num_requests_waiting gauge\n", Some(WAITING)),
    ] {
        let page = format!("{running}{tail}");
        for way in [Walk::Families, Walk::Lines] {
            assert_eq!(walk(page.as_bytes(), way).unwrap().1, expected, "{page}");
        }
    }
    let untyped = b"vllm:num_requests_running 1\nup 1\n";
    assert_eq!(walk(untyped, Walk::Lines).unwrap().1, None);
}

#[test]
fn what_is_no_metrics_page_is_named() {
    let not_exposition = |beginning: &str| Err(ScanError::NotExposition(beginning.to_owned()));
    assert_eq!(check_whole(b"", None), Err(ScanError::Empty));
    assert_eq!(check_whole(b" \r\n\n", None), Err(ScanError::Empty));
    assert_eq!(check_whole(b"<html>\n<body>\n", None), not_exposition("<html>"));
    assert_eq!(check_whole(b"{\"error\": 1}\n", None), not_exposition("{\"error\": 1}"));
    assert_eq!(check_whole(b"404 page not found\n", None), not_exposition("404 page not found"));
    assert_eq!(check_whole(b"Internal Server Error", None), not_exposition("Internal Server Error"));
    assert_eq!(check_whole(b"\x1f\x8b\x08\0\n", None), not_exposition("\u{1f}\u{fffd}\u{8}\0"));
    assert_eq!(check_whole(&[b'x'; 100], None), not_exposition(&"x".repeat(40)));
}

#[test]
fn a_whole_page_ends_with_a_line_feed_or_with_the_mark_of_openmetrics() {
    const OPENMETRICS: Option<&str> = Some("application/openmetrics-text; version=1.0.0");
    let classic = Some("text/plain; version=1.0.0");
    for (page, content_type, expected) in [
        ("up 1\n", None, Ok(Format::Classic)),
        ("up 1\n", classic, Ok(Format::Classic)),
        ("up 1", classic, Err(ScanError::NotExposition("up 1".to_owned()))),
        ("# HELP", None, Err(ScanError::Truncated)),
        ("up 1\nup{a=\"b\"} 1", classic, Err(ScanError::Truncated)),
        ("up 1\n", OPENMETRICS, Err(ScanError::Truncated)),
        ("up 1\n# EO", OPENMETRICS, Err(ScanError::Truncated)),
        ("up 1\n# EOF", OPENMETRICS, Ok(Format::OpenMetrics)),
        ("up 1\n# EOF\n", OPENMETRICS, Ok(Format::OpenMetrics)),
        ("up 1\n# EOF\n", None, Ok(Format::OpenMetrics)),
        ("# HELP up is # EOF\n", None, Ok(Format::Classic)),
        ("# EOF\n", OPENMETRICS, Ok(Format::OpenMetrics)),
    ] {
        assert_eq!(check_whole(page.as_bytes(), content_type), expected, "{page:?}");
    }
}

/// A page whose families stand together, and the samples that a reader must find on it.
fn grouped_page(typed: bool) -> impl Strategy<Value = (String, Vec<String>)> {
    let names = prop::sample::select(vec![
        ("vllm:num_requests_running", "", Some((RUNNING, Part::Value))),
        ("vllm:num_requests_waiting", "", Some((WAITING, Part::Value))),
        ("vllm:num_requests_waiting_by_reason", "", None),
        ("vllm:prompt_tokens", "_total", Some((TOKENS, Part::Value))),
        ("vllm:prompt_tokens_created", "", None),
        ("vllm:iteration_tokens_total", "_bucket", Some((STEPS, Part::Bucket))),
        ("vllm:iteration_tokens_total", "_sum", Some((STEPS, Part::Sum))),
        ("process_open_fds", "", None),
    ]);
    let value = prop::sample::select(vec!["0", "0.0", "1.79e+09", "+Inf", "-Inf", "NaN", "12", "0.5"]);
    let label = "[ -!#-\\[\\]-~]{0,6}(\\\\\\\\|\\\\\"|\\\\n)?[},= ]{0,3}";
    let tail = prop::sample::select(vec!["", " 1795971434", " # {a=\"}\"} 1 2"]);
    let sample = (value, label, tail, any::<bool>());
    let family = (names, prop::collection::vec(sample, 0..4), any::<bool>(), any::<bool>());
    prop::collection::vec(family, 0..8).prop_map(move |families| {
        let mut lines = Vec::new();
        let mut expected = Vec::new();
        for ((name, suffix, found), samples, help, carriage_return) in families {
            let end = if carriage_return { "\r\n" } else { "\n" };
            if help {
                lines.push(format!("# HELP {name} about vllm:num_requests_running 1{end}"));
            }
            if typed {
                lines.push(format!("# TYPE {name} unknown{end}"));
                expected.extend(found.map(|(family, _)| format!("type {family}")));
            }
            for (value, label, tail, underscore) in samples {
                let name = if underscore { name.replace(':', "_") } else { name.to_owned() };
                lines.push(format!("{name}{suffix}{{a=\"{label}\",engine=\"{label}\"}} {value}{tail}{end}"));
                let number = parse_number(value.as_bytes()).unwrap();
                expected.extend(
                    found.map(|(family, part)| format!("{family} {part:?} {:?} {number}", Some(&label))),
                );
            }
        }
        (lines.concat(), expected)
    })
}

proptest! {
    #[test]
    fn both_walks_agree_on_pages_whose_families_stand_together((page, expected) in grouped_page(true)) {
        let by_families = walk(page.as_bytes(), Walk::Families).unwrap();
        prop_assert_eq!(&by_families.0, &expected);
        prop_assert_eq!(walk(page.as_bytes(), Walk::Lines).unwrap(), by_families);
    }

    #[test]
    fn pages_without_type_lines_are_read_line_by_line((page, expected) in grouped_page(false)) {
        let wanted = wanted();
        prop_assert_eq!(Scanner::suitable(page.as_bytes(), &wanted).walk(), Walk::Lines);
        prop_assert_eq!(walk(page.as_bytes(), Walk::Lines).unwrap().0, expected);
    }

    #[test]
    fn no_bytes_make_it_panic(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "vllm:num_requests_running", "vllm:iteration_tokens_total_bucket", "# TYPE ", "# ", "{", "}", "\"", "\\",
            "=", ",", " ", "\t", "\r", "\n", "le", "1", "1.5e", "NaN", "\u{fe0f}", "\0", "# EOF",
        ]), 0..40),
        cut in 0..4_usize,
    ) {
        let page = pieces.concat();
        let page = &page.as_bytes()[..page.len().saturating_sub(cut)];
        for way in [Walk::Families, Walk::Lines] {
            drop(walk(page, way));
        }
        drop(check_whole(page, None));
    }

    #[test]
    fn unescaping_undoes_escaping(text in "\\PC*") {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        prop_assert_eq!(unescape(escaped.as_bytes()).unwrap(), text);
    }
}
